"""`attnknn forget`: remove entries from a stored model."""

from __future__ import annotations

from pathlib import Path

import click

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
@click.argument("ids", nargs=-1, required=True)
def forget(model: Path, ids: tuple[str, ...]) -> None:
    """Forget the entries with these IDS, as 3 5 7 or 3,5,7.

    The next answer is as if they had never been; what was trained stays until a new fit. An
    unknown id is an error, and then nothing is forgotten. `attnknn undo` takes it back.
    """
    from attnknn.cli.editing import counted, listed_ids, open_model

    opened = open_model(model)
    gone = list(dict.fromkeys(listed_ids(ids, opened.ids)))
    opened.classifier.forget(gone)
    opened.save(f"Forgot {counted(len(gone))}")
