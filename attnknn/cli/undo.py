"""`attnknn undo`: take back the last edit of a stored model."""

from __future__ import annotations

from pathlib import Path

import click

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
def undo(model: Path) -> None:
    """Take back the last `add`, `forget` or `relabel` of MODEL.

    The model is then what it was before, to the last byte. One edit can be taken back, the last;
    a new `fit` cannot.
    """
    from attnknn.cli.editing import LAST_EDIT
    from attnknn.storage import load_notes, undo_edit

    done = load_notes(model).get(LAST_EDIT, "the last edit")
    undo_edit(model)
    click.echo(f"Taken back: {done[:1].lower()}{done[1:]}.")
