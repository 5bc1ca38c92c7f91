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
    from attnknn.cli.editing import counted, open_model, refuse_if_never_edited

    refuse_if_never_edited(model)
    with open_model(model, by) as opened:
        done = opened.undo()
        opened.cache_trust()
        holds = f"{model.name} now holds {counted(len(opened.classifier.memory_))}"
        words = f"{done.message[:1].lower()}{done.message[1:]}"
        click.echo(f"Took back edit {done.edit}, {words}; {holds} (edit {opened.head}).")
