"""`attnknn relabel`: apply what a person decided in the table of an audit."""

from __future__ import annotations

from pathlib import Path

import click

from attnknn.cli.by import by_option
from attnknn.cli.new_classes import new_classes_option
from attnknn.cli.separator import separator_option

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
@click.argument("answers", type=FILE)
@new_classes_option
@separator_option
@by_option
def relabel(
    model: Path, answers: Path, new_classes: bool, separator: str | None, by: str | None
) -> None:
    """Apply the column `decision` of ANSWERS, a table of `attnknn audit`, to MODEL.

    An empty decision leaves the entry as it is, a label is its new label, and !forget forgets it.
    All of them are applied, or none: an unknown id, a label that is no class (without
    --new-classes) or an entry whose label is no longer the one in the table is an error.
    `attnknn undo` takes it back.
    """
    from attnknn.cli.answers import AnswerReader
    from attnknn.cli.editing import LabelReader, edit, open_model
    from attnknn.cli.files import open_rows

    source = open_rows(answers, separator=separator)
    with open_model(model, by) as opened:
        labels = LabelReader(opened.classifier.classes_, new_classes)
        decisions = AnswerReader(opened.classifier, labels).read(source)
        if not decisions:
            click.echo("There is nothing to change: every decision is empty, or as it is already.")
            return
        with edit(opened) as classifier:
            if decisions.relabel:
                classifier.relabel(list(decisions.relabel), list(decisions.relabel.values()))
            if decisions.forget:
                classifier.forget(decisions.forget)
