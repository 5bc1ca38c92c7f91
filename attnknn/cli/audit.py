"""`attnknn audit` and `attnknn relabel`: find label errors, and apply a reviewer's decisions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli import options as shared
from attnknn.cli.commands import command, option, section
from attnknn.cli.options import FILE, NOT_NEGATIVE, WHOLE
from attnknn.cli.output import check_out, echo, echo_block, open_writer, output_format, progress
from attnknn.cli.review_files import CLEANLAB, LABEL_STUDIO, check_label_studio, write_tasks

if TYPE_CHECKING:
    import pandas as pd

    from attnknn.cli.stored_model import Decisions
    from attnknn.insight import Audit, ReviewEdits
    from attnknn.storage.editor import EditableModel

N_IDS, MAX_CELL = 3, 1000  # ids and characters shown in a cell


@command()
@shared.model_argument
@option(
    "--near",
    type=NOT_NEGATIVE,
    default=0.1,
    help="Call two entries near duplicates if their distance is at most this fraction of the "
    "typical nearest-neighbor distance.",
)
@section(
    "Output",
    option("-o", "--out", type=FILE, help="File for the table.  [default: print a summary only]"),
    shared.review_format_option(LABEL_STUDIO, CLEANLAB),
    shared.labeling_config_option,
    shared.image_prefix_option,
    shared.force_option,
    option("--limit", type=WHOLE, default=100, help="Maximum number of entries in the table."),
)
def audit(
    model: Path,
    out: Path | None,
    limit: int,
    style: str | None,
    labeling_config: Path | None,
    image_prefix: str,
    force: bool,
    near: float,
) -> None:
    """Find label errors, duplicates and harmful entries.

    Harmful entries are those whose votes worsen the predictions of other entries. The table lists
    the most likely label errors first: `wrong` is the probability that the label is wrong (absent
    if label noise was not found or is not estimable; the summary gives the reason), `score`
    (in files `label_error_score`) is one minus the leave-one-out probability of the label, and
    `value` is the reduction in log-loss of the other entries by the votes of this one (negative:
    harmful).

    In a table written with --out, fill in the empty column `decision` (the correct label, or
    !forget to remove the entry; empty keeps it), and apply it with `attnknn relabel`. With --format
    label-studio the entries are written as tasks for Label Studio, whose JSON export `attnknn
    relabel` applies; with --format cleanlab as a table with the column names of cleanlab.
    """
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.insight import audit as find

    is_tasks = check_label_studio(style, out, labeling_config, force=force)
    chosen = output_format(out, None if style == CLEANLAB else style) if not is_tasks else "json"
    check_out(out, force=force)
    classifier = AttnKNNClassifier.load(model)
    with progress(f"Auditing {len(classifier.memory_):,} entries"):
        found = find(classifier, near=near)
    if out is None and style is None:
        echo_block(found.table())
        return
    if is_tasks:
        write_tasks(
            found, classifier, None, out, labeling_config, image_prefix, limit=limit, force=force
        )
    else:
        from attnknn.insight import cleanlab_issues

        table = (cleanlab_issues if style == CLEANLAB else review_table)(found, limit)
        with open_writer(out, chosen, force=force) as writer:
            writer.write(table)
    echo_block(found.summary(), err=out is None)
    if out is not None:
        echo(f"{'written':<17} {min(limit, len(found)):,} entries to {out}")


def review_table(found: Audit, limit: int) -> pd.DataFrame:
    """The first entries of an audit, with an empty column for decisions."""
    from attnknn._display import payload_text

    frame = found.to_frame().head(limit)
    label = dict(zip(found.ids.tolist(), found.labels.tolist(), strict=True))
    exact = list(zip(frame["id"], frame["duplicates"], strict=True))
    near = zip(frame["id"], frame["near_duplicates"], strict=True)
    columns = ["id", "label", "suggested", "suggested_probability", "label_error_score", "value"]
    if not found.no_probabilities:
        columns.insert(4, "wrong")
    table = frame[columns].assign(
        conflict_with=[
            _listed([other for other in those if label[other] != label[name]], label)
            for name, those in exact
        ],
        duplicate_of=[_listed([o for o in those if o != name]) for name, those in exact],
        near_duplicate_of=[_listed([o for o in those if o != name]) for name, those in near],
        contradicted_by=[_listed(those, label) for those in frame["contradicted_by"]],
    )
    if found.payloads is not None:
        table["entry"] = [payload_text(p, MAX_CELL) for p in found.payloads[found.order[:limit]]]
    return table.assign(decision="")


def _listed(ids: Any, label: dict[Any, Any] | None = None) -> str:
    """A few ids, with their labels: '3 (cat), 9 (dog) and 2 more'."""
    shown = [str(one) if label is None else f"{one} ({label[one]})" for one in ids[:N_IDS]]
    more = f" and {len(ids) - N_IDS} more" if len(ids) > N_IDS else ""
    return ", ".join(shown) + more


@command()
@shared.model_argument
@click.argument("table", type=FILE)
@option(
    "--format",
    "style",
    type=click.Choice(["table", LABEL_STUDIO, CLEANLAB]),
    help="What TABLE is.  [default: label-studio for .json, else table]",
)
@shared.new_classes_option
@shared.separator_option
@shared.max_memory_option
@shared.by_option
def relabel(
    model: Path,
    table: Path,
    style: str | None,
    new_classes: bool,
    separator: str | None,
    by: str | None,
) -> None:
    """Apply the decisions in a table written by `attnknn audit --out`.

    TABLE needs the columns `id` and `decision`. A decision is a new label for the entry, !forget to
    remove it, or nothing to keep it. Or TABLE is the JSON export of a Label Studio project with the
    tasks of `attnknn audit --format label-studio`; or, with --format cleanlab, a CSV file with
    cleanlab's columns, whose `predicted_label` becomes the label where `is_label_issue` is True.

    Either all decisions are applied or none: an unknown id, a label that is not a class (without
    --new-classes), and an entry whose label changed after the audit are errors. Undo with `attnknn
    undo`.
    """
    from attnknn.cli.stored_model import edit, open_model

    with open_model(model, by) as opened:
        decisions = _decisions(opened, table, style, new_classes, separator)
        if not (decisions.relabel or decisions.forget):
            echo("Nothing changed: every decision is empty or already applied.")
            return
        with edit(opened) as classifier:
            if decisions.relabel:
                classifier.relabel(list(decisions.relabel), list(decisions.relabel.values()))
            if decisions.forget:
                classifier.forget(decisions.forget)


def _decisions(
    opened: EditableModel,
    table: Path,
    style: str | None,
    new_classes: bool,
    separator: str | None,
) -> Decisions | ReviewEdits:
    """The decisions of a table, or of a file of another tool."""
    from attnknn.cli.rows import open_rows
    from attnknn.cli.stored_model import DecisionReader, LabelReader
    from attnknn.insight import read_cleanlab, read_label_studio

    style = style or (LABEL_STUDIO if table.suffix.lower() == ".json" else "table")
    if style == "table":
        source = open_rows(table, separator=separator, has_header=True)
        labels = LabelReader(opened.classifier.classes_, new_classes)
        return DecisionReader(opened, labels).read(source)
    if separator is not None:
        raise click.UsageError(f"--sep is for tables, not for --format {style}.")
    reviewed = (read_label_studio if style == LABEL_STUDIO else read_cleanlab)(table)
    return reviewed.edits(opened.classifier, new_classes=new_classes)
