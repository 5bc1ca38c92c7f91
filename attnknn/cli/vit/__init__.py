"""`attnknn vit`: train, test and look into Vision Transformers."""

from __future__ import annotations

import importlib

import click

COMMANDS = ("train", "test", "show")


class _Commands(click.Group):
    """Imports a command when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"attnknn.cli.vit.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(cls=_Commands)
def vit() -> None:
    """Vision Transformers whose tokens attend to their nearest."""
