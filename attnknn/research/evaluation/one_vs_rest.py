"""ROC and precision-recall curves of each class against all others, with their areas."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.metrics import (
    average_precision_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

from attnknn.records import Floats, Integers

N_CURVES = 10  # classes whose curves are kept: those with the lowest average precision
N_POINTS = 100  # of a curve
LARGEST = np.iinfo(np.uint16).max


@dataclass(frozen=True, eq=False)
class ClassCurves:
    """The curves of one class."""

    code: int  # of the class
    roc: Floats  # (2, n) false and true positive rates
    precision_recall: Floats  # (2, n) recalls and precisions


@dataclass(frozen=True, eq=False)
class OneVsRest:
    """Areas under the curves of all classes, and the curves of those that are ranked worst."""

    roc_auc: Floats  # (C,) NaN for a class with no rows or all of them, as the next
    average_precision: Floats
    curves: tuple[ClassCurves, ...] = ()  # in the order of the classes

    def to_dict(self) -> dict[str, Any]:
        """Areas and curves as JSON stores them; points are 16-bit numbers in base64."""
        return {
            "roc_auc": _without_nan(self.roc_auc),
            "average_precision": _without_nan(self.average_precision),
            "curves": [
                {
                    "code": found.code,
                    "roc": _packed(found.roc),
                    "precision_recall": _packed(found.precision_recall),
                }
                for found in self.curves
            ],
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore what `to_dict` gave."""
        curves = tuple(
            ClassCurves(
                found["code"], _unpacked(found["roc"]), _unpacked(found["precision_recall"])
            )
            for found in stored["curves"]
        )
        roc_auc, precision = (
            np.array(stored[name], dtype=np.float64) for name in ("roc_auc", "average_precision")
        )
        return cls(roc_auc, precision, curves)


def one_vs_rest(codes: Integers, probabilities: Floats, n_curves: int = N_CURVES) -> OneVsRest:
    """ROC and precision-recall curves of each class against all others.

    Parameters
    ----------
    codes : (n,) true classes
    probabilities : (n, C)
    n_curves : number of classes whose curves are kept, those with the lowest average precision

    >>> found = one_vs_rest(np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]))
    >>> found.roc_auc.tolist(), found.curves[0].roc.tolist()
    ([1.0, 1.0], [[0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    """
    n_classes = probabilities.shape[1]
    areas = np.full((2, n_classes), np.nan)
    usable = [code for code in range(n_classes) if 0 < (codes == code).sum() < len(codes)]
    for code in usable:
        is_class, scores = codes == code, probabilities[:, code]
        areas[:, code] = roc_auc_score(is_class, scores), average_precision_score(is_class, scores)
    worst = sorted(sorted(usable, key=lambda code: float(areas[1, code]))[:n_curves])
    curves = tuple(_curves(code, codes == code, probabilities[:, code]) for code in worst)
    return OneVsRest(areas[0], areas[1], curves)


def _curves(code: int, is_class: np.ndarray, scores: Floats) -> ClassCurves:
    roc = np.stack(roc_curve(is_class, scores)[:2])
    precision, recall, _ = precision_recall_curve(is_class, scores, drop_intermediate=True)
    return ClassCurves(code, _thinned(roc), _thinned(np.stack([recall, precision])[:, ::-1]))


def _thinned(points: Floats) -> Floats:
    """At most `N_POINTS` of the points (2, n), with both ends."""
    n_points = points.shape[1]
    if n_points <= N_POINTS:
        return points
    return points[:, np.linspace(0, n_points - 1, N_POINTS).round().astype(int)]


def _packed(points: Floats) -> str:
    return base64.b64encode(np.round(points * LARGEST).astype("<u2").tobytes()).decode()


def _unpacked(text: str) -> Floats:
    numbers = np.frombuffer(base64.b64decode(text), dtype="<u2").reshape(2, -1)
    return numbers.astype(np.float64) / LARGEST


def _without_nan(areas: Floats) -> list[float | None]:
    return [None if np.isnan(area) else round(float(area), 6) for area in areas]
