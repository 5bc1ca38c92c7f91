"""Confusions of a method, and the neighbors behind its most confident mistakes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from attnknn.errors import InvalidInputError
from attnknn.records import Floats, Integers
from attnknn.research.evaluation.illustrations import OneVsRest

N_NAMED = 3  # neighbors
N_SHOWN = 6  # mistakes whose images are shown


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction: its row, true and predicted class, and the neighbors behind it."""

    row: str
    truth: str
    predicted: str
    confidence: float
    evidence: str
    # of images: position, class and weight of the neighbors with the largest weights
    neighbors: tuple[tuple[int, str, float], ...] = ()


def worst_mistakes(codes: Integers, probabilities: Floats, n: int) -> Integers:
    """Rows of the most confident wrong predictions, most confident first.

    >>> p = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> worst_mistakes(np.array([1, 1, 1]), p, 5).tolist()
    [0, 2]
    """
    wrong = np.flatnonzero(probabilities.argmax(axis=1) != codes)
    order = np.argsort(-probabilities[wrong].max(axis=1), kind="stable")
    return wrong[order[:n]]


def describe_neighbors(
    names: Iterable[object],
    labels: Iterable[object],
    weights: Iterable[float],
    prior_weight: float = 0.0,
) -> str:
    """The neighbors with the largest weights, the summed weights of the others by class, the prior.

    >>> describe_neighbors([7, 3], ["cat", "dog"], [0.1, 0.62])
    '3 (dog) 0.62; 7 (cat) 0.10'
    >>> describe_neighbors(range(6), list("aaabab"), [0.004, 0.3, 0.3, 0.2, 0.1, 0.09])
    '1 (a) 0.30; 2 (a) 0.30; 3 (b) 0.20; 3 more: a 0.10, b 0.09'
    >>> describe_neighbors([7], ["cat"], [0.7], prior_weight=0.3)
    '7 (cat) 0.70; prior 0.30'
    """
    voters = sorted(zip(names, labels, weights, strict=True), key=lambda voter: -voter[2])
    parts = [f"{name} ({label}) {_rounded(weight)}" for name, label, weight in voters[:N_NAMED]]
    others: dict[object, float] = {}
    for _, label, weight in voters[N_NAMED:]:
        others[label] = others.get(label, 0.0) + weight
    if others:
        largest = sorted(others.items(), key=lambda item: -item[1])[:2]
        by_class = ", ".join(f"{label} {_rounded(weight)}" for label, weight in largest)
        parts.append(f"{len(voters) - N_NAMED:,} more: {by_class}")
    if prior_weight > 0:
        parts.append(f"prior {_rounded(prior_weight)}")
    return "; ".join(parts)


def _rounded(weight: float) -> str:
    return f"{weight:.2f}" if weight >= 0.01 else f"{weight:.2g}"


@dataclass(frozen=True, eq=False)
class ErrorAnalysis:
    """The errors of one method on one seed."""

    method: str
    seed: int
    classes: tuple[str, ...]
    confusions: Integers  # (n_classes, n_classes), number of rows by true and predicted class
    mistakes: tuple[Mistake, ...]  # the most confident ones
    one_vs_rest: OneVsRest | None = None  # areas of all classes, and curves on the first seed

    def to_dict(self) -> dict[str, Any]:
        """The analysis as JSON stores it, with the cells of the confusion matrix that have rows."""
        cells = np.flatnonzero(self.confusions)
        counts = self.confusions.ravel()[cells]
        confusions = {"cells": cells.tolist(), "counts": counts.tolist()}
        return {
            "method": self.method,
            "seed": self.seed,
            "classes": self.classes,
            "confusions": confusions,
            "mistakes": [asdict(mistake) for mistake in self.mistakes],
            "one_vs_rest": None if self.one_vs_rest is None else self.one_vs_rest.to_dict(),
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore what `to_dict` gave."""
        confusions = _matrix(stored["confusions"], len(stored["classes"]))
        mistakes = tuple(map(_mistake, stored["mistakes"]))
        classes = tuple(stored["classes"])
        areas = stored.get("one_vs_rest")  # not in reports of earlier versions
        one_vs_rest = None if areas is None else OneVsRest.from_dict(areas)
        return cls(stored["method"], stored["seed"], classes, confusions, mistakes, one_vs_rest)


def _mistake(stored: Mapping[str, Any]) -> Mistake:
    neighbors = tuple((row, label, weight) for row, label, weight in stored.get("neighbors", ()))
    return Mistake(**{**stored, "neighbors": neighbors})


def _matrix(stored: Any, n_classes: int) -> Integers:
    """The confusion matrix from its cells, or as earlier versions stored all of them."""
    if isinstance(stored, Mapping):
        matrix = np.zeros((n_classes, n_classes), dtype=np.int64)
        matrix.ravel()[stored["cells"]] = stored["counts"]
    else:
        matrix = np.array(stored)
    if matrix.shape != (n_classes, n_classes):
        raise InvalidInputError(
            f"`confusions` must have the shape ({n_classes}, {n_classes}), got {matrix.shape}."
        )
    return matrix
