"""Labeled rows of a file as `add` takes them: every column in the role that it had in `fit`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from attnknn.cli.columns import groups_of, ids_of, sample_weight_of, subjects_of
from attnknn.cli.editing import LabelReader
from attnknn.cli.files import Part
from attnknn.cli.files.base import check_column
from attnknn.cli.models import Asked
from attnknn.cli.target import target_of
from attnknn.cli.training_rows import Roles, payloads_of
from attnknn.errors import InvalidInputError
from attnknn.insight import AddedRows


def new_rows(asked: Asked, target: str | None, labels: LabelReader) -> Iterator[AddedRows]:
    """The rows of a file, part by part; `target` is the column of the labels, or as in `fit`."""
    source, notes = asked.queries.source, asked.queries.notes
    roles = replace(Roles.of(notes), target=target_of(source, notes, target))
    for name in (roles.group, roles.sample_weight, roles.subject):
        if name:
            check_column(source, name)
    for part, X in asked.parts():
        yield AddedRows(
            X,
            labels.read_column(part, roles.target),
            ids=_ids(asked, part, roles.id),
            groups=groups_of(part, roles.group) if roles.group else None,
            sample_weight=sample_weight_of(part, roles.sample_weight)
            if roles.sample_weight
            else None,
            payloads=_payloads(asked, part, roles),
            subjects=subjects_of(part, roles.subject) if roles.subject else None,
        )


def _ids(asked: Asked, part: Part, column: str) -> Any:
    """The ids that the file gives; None counts on."""
    if not column:
        return None
    if column not in asked.queries.source.columns:
        raise InvalidInputError(
            f"{asked.queries.source.path} must have the column {column!r}, which names the rows of "
            "this model."
        )
    ids = ids_of(part, column)
    is_text = asked.classifier.memory_.entries.ids.dtype == object
    return [str(name) for name in ids.tolist()] if is_text else ids


def _payloads(asked: Asked, part: Part, roles: Roles) -> list[str] | None:
    """What `explain` will show of the rows, if it shows anything of the others."""
    if asked.classifier.memory_.entries.payloads is None:
        return None
    source = asked.queries.source
    shown = roles.shown(source.columns if source.kind == "table" else [])
    if roles.payload is None and source.default_id:
        shown = [source.default_id]
    for name in roles.payload or ():
        check_column(source, name)
    return payloads_of(part, shown, roles.text, source.default_id)
