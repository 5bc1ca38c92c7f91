"""`attnknn add`, `refit`, `undo`, `snapshot`, `rollback` and `log`: edit a stored model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from attnknn.cli import options as shared
from attnknn.cli.commands import command, option
from attnknn.cli.options import COUNT, FILE
from attnknn.cli.output import echo, echo_block, echo_json


@command()
@shared.model_argument
@shared.rows_argument
@shared.target_option
@option(
    "--decisions",
    type=FILE,
    help="Add only the rows that have a label in this table of `attnknn suggest --out`, or in this "
    "JSON export of Label Studio.",
)
@shared.new_classes_option
@shared.separator_option
@shared.header_option
@shared.max_memory_option
@shared.by_option
def add(
    model: Path,
    rows: Path,
    target: str | None,
    decisions: Path | None,
    new_classes: bool,
    separator: str | None,
    by: str | None,
) -> None:
    """Add the labeled rows of a file to a model.

    Predictions use the new entries immediately; encoder, attention and calibration stay as they are
    until `attnknn refit`. Columns have the same roles as in `attnknn fit`: ids, groups, subjects,
    sample weights, payload. Without an id column, new entries are numbered consecutively. Undo with
    `attnknn undo`.
    """
    from attnknn.cli.output import progress
    from attnknn.cli.review_files import read_row_decisions
    from attnknn.cli.rows import open_rows
    from attnknn.cli.rows.queries import queries_for
    from attnknn.cli.stored_model import LabelReader, edit, open_model
    from attnknn.storage import load_notes

    text = load_notes(model).get("text")
    source = open_rows(rows, separator=separator, text_column=lambda: text)
    with open_model(model, by) as opened, progress(f"Reading {rows.name}"):
        queries = queries_for(opened.classifier, opened.notes, source)
        labels = LabelReader(opened.classifier.classes_, new_classes)
        if decisions is None:
            labeled = queries.labeled(target, labels)
        elif target is not None:
            raise click.UsageError("Give either --target or --decisions.")
        else:
            labeled = queries.decided(read_row_decisions(decisions, labels))
        with edit(opened) as classifier:
            for some in labeled:
                classifier.add(some.X, some.y, **some.metadata)


@command()
@shared.model_argument
@shared.by_option
def refit(model: Path, by: str | None) -> None:
    """Fit attention and calibration again on the current entries.

    Use after many edits: edits change the neighbors at once, but not the fitted parameters. The
    encoder is not refitted: the model stores embeddings, not the original rows. Undo with `attnknn
    undo`.
    """
    from attnknn.cli.output import progress
    from attnknn.cli.stored_model import edit, open_model

    with open_model(model, by) as opened:
        n_entries = len(opened.classifier.memory_)
        with progress(f"Fitting {n_entries:,} entries"), edit(opened, "Refitted") as classifier:
            classifier.refit()
        echo_block(str(opened.classifier.fit_report_))


@command()
@shared.model_argument
@shared.by_option
def undo(model: Path, by: str | None) -> None:
    """Undo the last edit; repeat to undo earlier ones.

    `attnknn log` lists the edits. An erasure (`attnknn forget --subject`) and a new `attnknn fit`
    cannot be undone.
    """
    from attnknn.cli.stored_model import open_model, report_edit

    with open_model(model, by) as opened:
        undone = opened.undo()
        words = f"{undone.message[:1].lower()}{undone.message[1:]}"
        report_edit(opened, f"Undid edit {undone.edit}, {words}")


@command()
@shared.model_argument
@click.argument("name", required=False)
@shared.by_option
def snapshot(model: Path, name: str | None, by: str | None) -> None:
    """Save the current state of a model as snapshot NAME.

    Restore it with `attnknn rollback`. A snapshot takes no space, because every state is stored.
    Without NAME, list the snapshots.
    """
    from attnknn.cli.stored_model import open_model
    from attnknn.storage.editor import list_snapshots

    if name is None:
        for known in list_snapshots(model):
            echo(f"{known.name}  edit {known.edit}  {known.at}  {known.by}")
        return
    with open_model(model, by) as opened:
        taken = opened.snapshot(name)
    echo(f"Saved snapshot {taken.name}: the state after edit {taken.edit}.")


@command()
@shared.model_argument
@click.argument("name", required=False)
@option("--edit", type=COUNT, help="Restore the state after this edit, by its number in the log.")
@shared.by_option
def rollback(model: Path, name: str | None, edit: int | None, by: str | None) -> None:
    """Restore the state saved as snapshot NAME.

    Later edits stay in the log, and `attnknn undo` undoes the rollback.
    """
    from attnknn.cli.stored_model import open_model, report_edit

    to = name if edit is None else edit
    if to is None or (name is not None and edit is not None):
        raise click.UsageError("Give either the name of a snapshot or --edit.")
    with open_model(model, by) as opened:
        report_edit(opened, opened.rollback(to).message)


@command()
@shared.model_argument
@option("--edit", type=COUNT, help="Show what this edit changed, entry by entry.")
@shared.print_format_option
def log(model: Path, edit: int | None, style: str) -> None:
    """List the edits of a model, oldest first."""
    from attnknn.cli.output import text_table
    from attnknn.storage.editor import list_changes, list_edits

    columns = ["edit", "at", "by", "message"]
    if edit is None:
        rows = [line.to_dict() for line in list_edits(model)]
    else:
        rows = [entry.to_dict() for entry in list_changes(model, edit)]
        columns = ["id", "label_before", "label_after"]
        weights = ["sample_weight_before", "sample_weight_after"]
        if any({row[name] for name in weights} - {None, 1} for row in rows):
            columns += weights
        if any(row["payload"] is not None for row in rows):
            columns += ["payload"]
    if style == "json":
        echo_json(rows)
    elif rows:
        echo_block(text_table(columns, [[_shown(row, name) for name in columns] for row in rows]))
    else:
        echo(f"{model} has no edits." if edit is None else "No entries changed.")


def _shown(row: dict[str, Any], name: str) -> Any:
    from attnknn._display import payload_text

    is_payload = name == "payload" and row[name] is not None
    return payload_text(row[name]) if is_payload else row[name]
