"""`attnknn monitor`: an alarm when rows, or their labels, are unlike what is remembered."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.separator import separator_option
from attnknn.cli.writing import check_out, open_writer, style_of

if TYPE_CHECKING:
    from attnknn.cli.files import Part
    from attnknn.cli.models import Asked
    from attnknn.insight import DriftMonitor, DriftReport

FILE = click.Path(path_type=Path)
SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)
USUAL = 0.01
ALARMED = 3  # exit code


@click.command()
@click.argument("model", type=FILE)
@click.argument("stream", type=FILE)
@click.option("-t", "--target", help="Column of the labels. [default: as in fit, if it is there]")
@click.option(
    "--false-alarms",
    type=SHARE,
    help="The chance of ever an alarm where nothing changed.  [default: 0.01]",
)
@click.option("--state", type=FILE, help="File that keeps what was seen, to go on with later.")
@click.option("-o", "--out", type=FILE, help="File for the p-values and capital of each row.")
@separator_option
def monitor(
    model: Path,
    stream: Path,
    target: str | None,
    false_alarms: float | None,
    state: Path | None,
    out: Path | None,
    separator: str | None,
) -> None:
    """Watch the rows of STREAM, in their order, for drift away from what MODEL remembers.

    Labels are watched too where there are some; a row may have none. Exit code 0 means no alarm,
    and 3 an alarm. With --state the next call goes on where this one ended, and an alarm stands
    until the state file is deleted.
    """
    from attnknn.cli.models import ask
    from attnknn.cli.waiting import patience

    style = style_of(out, None)
    check_out(out, stream)
    _check_state_file(state, stream, out)
    asked = ask(model, stream, separator)
    column = _target(asked, target)
    watcher = _monitor(asked, state, false_alarms)
    n_before, n_alarms = watcher.n_rows, len(watcher.alarms)
    with patience(f"Reading {stream.name}") as tell, open_writer(out, style) as writer:
        for part, X in asked.parts():
            seen = watcher.watch(X, _labels(asked, part, column))
            if out is not None:
                writer.write(_table(asked, part, seen))
            tell(f"{watcher.n_rows - n_before:,} rows watched")
    if state is not None:
        _keep(watcher, state)
    click.echo(seen.sentence())
    _tell_where(watcher, n_before, n_alarms, stream, state)
    click.get_current_context().exit(ALARMED if watcher.alarms else 0)


def _check_state_file(state: Path | None, *others: Path | None) -> None:
    """Before any work: the state can be written, and is none of the other files."""
    if state is None:
        return
    if state.exists() and not state.is_file():
        raise click.UsageError(f"{state} is no plain file; --state names one.")
    if not state.parent.is_dir():
        raise click.ClickException(f"There is no folder {state.parent} to write {state} in.")
    if state.absolute() in [other.absolute() for other in others if other is not None]:
        raise click.UsageError("--state must name a file of its own.")


def _target(asked: Asked, named: str | None) -> str | None:
    """The column of the labels, or None where the file has none and none was asked for."""
    from attnknn.cli.files.base import check_column

    source = asked.queries.source
    if named is not None:
        return check_column(source, named)
    usual = (asked.queries.notes.get("target"), source.default_target)
    return next((name for name in usual if name in source.columns), None)


def _monitor(asked: Asked, state: Path | None, false_alarms: float | None) -> DriftMonitor:
    """A new monitor, or the one that the state file keeps."""
    from attnknn.errors import InvalidInputError
    from attnknn.insight import DriftMonitor

    if state is None or not state.exists():
        chance = USUAL if false_alarms is None else false_alarms
        return DriftMonitor(asked.classifier, false_alarm_rate=chance, random_state=0)
    try:
        kept = json.loads(state.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"{state} must hold the state of a monitor as JSON.") from error
    try:
        watcher = DriftMonitor.from_dict(asked.classifier, kept)
    except InvalidInputError as error:
        raise InvalidInputError(f"{state} cannot be used. {error}") from error
    if false_alarms not in (None, watcher.false_alarm_rate):
        raise click.UsageError(
            f"{state} was begun with --false-alarms {watcher.false_alarm_rate:g}: leave the option "
            "out, or begin again with another file."
        )
    return watcher


def _labels(asked: Asked, part: Part, column: str | None) -> list[Any] | None:
    """Labels as the model has them; a gap is None, and a text that is no class a new one."""
    from attnknn.cli.editing import LabelReader

    if column is None:
        return None
    reader = LabelReader(asked.classifier.classes_, allows_new=True)
    cells = part.table[column]
    has_whole = asked.classifier.classes_.dtype.kind in "iu" and cells.dtype.kind == "f"
    return [
        None
        if is_gap
        else reader.read(
            str(int(cell)) if has_whole and float(cell).is_integer() else str(cell),
            part.place(row).capitalize(),
        )
        for row, (cell, is_gap) in enumerate(zip(cells.tolist(), cells.isna(), strict=True))
    ]


def _table(asked: Asked, part: Part, seen: DriftReport) -> Any:
    import pandas as pd

    name, values = asked.names(part)
    return pd.DataFrame(
        {
            name: values,
            "p_row": seen.rows.p_values,
            "log_martingale_rows": seen.rows.log_martingale,
            "p_label": seen.labels.p_values,
            "log_martingale_labels": seen.labels.log_martingale,
        }
    )


def _keep(watcher: DriftMonitor, state: Path) -> None:
    """Write the state file whole, or leave the old one."""
    temporary = state.with_name(f".{state.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.write_text(json.dumps(watcher.to_dict()), encoding="utf-8")
        os.replace(temporary, state)
    except OSError as error:
        error.filename, error.filename2 = str(state), None  # not a name that nobody gave
        raise
    finally:
        temporary.unlink(missing_ok=True)


def _tell_where(
    watcher: DriftMonitor, n_before: int, n_alarms: int, stream: Path, state: Path | None
) -> None:
    """Where a stream is longer than this file: which row raised an alarm, and what stands."""
    for alarm in watcher.alarms[n_alarms:] if n_before else ():
        place = alarm.row - n_before
        click.echo(f"Row {alarm.row:,} of the stream is row {place:,} of {stream.name}.")
    if n_alarms:
        click.echo(f"It was raised before this file, and stands until {state} is deleted.")
