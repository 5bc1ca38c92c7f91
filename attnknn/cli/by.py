"""The option `--by` of the commands that edit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def by_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the option `--by`."""
    return click.option("--by", help="Who edits, for the log. [default: the user's name]")(command)
