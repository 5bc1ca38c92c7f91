"""`attnknn rollback`: bring back an earlier state of a stored model."""

from __future__ import annotations

from pathlib import Path

import click

from attnknn.cli.by import by_option

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
@click.argument("name", required=False)
@click.option("--edit", type=click.IntRange(0), help="The state after this edit of the log.")
@by_option
def rollback(model: Path, name: str | None, edit: int | None, by: str | None) -> None:
    """Bring back the state of MODEL that `attnknn snapshot` called NAME.

    Later edits stay in the log, and `attnknn undo` takes the rollback back.
    """
    from attnknn.cli.editing import counted, open_model, refuse_if_never_edited

    to = name if edit is None else edit
    if to is None or (name is not None and edit is not None):
        raise click.UsageError("Give the name of a snapshot, or --edit.")
    refuse_if_never_edited(model)
    with open_model(model, by) as opened:
        done = opened.rollback(to)
        opened.cache_trust()
        n_entries = len(opened.classifier.memory_)
    click.echo(f"{done.message}; {model.name} now holds {counted(n_entries)} (edit {done.edit}).")
