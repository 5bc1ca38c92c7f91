"""`attnknn predict` and `attnknn explain`: predictions for the rows of a file, and evidence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from attnknn._escape import visible
from attnknn.cli import options as shared
from attnknn.cli.commands import command, option, section
from attnknn.cli.options import COUNT, PROPORTION, WHOLE
from attnknn.cli.output import (
    check_out,
    count_of,
    echo,
    echo_block,
    echo_json,
    open_writer,
    output_format,
    progress,
)

if TYPE_CHECKING:
    from attnknn.cli.rows import Chunk
    from attnknn.cli.rows.queries import Queries
    from attnknn.evidence import Evidence
    from attnknn.records import Floats


@command()
@shared.model_argument
@shared.rows_argument
@section(
    "Prediction",
    option("--proba", is_flag=True, help="Add the probability of every class."),
    option(
        "--sets",
        "coverage",
        type=PROPORTION,
        help="Add conformal prediction sets with this coverage, such as 0.9.",
    ),
    option(
        "--no-empty-sets",
        is_flag=True,
        help="Put the most probable class into sets that would be empty.",
    ),
)
@section(
    "Abstaining",
    option(
        "--max-risk",
        type=PROPORTION,
        help="Abstain so that the error rate of the answered rows is at most this.",
    ),
    option("--min-confidence", type=PROPORTION, help="Abstain below this probability."),
    option(
        "--novelty-level",
        type=PROPORTION,
        help="Abstain when the novelty p-value is at most this.  "
        "[default: 0.01 with --max-risk or --min-confidence]",
    ),
    option(
        "--n-nearest",
        type=WHOLE,
        default=1,
        help="For novelty only: use the mean distance to this many nearest entries.",
    ),
)
@section("Output", shared.out_option, shared.format_option, shared.force_option)
@shared.separator_option
@shared.header_option
@shared.max_memory_option
def predict(
    model: Path,
    rows: Path,
    out: Path | None,
    style: str | None,
    force: bool,
    proba: bool,
    coverage: float | None,
    no_empty_sets: bool,
    n_nearest: int,
    separator: str | None,
    **thresholds: float | None,
) -> None:
    """Predict labels and probabilities for the rows of a file.

    ROWS may be larger than RAM. Columns are matched by name; other columns are ignored. Each
    prediction carries the id column of the model, the file name of an image, or the row number.

    With --max-risk, --min-confidence or --novelty-level the model abstains on some rows. The column
    `reason` then says 'unsure between A and B', or 'unlike anything remembered' for a novel row.
    """
    import pandas as pd

    from attnknn.cli.rows.queries import open_queries

    chosen = output_format(out, style)
    check_out(out, rows, force=force)
    queries = open_queries(model, rows, separator)
    given = {name: value for name, value in thresholds.items() if value is not None}
    if n_nearest > 1 and not given:
        raise click.UsageError("--n-nearest requires --novelty-level.")
    if no_empty_sets and coverage is None:
        raise click.UsageError("--no-empty-sets requires --sets.")
    n_rows = n_abstained = n_empty = 0
    with open_writer(out, chosen, force=force) as writer, progress(f"Reading {rows.name}") as show:
        for chunk, X in queries.chunks():
            results = _predictions(queries, chunk, queries.classifier.predict_proba(X), proba)
            if coverage is not None:
                sets = queries.classifier.predict_set(X, coverage, allow_empty=not no_empty_sets)
                results["set"] = _set_cells(sets.labels(), chosen)
                n_empty += int((sets.sizes == 0).sum())
            if given:
                decisions = queries.classifier.decide(X, n_nearest=n_nearest, **given)
                results["decision"] = [
                    "predict" if is_made else "abstain" for is_made in decisions.is_answered
                ]
                results["reason"] = decisions.reasons
                n_abstained += results["decision"].count("abstain")
            writer.write(pd.DataFrame(results))
            n_rows = chunk.first + len(chunk)
            show(f"{n_rows:,} rows predicted")
    written = "" if out is None else f", written to {out}"
    abstained = f", abstained on {n_abstained:,}" if n_abstained else ""
    made = count_of(n_rows - n_abstained, "row", "rows")
    echo(f"Predicted {made}{abstained}{written}.", err=True)
    if n_empty:
        echo(
            f"Empty sets: {n_empty:,}. In these rows no class reaches the probability that true "
            "labels usually have: none is plausible at this coverage. Increase --sets, or give "
            "--no-empty-sets to include the most probable class.",
            err=True,
        )


def _predictions(
    queries: Queries, chunk: Chunk, probabilities: Floats, proba: bool
) -> dict[str, Any]:
    classes = queries.classifier.classes_
    name, values = queries.names(chunk)
    results = {
        name: values,
        "label": classes[probabilities.argmax(axis=1)].tolist(),
        "confidence": probabilities.max(axis=1),
    }
    if proba:
        results |= {f"p({c})": probabilities[:, i] for i, c in enumerate(classes.tolist())}
    return results


def _set_cells(labels: list[list[Any]], style: str) -> list[Any]:
    """The labels of each set: a list in JSON, else a string such as 'cat | dog'."""
    return labels if style == "json" else [" | ".join(map(str, row)) for row in labels]


@command()
@shared.model_argument
@shared.rows_argument
@option("--row-numbers", "chosen", help="Numbers of the rows to explain, counted from 0, as 0,5,7.")
@option(
    "--limit",
    type=WHOLE,
    default=10,
    help="Without --row-numbers, explain the first N rows.",
    metavar="N",
)
@section(
    "Output",
    option("-n", "--neighbors", "n_shown", type=COUNT, default=5, help="Neighbors shown per row."),
    shared.print_format_option,
)
@shared.separator_option
@shared.header_option
@shared.max_memory_option
def explain(
    model: Path,
    rows: Path,
    n_shown: int,
    chosen: str | None,
    limit: int,
    style: str,
    separator: str | None,
) -> None:
    """Show the neighbors and weights behind each prediction."""
    from attnknn.cli.rows.queries import open_queries

    wanted = list(range(limit)) if chosen is None else _row_numbers(chosen)
    queries = open_queries(model, rows, separator)
    found = list(evidence_of_rows(queries, wanted, is_explicit=chosen is not None))
    if style == "json":
        echo_json([_record(row, n_shown) for row in found])
        return
    for row in found:
        content = "" if row.content is None else f" ({visible(row.content)})"
        heading = f"{visible(row.name)} {visible(row.value)}{content}"
        echo_block(f"{heading}: {row.evidence.table(n_shown)}\n")


def _row_numbers(text: str) -> list[int]:
    try:
        numbers = sorted({int(number) for number in text.split(",")})
    except ValueError:
        numbers = [-1]
    if numbers[0] < 0:
        raise click.UsageError(
            f"--row-numbers must be numbers from 0, such as 0,5,7; got {text!r}."
        )
    return numbers


class ExplainedRow(NamedTuple):
    """A row of a file with the evidence of its prediction."""

    name: str  # of the id column, or "row"
    value: Any  # the id, or the number of the row
    content: str | None  # the row in short, if there is more to show than its name
    evidence: Evidence


def evidence_of_rows(
    queries: Queries, wanted: list[int], *, is_explicit: bool
) -> Iterator[ExplainedRow]:
    """The wanted rows with their evidence.

    Numbers beyond the last row are an error if `is_explicit`.
    """
    from attnknn.errors import InvalidInputError

    n_rows = 0
    for chunk, X in queries.chunks():
        n_rows = chunk.first + len(chunk)
        places = [row - chunk.first for row in wanted if chunk.first <= row < n_rows]
        name, values = queries.names(chunk)
        some = X.iloc[places] if hasattr(X, "iloc") else X[places]
        shown = queries.shown(chunk) if places else None
        for place, evidence in zip(places, queries.classifier.explain(some), strict=True):
            content = None if shown is None else shown[place]
            yield ExplainedRow(name, values[place], content, evidence)
        if wanted[-1] < n_rows:
            return
    if is_explicit:
        raise InvalidInputError(f"The file has {n_rows} rows; row {wanted[-1]} does not exist.")


def _record(row: ExplainedRow, n_shown: int) -> dict[str, Any]:
    """The evidence with its heaviest neighbors, and the total weight of the others."""
    record = row.evidence.to_dict()
    others = record["weights"][n_shown:]
    for key in ("ids", "labels", "weights", "distances", "payloads"):
        if key in record:
            record[key] = record[key][:n_shown]
    content = {} if row.content is None else {"content": row.content}
    others_in_all = {"count": len(others), "weight": sum(others)}
    return {row.name: row.value, **content, **record, "others": others_in_all}
