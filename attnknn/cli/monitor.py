"""`attnknn monitor`: an alarm when rows or labels drift away from the training data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.commands import command, option, section
from attnknn.cli.options import (
    FILE,
    PROPORTION,
    force_option,
    header_option,
    max_memory_option,
    model_argument,
    separator_option,
)
from attnknn.cli.output import check_out, echo, open_writer, output_format, progress

if TYPE_CHECKING:
    from attnknn.cli.rows import Chunk
    from attnknn.cli.rows.queries import Queries
    from attnknn.insight import DriftMonitor, DriftReport

FALSE_ALARM_RATE = 0.01
ALARM = 3  # exit code


@command()
@model_argument
@click.argument("stream", type=FILE)
@option("-t", "--target", help="Column of the labels.  [default: as in fit, if it exists]")
@option(
    "--false-alarm-rate",
    type=PROPORTION,
    help=f"Probability of at least one false alarm without drift.  [default: {FALSE_ALARM_RATE}]",
)
@option("--state", type=FILE, help="File that stores the state, to continue the stream later.")
@section(
    "Output",
    option("-o", "--out", type=FILE, help="File for p-values and martingales of each row."),
    force_option,
)
@separator_option
@header_option
@max_memory_option
def monitor(
    model: Path,
    stream: Path,
    target: str | None,
    false_alarm_rate: float | None,
    state: Path | None,
    out: Path | None,
    force: bool,
    separator: str | None,
) -> None:
    """Test a stream of rows, and their labels, for drift.

    STREAM is a file of rows in the order of their arrival. Labels are tested too if there is a
    column of labels; some labels may be missing. The exit code is 0 without an alarm and 3 with
    one. With --state the next call continues the stream, and an alarm persists until the state file
    is deleted.
    """
    from attnknn._output_files import write_file
    from attnknn.cli.rows.queries import open_queries

    style = output_format(out, None)
    check_out(out, stream, force=force)
    check_out(state, stream, out, flag="--state", force=True)
    queries = open_queries(model, stream, separator)
    column = _target(queries, target)
    detector = _open_monitor(queries, state, false_alarm_rate)
    n_before, n_alarms = detector.n_rows, len(detector.alarms)
    with progress(f"Reading {stream.name}") as show, open_writer(out, style, force=force) as writer:
        for chunk, X in queries.chunks():
            seen = detector.watch(X, _labels(queries, chunk, column))
            if out is not None:
                writer.write(_table(queries, chunk, seen))
            show(f"{detector.n_rows - n_before:,} rows tested")
    if state is not None:
        write_file(state, json.dumps(detector.to_dict()), force=True)
    echo(seen.sentence())
    for alarm in detector.alarms[n_alarms:] if n_before else ():
        place = alarm.row - n_before
        echo(f"Row {alarm.row:,} of the stream is row {place:,} of {stream.name}.")
    if n_alarms:
        echo(f"The alarm was raised before this file; it persists until {state} is deleted.")
    click.get_current_context().exit(ALARM if detector.alarms else 0)


def _target(queries: Queries, given: str | None) -> str | None:
    """The column of the labels, or None if the file has no labels."""
    from attnknn.cli.rows import check_column

    if given is not None:
        return check_column(queries.source, given)
    defaults = (queries.notes.get("target"), queries.source.default_target)
    return next((name for name in defaults if name in queries.source.columns), None)


def _open_monitor(
    queries: Queries, state: Path | None, false_alarm_rate: float | None
) -> DriftMonitor:
    """A new monitor, or the one stored in the state file."""
    from attnknn.errors import InvalidInputError
    from attnknn.insight import DriftMonitor

    if state is None or not state.exists():
        probability = FALSE_ALARM_RATE if false_alarm_rate is None else false_alarm_rate
        return DriftMonitor(queries.classifier, false_alarm_rate=probability, random_state=0)
    try:
        stored = json.loads(state.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{state} must hold the state of a monitor as JSON.") from error
    try:
        detector = DriftMonitor.from_dict(queries.classifier, stored)
    except InvalidInputError as error:
        raise InvalidInputError(f"{state} cannot be used. {error}") from error
    if false_alarm_rate not in (None, detector.false_alarm_rate):
        raise click.UsageError(
            f"{state} was created with --false-alarm-rate {detector.false_alarm_rate:g}. Omit the "
            "option, or start a new stream with another state file."
        )
    return detector


def _labels(queries: Queries, chunk: Chunk, column: str | None) -> list[Any] | None:
    """Labels in the type of the classes; None where missing, and unknown labels are allowed."""
    from attnknn.cli.stored_model import LabelReader

    if column is None:
        return None
    classes = queries.classifier.classes_
    reader = LabelReader(classes, allows_new=True)
    cells = chunk.table[column]
    # A column of integers with missing values is read as floats.
    is_float = classes.dtype.kind in "iu" and cells.dtype.kind == "f"
    labels: list[Any] = []
    for row, (cell, is_missing) in enumerate(zip(cells.tolist(), cells.isna(), strict=True)):
        text = str(int(cell)) if is_float and float(cell).is_integer() else str(cell)
        place = chunk.place(row).capitalize()
        labels.append(None if is_missing else reader.read(text, place))
    return labels


def _table(queries: Queries, chunk: Chunk, seen: DriftReport) -> Any:
    import pandas as pd

    name, values = queries.names(chunk)
    return pd.DataFrame(
        {
            name: values,
            "p_row": seen.rows.p_values,
            "log_martingale_rows": seen.rows.log_martingale,
            "p_label": seen.labels.p_values,
            "log_martingale_labels": seen.labels.log_martingale,
        }
    )
