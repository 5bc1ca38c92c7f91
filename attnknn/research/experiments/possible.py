"""What cannot be measured is said before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attnknn.errors import InvalidSettingError
from attnknn.research.experiments.bench import Bench
from attnknn.research.experiments.claims import Ask, Cell
from attnknn.research.experiments.methods import most_neighbors
from attnknn.research.experiments.scenes import has_wrong_labels
from attnknn.research.experiments.stresses import Stress

HEAD, STANDS_IN = "head", "logistic"
NEEDS = {
    HEAD: "'head' needs images that a network is trained on",
    STANDS_IN: "'logistic' stands in for the CNN head where no network is trained",
}


def answering(bench: Bench, cell: Cell) -> list[Ask]:
    """The methods of a cell that answer: where there is no head, logistic regression stands in."""
    silent = STANDS_IN if bench.trained is not None else HEAD
    return [ask for ask in cell.asks if ask.method != silent]


def check_cells(bench: Bench, cells: Sequence[Cell]) -> None:
    """An error for the first cell of a claim that a bench cannot measure."""
    for cell in cells:
        _check_methods(bench, cell)
        _check_damage(bench, cell)
        asked = [
            k
            for ask in cell.asks
            for k in (ask.choices.n_neighbors or 1, *(ask.choices.sizes or ()))
        ]
        check_neighbors(max(asked), bench.n_entries(cell.stress) - 1, bench.data.name)


def check_measurements(bench: Bench, claim: str, settings: Mapping[str, Any]) -> None:
    """An error for numbers of neighbors that a bench does not have."""
    n_entries, asked = bench.n_entries(Stress()), settings["neighbors"]
    largest = n_entries - 1
    if claim == "theory":
        largest = most_neighbors(n_entries, is_trained=bench.trained is not None)
    check_neighbors(max(asked) if isinstance(asked, Sequence) else asked, largest, bench.data.name)


def check_neighbors(asked: int, largest: int, name: str) -> None:
    """An error for a K beyond the largest."""
    if asked > largest:
        raise InvalidSettingError(
            f"Of the training rows of {name!r} at most {largest:,} can be neighbors here, got "
            f"K = {asked:,}."
        )


def _check_methods(bench: Bench, cell: Cell) -> None:
    if not answering(bench, cell):
        raise InvalidSettingError(
            f"{NEEDS[cell.asks[0].method]}, and no other method was asked for on "
            f"{bench.data.name!r}."
        )


def _check_rows(bench: Bench, stress: Stress) -> None:
    """An error where classes are too small to be what the damage is called."""
    counts = np.bincount(bench.rows.y_train)
    if stress.kind == "shots" and counts.min() < stress.level:
        raise InvalidSettingError(
            f"A class of {bench.data.name!r} has {counts.min():,} training rows, too few for "
            f"{stress.level:g} of each. Ask for fewer by `levels` in the settings."
        )
    if stress.kind == "imbalance" and counts.min() < stress.level:
        raise InvalidSettingError(
            f"A class of {bench.data.name!r} has {counts.min():,} training rows, too few for one "
            f"that is {stress.level:g} times rarer. Ask for less by `levels` in the settings."
        )


def _check_damage(bench: Bench, cell: Cell) -> None:
    if cell.shift.severity and bench.trained is None:
        raise InvalidSettingError(
            f"Only images that a network is trained on can be shifted, not the rows of "
            f"{bench.data.name!r}."
        )
    _check_rows(bench, cell.stress)
    if cell.stress.is_about_noise and has_wrong_labels(bench.data):
        raise InvalidSettingError(
            f"The training labels of {bench.data.name!r} are wrong in part as they came, so that a "
            "rate of noise would not be the share of wrong ones. Measure 'main' on it."
        )
