"""A group of commands, each in a file of its own that is imported when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click


class LazyGroup(click.Group):
    """Commands by the names of their modules.

    Parameters
    ----------
    package : where the modules are; each holds a command of its own name
    commands : their names, in the order of the help text
    """

    def __init__(
        self, *args: Any, package: str = "", commands: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.package, self.lazy_commands = package, tuple(commands)

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(self.lazy_commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in self.lazy_commands:
            return None
        module = importlib.import_module(f"{self.package}.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command
