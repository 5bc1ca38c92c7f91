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

    Checks every checksum of every state, the structure of the SQLite file, that the last
    acknowledged edit is there, and that the model loads. Prints what was checked and every problem;
    the exit code is 1 if there is any. The model may be in use.
    """
    from attnknn.storage.verification import verify

    found = verify(model)
    echo_block(str(found))
    ctx.exit(0 if found.is_intact else 1)


@command()
@shared.model_argument
@click.argument("out", type=FILE)
def backup(model: Path, out: Path) -> None:
    """Copy a model to the new folder OUT, also while it is edited.

    The copy holds the state after the last acknowledged edit, with all earlier states, log and
    snapshots, and is verified. OUT must not exist. People who are erased from the model later stay
    in the copy.
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

    A model whose files were damaged or removed may lack the last edits that were acknowledged, and
    is refused by all commands. Restore a backup if you have one. This command accepts the state
    that can still be read and records it in the log; later edits, erasures included, must be made
    again. A model that lost nothing is left as it is.
    """
    from attnknn.cli.output import count_of
    from attnknn.cli.stored_model import open_model

    with open_model(model, by, recover=True) as opened:
        words = opened.recovered.message if opened.recovered else "Nothing to recover"
        n_entries = len(opened.classifier.memory_)
    echo(f"{words}; {model.name} holds {count_of(n_entries)} (edit {opened.head}).")
