"""The option `--new-classes` of the commands that take labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def new_classes_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flag `--new-classes`, as `new_classes`."""
    return click.option(
        "--new-classes", is_flag=True, help="Allow labels that the model does not know yet."
    )(command)
