"""`attnknn datasets`: the named data sets, and whether they are here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from attnknn.research.datasets import CatalogRow

WIDTH = 20  # of a name
OWN_IMAGES = (
    "Your own images: `attnknn fit FOLDER`, and `datasets.load_folder` in Python, "
    "read\nFOLDER/train/CLASS/file.png beside FOLDER/val/CLASS/file.png, as ImageNet has them."
)


@click.command()
@click.option("--format", "style", type=click.Choice(["table", "json"]), default="table")
def datasets(style: str) -> None:
    """List the named data sets: where they come from, whether they are here, what is missing."""
    from dataclasses import asdict

    from attnknn.research.datasets import catalog, data_folders

    rows = list(catalog())
    if style == "json":
        click.echo(json.dumps([asdict(row) for row in rows], indent=1))
        return
    folders = ", ".join(str(folder) for folder in data_folders())
    for line in (*_listed(rows), *_missing(rows)):
        click.echo(line)
    click.echo(f"\nLooked in: {folders} (set ATTNKNN_DATA to add folders).\n{OWN_IMAGES}")


def _listed(rows: list[CatalogRow]) -> Iterator[str]:
    yield f"{'name':<{WIDTH}} {'kind':<8} {'rows':>7} {'classes':>8}  here  comes from"
    for row in rows:
        here = "no" if row.missing else "yes"
        size = f"{row.n_rows:>7,} {row.n_classes:>8}"
        yield f"{row.name:<{WIDTH}} {row.kind:<8} {size}  {here:<4}  {row.source}"


def _missing(rows: list[CatalogRow]) -> Iterator[str]:
    """What to put where."""
    absent = [row for row in rows if row.missing]
    if absent:
        yield f"\nWhat is not here is read from these files, once they are in {absent[0].put_into}:"
    for row in absent:
        files = [_either(*names) for names in row.missing]
        yield f"{row.name:<{WIDTH}} {' and '.join(files)}"


def _either(name: str, *others: str) -> str:
    return f"{name} (or {', '.join(others)})" if others else name
