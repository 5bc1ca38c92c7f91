"""Where a method was wrong, and who decided its most confident mistakes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

import numpy as np

from attnknn.records import Floats, Integers
from attnknn.research.evaluation.report_files import readable, write_whole

SHOWN = 3  # neighbors that are named


@dataclass(frozen=True)
class Mistake:
    """A row that was answered wrongly: what it is called, and why it was answered so."""

    row: str
    truth: str
    answer: str
    confidence: float
    evidence: str


def worst_mistakes(codes: Integers, probabilities: Floats, n: int) -> Integers:
    """The rows of the most confident wrong answers, most confident first.

    >>> p = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> worst_mistakes(np.array([1, 1, 1]), p, 5).tolist()
    [0, 2]
    """
    wrong = np.flatnonzero(probabilities.argmax(axis=1) != codes)
    order = np.argsort(-probabilities[wrong].max(axis=1), kind="stable")
    return wrong[order[:n]]


def deciding(names: Iterable[object], labels: Iterable[object], weights: Iterable[float]) -> str:
    """The neighbors with the most say, in words, and what the others say together.

    >>> deciding([7, 3], ["cat", "dog"], [0.1, 0.62])
    '3 (dog) 0.62; 7 (cat) 0.10'
    >>> deciding(range(6), list("aaabab"), [0.004, 0.3, 0.3, 0.2, 0.1, 0.09])
    '1 (a) 0.30; 2 (a) 0.30; 3 (b) 0.20; 3 more: a 0.10, b 0.09'
    """
    voters = sorted(zip(names, labels, weights, strict=True), key=lambda voter: -voter[2])
    told = [f"{name} ({label}) {_say(weight)}" for name, label, weight in voters[:SHOWN]]
    others: dict[object, float] = {}
    for _, label, weight in voters[SHOWN:]:
        others[label] = others.get(label, 0.0) + weight
    if others:
        most = sorted(others.items(), key=lambda said: -said[1])[:2]
        said = ", ".join(f"{label} {_say(weight)}" for label, weight in most)
        told.append(f"{len(voters) - SHOWN:,} more: {said}")
    return "; ".join(told)


def _say(weight: float) -> str:
    return f"{weight:.2f}" if weight >= 0.01 else f"{weight:.2g}"


@dataclass(frozen=True, eq=False)
class CloseUp:
    """The answers of one method on one seed, looked at closely.

    Parameters
    ----------
    confusions : (C, C) rows counted by truth and answer
    """

    method: str
    seed: int
    classes: tuple[str, ...]
    confusions: Integers
    mistakes: tuple[Mistake, ...]

    def to_json(self, path: Path) -> None:
        """Write it as one file, whole or not at all."""
        write_whole(path, {**asdict(self), "confusions": self.confusions.tolist()})

    @classmethod
    def from_json(cls, path: Path) -> Self:
        """Read what `to_json` wrote."""
        with readable(path, "close look at mistakes"):
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                content["method"],
                content["seed"],
                tuple(content["classes"]),
                np.array(content["confusions"]),
                tuple(Mistake(**mistake) for mistake in content["mistakes"]),
            )
