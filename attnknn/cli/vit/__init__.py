"""`attnknn vit`: train, test and look into Vision Transformers."""

from __future__ import annotations

import click

from attnknn.cli.lazy import LazyGroup

COMMANDS = ("train", "test", "show")


@click.group(cls=LazyGroup, package=__name__, commands=COMMANDS)
def vit() -> None:
    """Vision Transformers whose tokens attend to their nearest."""
