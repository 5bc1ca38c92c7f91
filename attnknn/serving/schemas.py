"""What travels between the server and its clients: the bodies of requests and answers.

Every answer about the model carries `version`, the number of the edit that it was computed from.
Ids and labels are JSON integers, strings, numbers or booleans, as the model has them. NaN never
appears; a number that does not exist is null.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, model_validator

MAX_ROWS = 10_000  # of one request; more go into a file
MAX_ENTRIES = 100_000  # named in one request
MAX_TEXT = 100_000  # characters of a string of a row
MAX_LISTED = 1000  # rows or entries of one answer
MAX_INTEGER = 2**63 - 1

Integer = Annotated[int, Field(strict=True, ge=-MAX_INTEGER - 1, le=MAX_INTEGER)]
Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Flag = Annotated[bool, Field(strict=True)]
Text = Annotated[str, StringConstraints(max_length=MAX_TEXT)]
Name = Annotated[str, StringConstraints(max_length=200)]
Id = Integer | Name
Label = Flag | Integer | Number | Name
Count = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Kind = Literal["table", "texts", "images", "vectors"]
Role = Literal["reader", "editor", "admin"]


class Body(BaseModel):
    """The body of a request; unknown fields are errors."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Answer(BaseModel):
    """The body of an answer."""

    model_config = ConfigDict(ser_json_inf_nan="null")


# Rows


class Image(Body):
    """An image as the base64 of a PNG or JPEG file."""

    image: Annotated[str, StringConstraints(max_length=30_000_000)]


Cell = Flag | Integer | Number | Text | None
TableRow = Annotated[dict[Name, Cell], Field(max_length=100_000)]
Row = Text | Annotated[list[Number], Field(max_length=1_000_000)] | Image | TableRow


class Rows(Body):
    """A source of rows: the rows themselves, or a file that was uploaded."""

    rows: list[Row] | None = Field(
        None,
        max_length=MAX_ROWS,
        description="Rows as the model reads them: an object of column and value for a table, a "
        "string for a text, a list of numbers for a vector, or an image.",
    )
    file: Name | None = Field(None, description="Id of an uploaded file, in place of `rows`.")
    rows_of_file: list[Count] | None = Field(
        None, max_length=MAX_ENTRIES, description="Numbers of rows of the file; null for all."
    )

    @model_validator(mode="after")
    def _one_source(self) -> Rows:
        if (self.rows is None) == (self.file is None):
            raise ValueError("give `rows` or `file`, one of the two")
        if self.rows_of_file is not None and self.file is None:
            raise ValueError("`rows_of_file` requires `file`")
        return self


# The model


class ClassCount(Answer):
    """A class and its number of entries."""

    label: Any
    count: int


class Column(Answer):
    """A column of a table, for a form."""

    name: str
    kind: Literal["number", "category", "date", "text"]
    values: list[Any] | None = None
    low: float | None = None
    median: float | None = None
    high: float | None = None


class Version(Answer):
    """The version of the model that answers are computed from."""

    version: int
    model: str = Field(description="Changes when another model takes the place of this one.")
    n_entries: int


class ModelInfo(Version):
    """What the model is, and what the caller may do with it."""

    name: str
    kind: Kind
    n_features: int | None
    classes: list[ClassCount]
    columns: list[Column]
    encoder: str
    attention: str
    n_neighbors: int
    label_noise: float | None
    label_noise_se: float | None
    fit_report: str
    has_subjects: bool
    has_payloads: bool
    id_kind: Literal["int", "str"]
    is_editable: bool
    is_durable: bool = Field(description="Whether edits are kept on the disk.")
    role: Role
    by: str = Field(description="The name that the log gets if an edit names no author.")


# Questions


class Predict(Rows):
    """Ask for labels and probabilities."""

    probabilities: Flag = True


class Prediction(Answer):
    """Label and confidence of a row."""

    label: Any
    confidence: float
    probabilities: list[float] | None = None


class Predictions(Answer):
    """Predictions of all rows, from one state of the model."""

    version: int
    classes: list[Any]
    predictions: list[Prediction]


class Explain(Rows):
    """Ask for the evidence of predictions."""

    n_neighbors: int = Field(10, ge=1, le=MAX_LISTED, description="Neighbors listed per row.")


class Neighbor(Answer):
    """An entry that voted."""

    id: Any
    label: Any
    weight: float
    distance: float | None
    payload: Any = None
    image: bool = Field(description="Whether /api/entries/{id}/image shows a picture of it.")
    p_wrong: float | None = Field(
        None, description="Probability that its label is wrong, if an audit is known already."
    )


class Others(Answer):
    """The neighbors that are not listed."""

    count: int
    weight: float


class PriorPart(Answer):
    """The part of the prior, which votes for each class by its frequency."""

    weight: float


class EvidenceAnswer(Answer):
    """Why a row got its label; weights of neighbors, others and prior sum to one."""

    label: Any
    probability: float
    probabilities: list[float]
    shares: list[float] = Field(description="Vote share of each class.")
    prior: PriorPart
    neighbors: list[Neighbor]
    others: Others
    remark: str


class Explanations(Answer):
    """The evidence of all rows, from one state of the model."""

    version: int
    classes: list[Any]
    evidence: list[EvidenceAnswer]


Coverage = Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)]


class Sets(Rows):
    """Ask for prediction sets."""

    coverage: Coverage = 0.9
    allow_empty: Flag = True


class SetsAnswer(Answer):
    """The plausible classes of each row."""

    version: int
    coverage: float
    sets: list[list[Any]]


class Thresholds(Body):
    """When to abstain."""

    max_risk: Coverage | None = None
    min_confidence: Share | None = None
    novelty_level: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] | None = None


class Decide(Rows, Thresholds):
    """Ask for labels, or reasons to abstain."""


class Decision(Answer):
    """A label, or the reason to abstain."""

    label: Any
    is_answered: bool
    reason: str | None
    confidence: float
    novelty_p: float | None


class DecisionsAnswer(Answer):
    """Decisions for all rows, from one state of the model."""

    version: int
    min_confidence: float | None = Field(description="Confidence below which it abstains.")
    decisions: list[Decision]


class Ask(Rows, Thresholds):
    """Ask everything about a few rows at once."""

    rows: list[Row] | None = Field(None, max_length=100)
    n_neighbors: int = Field(10, ge=1, le=MAX_LISTED)
    coverage: Coverage = 0.9
    allow_empty: Flag = True


class Position(Answer):
    """A place on the map."""

    x: float
    y: float


class AskAnswer(Answer):
    """Everything about one row."""

    evidence: EvidenceAnswer
    set: list[Any]
    decision: Decision
    position: Position | None = None


class AskAnswers(Answer):
    """Everything about the rows, from one state of the model."""

    version: int
    classes: list[Any]
    answers: list[AskAnswer]


class Relabeled(Body):
    """An entry and its new label."""

    id: Id
    label: Label


class AddedRow(Body):
    """A row and its label."""

    row: Row
    label: Label


class WhatIfBody(Rows):
    """Ask how an edit would change predictions."""

    forget: list[Id] = Field(default_factory=list, max_length=MAX_ENTRIES)
    relabel: list[Relabeled] = Field(default_factory=list, max_length=MAX_ENTRIES)
    add: list[AddedRow] = Field(default_factory=list, max_length=MAX_LISTED)
    limit: int = Field(50, ge=1, le=MAX_LISTED, description="Rows listed, most changed first.")


class WhatIfRow(Answer):
    """The prediction for a row before and after the edit."""

    row: int
    before: Prediction
    after: Prediction
    changed: bool


class WhatIfAnswer(Answer):
    """The effect of an edit that was not made."""

    version: int
    classes: list[Any]
    sentence: str
    n_rows: int
    n_changed: int
    rows: list[WhatIfRow]


# Entries


class Entry(Answer):
    """An entry of the memory."""

    id: Any
    label: Any
    group: int | None
    sample_weight: float
    subject: str | None = Field(description="The data subject; only an admin sees it.")
    payload: Any
    image: bool
    added_by_edit: int | None = Field(description="The edit that added it, if known.")


class Entries(Answer):
    """Some entries, in the order of the memory."""

    version: int
    total: int
    entries: list[Entry]


class Lookup(Body):
    """Ids of entries to show; unknown ones are left out."""

    ids: list[Id] = Field(max_length=MAX_LISTED)


class FoundEntries(Answer):
    """The entries that were found."""

    version: int
    entries: list[Entry]


class EntryEvidence(Answer):
    """How the other entries answer for an entry: its leave-one-out prediction."""

    version: int
    classes: list[Any]
    entry: Entry
    evidence: EvidenceAnswer


# Audit


class AuditEntry(Answer):
    """An entry of the audit."""

    id: Any
    label: Any
    suggested: Any
    p_wrong: float | None
    score: float
    p_suggested: float
    value: float
    payload: Any
    image: bool
    contradicted_by: list[Any]
    duplicates: list[Any]
    conflict: bool
    kept: bool = Field(description="Whether a reviewer has kept the label.")


class AuditAnswer(Answer):
    """Entries by how likely their labels are wrong, worst first."""

    version: int
    expected_wrong: float | None = Field(
        description="Expected number of wrong labels among the entries that were not kept."
    )
    label_noise: float | None
    standard_error: float | None = Field(description="Standard error of `label_noise`.")
    gives_probabilities: bool
    no_probabilities: str = Field(
        description="The reason if it gives no probabilities; else empty."
    )
    n_entries: int
    n_kept: int = Field(description="Entries whose label a reviewer has kept.")
    entries: list[AuditEntry]


# Edits


class Edit(Body):
    """What all edits may say."""

    message: Annotated[str, StringConstraints(max_length=500)] | None = None
    by: Annotated[str, StringConstraints(max_length=100)] | None = Field(
        None, description="Who edits, for the log. The name of a token takes precedence."
    )
    expected_version: Count | None = Field(
        None, description="Refuse the edit (409) if its entries changed since this version."
    )


class Relabel(Edit):
    """Change labels of entries."""

    entries: list[Relabeled] = Field(min_length=1, max_length=MAX_ENTRIES)
    new_classes: Flag = Field(False, description="Whether a label may be a new class.")


class Forget(Edit):
    """Remove entries; undo restores them."""

    ids: list[Id] = Field(min_length=1, max_length=MAX_ENTRIES)


class Keep(Edit):
    """Note that the labels of entries are right; the audit then leaves them out."""

    ids: list[Id] = Field(min_length=1, max_length=MAX_ENTRIES)


class Batch(Edit):
    """Relabel, forget and keep in one edit."""

    keep: list[Id] = Field(default_factory=list, max_length=MAX_ENTRIES)
    relabel: list[Relabeled] = Field(default_factory=list, max_length=MAX_ENTRIES)
    forget: list[Id] = Field(default_factory=list, max_length=MAX_ENTRIES)
    new_classes: Flag = False


class Add(Rows, Edit):
    """Add labeled rows."""

    labels: list[Label] | None = Field(
        None, max_length=MAX_ENTRIES, description="One a row; null takes the labels of the file."
    )
    ids: list[Id] | None = Field(None, max_length=MAX_ENTRIES)
    payloads: list[JsonValue] | None = Field(None, max_length=MAX_ENTRIES)
    new_classes: Flag = Field(True, description="Whether a label may be a new class.")


class Undo(Body):
    """Undo the last edit."""

    by: Annotated[str, StringConstraints(max_length=100)] | None = None
    expected_version: Count | None = Field(
        None, description="Refuse (409) if another edit was made since this version."
    )


class Rollback(Undo):
    """Restore an earlier state."""

    to: Count | Name = Field(description="The name of a snapshot, or the number of an edit.")


class Refit(Undo):
    """Fit attention and calibration again."""


class Erase(Body):
    """Erase all entries of a person for good."""

    subject: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    by: Annotated[str, StringConstraints(max_length=100)] | None = None


class Edited(Version):
    """The state after an edit; `version` is its number."""

    message: str
    edit: int | None = Field(description="The number of the edit in the log, if it was logged.")
    is_changed: bool = Field(description="False if the edit changed nothing and was not logged.")


class Added(Edited):
    """The state after rows were added."""

    ids: list[Any]


class Erased(Version):
    """The state after an erasure, and its receipt."""

    receipt: dict[str, Any]
    text: str


class LogLine(Answer):
    """An edit in the log."""

    edit: int
    at: str
    by: str
    message: str
    kind: Literal["create", "edit", "undo", "rollback", "erase", "recover"]
    can_undo: bool = Field(description="Whether it is the edit that undo would take back.")


class Log(Answer):
    """The log, newest edit first."""

    version: int
    total: int
    edits: list[LogLine]


class ChangedState(Answer):
    """Label and weight of an entry."""

    label: Any
    sample_weight: float | None


class LogChange(Answer):
    """What an edit did to an entry."""

    id: Any
    before: ChangedState | None
    after: ChangedState | None
    payload: Any


class LogChanges(Answer):
    """What an edit did to all entries."""

    edit: int
    total: int
    changes: list[LogChange]


class SnapshotLine(Answer):
    """A named state."""

    name: str
    edit: int
    at: str
    by: str


class Snapshots(Answer):
    """All named states."""

    snapshots: list[SnapshotLine]


class TakeSnapshot(Body):
    """Save the current state under a name."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=100)]
    by: Annotated[str, StringConstraints(max_length=100)] | None = None


# Files


class FileInfo(Answer):
    """An uploaded file."""

    id: str
    name: str
    n_rows: int
    columns: list[str]
    label_column: str | None
    has_labels: bool
    expires_in: float = Field(description="Seconds until it is removed unless it is used.")
    preview: list[Any]


class Files(Answer):
    """All uploaded files."""

    files: list[FileInfo]


class FileRows(Answer):
    """Some rows of a file."""

    total: int
    rows: list[Any]
    labels: list[Any] | None


# Evaluation


class Evaluate(Body):
    """Score the model on a labeled file."""

    file: Name


class Score(Answer):
    """A score with its 95 % interval; `low` and `high` may be null."""

    value: float
    low: float | None
    high: float | None


class Bin(Answer):
    """A bin of a reliability diagram."""

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


class RiskPoint(Answer):
    """The error rate among the rows that are at least as confident as the threshold."""

    coverage: float
    risk: float
    threshold: float


class Evaluation(Answer):
    """Scores of the model on a file."""

    version: int
    n_rows: int
    scores: dict[str, Score] = Field(description="accuracy, macro_f1, log_loss, brier, ece")
    classes: list[Any] = Field(description="Of the confusion matrix, rows (true) and columns.")
    confusion: list[list[int]]
    reliability: list[Bin]
    risk_coverage: list[RiskPoint]


class EvaluateRows(Body):
    """Rows of a labeled file, by what was true and what was predicted."""

    file: Name
    true: Label | None = None
    predicted: Label | None = None
    min_confidence: Share | None = None
    max_confidence: Share | None = None
    offset: Count = 0
    limit: int = Field(50, ge=1, le=MAX_LISTED)


class EvaluatedRow(Answer):
    """A row of a labeled file with its prediction."""

    row: int
    content: Any
    label: Any
    predicted: Any
    confidence: float


class EvaluatedRows(Answer):
    """The rows that were asked for, most confident first."""

    version: int
    total: int
    rows: list[EvaluatedRow]


# Label next


class Suggest(Body):
    """Ask which rows of a file to label next."""

    file: Name
    n: int = Field(10, ge=1, le=MAX_LISTED)
    strategy: Literal[
        "default",
        "uncertainty",
        "diversity",
        "margin",
        "entropy",
        "least_confident",
        "novelty",
        "density",
        "random",
    ] = Field("default", description="`uncertainty` is `margin`, `diversity` is `novelty`.")
    labeled: list[Count] = Field(
        default_factory=list, max_length=MAX_ENTRIES, description="Rows that have labels already."
    )


class Reasons(Answer):
    """Why a row is worth a label."""

    text: str
    uncertainty: float = Field(description="One minus the gap of the two best probabilities.")
    novelty: float = Field(description="One minus the novelty p-value.")
    density: float = Field(description="How many other unlabeled rows are similar, about.")


class Suggestion(Answer):
    """A row to label."""

    row: int
    content: Any
    score: float
    reasons: Reasons
    prediction: Prediction


class Suggestions(Answer):
    """Rows to label, the most useful one first."""

    version: int
    classes: list[Any]
    suggestions: list[Suggestion]
    expected_accuracy: float | None = Field(
        description="Estimated accuracy on the rows of the file without a label."
    )


# Map


class MapColor(Answer):
    """A value for each point."""

    kind: Literal["class", "number"]
    values: list[Any] = Field(description="Positions in `classes`, or numbers.")
    classes: list[Any] | None = None


class Map(Answer):
    """All entries in two dimensions, x and y in [-1, 1]."""

    version: int
    n: int
    ids: list[Any]
    x: list[float]
    y: list[float]
    color: MapColor


class Computing(Answer):
    """Something is being computed; ask again (status 202)."""

    state: Literal["computing"] = "computing"
    progress: float


class Positions(Answer):
    """Where rows fall on the map."""

    version: int
    positions: list[Position]


class Place(Rows):
    """Ask where rows fall on the map."""


# Monitor


class Monitor(Rows):
    """Show rows of a stream to the drift monitor, in order."""

    labels: list[Label | None] | None = Field(None, max_length=MAX_ENTRIES)


class MonitorAnswer(Answer):
    """The state of the drift monitor."""

    version: int
    n_rows: int
    n_labels: int
    alarm: bool
    sentence: str
    false_alarm_rate: float
    bound: float
    martingale: float | None = Field(description="Evidence of drift of the rows; null before any.")
    log_evidence: float | None = Field(description="Its natural logarithm.")
    track: list[float] = Field(description="Log evidence over the rows, at most 500 points.")


# Errors and health


class ErrorDetail(Answer):
    """The kind of an error, and what to do about it."""

    type: str
    message: str


class ErrorAnswer(Answer):
    """The answer to a request that failed."""

    error: ErrorDetail


class Health(Answer):
    """Whether the server works."""

    status: Literal["ok", "starting", "stopping", "failed"]
    version: int | None = None
