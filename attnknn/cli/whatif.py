"""`attnknn whatif`: what the answers would be after an edit that is not made."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.new_classes import new_classes_option
from attnknn.cli.separator import separator_option

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnknn.cli.editing import LabelReader
    from attnknn.cli.models import Asked
    from attnknn.insight import AddedRows, WhatIf

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
@click.argument("rows", type=FILE)
@click.option("--forget", multiple=True, help="Ids of entries to forget, as 3,5,7.")
@click.option("--relabel", multiple=True, help="An entry and its new label, as 3=cat; repeatable.")
@click.option("--add", type=FILE, help="A file of labeled rows to remember too.")
@click.option("-t", "--target", help="Column of the labels in it. [default: as in fit]")
@click.option("--limit", type=click.IntRange(0), default=10, help="Rows shown, at most.")
@click.option("--format", "style", type=click.Choice(["table", "json"]), default="table")
@new_classes_option
@separator_option
def whatif(
    model: Path,
    rows: Path,
    forget: tuple[str, ...],
    relabel: tuple[str, ...],
    add: Path | None,
    target: str | None,
    limit: int,
    style: str,
    new_classes: bool,
    separator: str | None,
) -> None:
    """Show how the answers for ROWS would change if entries were forgotten, relabeled or added.

    The model is not changed. The answers are exactly those that the edit would give.
    """
    from attnknn.cli.editing import LabelReader, listed_ids
    from attnknn.cli.models import ask
    from attnknn.insight import what_if

    if not (forget or relabel or add):
        raise click.UsageError("Name an edit to try with --forget, --relabel or --add.")
    asked = ask(model, rows, separator)
    ids = asked.classifier.memory_.entries.ids
    labels = LabelReader(asked.classifier.classes_, new_classes)
    names, X = _all_rows(asked)
    found = what_if(
        asked.classifier,
        X,
        forget=listed_ids(forget, ids),
        relabel=_pairs(relabel, ids, labels),
        add=None if add is None else _added(asked, add, target, labels, separator),
    )
    if style == "json":
        click.echo(json.dumps(_record(found, names), indent=1))
        return
    click.echo(found.table(limit, names))


def _all_rows(asked: Asked) -> tuple[list[str], Any]:
    """What the rows are called, and all of them as the classifier takes them."""
    names: list[str] = []
    parts: list[Any] = []
    for part, X in asked.parts():
        column, values = asked.names(part)
        names += [f"{column} {value}" for value in values]
        parts.append(X)
    return names, _joined(parts)


def _joined(parts: list[Any]) -> Any:
    import numpy as np
    import pandas as pd

    is_table = isinstance(parts[0], pd.DataFrame)
    return pd.concat(parts, ignore_index=True) if is_table else np.concatenate(parts)


def _added(
    asked: Asked, rows: Path, target: str | None, labels: LabelReader, separator: str | None
) -> AddedRows:
    """All rows of a file with all that `attnknn add` would remember of them."""
    import numpy as np

    from attnknn.cli.files import open_rows
    from attnknn.cli.models import asking
    from attnknn.cli.new_rows import new_rows
    from attnknn.insight import AddedRows

    notes = asked.queries.notes
    source = open_rows(rows, separator=separator, column=lambda: notes.get("text"))
    parts = list(new_rows(asking(asked.classifier, notes, source), target, labels))
    told = {
        name: None if first is None else np.concatenate([part.metadata[name] for part in parts])
        for name, first in parts[0].metadata.items()
    }
    return AddedRows(
        _joined([part.X for part in parts]), np.concatenate([part.y for part in parts]), **told
    )


def _pairs(texts: Iterable[str], ids: NDArray[Any], labels: LabelReader) -> dict[Any, Any]:
    """New labels by id."""
    from attnknn.errors import InvalidInputError

    pairs: dict[Any, Any] = {}
    for text in texts:
        name, label = _pair(text, ids)
        if name in pairs:
            raise InvalidInputError(f"--relabel must name an id once, {name!r} comes twice.")
        pairs[name] = labels.read(label, f"--relabel {text}")
    return pairs


def _pair(text: str, ids: NDArray[Any]) -> tuple[Any, str]:
    """ID=LABEL; both may have an equals sign, if only one way to read it names an entry."""
    from attnknn.cli.editing import as_id
    from attnknn.errors import InvalidInputError

    places = [place for place, letter in enumerate(text) if letter == "="]
    if not places:
        raise click.UsageError(f"--relabel must be ID=LABEL, as 3=cat, got {text!r}.")
    if ids.dtype != object:
        return as_id(text[: places[0]], ids), text[places[0] + 1 :]
    known = set(ids.tolist())
    found = [(text[:place], text[place + 1 :]) for place in places if text[:place] in known]
    if len(found) != 1:
        why = "names no entry" if not found else "names more than one entry"
        raise InvalidInputError(f"--relabel {text!r} {why}; it must be ID=LABEL.")
    return found[0]


def _record(found: WhatIf, names: list[str]) -> dict[str, Any]:
    changed = set(found.changed.tolist())
    return {
        "n_rows": len(names),
        "n_changed": len(changed),
        "classes": [str(label) for label in found.classes.tolist()],
        "rows": [
            {
                "row": name,
                "is_changed": row in changed,
                "shift": float(found.shift[row]),
                "before": found.before[row].tolist(),
                "after": found.after[row].tolist(),
            }
            for row, name in enumerate(names)
        ],
    }
