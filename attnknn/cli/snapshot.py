"""`attnknn snapshot`: give the state of a stored model a name."""

from __future__ import annotations

from pathlib import Path

import click

from attnknn.cli.by import by_option

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
@click.argument("name", required=False)
@by_option
def snapshot(model: Path, name: str | None, by: str | None) -> None:
    """Call the state of MODEL of now NAME; `attnknn rollback` brings it back.

    It costs nothing, since every state is kept. Without NAME the snapshots are listed.
    """
    from attnknn.cli.editing import open_model
    from attnknn.storage.editor import list_snapshots

    if name is None:
        for known in list_snapshots(model):
            click.echo(f"{known.name}  edit {known.edit}  {known.at}  {known.by}")
        return
    with open_model(model, by) as opened:
        taken = opened.snapshot(name)
    click.echo(f"Snapshot {taken.name} is the state after edit {taken.edit}.")
