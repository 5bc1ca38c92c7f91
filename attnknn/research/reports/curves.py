"""The losses of trainings as a section of a report."""

from __future__ import annotations

from collections.abc import Mapping

from attnknn.errors import InvalidInputError
from attnknn.research.reports import figures
from attnknn.research.reports.page import Drawing, Grid, Section
from attnknn.research.reports.sentences import quote_name
from attnknn.training.config import TrainResult

MOST_TOLD = 3  # runs that have a sentence each


def curve_section(losses: Mapping[str, TrainResult], title: str, name: str) -> Section:
    """How trainings went, epoch by epoch: sentences, a table, and a figure.

    Parameters
    ----------
    losses : of each run, by its name: what `learning.loop.train` gave, or `encoder_training_`
    name : of its files, without ending

    Examples
    --------
    >>> narrow, wide = TrainResult([0.9, 0.6], [1.2, 0.8, 0.7]), TrainResult([0.5], [1.1, 0.6])
    >>> runs = {"narrow": narrow, "wide": wide}
    >>> section = curve_section(runs, "Training", "training")
    >>> section.sentences[0]
    'Of 2 runs, wide kept the lowest loss of held-out rows: 0.6000, of epoch 1.'
    """
    _check(losses)
    losses = _told_once(losses)
    drawing = Drawing(
        name,
        figures.courses(losses, title),
        "Losses of trained and of held-out rows by epoch, the start being epoch 0; a ring is the "
        "epoch whose state was kept.",
    )
    return Section(title, _sentences(losses), [_grid(losses, name)], [drawing])


def _told_once(runs: Mapping[str, TrainResult]) -> dict[str, TrainResult]:
    """Without trainings that several experiments share: each stands under its first name."""
    seen: set[tuple[float, ...]] = set()
    kept = {}
    for run, outcome in runs.items():
        losses = (*outcome.train_losses, *outcome.validation_losses)
        if losses not in seen:
            kept[run] = outcome
        seen.add(losses)
    return kept


def _sentences(runs: Mapping[str, TrainResult]) -> list[str]:
    best = min(runs, key=lambda run: _kept_loss(runs[run]))
    among = f"Of {len(runs)} runs, {quote_name(best)}" if len(runs) > 1 else quote_name(best)
    words = (
        "kept the lowest loss of held-out rows:"
        if len(runs) > 1
        else "kept a loss of held-out rows:"
    )
    said = [f"{among} {words} {_kept_loss(runs[best]):.4f}, of epoch {runs[best].best_epoch}."]
    risen = [run for run, outcome in runs.items() if _has_risen(outcome)]
    if len(risen) <= MOST_TOLD:
        said += [_rise(run, runs[run]) for run in risen]
    else:
        said.append(
            f"In {len(risen)} of {len(runs)} runs the loss of held-out rows was higher at the end "
            "than at the epoch that was kept."
        )
    return said + [
        f"{quote_name(run)} was interrupted after epoch {len(outcome.train_losses)}."
        for run, outcome in runs.items()
        if outcome.was_interrupted
    ]


def _has_risen(outcome: TrainResult) -> bool:
    return round(outcome.validation_losses[-1], 4) > round(_kept_loss(outcome), 4)


def _rise(run: str, outcome: TrainResult) -> str:
    return (
        f"The loss of held-out rows of {quote_name(run)} was higher at the end "
        f"({outcome.validation_losses[-1]:.4f}) than at the epoch that was kept "
        f"({_kept_loss(outcome):.4f})."
    )


def _grid(runs: Mapping[str, TrainResult], name: str) -> Grid:
    head = [
        "run",
        "epochs",
        "kept",
        "held-out rows, start",
        "held-out rows, kept",
        "trained rows, last",
    ]
    rows = [
        [
            run,
            str(len(outcome.train_losses)),
            str(outcome.best_epoch),
            f"{outcome.validation_losses[0]:.4f}",
            f"{_kept_loss(outcome):.4f}",
            f"{outcome.train_losses[-1]:.4f}" if outcome.train_losses else "–",
        ]
        for run, outcome in runs.items()
    ]
    return Grid(name, head, rows, note="Losses by row; one training each, so without intervals.")


def _kept_loss(outcome: TrainResult) -> float:
    return outcome.validation_losses[outcome.best_epoch]


def _check(runs: Mapping[str, TrainResult]) -> None:
    if not runs:
        raise InvalidInputError("`losses` must hold at least one run, got none.")
    for run, outcome in runs.items():
        if not outcome.validation_losses:
            raise InvalidInputError(f"The run {run!r} has no losses: it was never judged.")
