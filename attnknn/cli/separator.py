"""The option `--sep` of every command that reads a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

NAMES = {"\\t": "\t", "tab": "\t"}


def separator_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option `--sep`, as `separator`: one character or None."""
    return click.option(
        "--sep",
        "separator",
        callback=_one_character,
        help="Separator of a text file, as ';' or '\\t'. [default: by the ending of its name]",
    )(command)


def _one_character(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    separator = NAMES.get(value, value)
    if len(separator) != 1 or separator in '"\r\n':
        raise click.BadParameter(f"must be one character, as ';' or '\\t', got {value!r}.")
    return separator
