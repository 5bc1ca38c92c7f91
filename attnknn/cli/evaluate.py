"""`attnknn evaluate`: accuracy and calibration on labeled rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnknn._escape import visible
from attnknn.cli import options as shared
from attnknn.cli.commands import command, option, section
from attnknn.cli.options import FILE
from attnknn.cli.output import echo, echo_block, echo_json, progress

if TYPE_CHECKING:
    from attnknn.cli.rows.queries import Queries
    from attnknn.evidence import Evidence
    from attnknn.records import Floats, Integers
    from attnknn.research.evaluation.error_analysis import Mistake
    from attnknn.research.reports.page import Section

N_CONFUSIONS = 5
N_MISTAKES = 10
MAX_PAYLOAD = 60  # characters of a neighbor
METRICS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "nll": "log-loss (NLL)",
    "brier": "Brier score",
    "ece": "ECE, 15 equal-width bins",
    "ece_equal_mass": "ECE, 15 equal-mass bins",
    "debiased_ece": "ECE, debiased",
}


@command()
@shared.model_argument
@shared.rows_argument
@shared.target_option
@section(
    "Output",
    shared.print_format_option,
    option("--report", type=FILE, help="Folder for an HTML report with figures and mistakes."),
    option("--force", is_flag=True, help="Replace an existing report."),
)
@shared.separator_option
@shared.header_option
@shared.max_memory_option
def evaluate(
    model: Path,
    rows: Path,
    target: str | None,
    style: str,
    report: Path | None,
    force: bool,
    separator: str | None,
) -> None:
    """Measure accuracy and calibration on labeled rows."""
    from attnknn.cli.rows.columns import target_of
    from attnknn.cli.rows.queries import open_queries
    from attnknn.errors import InvalidInputError

    if report is not None:
        from attnknn.research.reports.writing import check_page, write_report

        check_page(report, force=force)
    queries = open_queries(model, rows, separator)
    try:
        column = target_of(queries.source, queries.notes, target)
    except InvalidInputError as error:
        hint = "Name the column of the labels with --target; rows without labels need `predict`."
        raise InvalidInputError(f"{error} {hint}") from error
    with progress(f"Reading {rows.name}"):
        codes, probabilities = _predict(queries, column)
    classes = [str(c) for c in queries.classifier.classes_.tolist()]
    result = _result(codes, probabilities, classes)
    if style == "json":
        echo_json(result)
    else:
        echo_block(_table(result))
    if report is not None:
        title = f"{model.name} on {rows.name}"
        with progress("Drawing figures"):
            sections = _sections(queries, codes, probabilities, classes)
            about = ["Made by `attnknn evaluate --report`."]
            page = write_report(report, title, sections, about, force=force)
        echo(f"report: {page}", err=True)


def _sections(
    queries: Queries, codes: Integers, probabilities: Floats, classes: list[str]
) -> list[Section]:
    from attnknn.research.evaluation.error_analysis import worst_mistakes
    from attnknn.research.evaluation.illustrations import embedding_map, map_rows
    from attnknn.research.reports.model import model_sections

    worst = worst_mistakes(codes, probabilities, N_MISTAKES)
    mistakes = _mistakes(queries, worst.tolist(), codes, classes)
    rows = map_rows(len(codes))
    embeddings = embedding_map(_embeddings(queries, rows), rows, codes[rows], classes)
    return model_sections(codes, probabilities, classes, mistakes, embeddings)


def _embeddings(queries: Queries, rows: Integers) -> Floats:
    """Embeddings of the rows at these positions of the file."""
    import numpy as np

    parts = []
    for chunk, X in queries.chunks():
        is_here = (rows >= chunk.first) & (rows < chunk.first + len(chunk))
        if is_here.any():
            places = rows[is_here] - chunk.first
            some = X.iloc[places] if hasattr(X, "iloc") else X[places]
            parts.append(queries.classifier.embed(some))
    return np.concatenate(parts)


def _mistakes(
    queries: Queries, worst: list[int], codes: Integers, classes: list[str]
) -> list[Mistake]:
    """The evidence behind each of these wrong predictions, in the given order."""
    from attnknn.cli.predict import evidence_of_rows
    from attnknn.research.evaluation.error_analysis import Mistake, describe_neighbors

    if not worst:
        return []
    found = {}
    wanted = sorted(worst)
    rows = evidence_of_rows(queries, wanted, is_explicit=True)
    for row, explained in zip(wanted, rows, strict=True):
        evidence = explained.evidence
        voters = describe_neighbors(
            _names(evidence), evidence.labels, evidence.weights, evidence.prior_weight
        )
        name = f"{explained.value}" + (
            "" if explained.content is None else f" ({explained.content})"
        )
        found[row] = Mistake(
            name, classes[codes[row]], str(evidence.label), evidence.probability, voters
        )
    return [found[row] for row in worst]


def _names(evidence: Evidence) -> list[str]:
    """Ids and short payloads of the neighbors."""
    from attnknn._display import payload_text

    if evidence.payloads is None:
        return [str(one) for one in evidence.ids]
    pairs = zip(evidence.ids, evidence.payloads, strict=True)
    return [f"{one} {payload_text(payload, MAX_PAYLOAD)}" for one, payload in pairs]


def _predict(queries: Queries, target: str) -> tuple[Integers, Floats]:
    import numpy as np

    from attnknn.cli.rows.columns import read_class_codes

    codes, probabilities = [], []
    for chunk, X in queries.chunks():
        codes.append(read_class_codes(chunk, target, queries.classifier.classes_))
        probabilities.append(queries.classifier.predict_proba(X))
    return np.concatenate(codes), np.concatenate(probabilities)


def _result(codes: Integers, probabilities: Floats, classes: list[str]) -> dict[str, Any]:
    from attnknn.metrics import HIGHER_IS_BETTER, confusion_matrix, ece, score_all

    scores = score_all(codes, probabilities).to_dict()
    scores["ece_equal_mass"] = ece(codes, probabilities, bins="mass")
    better = {**HIGHER_IS_BETTER, "ece_equal_mass": False}
    matrix = confusion_matrix(codes, probabilities)
    return {
        "n_rows": len(codes),
        "scores": {name: scores[name] for name in METRICS},
        "higher_is_better": {name: better[name] for name in METRICS},
        "classes": classes,
        "confusion_matrix": matrix.tolist(),
        "confusions": _confusions(matrix, classes),
    }


def _confusions(matrix: Integers, classes: list[str]) -> list[dict[str, Any]]:
    """The most frequent mistakes, most frequent first."""
    import numpy as np

    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")
    cells = [divmod(int(place), len(classes)) for place in order[:N_CONFUSIONS]]
    return [
        {"true": classes[t], "predicted": classes[p], "count": int(wrong[t, p])}
        for t, p in cells
        if wrong[t, p]
    ]


def _table(result: dict[str, Any]) -> str:
    lines = [f"{'rows':<28} {result['n_rows']:>8,}"]
    for name, words in METRICS.items():
        direction = "higher is better" if result["higher_is_better"][name] else "lower is better"
        lines.append(f"{words:<28} {result['scores'][name]:>8.4f}  {direction}")
    for confusion in result["confusions"]:
        words = f"{visible(confusion['true'])} predicted as {visible(confusion['predicted'])}"
        lines.append(f"{words:<28} {confusion['count']:>8,}")
    return "\n".join(lines)
