"""`attnknn predict`: labels and probabilities for the rows of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

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
    type=click.Choice(["csv", "parquet", "json"]),
    help="Of the answers. [default: by the name of the file, else csv]",
)
@click.option("--proba", is_flag=True, help="Give the probability of every class.")
def predict(model: Path, rows: Path, out: Path | None, style: str | None, proba: bool) -> None:
    """Give each row of ROWS its label, and how sure that is.

    Files may be larger than memory. Columns are found by name, others are left out; the answers
    carry the id column that the model was fitted with, or the number of the row.
    """
    from attnknn.cli.models import ask
    from attnknn.cli.waiting import patience
    from attnknn.cli.writing import open_writer, style_of

    chosen = style_of(out, style)
    asked = ask(model, rows)
    if out is not None and out.exists() and out.samefile(rows):
        raise click.UsageError("-o must not name the file that is read.")
    with open_writer(out, chosen) as writer, patience(f"Reading {rows.name}") as tell:
        for part, X in asked.parts():
            probabilities = asked.classifier.predict_proba(X)
            writer.write(_answers(asked, part, probabilities, proba))
            tell(f"{part.first + len(part):,} rows answered")


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
