"""`attnknn datasets`: the named data sets, and whether they are here."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--format", "style", type=click.Choice(["table", "json"]), default="table")
def datasets(style: str) -> None:
    """List the named data sets and whether they are on this machine."""
    from dataclasses import asdict

    from attnknn.datasets import catalog, data_folders

    rows = list(catalog())
    if style == "json":
        click.echo(json.dumps([asdict(row) for row in rows], indent=1))
        return
    click.echo(f"{'name':<24} {'kind':<8} {'rows':>9} {'classes':>8}  found")
    for row in rows:
        found = "no" if row.found is None else row.found
        click.echo(f"{row.name:<24} {row.kind:<8} {row.n_rows:>9,} {row.n_classes:>8}  {found}")
    folders = ", ".join(str(folder) for folder in data_folders())
    click.echo(f"\nLooked in: {folders} (set ATTNKNN_DATA to add folders).")
