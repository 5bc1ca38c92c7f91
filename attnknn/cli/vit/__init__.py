"""`attnknn vit`: train, test and inspect Vision Transformers with sparse attention."""

from __future__ import annotations

import click

from attnknn.cli.commands import LazyGroup

SECTIONS = {
    "Commands": {
        "train": "attnknn.cli.vit.train",
        "test": "attnknn.cli.vit.inspect",
        "show": "attnknn.cli.vit.inspect",
    }
}


@click.group(cls=LazyGroup, sections=SECTIONS)
def vit() -> None:
    """Train, test and inspect Vision Transformers."""
