"""Decision trees as plain arrays: grown by scikit-learn, walked by NumPy, stored without pickle."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnknn._stored import Arrays
from attnknn.errors import ModelFolderError
from attnknn.records import Floats, Integers
from attnknn.training.terminal import progress_bar

Kind = Literal["random_forest", "extra_trees"]
Nodes = NDArray[np.int32]
Arranged = tuple[Nodes, NDArray[np.float32], Nodes]
LEAF = -1
PAIRS_AT_ONCE = 1 << 15  # of rows and trees that are walked together: they stay in the cache
COUNTS_AT_ONCE = 1 << 21
LEVELS = 4  # levels that are walked before walks that have ended are set aside
SMALL = 200_000  # counted rows over all trees below which threads cost more than they save


@dataclass(frozen=True, eq=False)
class Trees:
    """T binary trees in shared arrays, one element per node; siblings are adjacent.

    A row goes to `child` if its feature is at most the threshold, else to `child + 1`.
    """

    feature: Nodes  # LEAF in a leaf
    threshold: NDArray[np.float32]
    child: Nodes  # the first of two children; in a leaf, the number of the leaf
    roots: Nodes  # (T,) the first node of each tree

    def __len__(self) -> int:
        return len(self.roots)

    @property
    def n_leaves(self) -> int:
        """Number of leaves of all trees together."""
        return (len(self.feature) + len(self)) // 2

    def leaves(self, X: NDArray[np.float32]) -> Nodes:
        """Number of the leaf (B, T) that each row reaches in each tree."""
        found = [np.zeros((0, len(self)), dtype=np.int32)]
        return np.concatenate([*found, *(leaf for _, leaf in self.blocks_of_leaves(X))])

    def blocks_of_leaves(self, X: NDArray[np.float32]) -> Iterator[tuple[slice, Nodes]]:
        """Blocks of rows, with the number of the leaf (b, T) that each reaches in each tree."""
        step = max(1, PAIRS_AT_ONCE // max(1, len(self)))
        for start in range(0, len(X), step):
            rows = slice(start, start + step)
            yield rows, self._walk(X[rows])

    def part(self, start: int, stop: int) -> Trees:
        """Some of the trees; leaves keep their numbers."""
        return Trees(self.feature, self.threshold, self.child, self.roots[start:stop])

    def _walk(self, X: NDArray[np.float32]) -> Nodes:
        """All rows go down all trees together, level by level; who is in a leaf stays there."""
        n_rows, width = len(X), X.shape[1] + 1
        values = np.full((n_rows, width), -np.inf, dtype=np.float32)
        values[:, 1:] = X  # a leaf compares the first column, and nothing is below -inf
        values = values.ravel()
        node = np.tile(self.roots, n_rows).astype(np.intp)
        first = np.repeat(np.arange(1, n_rows * width, width), len(self))  # of the row
        reached, on_the_way = node, np.arange(len(node))
        while len(node):
            for _ in range(LEVELS):
                before = node
                goes_right = values[first + self.feature[node]] > self.threshold[node]
                node = self._next[node] + goes_right
            moved = node != before
            if 2 * np.count_nonzero(moved) <= len(node):
                reached[on_the_way] = node
                node, first, on_the_way = node[moved], first[moved], on_the_way[moved]
        return self.child[reached].reshape(n_rows, len(self))

    @cached_property
    def _next(self) -> NDArray[np.intp]:
        """The first child of each node; a leaf is its own."""
        return np.where(self.feature == LEAF, np.arange(len(self.feature)), self.child)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in dict(self.__dict__).items() if name != "_next"}

    @classmethod
    def joined(cls, grown: Sequence[Any]) -> Trees:
        """The arrays of fitted scikit-learn trees; None is a tree that is a single leaf."""
        return cls.of_nodes([_nodes_of(tree) for tree in grown])

    @classmethod
    def of_nodes(cls, parts: Sequence[Arranged]) -> Trees:
        """Trees from the features, thresholds and first children of their nodes."""
        sizes = [len(feature) for feature, _, _ in parts]
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int32)
        feature = np.concatenate([part[0] for part in parts])
        threshold = np.concatenate([part[1] for part in parts])
        child = np.concatenate([part[2] + root for part, root in zip(parts, roots, strict=True)])
        return cls(feature, threshold, _with_leaf_numbers(feature, child), roots)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name, for a model folder."""
        return {
            "feature": self.feature,
            "threshold": self.threshold,
            "child": self.child,
            "roots": self.roots,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, dim: int) -> Trees:
        """Trees from the arrays of a model folder, which may be damaged."""
        expected = {"feature": "<i4", "threshold": "<f4", "child": "<i4", "roots": "<i4"}
        found = {name: arrays[name] for name in expected if name in arrays}
        if {name: array.dtype.str for name, array in found.items()} != expected or any(
            array.ndim != 1 for array in found.values()
        ):
            raise ModelFolderError("The stored trees must be four arrays of nodes.")
        return cls.checked(**found, dim=dim)

    @classmethod
    def checked(
        cls, feature: Nodes, threshold: NDArray[np.float32], child: Nodes, roots: Nodes, dim: int
    ) -> Trees:
        """Trees from stored arrays, in which every walk ends in a leaf."""
        n_nodes = len(feature)
        ends = np.append(roots[1:], n_nodes)
        is_inner = feature != LEAF
        node = np.arange(n_nodes)
        has_shape = (
            len(threshold) == len(child) == n_nodes > 0
            and len(roots) > 0
            and roots[0] == 0
            and (ends > roots).all()
            and ((feature >= LEAF) & (feature < dim)).all()
            and np.isfinite(threshold).all()
        )
        if has_shape:
            end = np.repeat(ends, ends - roots)
            has_shape = ((child > node) & (child + 1 < end))[is_inner].all()
        if not has_shape or 2 * int(is_inner.sum()) + len(roots) != n_nodes:
            raise ModelFolderError("The stored trees are damaged: their nodes form no trees.")
        return cls(feature, threshold, _with_leaf_numbers(feature, child), roots)


def _with_leaf_numbers(feature: Nodes, child: Nodes) -> Nodes:
    is_leaf = feature == LEAF
    return np.where(is_leaf, np.cumsum(is_leaf) - 1, child).astype(np.int32)


def _nodes_of(tree: Any) -> Arranged:
    """Feature, threshold and first child of the nodes of a tree, siblings moved together."""
    if tree is None:
        return np.array([LEAF], np.int32), np.zeros(1, np.float32), np.zeros(1, np.int32)
    nodes = tree.tree_
    inner = np.flatnonzero(nodes.children_left >= 0)
    place = siblings_together(inner, nodes.children_left, nodes.children_right)
    return arranged(inner, place, nodes.feature, nodes.threshold, nodes.children_left)


def siblings_together(inner: Integers, left: Integers, right: Integers) -> Integers:
    """The place (n,) of each node if siblings are adjacent; parents must come first."""
    place = np.zeros(len(left), dtype=np.int64)
    place[left[inner]] = 1 + 2 * np.arange(len(inner))
    place[right[inner]] = 2 + 2 * np.arange(len(inner))
    return place


def arranged(
    inner: Integers, place: Integers, features: Any, thresholds: Any, left: Any
) -> Arranged:
    """Feature, threshold and first child of the nodes at their places; `inner` are no leaves."""
    feature = np.full(len(place), LEAF, dtype=np.int32)
    threshold = np.zeros(len(place), dtype=np.float32)
    child = np.zeros(len(place), dtype=np.int32)
    feature[place[inner]] = features[inner]
    threshold[place[inner]] = _rounded_down(thresholds[inner])
    child[place[inner]] = place[left[inner]]
    return feature, threshold, child


def _rounded_down(thresholds: Floats) -> NDArray[np.float32]:
    """Thresholds in float32 that separate float32 values as the given ones do."""
    rounded = thresholds.astype(np.float32)
    lower = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(rounded > thresholds, lower, rounded)


def grow_trees(
    X: NDArray[np.float32],
    labels: Integers,
    counts: NDArray[np.uint8],
    sample_weight: Floats,
    *,
    kind: Kind,
    max_features: Any,
    min_samples_leaf: int,
    random_state: int,
) -> list[Any]:
    """Grow one scikit-learn tree per column of `counts` (N, T), how often it sees each row.

    A tree that sees no row is None.
    """
    from joblib import Parallel, delayed
    from sklearn.tree import DecisionTreeClassifier, ExtraTreeClassifier

    n_trees = counts.shape[1]
    seeds = np.random.default_rng(random_state).integers(2**31, size=(n_trees,)).tolist()
    model: Any = DecisionTreeClassifier if kind == "random_forest" else ExtraTreeClassifier

    def grow(tree: int) -> Any:
        advance()
        rows = np.flatnonzero(counts[:, tree])
        if not len(rows):
            return None
        grown = model(
            max_features=max_features,
            min_samples_leaf=min_samples_leaf,
            random_state=seeds[tree],
        )
        weights = counts[rows, tree] * sample_weight[rows]
        return grown.fit(X[rows], labels[rows], sample_weight=weights, check_input=False)

    n_threads = 1 if counts.size < SMALL else min(4, os.cpu_count() or 1)
    work = (delayed(grow)(tree) for tree in range(n_trees))
    with progress_bar("Growing trees", n_trees) as advance:
        grown: list[Any] = Parallel(n_jobs=n_threads, prefer="threads")(work)
    return grown


# The bootstrap. Each tree sees an entry as often as a Poisson variable of mean 1 says, drawn from a
# hash of the entry's key: an entry that is added later gets its counts by the same rule, and rows
# of one group, which share a key, are seen or left out together.

_CUMULATIVE = np.cumsum([np.exp(-1.0) / f for f in (1, 1, 2, 6, 24, 120, 720, 5040)])
_BOUNDS = (_CUMULATIVE * 2.0**53).astype(np.uint64)


def bootstrap_counts(keys: NDArray[np.uint64], n_trees: int, seed: int) -> NDArray[np.uint8]:
    """How often (N, T) each tree sees each entry: Poisson counts of mean 1."""
    salts = _mixed(np.arange(n_trees, dtype=np.uint64) + _mixed(np.array([seed], np.uint64)))
    counts = np.empty((len(keys), n_trees), dtype=np.uint8)
    step = max(1, COUNTS_AT_ONCE // max(1, n_trees))
    for start in range(0, len(keys), step):
        drawn = _mixed(keys[start : start + step, None] ^ salts) >> np.uint64(11)
        counts[start : start + step] = np.searchsorted(_BOUNDS, drawn, side="right")
    return counts


def entry_keys(ids: NDArray[Any], groups: Integers, no_group: int) -> NDArray[np.uint64]:
    """A 64-bit key (N,) of each entry: of its group if it has one, else of its id."""
    if ids.dtype == object:
        from hashlib import blake2b

        digests = b"".join(
            blake2b(str(name).encode("utf-8", "surrogatepass"), digest_size=8).digest()
            for name in ids.tolist()
        )
        keys = np.frombuffer(digests, dtype="<u8").astype(np.uint64)
    else:
        keys = _mixed(ids.astype(np.int64).view(np.uint64))
    of_groups = _mixed(groups.astype(np.int64).view(np.uint64) ^ np.uint64(0x5851F42D4C957F2D))
    return np.where(groups == no_group, keys, of_groups)


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64 (Steele, Lea & Flood 2014): every bit depends on every other."""
    with np.errstate(over="ignore"):
        values = values + np.uint64(0x9E3779B97F4A7C15)
        values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return values ^ (values >> np.uint64(31))
