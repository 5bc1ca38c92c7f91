"""Routes that edit the model, one edit at a time, and show what was edited."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query

from attnknn.classifier import AttnKNNClassifier
from attnknn.errors import InvalidInputError, UnknownEntryError
from attnknn.serving.access import Caller
from attnknn.serving.describing import version_of
from attnknn.serving.kept_labels import keep
from attnknn.serving.labels import read_label, read_new_labels
from attnknn.serving.routes.shared import (
    ADMIN,
    EDITOR,
    TheCaller,
    TheService,
    author,
    check_rows,
)
from attnknn.serving.rows import read_rows, take_rows
from attnknn.serving.schemas import (
    MAX_LISTED,
    Add,
    Added,
    Batch,
    ChangedState,
    Count,
    Edited,
    Erase,
    Erased,
    Forget,
    Keep,
    Log,
    LogChange,
    LogChanges,
    LogLine,
    Refit,
    Relabel,
    Rollback,
    SnapshotLine,
    Snapshots,
    TakeSnapshot,
    Undo,
)
from attnknn.serving.served_model import Edit, ServedModel, undo_target
from attnknn.serving.service import Service
from attnknn.serving.state import State
from attnknn.serving.uploads import UploadedFile, as_json_value
from attnknn.storage.store.history import EntryChange

router = APIRouter(tags=["edits"])
Limit = Annotated[int, Query(ge=1, le=MAX_LISTED)]
NOTHING = "Nothing changed"


@router.post("/api/edits/relabel", dependencies=[EDITOR])
async def relabel(body: Relabel, service: TheService, caller: TheCaller) -> Edited:
    """Change labels of entries, as one edit."""
    return await _batch(
        service,
        caller,
        "relabel",
        Batch(
            relabel=body.entries,
            new_classes=body.new_classes,
            message=body.message,
            by=body.by,
            expected_version=body.expected_version,
        ),
    )


@router.post("/api/edits/forget", dependencies=[EDITOR])
async def forget(body: Forget, service: TheService, caller: TheCaller) -> Edited:
    """Remove entries, as one edit; undo restores them."""
    return await _batch(
        service,
        caller,
        "forget",
        Batch(
            forget=body.ids,
            message=body.message,
            by=body.by,
            expected_version=body.expected_version,
        ),
    )


@router.post("/api/edits/keep", dependencies=[EDITOR])
async def keep_labels(body: Keep, service: TheService, caller: TheCaller) -> Edited:
    """Note that labels are right, as one edit; the audit then leaves these entries out."""
    return await _batch(
        service,
        caller,
        "keep",
        Batch(
            keep=body.ids,
            message=body.message,
            by=body.by,
            expected_version=body.expected_version,
        ),
    )


@router.post("/api/edits/batch", dependencies=[EDITOR])
async def batch(body: Batch, service: TheService, caller: TheCaller) -> Edited:
    """Change labels, remove entries and keep labels, as one edit."""
    if not (body.relabel or body.forget or body.keep):
        raise InvalidInputError("Give `relabel`, `forget` or `keep`: there is no edit to make.")
    return await _batch(service, caller, "batch", body)


async def _batch(service: Service, caller: Caller, kind: str, body: Batch) -> Edited:
    relabeled = [one.id for one in body.relabel]
    both = next((name for name in body.forget if name in set(relabeled)), None)
    if both is not None:
        raise InvalidInputError(f"`forget` and `relabel` must differ, {both!r} is in both.")

    def change(classifier: AttnKNNClassifier) -> None:
        if body.relabel:
            labels = read_new_labels(classifier, body.relabel, allows_new=body.new_classes)
            classifier.relabel(list(labels), list(labels.values()))
        if body.forget:
            classifier.forget(body.forget)

    def annotate(notes: dict[str, str], classifier: AttnKNNClassifier) -> None:
        if body.keep:
            keep(notes, classifier, body.keep)

    is_only_kept = bool(body.keep) and not (body.relabel or body.forget)
    edit = Edit(
        change,
        by=author(service, caller, body.by),
        message=body.message or (_kept_words(len(body.keep)) if is_only_kept else ""),
        ids=[*relabeled, *body.forget, *body.keep],
        expected_version=body.expected_version,
        annotate=annotate,
    )
    return _edited(*await service.edit(kind, lambda model: model.edit(edit)))


def _kept_words(n: int) -> str:
    return f"Kept the labels of {n:,} entries" if n > 1 else "Kept the label of 1 entry"


@router.post("/api/edits/add", dependencies=[EDITOR])
async def add(body: Add, service: TheService, caller: TheCaller) -> Added:
    """Add labeled rows, as one edit."""
    file = None if body.file is None else service.uploads.find(body.file)
    new_ids: list[Any] = []

    def change(classifier: AttnKNNClassifier) -> None:
        known = set(classifier.memory_.entries.ids.tolist())
        X = _added_rows(service.state, body, file)
        labels = _added_labels(classifier, body, file)
        classifier.add(X, labels, **_metadata(classifier, body, file, len(labels)))
        ids = classifier.memory_.entries.ids.tolist()
        new_ids.extend(name for name in ids[-len(labels) :] if name not in known)

    edit = Edit(
        change,
        by=author(service, caller, body.by),
        message=body.message or "",
        ids=body.ids or [],
        expected_version=body.expected_version,
    )
    state, message = await service.edit("add", lambda model: model.edit(edit))
    return Added(**_edited(state, message).model_dump(), ids=new_ids)


def _added_rows(state: State, body: Add, file: UploadedFile | None) -> Any:
    if file is None:
        return read_rows(state, body.rows or [])
    if body.rows_of_file is None:
        return file.rows
    check_rows(body.rows_of_file, len(file))
    return take_rows(file.rows, body.rows_of_file)


def _added_labels(classifier: AttnKNNClassifier, body: Add, file: UploadedFile | None) -> list[Any]:
    n_rows = len(body.rows or body.rows_of_file or (file or ()))
    given = body.labels
    if given is None and file is not None and file.labels is not None:
        own = file.labels.tolist()
        given = own if body.rows_of_file is None else [own[row] for row in body.rows_of_file]
    if given is None:
        raise InvalidInputError("Give `labels`, one for each row: the rows have none of their own.")
    if len(given) != n_rows:
        raise InvalidInputError(f"There must be one label a row; rows {n_rows}, got {len(given)}.")
    return [read_label(classifier, label, allows_new=body.new_classes) for label in given]


def _metadata(
    classifier: AttnKNNClassifier, body: Add, file: UploadedFile | None, n_rows: int
) -> dict[str, Any]:
    """Ids and payloads of added rows; rows show themselves where the others have payloads."""
    for name, given in (("ids", body.ids), ("payloads", body.payloads)):
        if given is not None and len(given) != n_rows:
            raise InvalidInputError(f"`{name}` must hold one value a row, got {len(given)}.")
    payloads: Any = body.payloads
    if payloads is None and classifier.memory_.entries.payloads is not None:
        payloads = _own_payloads(body, file)
    return {"ids": body.ids, "payloads": payloads}


def _own_payloads(body: Add, file: UploadedFile | None) -> list[Any]:
    if file is not None:
        rows = range(len(file)) if body.rows_of_file is None else body.rows_of_file
        return [as_payload(row) for row in file.contents(rows)]
    return [as_payload(row) for row in body.rows or []]


def as_payload(row: Any) -> Any:
    """What the evidence shows of a row: a text, or the columns of a table."""
    if isinstance(row, dict) and "image" not in row:
        return ", ".join(f"{name}={value}" for name, value in list(row.items())[:6])
    return row if isinstance(row, str) else None


@router.post("/api/edits/undo", dependencies=[EDITOR])
async def undo(body: Undo, service: TheService, caller: TheCaller) -> Edited:
    """Undo the last edit that was not undone yet."""
    by = author(service, caller, body.by)
    return _edited(*await service.edit("undo", lambda model: model.undo(by, body.expected_version)))


@router.post("/api/edits/rollback", dependencies=[EDITOR])
async def rollback(body: Rollback, service: TheService, caller: TheCaller) -> Edited:
    """Restore the state of a snapshot or after an edit; undo takes it back."""
    by = author(service, caller, body.by)

    def edit(model: ServedModel) -> tuple[State, str]:
        return model.rollback(body.to, by, body.expected_version)

    return _edited(*await service.edit("rollback", edit))


@router.post("/api/edits/refit", dependencies=[ADMIN])
async def refit(body: Refit, service: TheService, caller: TheCaller) -> Edited:
    """Fit attention and calibration again on the current entries. This may take minutes."""
    by = author(service, caller, body.by)

    def edit(model: ServedModel) -> tuple[State, str]:
        model.refuse_other_version(body.expected_version)
        return model.edit(Edit(lambda classifier: classifier.refit(), by, "Refitted"))

    return _edited(*await service.edit("refit", edit))


@router.post("/api/erase", dependencies=[ADMIN])
async def erase(body: Erase, service: TheService, caller: TheCaller) -> Erased:
    """Erase all entries of a person for good, from every state and the log."""
    by = author(service, caller, body.by)
    state, receipt = await service.edit("erase", lambda model: model.erase(body.subject, by))
    return Erased(
        **version_of(state).model_dump(),
        receipt={} if receipt is None else as_json_value(receipt.to_dict()),
        text="The entries were removed from memory. Nothing is on the disk."
        if receipt is None
        else str(receipt),
    )


def _edited(state: State, message: str) -> Edited:
    return Edited(
        **version_of(state).model_dump(),
        message=message or NOTHING,
        edit=state.version if message else None,
        is_changed=bool(message),
    )


@router.get("/api/log")
async def log(service: TheService, offset: Count = 0, limit: Limit = 50) -> Log:
    """The edits, newest first."""

    def read(model: ServedModel) -> Log:
        lines = model.log()
        target = undo_target(lines)
        shown = list(reversed(lines))[offset : offset + limit]
        return Log(
            version=lines[-1].edit,
            total=len(lines),
            edits=[
                LogLine(
                    edit=line.edit,
                    at=line.at,
                    by=line.by,
                    message=line.message,
                    kind=line.action,  # type: ignore[arg-type]
                    can_undo=target is not None and line.edit == target.edit,
                )
                for line in shown
            ],
        )

    return await service.look_up(read)


@router.get("/api/log/{edit}")
async def changes(
    edit: int, service: TheService, offset: Count = 0, limit: Limit = 200
) -> LogChanges:
    """What an edit did to each entry."""

    def read(model: ServedModel) -> LogChanges:
        if not 0 <= edit <= model.log()[-1].edit:
            raise UnknownEntryError(f"There is no edit {edit}.")
        found = model.changes(edit)
        shown = found[offset : offset + limit]
        return LogChanges(edit=edit, total=len(found), changes=[_change(one) for one in shown])

    return await service.look_up(read)


def _change(change: EntryChange) -> LogChange:
    sides: Callable[..., ChangedState | None] = lambda label, weight: (  # noqa: E731
        None if label is None else ChangedState(label=label, sample_weight=weight)
    )
    return LogChange(
        id=change.id,
        before=sides(change.label_before, change.sample_weight_before),
        after=sides(change.label_after, change.sample_weight_after),
        payload=as_json_value(change.payload),
    )


@router.get("/api/snapshots")
async def snapshots(service: TheService) -> Snapshots:
    """States with a name."""

    def read(model: ServedModel) -> Snapshots:
        return Snapshots(snapshots=[SnapshotLine(**vars(one)) for one in model.snapshots()])

    return await service.look_up(read)


@router.post("/api/snapshots", dependencies=[EDITOR])
async def take_snapshot(body: TakeSnapshot, service: TheService, caller: TheCaller) -> SnapshotLine:
    """Give the current state a name, to roll back to."""
    by = author(service, caller, body.by)
    taken = await service.edit("snapshot", lambda model: model.take_snapshot(body.name, by))
    return SnapshotLine(**vars(taken))
