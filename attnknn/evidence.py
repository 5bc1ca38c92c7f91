"""An answer becomes evidence: who voted, for what, with how much say."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.calibration import Calibration
from attnknn.memory.base import Memory
from attnknn.pipeline import Answer
from attnknn.records import Evidence


def evidence_of(
    answer: Answer, row: int, memory: Memory, classes: NDArray[Any], calibration: Calibration
) -> Evidence:
    """The evidence of one row of an answer, neighbors with the most say first."""
    found = answer.neighbors
    weights = answer.weights.neighbors[row]
    present = np.flatnonzero(found.mask[row])
    order = present[np.argsort(-weights[present], kind="stable")]
    positions = found.positions[row, order]
    payloads = memory.entries.payloads
    return Evidence(
        label=classes[answer.probabilities[row].argmax()],
        classes=classes,
        probabilities=answer.probabilities[row],
        shares=answer.shares[row],
        ids=memory.entries.ids[positions],
        labels=classes[found.labels[row, order]],
        weights=weights[order],
        distances=found.distances[row, order],
        payloads=None if payloads is None else payloads[positions].tolist(),
        prior_weight=float(answer.weights.prior[row]),
        prior=answer.prior,
        exponent=calibration.exponent,
        is_exact=answer.is_exact,
    )
