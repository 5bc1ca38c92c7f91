"""`attnknn experiment`: measure a claim on a data set, and leave reports and a page."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from attnknn.research.experiments.study import Outcome, Study

FILE = click.Path(path_type=Path)
CLAIMS = (
    *("main", "k-sweep", "noise", "imbalance", "shots", "shift"),
    "ablation",
    *("index", "theory", "overhead"),
)
PRESETS = ("experiments-1-3", "experiment-4", "experiment-5", "experiment-6")


def _seeds(_context: click.Context, _option: click.Parameter, text: str | None) -> list[int] | None:
    """'5' is five seeds from 0, '3,7' are these two, and '7,' is this one."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"must be a number, or numbers with commas, got {text!r}")
    numbers = [int(part) for part in parts]
    if len(numbers) == 1 and "," not in text:
        numbers = list(range(numbers[0]))
    if not numbers or len(set(numbers)) != len(numbers):
        raise click.BadParameter(
            f"must be how many seeds, at least 1, or seeds with commas, each once, got {text!r}; "
            "one seed is told as '0,'"
        )
    return numbers


@click.command()
@click.argument("claim", type=click.Choice(CLAIMS))
@click.option("--dataset", default="digits", help="See `attnknn datasets`.")
@click.option("--seeds", callback=_seeds, help="How many, or which, as 0,1,2 or 7,. [default: 5]")
@click.option("-o", "--out", type=FILE, default=Path("attnknn-experiments"), help="Folder.")
@click.option("--preset", type=click.Choice(PRESETS), help="The set-up of the research.")
@click.option("--full", is_flag=True, help="The preset's own network, not one for two cores.")
@click.option(
    "--network",
    type=click.Choice(["narrow", "wide", "none"]),
    help="Of images; 'none' takes vectors as they are.  [default: narrow]",
)
@click.option(
    "--rows", type=click.IntRange(min=10), help="Only so many training rows, drawn by class."
)
@click.option("--encoder", default="auto", help="Of tables and vectors.")
@click.option("--settings", type=FILE, help="TOML file with other settings of the claim.")
@click.option("--page/--no-page", default=True, help="Figures need the extra `plots`.")
def experiment(
    claim: str,
    dataset: str,
    seeds: list[int] | None,
    out: Path,
    preset: str | None,
    full: bool,
    network: str | None,
    rows: int | None,
    encoder: str,
    settings: Path | None,
    page: bool,
) -> None:
    """Measure CLAIM, each method on the same rows, labels and seeds.

    Every seed leaves a report.json; a command that was stopped goes on where it was. Claims: main
    (all votes), k-sweep, noise, imbalance, shots, shift, ablation, index, theory, overhead.
    """
    from attnknn.research.experiments.study import Study, measure

    study = Study(
        claim=claim,
        dataset=dataset,
        folder=out,
        seeds=seeds,
        preset=preset,
        is_full=full,
        network=network,
        n_rows=rows,
        encoder=encoder,
        changes=_changes(settings),
    )
    _check_options(study)
    try:
        outcome = measure(study, lambda text: click.echo(text, err=True))
    except KeyboardInterrupt:
        raise click.ClickException(
            "Interrupted. The same command goes on where it was stopped."
        ) from None
    for line in _lines(outcome):
        click.echo(line)
    if page:
        click.echo(f"report: {_page(study)}", err=True)


def _check_options(study: Study) -> None:
    """Options that mean nothing together, and a folder that cannot be one."""
    from attnknn.errors import InvalidSettingError
    from attnknn.research.evaluation.report import check_folder
    from attnknn.research.experiments.study import check_options

    if study.is_full and study.preset is None:
        raise click.UsageError("--full needs --preset.")
    try:
        check_options(study)
        check_folder(study.place)
    except InvalidSettingError as error:
        raise click.UsageError(str(error)) from error


def _changes(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{path} must be text in UTF-8: {error.reason}.") from error
    except tomllib.TOMLDecodeError as error:
        raise click.ClickException(f"{path} is no TOML file: {error}.") from error


def _lines(outcome: Outcome) -> list[str]:
    lines = [f"{outcome.title}: {outcome.study.dataset}\n"]
    if outcome.measurements is not None:
        return [*lines, outcome.measurements.markdown()]
    for place, table in outcome.tables.items():
        if place is not None:
            lines.append(f"{outcome.study.claim} {place:g}\n")
        lines.append(table.markdown(("accuracy", "nll", "ece")))
    return lines


def _page(study: Study) -> Path:
    from attnknn.cli.report import write_page
    from attnknn.cli.waiting import patience

    with patience("Drawing"):
        return write_page(
            study.place, study.place / "page", None, f"{study.claim}, {study.dataset}"
        )
