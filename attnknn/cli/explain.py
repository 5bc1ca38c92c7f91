"""`attnknn explain`: which remembered examples decided."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.separator import separator_option

if TYPE_CHECKING:
    from attnknn.cli.models import Asked
    from attnknn.evidence import Evidence

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
@click.argument("rows", type=FILE)
@click.option(
    "-n",
    "--neighbors",
    "n_shown",
    type=click.IntRange(0),
    default=5,
    help="Neighbors shown per row.",
)
@click.option("--rows", "chosen", help="Numbers of the rows to explain, as 0,5,7.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    default=10,
    help="Without --rows, explain so many of the first rows.",
)
@click.option("--format", "style", type=click.Choice(["table", "json"]), default="table")
@separator_option
def explain(
    model: Path,
    rows: Path,
    n_shown: int,
    chosen: str | None,
    limit: int,
    style: str,
    separator: str | None,
) -> None:
    """Show which remembered examples decided each prediction in ROWS."""
    from attnknn.cli.models import ask

    wanted = list(range(limit)) if chosen is None else _numbers(chosen)
    asked = ask(model, rows, separator)
    found = list(evidence_of_rows(asked, wanted, is_asked_for=chosen is not None))
    if style == "json":
        click.echo(json.dumps([_record(*item, n_shown) for item in found], indent=1))
        return
    for name, value, evidence in found:
        click.echo(f"{name} {value}: {evidence.table(n_shown)}\n")


def _numbers(text: str) -> list[int]:
    try:
        numbers = sorted({int(number) for number in text.split(",")})
    except ValueError:
        numbers = [-1]
    if numbers[0] < 0:
        raise click.UsageError(f"--rows must be numbers from 0, as 0,5,7, got {text!r}.")
    return numbers


def evidence_of_rows(
    asked: Asked, wanted: list[int], *, is_asked_for: bool
) -> Iterator[tuple[str, Any, Evidence]]:
    """The column that names the rows, the name, and the evidence of each wanted row."""
    from attnknn.errors import InvalidInputError

    n_rows = 0
    for part, X in asked.parts():
        n_rows = part.first + len(part)
        places = [row - part.first for row in wanted if part.first <= row < n_rows]
        name, values = asked.names(part)
        some = X.iloc[places] if hasattr(X, "iloc") else X[places]
        for place, evidence in zip(places, asked.classifier.explain(some), strict=True):
            yield name, values[place], evidence
        if wanted[-1] < n_rows:
            return
    if is_asked_for:
        raise InvalidInputError(f"The file has {n_rows} rows; there is no row {wanted[-1]}.")


def _record(name: str, value: Any, evidence: Evidence, n_shown: int) -> dict[str, Any]:
    """The evidence with its weightiest neighbors, and what the others had to say in sum."""
    record = evidence.to_dict()
    others = record["weights"][n_shown:]
    for key in ("ids", "labels", "weights", "distances", "payloads"):
        if key in record:
            record[key] = record[key][:n_shown]
    return {name: value, **record, "others": {"count": len(others), "weight": sum(others)}}
