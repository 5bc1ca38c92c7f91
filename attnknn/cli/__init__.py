"""The command line `attnknn`: parse, call the library, print.

`SECTIONS` lists the commands and their modules, which are imported when a command is needed.
`commands` has the classes for commands, options and help texts; `options` the shared options;
`rows` reads files; `output` writes results. Errors become one line and exit code 1.
"""

from __future__ import annotations

import errno
import os
import sys
import traceback
import warnings
from typing import Any

import click

from attnknn import __version__
from attnknn._escape import visible
from attnknn.cli.commands import INVOKED, LazyGroup, in_flags
from attnknn.cli.interrupts import Interrupted, received_signals
from attnknn.cli.output import echo, echo_block

SECTIONS = {
    "Train and predict": {
        "fit": "attnknn.cli.fit",
        "predict": "attnknn.cli.predict",
        "explain": "attnknn.cli.predict",
        "evaluate": "attnknn.cli.evaluate",
    },
    "Inspect a model": {
        "audit": "attnknn.cli.audit",
        "whatif": "attnknn.cli.whatif",
        "monitor": "attnknn.cli.monitor",
        "suggest": "attnknn.cli.suggest",
    },
    "Edit a model": {
        "add": "attnknn.cli.edit",
        "relabel": "attnknn.cli.audit",
        "forget": "attnknn.cli.forget",
        "refit": "attnknn.cli.edit",
        "undo": "attnknn.cli.edit",
        "snapshot": "attnknn.cli.edit",
        "rollback": "attnknn.cli.edit",
        "log": "attnknn.cli.edit",
    },
    "Protect a model": {
        "verify": "attnknn.cli.upkeep",
        "backup": "attnknn.cli.upkeep",
        "recover": "attnknn.cli.upkeep",
    },
    "Share a model": {"serve": "attnknn.cli.serve"},
    "Research": {
        "experiment": "attnknn.cli.research",
        "report": "attnknn.cli.research",
        "datasets": "attnknn.cli.research",
        "demo": "attnknn.cli.demo",
    },
    "Vision Transformers": {"vit": "attnknn.cli.vit"},
}
COMMANDS = tuple(name for names in SECTIONS.values() for name in names)
SETTINGS = {
    "help_option_names": ["-h", "--help"],
    "show_default": True,
    "max_content_width": 100,
}


class _Main(LazyGroup):
    """Turns errors into one line that names options instead of Python parameters."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Accept --traceback also after the command."""
        own = args[: args.index("--")] if "--" in args else args
        if "--traceback" in own:
            args = ["--traceback", *(arg for arg in args if arg != "--traceback")]
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        with received_signals(ctx) as signals:
            try:
                return self._invoke(ctx)
            except (Interrupted, KeyboardInterrupt):
                echo("Interrupted.", err=True)
                ctx.exit(signals.exit_code)

    def _invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            error.message = visible(error.message)  # type: ignore[misc]
            raise
        except (click.exceptions.Exit, click.Abort):
            raise
        except Exception as error:
            message = None if ctx.params.get("traceback") else _one_line(error, ctx)
            if message is None:
                raise
            raise click.ClickException(visible(message)) from error


@click.group(cls=_Main, sections=SECTIONS, context_settings=SETTINGS)
@click.version_option(__version__, prog_name="attnknn")
@click.option("--traceback", is_flag=True, help="Show the Python traceback of an error.")
@click.pass_context
def main(ctx: click.Context, /, **_: Any) -> None:
    """Nearest-neighbor classification with attention, calibrated and editable.

    A model stores its training examples as *entries*, each with an id. Every prediction is a
    weighted vote of entries, and can show them. Files may be CSV, TSV, JSON Lines (also .gz),
    Parquet, NPZ, or folders of images.

    \b
    attnknn fit train.csv --target label -o model
    attnknn predict model new.csv

    In messages, lines of a text file start at 1 (the header is line 1); rows start at 0.
    """
    # By default, waiting threads of torch occupy the cores that other programs need.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    ctx.with_resource(warnings.catch_warnings())
    warnings.showwarning = _show_warning
    sys.excepthook = _show_traceback


def _one_line(error: Exception, ctx: click.Context) -> str | None:
    """The error message for the user; None for a bug of the package."""
    from attnknn.errors import AttnKNNError

    if isinstance(error, OSError) and error.errno == errno.EPIPE:
        return None  # the reader of the output is gone: click exits silently
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}."
    if isinstance(error, MemoryError) and not isinstance(error, AttnKNNError):
        return "Not enough memory."
    message = " ".join(str(error).split())
    if isinstance(error, AttnKNNError) and error.parameter is not None:
        return _with_flags(message, ctx)
    return message if isinstance(error, AttnKNNError | OSError | ValueError) else None


def _with_flags(message: str, ctx: click.Context) -> str:
    """Name options of the command that ran, and of `fit` for parameters of the model."""
    ran: click.Context | None = ctx.meta.get(INVOKED)
    if ran is not None:
        message = in_flags(message, ran.command, ran.params)
    fit = main.get_command(ctx, "fit")
    if fit is None or (ran is not None and ran.command is fit):
        return message
    return in_flags(message, fit, before="attnknn fit ")


def _show_traceback(*error: Any) -> None:
    echo_block("".join(traceback.format_exception(*error)).rstrip(), err=True)


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    echo(f"Warning: {' '.join(str(message).split())}", err=True)
