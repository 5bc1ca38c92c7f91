"""How accurate a classifier is on unlabeled rows, when its entries were not drawn at random.

Entries that were chosen because they are hard make leave-one-out predictions look worse than those
of the rows that are left: two thirds of the entries may be right where nine of ten rows are. So
each entry counts as much as there are rows to which it is nearest, and the probabilities of the
rows are raised to the one power that fits these weighted predictions best.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize_scalar

from attnknn.model import FittedModel
from attnknn.records import Floats

MAX_ENTRIES = 1000  # that are predicted by leave-one-out
MIN_ENTRIES = 20  # below which probabilities are taken as they are
EXPONENTS = (0.3, 5.0)
TINY = 1e-12


def exponent_for_rows(model: FittedModel, rows: np.ndarray) -> float:
    """The power of the probabilities that fits entries weighted like some rows; 1 changes nothing.

    Parameters
    ----------
    rows : embeddings (B, D) of unlabeled rows, prepared by the memory
    """
    held_out = np.flatnonzero(model.memory.entries.held_out)
    entries = held_out if len(held_out) >= MIN_ENTRIES else np.arange(len(model.memory))
    if len(entries) < MIN_ENTRIES or len(model.classes) < 2:
        return 1.0
    nearest = model.memory.search_prepared(rows, 1).positions[:, 0]
    weights = np.bincount(nearest, minlength=len(model.memory))[entries].astype(float)
    if len(entries) > MAX_ENTRIES:  # those of weight 0 add nothing
        chosen = np.sort(np.argsort(-weights, kind="stable")[:MAX_ENTRIES])
        entries, weights = entries[chosen], weights[chosen]
    found = model.predict_left_out(model.leave_one_out(entries))
    logs = np.log(np.maximum(found.probabilities, TINY))
    own = logs[np.arange(len(logs)), found.own]

    def loss(log_exponent: float) -> float:
        exponent = np.exp(log_exponent)
        return float(weights @ (np.logaddexp.reduce(exponent * logs, axis=1) - exponent * own))

    best = minimize_scalar(loss, bounds=tuple(np.log(EXPONENTS)), method="bounded").x
    return float(np.exp(best))


def expected_accuracy(probabilities: Floats, exponent: float) -> float:
    """The mean of the largest probabilities (B, C), raised to a power; NaN without rows.

    >>> round(expected_accuracy(np.array([[0.8, 0.2], [0.6, 0.4]]), 1.0), 3)
    0.7
    >>> round(expected_accuracy(np.array([[0.8, 0.2], [0.6, 0.4]]), 2.0), 3)
    0.817
    """
    if not len(probabilities):
        return float("nan")
    top = np.maximum(probabilities.max(axis=1, keepdims=True), TINY)
    return float((1.0 / ((probabilities / top) ** exponent).sum(axis=1)).mean())
