"""`attnknn verify`, `backup` and `recover`: protect a stored model."""

from __future__ import annotations

from pathlib import Path

import click

from attnknn.cli import options as shared
from attnknn.cli.commands import command
from attnknn.cli.options import FILE
from attnknn.cli.output import echo, echo_block


@command()
@shared.model_argument
@click.pass_context
def verify(ctx: click.Context, model: Path) -> None:
    """Check all files of a model, and that it loads.

    Verifies the checksums of all states, the structure of the SQLite file, that the last
    acknowledged edit is present, and that the model loads. Prints every check and every problem;
    the exit code is 1 if there is a problem. Other processes may use the model at the same time.
    """
    from attnknn.storage.verification import verify

    found = verify(model)
    echo_block(str(found))
    ctx.exit(0 if found.is_intact else 1)


@command()
@shared.model_argument
@click.argument("out", type=FILE)
def backup(model: Path, out: Path) -> None:
    """Copy a model to the new folder OUT, even while it is edited.

    The copy holds the state after the last acknowledged edit, all earlier states, the log and the
    snapshots, and is verified. OUT must not exist. If you erase a person from the model later,
    erase them from the copy too.
    """
    from attnknn.storage.verification import backup

    done = backup(model, out)
    echo(f"Copied {model.name} to {out} and verified it:")
    echo_block("\n".join(f"checked {each}" for each in done.checked))


@command()
@shared.model_argument
@shared.by_option
def recover(model: Path, by: str | None) -> None:
    """Accept the last readable state of a model that lost edits.

    If files of a model were damaged or removed, its last acknowledged edits may be missing. All
    other commands then refuse the model. Restore a backup if you have one. Otherwise, this command
    accepts the last state that can be read and records this in the log. Then make the lost edits
    again, including erasures. A model that lost no edits is not changed.
    """
    from attnknn.cli.output import count_of
    from attnknn.cli.stored_model import open_model

    with open_model(model, by, recover=True) as opened:
        words = opened.recovered.message if opened.recovered else "Nothing to recover"
        n_entries = len(opened.classifier.memory_)
    echo(f"{words}; {model.name} holds {count_of(n_entries)} (edit {opened.head}).")
