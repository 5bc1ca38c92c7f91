"""`attnknn suggest`: which rows of an unlabeled file to label next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli import options as shared
from attnknn.cli.commands import command, option, section
from attnknn.cli.options import FILE, WHOLE
from attnknn.cli.output import check_out, echo, echo_block, open_writer, output_format, progress

if TYPE_CHECKING:
    import pandas as pd

    from attnknn.cli.rows.queries import AllRows
    from attnknn.insight import Suggestions

STRATEGIES = ("default", "margin", "entropy", "least_confident", "novelty", "density", "random")
MAX_CELL = 1000  # characters shown of a row in a table


@command()
@shared.model_argument
@click.argument("pool", type=FILE)
@section(
    "Choice",
    option("-n", "n", type=WHOLE, default=20, help="Number of rows to suggest."),
    option(
        "--strategy",
        type=click.Choice(STRATEGIES),
        default="default",
        help="How rows are chosen. The default weighs how uncertain a row and those similar to it "
        "are, and avoids asking the same twice; the others rank each row by itself.",
    ),
    option(
        "--include-known",
        is_flag=True,
        help="Also suggest rows that equal an entry of the model.",
    ),
    option("--seed", type=int, default=0, help="Random seed."),
)
@section(
    "Output",
    option("-o", "--out", type=FILE, help="File to write.  [default: print the suggestions]"),
    shared.review_format_option("label-studio"),
    shared.labeling_config_option,
    shared.image_prefix_option,
    shared.force_option,
)
@shared.separator_option
@shared.header_option
@shared.max_memory_option
def suggest(
    model: Path,
    pool: Path,
    n: int,
    strategy: str,
    include_known: bool,
    seed: int,
    out: Path | None,
    style: str | None,
    labeling_config: Path | None,
    image_prefix: str,
    force: bool,
    separator: str | None,
) -> None:
    """Suggest which rows of an unlabeled file to label next.

    The rows come in the order of labeling, with the predicted label, a reason, and an estimate of
    the accuracy on the rest of the file. Rows that equal an entry of the model are left out.

    In a table written with --out, fill in the empty column `decision` with labels, and add these
    rows with `attnknn add MODEL POOL --decisions TABLE`; or write tasks for Label Studio with
    --format label-studio, and give its JSON export as TABLE.
    """
    from attnknn.cli.review_files import check_label_studio, write_tasks
    from attnknn.cli.rows.queries import open_queries
    from attnknn.insight import Pool
    from attnknn.insight import suggest as find

    is_tasks = check_label_studio(style, out, labeling_config, pool, force=force)
    chosen = "json" if is_tasks else output_format(out, style)
    check_out(out, pool, force=force)
    queries = open_queries(model, pool, separator)
    classifier = queries.classifier
    rows = queries.all_rows()
    with progress(f"Comparing {len(rows.names):,} rows"):
        unlabeled = Pool(rows.X, random_state=seed)
        known = [] if include_known else unlabeled.known(classifier).tolist()
        if len(known) == len(unlabeled):
            raise click.ClickException(
                f"Every row of {pool} equals an entry of the model, so none is left to label. "
                "--include-known suggests such rows, too."
            )
        found = find(classifier, unlabeled, n, strategy=strategy, skip=known, random_state=seed)
    if is_tasks:
        contents = [rows.contents[row] for row in found.rows]
        write_tasks(found, classifier, contents, out, labeling_config, image_prefix, force=force)
    elif out is None and style is None:
        shown = zip(found.rows.tolist(), _names(rows, found), strict=True)
        called = [f"{name} ({rows.shown[row]})" if rows.shown[row] else name for row, name in shown]
        echo_block(found.table(len(found), called))
    else:
        with open_writer(out, chosen, force=force) as writer:
            writer.write(decision_table(found, rows))
    _report(found, out, len(known), is_printed=out is None)


def decision_table(found: Suggestions, rows: AllRows) -> pd.DataFrame:
    """The suggestions, with an empty column for decisions."""
    from attnknn._display import payload_text

    table = found.to_frame().drop(columns=["runner_up", "runner_up_confidence"])
    names = _names(rows, found)
    if names and not names[0].startswith("row "):
        table.insert(1, "name", names)
    contents = [rows.contents[row] for row in found.rows.tolist()]
    if any(one is not None for one in contents):
        table["entry"] = ["" if one is None else payload_text(one, MAX_CELL) for one in contents]
    return table.assign(decision="")


def _names(rows: AllRows, found: Suggestions) -> list[str]:
    return [rows.names[row] for row in found.rows.tolist()]


def _report(found: Any, out: Path | None, n_known: int, *, is_printed: bool) -> None:
    if out is not None:
        echo(f"{found.sentence()} Written to {out}.")
    if n_known:
        rows = "row equals an entry" if n_known == 1 else "rows equal entries"
        echo(f"Left out: {n_known:,} {rows} of the model.", err=is_printed)
