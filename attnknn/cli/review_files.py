"""Files that reviewers work on elsewhere, and the decisions that come back from there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.output import check_out, echo, write_json_list

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.cli.stored_model import LabelReader
    from attnknn.insight import Audit, Suggestions

LABEL_STUDIO, CLEANLAB = "label-studio", "cleanlab"


def check_label_studio(
    style: str | None, out: Path | None, config: Path | None, *others: Path, force: bool
) -> bool:
    """Whether tasks of Label Studio are asked for; before any work, files can be written."""
    if config is not None and style != LABEL_STUDIO:
        raise click.UsageError("--labeling-config requires --format label-studio.")
    check_out(config, out, *others, flag="--labeling-config", force=force)
    return style == LABEL_STUDIO


def write_tasks(
    found: Audit | Suggestions,
    classifier: AttnKNNClassifier,
    contents: Sequence[Any] | None,
    out: Path | None,
    config: Path | None,
    prefix: str,
    *,
    limit: int | None = None,
    force: bool = False,
) -> None:
    """Write tasks for Label Studio, and the labeling interface for them."""
    from attnknn._output_files import write_file
    from attnknn.insight import Audit, label_studio_config, label_studio_tasks

    if contents is not None and all(one is None for one in contents):
        contents = None
    tasks = label_studio_tasks(found, contents, limit=limit, prefix=prefix)
    write_json_list(out, tasks, force=force)
    if config is not None:
        kinds = [name for name in ("text", "image", "table") if tasks and name in tasks[0]["data"]]
        is_audit = isinstance(found, Audit)
        made = label_studio_config(classifier.classes_, *kinds[:1], forget=is_audit)
        write_file(config, f"{made}\n", force=force)
        echo(f"Wrote the labeling interface to {config}.", err=out is None)


def read_row_decisions(
    table: Path, labels: LabelReader, separator: str | None = None
) -> dict[int, Any]:
    """Labels by row number: of a table of `attnknn suggest -o`, or an export of Label Studio."""
    from attnknn.errors import InvalidInputError

    if table.suffix.lower() == ".json":
        from attnknn.insight import read_label_studio

        found = [
            (one.kind, one.key, one.decision, one.where) for one in read_label_studio(table).reviews
        ]
    else:
        found = [("row", *one) for one in _decisions_of_table(table, separator)]
    decisions: dict[int, Any] = {}
    for kind, row, label, where in found:
        if kind != "row":
            raise InvalidInputError(
                f"{where} is for an entry of the model, not for a row to add. Apply it with "
                "`attnknn relabel`."
            )
        if row in decisions:
            raise InvalidInputError(f"{where} has a second decision for row {row}.")
        decisions[row] = labels.read(label, where)
    return decisions


def _decisions_of_table(table: Path, separator: str | None) -> list[tuple[int, str, str]]:
    """Row number, label and place of each row with a decision."""
    import pandas as pd

    from attnknn.cli.rows import check_column, open_rows
    from attnknn.errors import InvalidInputError

    source = open_rows(table, separator=separator, has_header=True)
    for name in ("row", "decision"):
        check_column(source, name)
    found = []
    for chunk in source.chunks():
        cells = zip(chunk.table["row"].tolist(), chunk.table["decision"].tolist(), strict=True)
        for place, (row, label) in enumerate(cells):
            if pd.isna(label) or not str(label).strip():
                continue
            where = chunk.place(place).capitalize()
            if not str(row).isdecimal():
                raise InvalidInputError(f"{where} must have a row number in `row`, got {row!r}.")
            found.append((int(row), str(label).strip(), where))
    return found
