"""`attnknn undo`: take back the last edit of a stored model."""

from __future__ import annotations

from pathlib import Path

import click

from attnknn.cli.by import by_option

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
@by_option
def undo(model: Path, by: str | None) -> None:
    """Take back the last edit of MODEL, and if repeated the ones before it.

    The model answers then as before. `attnknn log` lists the edits; an erasure and a new `fit`
    cannot be taken back.
    """
    from attnknn.cli.editing import open_model

    with open_model(model, by) as opened:
        done = opened.undo()
        opened.keep_trust()
    click.echo(f"Taken back: {done.words[:1].lower()}{done.words[1:]} (edit {done.edit}).")
