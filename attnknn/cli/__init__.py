"""The command line: one file per command; errors become one line and exit code 1."""

from __future__ import annotations

import errno
import os
import warnings
from typing import Any

import click

from attnknn import __version__
from attnknn.cli.lazy import LazyGroup

SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}
COMMANDS = (
    *("fit", "predict", "explain", "evaluate", "monitor", "audit", "whatif"),
    *("add", "forget", "relabel", "refit", "undo", "snapshot", "rollback", "log"),
    *("experiment", "report"),
    *("vit", "datasets", "demo"),
)


OPTIONS = {
    "Use 'cpu', or 'auto'": "Use --device cpu, or --device auto",
    "Set `image_size`": "Fit with --image-size",
    "`by` must be": "--by must be",
    "`max_risk=": "`--max-risk ",
    "`min_confidence`": "--min-confidence",
    "`coverage=": "`--sets ",
    "`pool='mean'`": "--pool mean",
    "`clip_grad_norm`": "--clip_grad_norm",
    "rate `lr`": "rate --lr",
    "`max_strangeness=": "`--novelty-level ",
    "`n_nearest`": "--n-nearest",
    "`may_empty_classes=True`": "--empty-classes",
    "`n` must be": "--keep-newest or --budget must be",
    "`half_life`": "--half-life",
    "`near`": "--near",
    "`n_rows`": "--rows",
    "set `network='none'`": "say --network none",
}  # what messages of Python say, and the command line


class _Commands(LazyGroup):
    """Turns errors into one line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            message = None if ctx.params.get("traceback") else _one_line(error)
            if message is None:
                raise
            raise click.ClickException(message) from error


@click.group(cls=_Commands, package=__name__, commands=COMMANDS, context_settings=SETTINGS)
@click.version_option(__version__, prog_name="attnknn")
@click.option("--traceback", is_flag=True, help="On an error, show where in the code it came from.")
@click.pass_context
def main(ctx: click.Context, traceback: bool) -> None:  # noqa: ARG001  (read by the group)
    """Classify rows of a file by their nearest remembered examples, with the evidence.

    Files may be CSV (also .tsv and .gz), Parquet, NPZ, or a folder of images.
    Lines of text files are counted from 1, the header too; rows are counted from 0.
    """
    # Torch's threads wait busily by default, and when another program has a core they wait long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    ctx.with_resource(warnings.catch_warnings())
    warnings.showwarning = _show_warning


def _one_line(error: Exception) -> str | None:
    """What went wrong, for people; None where it is a mistake of ours."""
    from attnknn.errors import AttnKNNError

    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return None  # the reader of our output has gone: click ends in silence
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, MemoryError):
        return "There is not enough memory for this."
    if isinstance(error, AttnKNNError | OSError | ValueError):
        return _in_options(" ".join(str(error).split()))
    return None


def _in_options(message: str) -> str:
    """A message that names a setting of Python names the option instead."""
    for setting, option in OPTIONS.items():
        message = message.replace(setting, option)
    return message


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    click.echo(f"Warning: {message}", err=True)
