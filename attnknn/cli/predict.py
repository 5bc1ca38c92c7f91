"""`attnknn predict`: labels and probabilities for the rows of a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.separator import separator_option
from attnknn.cli.writing import STYLES, check_out, open_writer, style_of

if TYPE_CHECKING:
    from attnknn.cli.files import Part
    from attnknn.cli.models import Asked
    from attnknn.conformal.decisions import Decisions
    from attnknn.records import Floats

FILE = click.Path(path_type=Path)
SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


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
@click.option(
    "--sets",
    "coverage",
    type=SHARE,
    help="Give the set of classes that holds the right one with this chance, as 0.9.",
)
@click.option(
    "--max-risk", type=SHARE, help="Abstain unless at most this share of answers is wrong."
)
@click.option("--min-confidence", type=SHARE, help="Abstain below this probability.")
@click.option(
    "--novelty-level",
    type=SHARE,
    help="Abstain where at most this share of rows like the remembered ones is as far from them, "
    "as 0.05. [default: 0.01 with --max-risk or --min-confidence]",
)
@click.option(
    "--n-nearest",
    type=click.IntRange(1),
    default=1,
    help="How far a row is: its mean distance to so many nearest entries.",
)
@separator_option
def predict(
    model: Path,
    rows: Path,
    out: Path | None,
    style: str | None,
    proba: bool,
    coverage: float | None,
    max_risk: float | None,
    min_confidence: float | None,
    novelty_level: float | None,
    n_nearest: int,
    separator: str | None,
) -> None:
    """Give each row of ROWS its label, and how sure that is.

    Files may be larger than memory. Columns are found by name, others are left out; the answers
    carry the id column that the model was fitted with, the name of an image, or the number of the
    row.

    With --max-risk, --min-confidence or --novelty-level rows are left unanswered, with the
    reason: unsure between two classes, or unlike anything remembered.
    """
    import pandas as pd

    from attnknn.cli.models import ask
    from attnknn.cli.waiting import patience

    chosen = style_of(out, style)
    check_out(out, rows)
    asked = ask(model, rows, separator)
    asks = _given(max_risk=max_risk, min_confidence=min_confidence, novelty_level=novelty_level)
    if n_nearest > 1 and not asks:
        raise click.UsageError("--n-nearest goes with --novelty-level, which is not given.")
    n_rows = n_abstained = 0
    with open_writer(out, chosen) as writer, patience(f"Reading {rows.name}") as tell:
        for part, X in asked.parts():
            answers = _answers(asked, part, asked.classifier.predict_proba(X), proba)
            if coverage is not None:
                answers["set"] = _sets(asked, X, coverage, chosen)
            if asks:
                answers |= _decisions(asked.classifier.decide(X, n_nearest=n_nearest, **asks))
                n_abstained += answers["decision"].count("abstain")
            writer.write(pd.DataFrame(answers))
            n_rows = part.first + len(part)
            tell(f"{n_rows:,} rows answered")
    written = "" if out is None else f", written to {out}"
    n_answered = n_rows - n_abstained
    of_all = f" of {n_rows:,}" if n_abstained else ""
    noun = "row" if n_rows == 1 else "rows"
    click.echo(f"{n_answered:,}{of_all} {noun} answered{written}.", err=True)


def _answers(asked: Asked, part: Part, probabilities: Floats, proba: bool) -> dict[str, Any]:
    classes = asked.classifier.classes_
    name, values = asked.names(part)
    answers = {
        name: values,
        "label": classes[probabilities.argmax(axis=1)].tolist(),
        "confidence": probabilities.max(axis=1),
    }
    if proba:
        answers |= {f"p({c})": probabilities[:, i] for i, c in enumerate(classes.tolist())}
    return answers


def _sets(asked: Asked, X: Any, coverage: float, style: str) -> list[Any]:
    """The labels of each set: a list in JSON, else a text such as 'cat | dog'."""
    labels = asked.classifier.predict_set(X, coverage).labels()
    return labels if style == "json" else [" | ".join(map(str, row)) for row in labels]


def _given(**options: float | None) -> dict[str, float]:
    return {name: value for name, value in options.items() if value is not None}


def _decisions(decisions: Decisions) -> dict[str, Any]:
    words = ["answer" if is_given else "abstain" for is_given in decisions.is_answered]
    return {"decision": words, "reason": decisions.reasons}
