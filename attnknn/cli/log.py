"""`attnknn log`: who changed what when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
@click.option("--edit", type=click.IntRange(0), help="Show what this edit did to each entry.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
def log(model: Path, edit: int | None, as_json: bool) -> None:
    """List the edits of MODEL, the first one first."""
    from attnknn.storage.editor import list_changes, list_edits

    if edit is None:
        rows = [line.to_dict() for line in list_edits(model)]
        columns = ["edit", "at", "by", "message"]
    else:
        rows = [entry.to_dict() for entry in list_changes(model, edit)]
        columns = ["id", "label_before", "label_after"]
        if any(
            {line["sample_weight_before"], line["sample_weight_after"]} - {None, 1} for line in rows
        ):
            columns += ["sample_weight_before", "sample_weight_after"]
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    if not rows:
        click.echo(f"{model} has never been edited." if edit is None else "No entry.")
        return
    _table(columns, rows)


def _table(columns: list[str], rows: list[dict[str, Any]]) -> None:
    cells = [[_cell(row[name]) for name in columns] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for line in [columns, *cells]:
        padded = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
