"""Which rows are trained on; the others stay fresh, to judge what was learned."""

from __future__ import annotations

import numpy as np

from attnknn.memory.entries import NO_GROUP
from attnknn.records import Booleans, Integers


def trained_rows(
    groups: Integers, share: float, most: int, generator: np.random.Generator
) -> Booleans:
    """True (n,) for rows to train on: all but the `share` held out, and no more than `most`.

    Groups stay whole: a row whose group was trained on is not fresh.

    >>> trained_rows(np.array([-1, -1, 7, 7]), 0.5, 10, np.random.default_rng(0)).tolist()
    [False, False, True, True]
    """
    n = len(groups)
    n_out = min(max(1, round(n * share), n - most), n - 1)
    clusters = clusters_of(groups)
    place = generator.permutation(clusters.max() + 1)[clusters]  # of each row's cluster
    is_trained_on = np.ones(n, dtype=bool)
    is_trained_on[np.argsort(place, kind="stable")[:n_out]] = False
    last = place[~is_trained_on].max()
    is_trained_on[(place == last) & (place != place.max())] = False
    return is_trained_on


def clusters_of(groups: Integers) -> Integers:
    """A number for each row, the same for rows of one group and for no others."""
    alone = groups == NO_GROUP
    clusters = np.empty(len(groups), dtype=np.int64)
    _, clusters[~alone] = np.unique(groups[~alone], return_inverse=True)
    first = clusters[~alone].max(initial=-1) + 1
    clusters[alone] = np.arange(first, first + alone.sum())
    return clusters
