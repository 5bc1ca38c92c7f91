"""Forest attention: the entries that share a leaf with the query vote, tree by tree."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from attnknn._stored import fitted_fields
from attnknn._validation import Limits, check_choice, check_limits
from attnknn.attention.base import Voters
from attnknn.attention.direct import DirectAttention, DirectFit, padded_voters
from attnknn.attention.trees import (
    Kind,
    Nodes,
    Trees,
    bootstrap_counts,
    entry_keys,
    grow_trees,
)
from attnknn.memory.base import Memory
from attnknn.memory.entries import NO_GROUP, Entries, EntryColumns
from attnknn.records import Booleans, Floats, Integers
from attnknn.registry import Option, register
from attnknn.vote import class_prior

if TYPE_CHECKING:
    from attnknn._stored import Arrays
    from attnknn.model import FittedModel

KINDS = ("random_forest", "extra_trees")
LIMITS = {
    "n_trees": Limits(least=1, is_whole=True),
    "min_samples_leaf": Limits(least=1, is_whole=True),
    "prior_score": Limits(may_be_none=True),
}


@dataclass(frozen=True, eq=False)
class Leaves:
    """Where the entries of one state lie in the trees, and how often each tree sees them.

    A leaf without any entry, after edits, gives the vote of its tree to the prior.
    """

    trees: Trees
    seed: int
    entries: EntryColumns
    n_classes: int
    leaf: Nodes  # (N, T)
    counts: NDArray[np.uint8]  # (N, T)

    @classmethod
    def of(cls, trees: Trees, seed: int, memory: Memory, n_classes: int) -> Leaves:
        """Send all entries of a memory down the trees."""
        leaf, counts = trees.leaves(memory.vectors.all()), _counts(memory.entries, len(trees), seed)
        return cls(trees, seed, memory.entries, n_classes, leaf, counts)

    def followed(self, memory: Memory, kept: Integers | None, n_classes: int) -> Leaves:
        """The leaves after an edit: `kept` entries stay (None: all), further ones are new."""
        leaf = self.leaf if kept is None else self.leaf[kept]
        counts = self.counts if kept is None else self.counts[kept]
        entries = memory.entries
        if len(entries) > len(leaf):
            new = memory.read(np.arange(len(leaf), len(entries)))
            leaf = np.concatenate([leaf, self.trees.leaves(new.embeddings)])
            counts = np.concatenate([counts, _counts(new, len(self.trees), self.seed)])
        return replace(self, entries=entries, n_classes=n_classes, leaf=leaf, counts=counts)

    def shares(self, reached: sparse.csr_array) -> Floats:
        """Class shares (B, C) of the trees in `reached` (B, n_leaves), whose rows sum to one."""
        return np.asarray((reached @ self._by_class).todense())

    def shares_of_one(self, leaf: Nodes) -> Floats:
        """`shares` of one row in all trees, whose leaves are (1, T).

        A sparse product takes longer to begin than this sum, which is in the same order.
        """
        table, rows = self._by_class, leaf[0]
        first = table.indptr[rows]
        sizes = table.indptr[rows + 1] - first
        ends = np.cumsum(sizes)
        places = np.arange(ends[-1]) + np.repeat(first - (ends - sizes), sizes)
        weights = (1.0 / len(rows)) * table.data[places]
        found: Any = np.bincount(table.indices[places], weights, self.n_classes)
        return np.asarray(found)[None]

    def weights(self, reached: sparse.csr_array) -> sparse.csr_array:
        """Weights (B, N) of the entries in the vote of the trees in `reached`."""
        return sparse.csr_array(reached @ self._by_entry)

    def reached(self, leaf: Nodes, is_asked: Booleans | None = None) -> sparse.csr_array:
        """Sparse (B, n_leaves): the weight of each tree at the leaf that a row reaches in it.

        Parameters
        ----------
        leaf : (B, T) from `Trees.leaves`
        is_asked : (B, T) trees that vote; None is all
        """
        n_rows, n_trees = leaf.shape
        asked = np.ones(leaf.shape) if is_asked is None else is_asked.astype(np.float64)
        asked /= np.maximum(asked.sum(axis=1, keepdims=True), 1.0)
        shape, ends = (n_rows, self.trees.n_leaves), np.arange(0, leaf.size + 1, n_trees)
        return sparse.csr_array((asked.ravel(), leaf.ravel(), ends), shape=shape)

    @cached_property
    def _by_class(self) -> sparse.csr_array:
        return self._table(self.entries.labels, self.n_classes)

    @cached_property
    def _by_entry(self) -> sparse.csr_array:
        return self._table(np.arange(len(self.entries)), len(self.entries))

    def _table(self, column: Integers, width: int) -> sparse.csr_array:
        """Sparse (n_leaves, width): the weights of the entries of each leaf, which sum to one."""
        entry, tree = np.nonzero(self.counts)
        mass = self.counts[entry, tree] * self.entries.effective_weight[entry]
        places = (self.leaf[entry, tree], column[entry])
        table = sparse.csr_array((mass, places), shape=(self.trees.n_leaves, width))
        totals = np.asarray(table.sum(axis=1))
        table.data /= np.repeat(totals, np.diff(table.indptr))
        return table


def _counts(entries: EntryColumns, n_trees: int, seed: int) -> NDArray[np.uint8]:
    return bootstrap_counts(entry_keys(entries.ids, entries.groups, NO_GROUP), n_trees, seed)


@register("attention", "forest")
class ForestAttention(DirectAttention):
    """Votes of a forest: in each tree, the entries in the leaf of the query share one vote.

    The weighted vote of the labels is the probability that the forest predicts, so a forest is an
    attention with exact evidence (Lin & Jeon, 2006). Each tree is grown on a bootstrap sample.
    Leave-one-out predictions of an entry are out-of-bag, so every entry is held out; rows of one
    group are in or out of a bag together. An edit adds entries to the leaves or removes them; the
    splits change only by `refit`.

    Parameters
    ----------
    n_trees : int, default=400
        Number of trees. More trees take longer and make the probabilities less noisy.
    kind : {'random_forest', 'extra_trees'}, default='random_forest'
        How a split is chosen: 'random_forest' optimizes the threshold of each candidate feature,
        'extra_trees' draws one random threshold for each and takes the best of them.
    max_features : {'auto', 'sqrt', 'log2', 'all'}, default='auto'
        Number of candidate features of a split. 'auto' is 'sqrt' for random forests and 'all' for
        extra trees.
    min_samples_leaf : int, default=1
        Smallest number of training rows in a leaf; larger values smooth the probabilities.
    prior_score : float, default=None
        Logit of the weight of the prior. None fits it by out-of-bag log-loss.

    Attributes
    ----------
    trees_ : Trees
        The nodes of all trees.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention=ForestAttention(50), random_state=0).fit(X, y)
    >>> clf.predict(X[[0, 60, 120]]).tolist()
    [0, 1, 2]
    """

    options: ClassVar[tuple[Option, ...]] = (
        Option("--trees", "n_trees", "Number of trees in a forest.", int, minimum=1),
        Option(
            "--forest-kind",
            "kind",
            "Thresholds of the splits: optimized (random_forest) or random (extra_trees).",
            choices=KINDS,
        ),
        Option(
            "--min-samples-leaf",
            "min_samples_leaf",
            "Smallest number of training rows in a leaf of a forest.",
            int,
            minimum=1,
        ),
    )
    trees_: Trees
    seed_: int

    def __init__(
        self,
        n_trees: int = 400,
        kind: str = "random_forest",
        max_features: str = "auto",
        min_samples_leaf: int = 1,
        prior_score: float | None = None,
    ) -> None:
        self.n_trees = n_trees
        self.kind = kind
        self.max_features = max_features
        self.min_samples_leaf = min_samples_leaf
        self.prior_score = prior_score

    def fit_entries(self, problem: DirectFit) -> None:
        check_limits(self, LIMITS)
        check_choice("kind", self.kind, KINDS)
        check_choice("max_features", self.max_features, ("auto", "sqrt", "log2", "all"))
        default = "sqrt" if self.kind == "random_forest" else "all"
        candidates = default if self.max_features == "auto" else self.max_features
        entries = problem.memory.read()
        self.seed_ = problem.random_state
        kind: Kind = "random_forest" if self.kind == "random_forest" else "extra_trees"
        self.trees_ = Trees.joined(
            grow_trees(
                entries.embeddings,
                entries.labels,
                _counts(entries, self.n_trees, self.seed_),
                entries.effective_weight,
                kind=kind,
                max_features=None if candidates == "all" else candidates,
                min_samples_leaf=self.min_samples_leaf,
                random_state=self.seed_,
            )
        )

    def _leaves(self, model: FittedModel) -> Leaves:
        """The leaves of the entries of a model, computed once for each state of it."""
        memory, n_classes = model.memory, len(model.classes)
        make = lambda: Leaves.of(self.trees_, self.seed_, memory, n_classes)  # noqa: E731
        return model.cached(self.trees_, make)

    def follow_edit(self, before: FittedModel, after: FittedModel, kept: Integers | None) -> None:
        known = before.known(self.trees_)
        if isinstance(known, Leaves):
            n_classes = len(after.classes)
            after.cached(self.trees_, lambda: known.followed(after.memory, kept, n_classes))

    def shares(self, model: FittedModel, queries: NDArray[np.float32]) -> Floats:
        leaves, leaf = self._leaves(model), self.trees_.leaves(queries)
        if len(leaf) == 1:
            found = leaves.shares_of_one(leaf)
        else:
            found = leaves.shares(leaves.reached(leaf))
        return self.with_prior(found, model.class_prior)

    def left_out_shares(
        self,
        model: FittedModel,
        rows: Integers,
        queries: NDArray[np.float32] | None = None,
    ) -> Floats:
        leaves = self._leaves(model)
        leaf = leaves.leaf[rows] if queries is None else self.trees_.leaves(queries)
        reached = leaves.reached(leaf, leaves.counts[rows] == 0)
        prior = class_prior(model.counts, leaves.entries.labels[rows])
        return self.with_prior(leaves.shares(reached), prior)

    def voters(self, model: FittedModel, queries: NDArray[np.float32]) -> Voters:
        reached = self._leaves(model).reached(self.trees_.leaves(queries))
        return self._voters(model, queries, reached)

    def left_out_voters(self, model: FittedModel, rows: Integers) -> Voters:
        leaves = self._leaves(model)
        reached = leaves.reached(leaves.leaf[rows], leaves.counts[rows] == 0)
        return self._voters(model, model.memory.vectors[rows], reached)

    def voters_of_forgotten(self, model: FittedModel, entries: Entries) -> Voters:
        is_asked = _counts(entries, len(self.trees_), self.seed_) == 0
        leaf = self.trees_.leaves(entries.embeddings)
        reached = self._leaves(model).reached(leaf, is_asked)
        return self._voters(model, entries.embeddings, reached)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"seed": self.seed_}, self.trees_.arrays()

    def restore(
        self,
        stored: dict[str, Any],
        arrays: Arrays,
        dim: int,
        n_classes: int,  # noqa: ARG002
    ) -> None:
        self.seed_ = fitted_fields(stored).integer("seed")
        self.trees_ = Trees.from_arrays(arrays, dim)

    def _voters(
        self, model: FittedModel, queries: NDArray[np.float32], reached: sparse.csr_array
    ) -> Voters:
        weights = self._leaves(model).weights(reached) * (1.0 - self.prior_weight)
        return padded_voters(model.memory, queries, sparse.csr_array(weights))
