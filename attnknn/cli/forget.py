"""`attnknn forget`: remove entries from a stored model."""

from __future__ import annotations

import json
from pathlib import Path

import click

from attnknn.cli.by import by_option

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
@click.argument("ids", nargs=-1)
@click.option("--subject", help="Erase all entries of a person, for good.")
@click.option("--receipt", type=FILE, help="With --subject: write the receipt as JSON too.")
@by_option
def forget(
    model: Path, ids: tuple[str, ...], subject: str | None, receipt: Path | None, by: str | None
) -> None:
    """Forget the entries with these IDS, as 3 5 7 or 3,5,7.

    The next answer is as if they had never been; what was trained stays until a new fit. An
    unknown id is an error, and then nothing is forgotten. `attnknn undo` takes it back.

    With --subject all entries of a person are erased: from every state, snapshot, the log and free
    space of the file. That cannot be undone. A receipt says what was done, and which fitted parts
    had seen the entries.
    """
    from attnknn.cli.editing import edit, listed_ids, open_model

    if bool(ids) == (subject is not None):
        raise click.UsageError("Give ids to forget, or --subject.")
    if receipt is not None and subject is None:
        raise click.UsageError("--receipt goes with --subject.")
    with open_model(model, by) as opened:
        if subject is None:
            known = opened.classifier.memory_.entries.ids
            gone = list(dict.fromkeys(listed_ids(ids, known)))
            with edit(opened) as classifier:
                classifier.forget(gone)
            return
        done = opened.forget(subject=subject)
        if len(opened.classifier.memory_):
            opened.keep_trust()
    click.echo(str(done))
    if receipt is not None:
        receipt.write_text(json.dumps(done.to_dict(), indent=1) + "\n")
    if not done.is_complete:
        raise click.ClickException("The erasure is not complete; see above.")
