"""Which rows are trained on; the others stay fresh, to judge what was learned."""

from __future__ import annotations

import numpy as np

from attnknn.errors import InvalidInputError
from attnknn.memory.entries import NO_GROUP
from attnknn.records import Booleans, Integers


def trained_rows(
    labels: Integers, groups: Integers, share: float, most: int, generator: np.random.Generator
) -> Booleans:
    """True (n,) for rows to train on: all but the `share` held out, and no more than `most`.

    Each class keeps its share of held-out rows, to within a row or two: sets by class go by them.
    Groups stay whole: a row whose group was trained on is not fresh. So both numbers are kept as
    well as groups allow; one that is too large to be held out is trained on.

    >>> labels, groups = np.array([0, 0, 1, 1, 1, 1]), np.array([-1, -1, 7, 7, 8, 8])
    >>> trained_rows(labels, groups, 0.5, 10, np.random.default_rng(0)).tolist()
    [False, True, False, False, True, True]
    """
    n = len(groups)
    n_out = min(max(1, round(n * share), n - most), n - 1)
    clusters = clusters_of(groups)
    # A group has the class of its first row.
    _, firsts, sizes = np.unique(clusters, return_index=True, return_counts=True)
    if len(sizes) == 1 and n > 1:
        raise InvalidInputError(
            "All rows are of one group, so none of them can judge what is learned from the others. "
            "Give smaller groups, or choose an attention and an encoder that are not trained."
        )
    order = np.argsort(_drawn_evenly(labels[firsts], generator))
    return ~np.isin(clusters, _held_out(order, sizes, n_out))


def _held_out(order: Integers, sizes: Integers, n_out: int) -> Integers:
    """Clusters with about `n_out` rows, the first in order that fit; at least one, never all."""
    if sizes.max() == 1:
        return order[:n_out]
    held, chosen = 0, []
    for cluster in order[:-1].tolist():
        if held + sizes[cluster] / 2 <= n_out:
            chosen.append(cluster)
            held += sizes[cluster]
    return np.array(chosen or [order[np.argmin(sizes[order])]])


def _drawn_evenly(classes: Integers, generator: np.random.Generator) -> Integers:
    """The place (n,) of each item in a random order that goes through all classes at one pace.

    Item i of the n of a class stands at (i + u) / n of the way with a random u for each class, so
    that every item has the same chance to be among the first.
    """
    order = generator.permutation(len(classes))
    by_class = order[np.argsort(classes[order], kind="stable")]
    counts = np.unique(classes, return_counts=True)[1]
    rank = np.arange(len(classes)) - np.repeat(counts.cumsum() - counts, counts)
    start = np.repeat(generator.random(len(counts)), counts)
    way = np.empty(len(classes))
    way[by_class] = (rank + start) / np.repeat(counts, counts)
    return np.argsort(np.argsort(way, kind="stable"), kind="stable")


def clusters_of(groups: Integers) -> Integers:
    """A number for each row, the same for rows of one group and for no others."""
    alone = groups == NO_GROUP
    clusters = np.empty(len(groups), dtype=np.int64)
    _, clusters[~alone] = np.unique(groups[~alone], return_inverse=True)
    first = clusters[~alone].max(initial=-1) + 1
    clusters[alone] = np.arange(first, first + alone.sum())
    return clusters
