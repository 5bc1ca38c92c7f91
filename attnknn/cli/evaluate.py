"""`attnknn evaluate`: how right, and how honest, the answers for labeled rows are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.separator import separator_option

if TYPE_CHECKING:
    from attnknn.cli.models import Asked
    from attnknn.records import Floats, Integers
    from attnknn.research.evaluation.error_analysis import Mistake

FILE = click.Path(path_type=Path)
SHOWN_CONFUSIONS = 5
SHOWN_MISTAKES = 10
WORDS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "macro_f1": "macro F1",
    "nll": "log-loss (NLL)",
    "brier": "Brier score",
    "ece": "ECE, 15 bins of equal width",
    "ece_equal_mass": "ECE, 15 bins of equal mass",
    "debiased_ece": "ECE, debiased",
}


@click.command()
@click.argument("model", type=FILE)
@click.argument("rows", type=FILE)
@click.option("-t", "--target", help="Column of the labels. [default: as in fit]")
@click.option("--format", "style", type=click.Choice(["table", "json"]), default="table")
@click.option("--report", type=FILE, help="Folder for a page with figures and the worst mistakes.")
@separator_option
def evaluate(
    model: Path,
    rows: Path,
    target: str | None,
    style: str,
    report: Path | None,
    separator: str | None,
) -> None:
    """Compare the answers for ROWS with the labels they carry."""
    from attnknn.cli.models import ask
    from attnknn.cli.target import target_of
    from attnknn.cli.waiting import patience
    from attnknn.errors import InvalidInputError

    if report is not None:
        _check_report(report, model)
    asked = ask(model, rows, separator)
    try:
        column = target_of(asked.queries.source, asked.queries.notes, target)
    except InvalidInputError as error:
        hint = "Name the labels by --target; rows without labels are for `attnknn predict`."
        raise InvalidInputError(f"{error} {hint}") from error
    with patience(f"Reading {rows.name}"):
        codes, probabilities = _answers(asked, column)
    classes = [str(c) for c in asked.classifier.classes_.tolist()]
    result = _result(codes, probabilities, classes)
    click.echo(json.dumps(result, indent=1) if style == "json" else _table(result))
    if report is not None:
        _write_report(report, asked, codes, probabilities, classes, f"{model.name} on {rows.name}")


def _check_report(report: Path, model: Path) -> None:
    """An error before anything is asked, where the page could not or must not be written."""
    from attnknn.errors import InvalidSettingError
    from attnknn.research.evaluation.report import check_folder

    check_folder(report)
    if model.resolve() in (report.resolve(), *report.resolve().parents):
        raise InvalidSettingError(
            f"--report must not lie in the model folder {model}, which could not be edited any "
            "more. Name another folder."
        )


def _write_report(
    folder: Path,
    asked: Asked,
    codes: Integers,
    probabilities: Floats,
    classes: list[str],
    title: str,
) -> None:
    from attnknn.cli.waiting import patience
    from attnknn.research.evaluation.error_analysis import worst_mistakes
    from attnknn.research.reports.model import model_sections
    from attnknn.research.reports.writing import write_report

    worst = worst_mistakes(codes, probabilities, SHOWN_MISTAKES)
    with patience("Drawing"):
        mistakes = _mistakes(asked, worst.tolist(), codes, classes)
        sections = model_sections(codes, probabilities, classes, mistakes)
        page = write_report(folder, title, sections, ["Made by `attnknn evaluate --report`."])
    click.echo(f"report: {page}", err=True)


def _mistakes(asked: Asked, worst: list[int], codes: Integers, classes: list[str]) -> list[Mistake]:
    """Why each of these rows was answered as it was, in their order."""
    from attnknn.cli.explain import evidence_of_rows
    from attnknn.research.evaluation.error_analysis import Mistake, describe_neighbors

    if not worst:
        return []
    found = {}
    wanted = sorted(worst)
    rows = evidence_of_rows(asked, wanted, is_asked_for=True)
    for row, (_, name, evidence) in zip(wanted, rows, strict=True):
        said = describe_neighbors(evidence.ids, evidence.labels, evidence.weights)
        found[row] = Mistake(
            str(name), classes[codes[row]], str(evidence.label), evidence.probability, said
        )
    return [found[row] for row in worst]


def _answers(asked: Asked, target: str) -> tuple[Integers, Floats]:
    import numpy as np

    from attnknn.cli.columns import codes_of

    codes, probabilities = [], []
    for part, X in asked.parts():
        codes.append(codes_of(part, target, asked.classifier.classes_))
        probabilities.append(asked.classifier.predict_proba(X))
    return np.concatenate(codes), np.concatenate(probabilities)


def _result(codes: Integers, probabilities: Floats, classes: list[str]) -> dict[str, Any]:
    from attnknn.metrics import HIGHER_IS_BETTER, confusion_matrix, ece, score_all

    scores = score_all(codes, probabilities).to_dict()
    scores["ece_equal_mass"] = ece(codes, probabilities, bins="mass")
    better = {**HIGHER_IS_BETTER, "ece_equal_mass": False}
    matrix = confusion_matrix(codes, probabilities)
    return {
        "n_rows": len(codes),
        "scores": {name: scores[name] for name in WORDS},
        "higher_is_better": {name: better[name] for name in WORDS},
        "classes": classes,
        "confusion_matrix": matrix.tolist(),
        "confusions": _confusions(matrix, classes),
    }


def _confusions(matrix: Integers, classes: list[str]) -> list[dict[str, Any]]:
    """The most frequent mistakes, most frequent first."""
    import numpy as np

    wrong = matrix.copy()
    np.fill_diagonal(wrong, 0)
    order = np.argsort(-wrong, axis=None, kind="stable")
    cells = [divmod(int(place), len(classes)) for place in order[:SHOWN_CONFUSIONS]]
    return [
        {"true": classes[t], "predicted": classes[p], "count": int(wrong[t, p])}
        for t, p in cells
        if wrong[t, p]
    ]


def _table(result: dict[str, Any]) -> str:
    lines = [f"{'rows':<28} {result['n_rows']:>8,}"]
    for name, words in WORDS.items():
        direction = "higher is better" if result["higher_is_better"][name] else "lower is better"
        lines.append(f"{words:<28} {result['scores'][name]:>8.4f}  {direction}")
    for confusion in result["confusions"]:
        words = f"{confusion['true']} taken for {confusion['predicted']}"
        lines.append(f"{words:<28} {confusion['count']:>8,}")
    return "\n".join(lines)
