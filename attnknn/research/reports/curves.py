"""Training curves as a section of a page."""

from __future__ import annotations

from collections.abc import Mapping

from attnknn.errors import InvalidInputError
from attnknn.research.reports import figures
from attnknn.research.reports.page import Drawing, Grid, Section
from attnknn.research.reports.sentences import quote_name
from attnknn.training.config import ATTENTION_ENTROPY, TrainResult

MAX_SENTENCES = 3  # runs that have a sentence each


def curve_section(losses: Mapping[str, TrainResult], title: str, name: str) -> Section:
    """Training and validation losses by epoch, with the terms of the loss, as a section.

    `losses`: result of each run, such as `encoder_training_`, by its name; `name`: name of the
    files, without ending.

    >>> narrow, wide = TrainResult([0.9, 0.6], [1.2, 0.8, 0.7]), TrainResult([0.5], [1.1, 0.6])
    >>> runs = {"narrow": narrow, "wide": wide}
    >>> section = curve_section(runs, "Training", "training")
    >>> section.sentences[0]
    'Of 2 runs, wide has the lowest validation loss: 0.6000 in epoch 1.'
    """
    _check(losses)
    losses = _without_copies(losses)
    drawing = Drawing(
        name,
        figures.training_curves(losses, title),
        "Training and validation losses by epoch, the start being epoch 0; a ring marks the epoch "
        "whose weights were kept.",
    )
    grids, drawings = [_grid(losses, name)], [drawing]
    measured = {run: result for run, result in losses.items() if result.components}
    if measured:
        grids.append(_component_grid(measured, f"{name}-components"))
        drawings.append(
            Drawing(
                f"{name}-components",
                figures.component_curves(measured, "Terms of the training loss"),
                "Terms of the training loss by epoch, by their weights, so that their sum is the "
                "loss; and the mean entropy of the attention weights.",
            )
        )
    return Section(title, _sentences(losses), grids, drawings)


def _without_copies(runs: Mapping[str, TrainResult]) -> dict[str, TrainResult]:
    """Trainings that several experiments share, only once, under the first name."""
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
    words = "has the lowest validation loss:" if len(runs) > 1 else "has a validation loss of"
    said = [f"{among} {words} {_kept_loss(runs[best]):.4f} in epoch {runs[best].best_epoch}."]
    risen = [
        run
        for run, outcome in runs.items()
        if round(outcome.validation_losses[-1], 4) > round(_kept_loss(outcome), 4)
    ]
    if len(risen) <= MAX_SENTENCES:
        said += [_rise(run, runs[run]) for run in risen]
    else:
        said.append(
            f"In {len(risen)} of {len(runs)} runs the validation loss was higher at the end than "
            "at the epoch that was kept."
        )
    return said + [
        f"{quote_name(run)} was interrupted after epoch {len(outcome.train_losses)}."
        for run, outcome in runs.items()
        if outcome.was_interrupted
    ]


def _rise(run: str, outcome: TrainResult) -> str:
    return (
        f"The validation loss of {quote_name(run)} was higher at the end "
        f"({outcome.validation_losses[-1]:.4f}) than at the epoch that was kept "
        f"({_kept_loss(outcome):.4f})."
    )


def _grid(runs: Mapping[str, TrainResult], name: str) -> Grid:
    head = ["run", "epochs", "kept epoch"]
    head += ["first validation loss", "kept validation loss", "last training loss"]
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
    return Grid(
        name, head, rows, note="Mean losses of rows; one training each, so there are no intervals."
    )


def _component_grid(runs: Mapping[str, TrainResult], name: str) -> Grid:
    names = list(dict.fromkeys(term for result in runs.values() for term in result.components))
    rows = [
        [run, *(f"{found[term][-1]:.4f}" if term in found else "–" for term in names)]
        for run, found in ((run, result.components) for run, result in runs.items())
    ]
    note = (
        "Means of the last epoch: the terms of the training loss, by their weights, and the "
        f"{ATTENTION_ENTROPY}, which is not part of the loss."
    )
    return Grid(name, ["run", *names], rows, note=note)


def _kept_loss(outcome: TrainResult) -> float:
    return outcome.validation_losses[outcome.best_epoch]


def _check(runs: Mapping[str, TrainResult]) -> None:
    if not runs:
        raise InvalidInputError("`losses` must hold at least one run, got none.")
    for run, outcome in runs.items():
        if not outcome.validation_losses:
            raise InvalidInputError(f"The run {run!r} has no validation losses.")
