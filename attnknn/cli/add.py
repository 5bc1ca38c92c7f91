"""`attnknn add`: remember the rows of a file too."""

from __future__ import annotations

from pathlib import Path

import click

from attnknn.cli.by import by_option
from attnknn.cli.new_classes import new_classes_option
from attnknn.cli.separator import separator_option

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

    Votes follow at once; what was fitted stays as it is until `attnknn refit`. Columns have the
    roles that they had in the fit: ids, groups, subjects, sample weight, what is shown. Without an
    id column new rows are counted on. `attnknn undo` takes it back.
    """
    from attnknn.cli.editing import LabelReader, edit, open_model
    from attnknn.cli.files import open_rows
    from attnknn.cli.models import asking
    from attnknn.cli.new_rows import new_rows
    from attnknn.cli.waiting import patience
    from attnknn.storage import load_notes

    text = load_notes(model).get("text")
    source = open_rows(rows, separator=separator, column=lambda: text)
    with open_model(model, by) as opened, patience(f"Reading {rows.name}"):
        asked = asking(opened.classifier, opened.notes, source)
        labels = LabelReader(opened.classifier.classes_, new_classes)
        with edit(opened) as classifier:
            for some in new_rows(asked, target, labels):
                classifier.add(some.X, some.y, **some.metadata)
