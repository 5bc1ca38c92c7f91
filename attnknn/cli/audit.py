"""`attnknn audit`: a table of the entries that a person should look at."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.writing import STYLES, check_out, open_writer, style_of

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from attnknn.insight import Audit

FILE = click.Path(path_type=Path)
SHOWN_IDS = 3


@click.command()
@click.argument("model", type=FILE)
@click.option("-o", "--out", type=FILE, help="File to write the table to, as audit.csv.")
@click.option("--limit", type=click.IntRange(1), default=100, help="So many entries at most.")
@click.option(
    "--format",
    "style",
    type=click.Choice(STYLES),
    help="Of the table. [default: by the name of the file; without both, a summary only]",
)
@click.option(
    "--near",
    type=click.FloatRange(0),
    default=0.1,
    help="Near duplicates are within this share of the typical distance to a nearest other.",
)
def audit(model: Path, out: Path | None, limit: int, style: str | None, near: float) -> None:
    """Find wrong labels, duplicates and harmful entries in MODEL.

    The table lists the most suspicious entries first. Write what is right into its empty column
    `decision` (a label, or !forget; empty leaves the entry as it is) and apply it with
    `attnknn relabel`.
    """
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.cli.waiting import patience
    from attnknn.insight import audit as find

    chosen = style_of(out, style)
    check_out(out, model)
    classifier = AttnKNNClassifier.load(model)
    with patience(f"Judging {len(classifier.memory_):,} entries"):
        found = find(classifier, near=near)
    if out is None and style is None:
        click.echo(found.table())
        return
    with open_writer(out, chosen) as writer:
        writer.write(table_of(found, classifier.memory_.entries.payloads, limit))
    click.echo(found.summary(), err=out is None)
    if out is not None:
        click.echo(f"{'written':<17} {min(limit, len(found)):,} entries to {out}")


def table_of(found: Audit, payloads: NDArray[Any] | None, limit: int) -> pd.DataFrame:
    """The first entries of an audit as a person works through them."""
    frame = found.to_frame().head(limit)
    label = dict(zip(found.ids.tolist(), found.labels.tolist(), strict=True))

    def other_label(name: Any, those: tuple[Any, ...]) -> list[Any]:
        return [one for one in those if label[one] != label[name]]

    def others(name: Any, those: tuple[Any, ...]) -> list[Any]:
        return [one for one in those if one != name]

    pairs = list(zip(frame["id"], frame["duplicates"], strict=True))
    nearly = zip(frame["id"], frame["near_duplicates"], strict=True)
    table = frame[
        ["id", "label", "suggested", "suggested_probability", "wrong", "label_error_score", "value"]
    ].assign(
        conflict_with=[_shown(other_label(*pair), label) for pair in pairs],
        duplicate_of=[_shown(others(*pair)) for pair in pairs],
        near_duplicate_of=[_shown(others(*pair)) for pair in nearly],
        contradicted_by=[_shown(those, label) for those in frame["contradicted_by"]],
    )
    if payloads is not None:
        table["entry"] = [str(payload) for payload in payloads[found.order[:limit]]]
    return table.assign(decision="")


def _shown(ids: Any, label: dict[Any, Any] | None = None) -> str:
    """A few ids, with their labels: '3 (cat), 9 (dog) and 2 more'."""
    shown = [str(one) if label is None else f"{one} ({label[one]})" for one in ids[:SHOWN_IDS]]
    more = f" and {len(ids) - SHOWN_IDS} more" if len(ids) > SHOWN_IDS else ""
    return ", ".join(shown) + more
