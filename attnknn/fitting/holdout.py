"""Held-out rows: which rows are trained on, and how certain a gain on the others is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from attnknn.errors import InvalidInputError
from attnknn.memory.entries import NO_GROUP
from attnknn.records import Booleans, Floats, Integers


def trained_rows(
    labels: Integers, groups: Integers, share: float, most: int, generator: np.random.Generator
) -> Booleans:
    """True (n,) for rows to train on: all but the `share` held out, and no more than `most`.

    The held-out rows are stratified by class, to within a row or two. Groups stay whole: a row
    whose group was trained on is not held out. So both numbers are kept as well as groups allow; a
    group that is too large to be held out is trained on.

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
            "All rows belong to one group, so no row can be held out to validate a training. "
            "Pass smaller groups, or choose an attention and an encoder that are not trained."
        )
    order = np.argsort(_stratified_ranks(labels[firsts], generator))
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


def _stratified_ranks(classes: Integers, generator: np.random.Generator) -> Integers:
    """The rank (n,) of each item in a random order in which all classes are spread evenly.

    Item i of the n of a class stands at (i + u) / n of the order with a random u for each class, so
    that every item has the same chance to be among the first.
    """
    order = generator.permutation(len(classes))
    by_class = order[np.argsort(classes[order], kind="stable")]
    counts = np.unique(classes, return_counts=True)[1]
    rank = np.arange(len(classes)) - np.repeat(counts.cumsum() - counts, counts)
    start = np.repeat(generator.random(len(counts)), counts)
    position = np.empty(len(classes))
    position[by_class] = (rank + start) / np.repeat(counts, counts)
    return np.argsort(np.argsort(position, kind="stable"), kind="stable")


def clusters_of(groups: Integers) -> Integers:
    """A number for each row, the same for rows of one group and for no others."""
    alone = groups == NO_GROUP
    clusters = np.empty(len(groups), dtype=np.int64)
    _, clusters[~alone] = np.unique(groups[~alone], return_inverse=True)
    first = clusters[~alone].max(initial=-1) + 1
    clusters[alone] = np.arange(first, first + alone.sum())
    return clusters


@dataclass(frozen=True)
class Gain:
    """Mean gain over rows and its standard error; errors within a group are correlated.

    >>> print(Gain.of(np.array([0.1, 0.3]), np.array([-1, -1])))
    gain +0.2000 ± 0.0707
    """

    mean: float
    error: float

    @classmethod
    def of(cls, gains: Floats, groups: Integers) -> Gain:
        """From the gain (n,) of each row; -1 is no group."""
        mean = float(gains.mean())
        together = np.bincount(clusters_of(groups), gains - mean)
        return cls(mean, math.sqrt(np.square(together).sum()) / len(gains))

    def __str__(self) -> str:
        return f"gain {self.mean:+.4f} ± {self.error:.4f}"
