"""`attnknn add`: remember the rows of a file too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.by import by_option
from attnknn.cli.new_classes import new_classes_option
from attnknn.cli.separator import separator_option

if TYPE_CHECKING:
    from attnknn.cli.files import Part
    from attnknn.cli.models import Asked

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
@click.argument("rows", type=FILE)
@click.option("-t", "--target", help="Column of the labels. [default: as in fit]")
@new_classes_option
@separator_option
@by_option
def add(
    model: Path,
    rows: Path,
    target: str | None,
    new_classes: bool,
    separator: str | None,
    by: str | None,
) -> None:
    """Remember the labeled rows of ROWS too.

    Votes follow at once; what was trained stays as it is until a new fit. The id column of the fit
    names the new rows; without one they are counted on. `attnknn undo` takes it back.
    """
    from attnknn.cli.editing import LabelReader, edit, open_model
    from attnknn.cli.files import open_rows
    from attnknn.cli.models import asking
    from attnknn.cli.target import target_of
    from attnknn.cli.waiting import patience
    from attnknn.storage import load_notes

    text = load_notes(model).get("text")
    source = open_rows(rows, separator=separator, column=lambda: text)
    with open_model(model, by) as opened, patience(f"Reading {rows.name}"):
        asked = asking(opened.classifier, opened.notes, source)
        column = target_of(source, opened.notes, target)
        labels = LabelReader(opened.classifier.classes_, new_classes)
        with edit(opened) as classifier:
            for part, X in asked.parts():
                classifier.add(
                    X,
                    labels.read_column(part, column),
                    ids=_ids(asked, part),
                    payloads=_payloads(asked, part, column),
                    subjects=_subjects(asked, part),
                )


def _ids(asked: Asked, part: Part) -> Any:
    """The ids that the file gives; None counts on."""
    from attnknn.cli.columns import ids_of
    from attnknn.errors import InvalidInputError

    column = asked.queries.notes.get("id_column", "")
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


def _subjects(asked: Asked, part: Part) -> Any:
    """Whose the rows are, if the fit named a column for it."""
    from attnknn.cli.columns import subjects_of
    from attnknn.cli.files.base import check_column

    column = asked.queries.notes.get("subject_column", "")
    if not column:
        return None
    check_column(asked.queries.source, column)
    return subjects_of(part, column)


def _payloads(asked: Asked, part: Part, target: str) -> list[str] | None:
    """What `explain` will show of the rows, if it shows anything of the others."""
    from attnknn.cli.training_rows import Roles, payloads_of

    if asked.classifier.memory_.entries.payloads is None:
        return None
    source, notes = asked.queries.source, asked.queries.notes
    roles = Roles(
        target,
        id=notes.get("id_column", ""),
        subject=notes.get("subject_column", ""),
        text=notes.get("text", ""),
    )
    shown = roles.shown(source.columns if source.kind == "table" else [])
    shown = [source.default_id] if source.default_id else shown
    return payloads_of(part, shown, roles.text, source.default_id)
