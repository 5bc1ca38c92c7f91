"""`attnknn whatif`: predictions after an edit that is not made."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli import options as shared
from attnknn.cli.commands import command, option, section
from attnknn.cli.options import COUNT, FILE
from attnknn.cli.output import echo_block, echo_json

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnknn.cli.rows.queries import Queries
    from attnknn.cli.stored_model import LabelReader
    from attnknn.insight import AddedRows, WhatIf


@command()
@shared.model_argument
@shared.rows_argument
@section(
    "Edit to try",
    option("--forget", multiple=True, help="Ids of entries to remove, as 3,5,7."),
    option("--relabel", multiple=True, help="An id and its new label, as 3=cat; repeatable."),
    option("--add", type=FILE, help="File of labeled rows to add."),
    option("-t", "--target", help="Column of the labels in --add.  [default: as in fit]"),
    shared.new_classes_option,
)
@section(
    "Output",
    option("--limit", type=COUNT, default=10, help="Maximum number of rows shown."),
    shared.print_format_option,
)
@shared.separator_option
@shared.header_option
@shared.max_memory_option
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
    """Show how an edit would change predictions, without making it.

    The model is not changed. The predictions are exactly those after `attnknn forget`, `relabel` or
    `add`.
    """
    from attnknn.cli.rows.queries import open_queries
    from attnknn.cli.stored_model import LabelReader, listed_ids
    from attnknn.insight import what_if

    if not (forget or relabel or add):
        raise click.UsageError("Give an edit to try: --forget, --relabel or --add.")
    queries = open_queries(model, rows, separator)
    ids = queries.classifier.memory_.entries.ids
    labels = LabelReader(queries.classifier.classes_, new_classes)
    names, contents, _, X = queries.all_rows()
    found = what_if(
        queries.classifier,
        X,
        forget=listed_ids(forget, ids),
        relabel=_new_labels(relabel, ids, labels),
        add=None if add is None else _added(queries, add, target, labels, separator),
    )
    if style == "json":
        echo_json(_record(found, names, contents))
        return
    pairs = zip(names, contents, strict=True)
    echo_block(found.table(limit, [f"{name} ({c})" if c else name for name, c in pairs]))


def _added(
    queries: Queries, path: Path, target: str | None, labels: LabelReader, separator: str | None
) -> AddedRows:
    """All rows of a file with the metadata that `attnknn add` would store."""
    import numpy as np

    from attnknn.cli.rows import open_rows
    from attnknn.cli.rows.queries import joined, queries_for
    from attnknn.insight import AddedRows

    notes = queries.notes
    source = open_rows(path, separator=separator, text_column=lambda: notes.get("text"))
    chunks = list(queries_for(queries.classifier, notes, source).labeled(target, labels))
    metadata = {
        name: None if first is None else np.concatenate([some.metadata[name] for some in chunks])
        for name, first in chunks[0].metadata.items()
    }
    X, y = joined([some.X for some in chunks]), np.concatenate([some.y for some in chunks])
    return AddedRows(X, y, **metadata)


def _new_labels(texts: Iterable[str], ids: NDArray[Any], labels: LabelReader) -> dict[Any, Any]:
    """New labels by id."""
    new: dict[Any, Any] = {}
    for text in texts:
        name, label = _split_pair(text, ids)
        if name in new:
            raise click.ClickException(f"--relabel must name an id once, {name!r} is repeated.")
        new[name] = labels.read(label, f"--relabel {text}")
    return new


def _split_pair(text: str, ids: NDArray[Any]) -> tuple[Any, str]:
    """ID=LABEL; both may contain "=", if only one way to split names an entry."""
    from attnknn.cli.stored_model import as_id

    places = [place for place, letter in enumerate(text) if letter == "="]
    if not places:
        raise click.UsageError(f"--relabel must be ID=LABEL, such as 3=cat, got {text!r}.")
    if ids.dtype != object:
        return as_id(text[: places[0]], ids), text[places[0] + 1 :]
    known = set(ids.tolist())
    found = [(text[:place], text[place + 1 :]) for place in places if text[:place] in known]
    if len(found) != 1:
        reason = "does not name an entry" if not found else "names more than one entry"
        raise click.ClickException(f"--relabel {text!r} {reason}; it must be ID=LABEL.")
    return found[0]


def _record(found: WhatIf, names: list[str], contents: list[str | None]) -> dict[str, Any]:
    changed = set(found.changed.tolist())
    return {
        "n_rows": len(names),
        "n_changed": len(changed),
        "classes": [str(label) for label in found.classes.tolist()],
        "rows": [
            {
                "row": name,
                **({} if contents[row] is None else {"content": contents[row]}),
                "is_changed": row in changed,
                "shift": float(found.shift[row]),
                "before": found.before[row].tolist(),
                "after": found.after[row].tolist(),
            }
            for row, name in enumerate(names)
        ],
    }
