"""The rank of each score among all before it, as a p-value."""

from __future__ import annotations

import numpy as np

from attnknn.records import Floats

ROWS_AT_ONCE = 512


def online_p_values(scores: Floats, known: Floats, uniform: Floats) -> Floats:
    """P-values (n,), small for a score that is high among all before it.

    Each score is ranked among the `known` ones and the scores before it, with itself, and its place
    among equal ones is drawn. If all of them are exchangeable the p-values are uniform on 0..1 and
    independent, exactly. Ranked among the known ones alone they would not be independent: chance
    makes those a little too high or low, all p-values would share that, and with time a bet on it
    would win.

    Parameters
    ----------
    scores : (n,) in the order in which they came
    known : (m,) those before them, sorted
    uniform : (n,) draws from 0..1

    Examples
    --------
    >>> known, drawn = np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.5, 0.5])
    >>> online_p_values(np.array([4.0, 2.0, 2.0]), known, drawn).round(3).tolist()
    [0.125, 0.6, 0.583]
    """
    p_values = np.empty(len(scores))
    for start in range(0, len(scores), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        p_values[part] = _of_block(scores[part], known, uniform[part])
        known = merged(known, scores[part])
    return p_values


def merged(known: Floats, scores: Floats) -> Floats:
    """Sorted scores with some more of them, sorted."""
    return np.sort(np.concatenate([known, scores]), kind="stable")  # quick on what is nearly sorted


def _of_block(scores: Floats, known: Floats, uniform: Floats) -> Floats:
    below = np.searchsorted(known, scores, side="left")
    not_above = np.searchsorted(known, scores, side="right")
    came_before = np.tri(len(scores), k=-1, dtype=bool)
    above = len(known) - not_above + ((scores > scores[:, None]) & came_before).sum(axis=1)
    equal = not_above - below + ((scores == scores[:, None]) & came_before).sum(axis=1)
    n_before = len(known) + np.arange(len(scores))
    return (above + uniform * (1 + equal)) / (1 + n_before)
