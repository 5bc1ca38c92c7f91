"""`attnknn predict`: labels and probabilities for the rows of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnknn.cli.separator import separator_option
from attnknn.cli.writing import STYLES, check_out, open_writer, style_of

if TYPE_CHECKING:
    import pandas as pd

    from attnknn.cli.files import Part
    from attnknn.cli.models import Asked
    from attnknn.records import Floats

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
@click.argument("rows", type=FILE)
@click.option("-o", "--out", type=FILE, help="File to write; without it, print.")
@click.option(
    "--format",
    "style",
    type=click.Choice(STYLES),
    help="Of the answers. [default: by the name of the file, else csv]",
)
@click.option("--proba", is_flag=True, help="Give the probability of every class.")
@separator_option
def predict(
    model: Path,
    rows: Path,
    out: Path | None,
    style: str | None,
    proba: bool,
    separator: str | None,
) -> None:
    """Give each row of ROWS its label, and how sure that is.

    Files may be larger than memory. Columns are found by name, others are left out; the answers
    carry the id column that the model was fitted with, the name of an image, or the number of the
    row.
    """
    from attnknn.cli.models import ask
    from attnknn.cli.waiting import patience

    chosen = style_of(out, style)
    check_out(out, rows)
    asked = ask(model, rows, separator)
    n_rows = 0
    with open_writer(out, chosen) as writer, patience(f"Reading {rows.name}") as tell:
        for part, X in asked.parts():
            probabilities = asked.classifier.predict_proba(X)
            writer.write(_answers(asked, part, probabilities, proba))
            n_rows = part.first + len(part)
            tell(f"{n_rows:,} rows answered")
    written = "" if out is None else f", written to {out}"
    click.echo(f"{n_rows:,} {'row' if n_rows == 1 else 'rows'} answered{written}.", err=True)


def _answers(asked: Asked, part: Part, probabilities: Floats, proba: bool) -> pd.DataFrame:
    import pandas as pd

    classes = asked.classifier.classes_
    name, values = asked.names(part)
    answers = {
        name: values,
        "label": classes[probabilities.argmax(axis=1)].tolist(),
        "confidence": probabilities.max(axis=1),
    }
    if proba:
        answers |= {f"p({c})": probabilities[:, i] for i, c in enumerate(classes.tolist())}
    return pd.DataFrame(answers)
