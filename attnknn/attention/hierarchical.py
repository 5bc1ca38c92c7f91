"""Hierarchical attention: cells of entries are weighed first, then the entries within them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from attnknn._stored import fitted_fields
from attnknn._validation import Limits, check_choice, check_limits
from attnknn.attention.base import Voters, softmax_weights
from attnknn.attention.cells import Cells, Centers, Visits, cluster_centers
from attnknn.attention.direct import DirectAttention, DirectFit, padded_voters
from attnknn.errors import ModelFolderError
from attnknn.memory.entries import NO_GROUP, Entries
from attnknn.records import Floats, Integers
from attnknn.registry import Option, register
from attnknn.vote import class_prior

if TYPE_CHECKING:
    from attnknn._stored import Arrays
    from attnknn.model import FittedModel

Vectors = NDArray[np.float32]
Pairs = tuple[Integers, Integers]  # queries, and positions of entries that they leave out
CELLS = ("clusters", "classes")
LIMITS = {
    "n_clusters": Limits(least=1, is_whole=True, may_be_none=True),
    "n_visited": Limits(least=1, is_whole=True, may_be_none=True),
    "cell_temperature": Limits(above=0, may_be_none=True),
    "entry_temperature": Limits(above=0, may_be_none=True),
    "detail": Limits(least=0, most=1, may_be_none=True),
    "prior_score": Limits(may_be_none=True),
}
CLUSTERS_PER_ROOT = 2.0  # clusters for each entry of the square root of their number
CENTERS = "clusters.prototypes"  # an erasure overwrites a prototype that equals an erased entry


@dataclass(frozen=True)
class Levels:
    """The fitted numbers of both levels.

    Parameters
    ----------
    cell_temperature, entry_temperature : float
        In units of squared distance: of the softmax over cells, and of that over entries.
    detail : float
        How far the entries of a cell decide its weight, 0 to 1; else its center does.
    prior : float
        The score of the prior beside the cells.
    """

    cell_temperature: float
    entry_temperature: float
    detail: float
    prior: float

    def masses(self, visits: Visits, log_weight: Floats) -> tuple[Floats, Floats]:
        """The mass (P,) of each pair relative to the largest in its cell, and (S,) that one's log.

        `log_weight` (P,) is that of the entry of each pair.
        """
        scores = log_weight - visits.distances / self.entry_temperature
        if not len(visits.slots):
            return scores, np.zeros(0)
        top = np.maximum.reduceat(scores, visits.starts)
        scores -= np.repeat(top, visits.sizes)
        return np.exp(scores, out=scores), top

    def cell_weights(self, visits: Visits, log_mass: Floats) -> tuple[Floats, Floats]:
        """Weights (B, m) of the visited cells and (B,) of the prior, which sum to one.

        `log_mass` (S,) is that of the entries of each visited cell.
        """
        is_cell = np.isfinite(visits.squared)
        squared = np.where(is_cell, visits.squared, 0.0)
        by_center = np.where(is_cell, visits.log_mass, 0.0) - squared / self.cell_temperature
        by_entries = np.zeros(squared.size)
        by_entries[visits.slots] = log_mass
        scores = self.detail * by_entries.reshape(squared.shape) + (1.0 - self.detail) * by_center
        scores = np.where(is_cell, scores, -np.inf)
        cells, prior = softmax_weights(scores[:, None], np.full((len(scores), 1), self.prior))
        return cells[:, 0], prior[:, 0]

    def weights(self, visits: Visits, log_weight: Floats) -> Floats:
        """The weight (P,) of each pair; what is left of 1 is the prior's."""
        masses, top = self.masses(visits, log_weight)
        total = visits.summed(masses)
        of_cells, _ = self.cell_weights(visits, top + np.log(total))
        return masses * np.repeat(of_cells.ravel()[visits.slots] / total, visits.sizes)


@register("attention", "hierarchical")
class HierarchicalAttention(DirectAttention):
    """Attention in two levels: cells of entries first, then the entries of the nearest cells.

    Cells are clusters of the embeddings or the classes. A softmax over the `n_visited` cells whose
    centers are nearest to the query weighs the cells; a second one, with a temperature of its own,
    weighs the entries within each of them. Entries of other cells are never compared with the
    query, so the cost of an answer grows with the square root of the number of entries instead of
    with the number itself. Distances are Euclidean in the vectors that the memory compares.

    Parameters
    ----------
    cells : {'clusters', 'classes'}, default='clusters'
        What the first level weighs: clusters by k-means, whose centers stay until `refit`, or the
        classes, whose centers are the means of their entries and follow every edit.
    n_clusters : int, default=None
        Number of clusters; None is twice the square root of the number of entries.
    n_visited : int, default=None
        Number of cells whose entries vote. None takes the fewest that are not significantly worse
        than 32 by leave-one-out log-loss.
    cell_temperature, entry_temperature : float, default=None
        Temperatures of both levels in units of squared distance. None fits them by leave-one-out
        log-loss.
    detail : float, default=None
        What decides the weight of a cell: 0 is the distance to its center, 1 are the scores of its
        entries, as if all entries of the visited cells were in one softmax. None chooses 0, 0.5 or
        1 by leave-one-out log-loss.
    prior_score : float, default=None
        Logit of the weight of the prior, in addition to its weight in the vote. None fits it by
        leave-one-out log-loss.

    Attributes
    ----------
    centers_ : Centers
        The centers of the clusters.
    levels_ : Levels
        Temperatures, detail and the score of the prior.
    n_visited_ : int
        Number of cells whose entries vote.

    See Also
    --------
    DistanceAttention : One softmax over the nearest entries.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention="hierarchical", random_state=0).fit(X[::2], y[::2])
    >>> clf.score(X[1::2], y[1::2]) > 0.97
    True
    """

    options: ClassVar[tuple[Option, ...]] = (
        Option("--cells", "cells", "First level of hierarchical attention.", choices=CELLS),
        Option("--clusters", "n_clusters", "Clusters of hierarchical attention.", int, minimum=1),
        Option(
            "--visited",
            "n_visited",
            "Cells whose entries vote in hierarchical attention.",
            int,
            minimum=1,
        ),
    )
    centers_: Centers
    levels_: Levels
    n_visited_: int

    def __init__(
        self,
        cells: str = "clusters",
        n_clusters: int | None = None,
        n_visited: int | None = None,
        cell_temperature: float | None = None,
        entry_temperature: float | None = None,
        detail: float | None = None,
        prior_score: float | None = None,
    ) -> None:
        self.cells = cells
        self.n_clusters = n_clusters
        self.n_visited = n_visited
        self.cell_temperature = cell_temperature
        self.entry_temperature = entry_temperature
        self.detail = detail
        self.prior_score = prior_score

    def fit_entries(self, problem: DirectFit) -> None:
        from attnknn.attention.hierarchical_fit import fit_levels

        check_choice("cells", self.cells, CELLS)
        check_limits(self, LIMITS)
        generator = np.random.default_rng(problem.random_state)
        memory, entries = problem.memory, problem.memory.entries
        self.centers_ = Centers(None)
        if self.cells == "clusters":
            n_clusters = self.n_clusters or max(1, round(CLUSTERS_PER_ROOT * len(entries) ** 0.5))
            self.centers_ = cluster_centers(memory.vectors, n_clusters, generator)
        cells = self.centers_.cells(memory, int(entries.labels.max(initial=0)) + 1)
        settings = {
            "cell_temperature": self.cell_temperature,
            "entry_temperature": self.entry_temperature,
            "detail": self.detail,
        }
        given = {name: float(value) for name, value in settings.items() if value is not None}
        found = fit_levels(cells, problem, given, self.n_visited, generator)
        self.levels_, self.n_visited_ = found

    def _cells(self, model: FittedModel) -> Cells:
        """The cells of the entries of a model, computed once for each state of it."""
        memory, n_classes = model.memory, len(model.classes)
        return model.cached(self.centers_, lambda: self.centers_.cells(memory, n_classes))

    def follow_edit(self, before: FittedModel, after: FittedModel, kept: Integers | None) -> None:
        known = before.known(self.centers_)
        if isinstance(known, Cells):
            given = known, after.memory, kept, len(after.classes)
            after.cached(self.centers_, lambda: self.centers_.followed(*given))

    def shares(self, model: FittedModel, queries: Vectors) -> Floats:
        return self.with_prior(self._shares(model, queries, None), model.class_prior)

    def left_out_shares(
        self, model: FittedModel, rows: Integers, queries: Vectors | None = None
    ) -> Floats:
        entries = model.memory.entries
        queries = model.memory.vectors[rows] if queries is None else queries
        found = self._shares(model, queries, model.memory.exclusion.pairs(rows))
        return self.with_prior(found, class_prior(model.counts, entries.labels[rows]))

    def voters(self, model: FittedModel, queries: Vectors) -> Voters:
        return self._voters(model, queries, None)

    def left_out_voters(self, model: FittedModel, rows: Integers) -> Voters:
        left_out = model.memory.exclusion.pairs(rows)
        return self._voters(model, model.memory.vectors[rows], left_out)

    def voters_of_forgotten(self, model: FittedModel, entries: Entries) -> Voters:
        left_out = _members_of_groups(entries.groups, model.memory.entries.groups)
        return self._voters(model, entries.embeddings, left_out)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        centers = self.centers_.of_clusters
        arrays = {} if centers is None else {CENTERS: centers}
        return {"levels": asdict(self.levels_), "n_visited": self.n_visited_}, arrays

    def restore(self, values: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:  # noqa: ARG002
        fields = fitted_fields(values)
        levels = fields.of("levels")
        self.n_visited_ = fields.integer("n_visited", least=1)
        self.levels_ = Levels(
            levels.number("cell_temperature", least=1e-300),
            levels.number("entry_temperature", least=1e-300),
            levels.number("detail", least=0.0, most=1.0),
            levels.number("prior"),
        )
        centers = None
        if self.cells == "clusters":
            centers = arrays[CENTERS]
            is_right = centers.ndim == 2 and centers.shape[1] == dim and len(centers) > 0
            if not is_right or centers.dtype != np.float32 or not np.isfinite(centers).all():
                raise ModelFolderError("The stored centers must be finite and fit the embeddings.")
        self.centers_ = Centers(centers)

    def _shares(self, model: FittedModel, queries: Vectors, left_out: Pairs | None) -> Floats:
        """Shares (B, C) of the classes in the vote of the entries."""
        labels, n_classes = model.memory.entries.labels, len(model.classes)
        found = [np.zeros((0, n_classes))]
        for n_rows, visits, weights in self._blocks(model, queries, left_out):
            places = visits.rows * n_classes + labels[visits.positions]
            counted: Any = np.bincount(places, weights, n_rows * n_classes)
            found.append(counted.reshape(n_rows, n_classes))
        return np.concatenate(found)

    def _voters(self, model: FittedModel, queries: Vectors, left_out: Pairs | None) -> Voters:
        n_entries = len(model.memory)
        found = [sparse.csr_array((0, n_entries))]
        for n_rows, visits, weights in self._blocks(model, queries, left_out):
            kept = weights > 0
            places = visits.rows[kept], visits.positions[kept]
            found.append(sparse.csr_array((weights[kept], places), shape=(n_rows, n_entries)))
        weights = sparse.csr_array(sparse.vstack(found) * (1.0 - self.prior_weight))
        return padded_voters(model.memory, queries, weights)

    def _blocks(
        self, model: FittedModel, queries: Vectors, left_out: Pairs | None
    ) -> Iterator[tuple[int, Visits, Floats]]:
        """Number of queries, visits and weights of the pairs, in blocks of queries."""
        if not len(model.memory):
            nothing = np.zeros(0, dtype=np.int64)
            empty = np.zeros((len(queries), 0))
            visits = Visits(empty, empty, nothing, nothing, nothing, np.zeros(0))
            yield len(queries), visits, np.zeros(0)
            return
        cells = self._cells(model)
        weight = model.memory.entries.effective_weight
        step = cells.rows_at_once(self.n_visited_)
        for start in range(0, len(queries), step):
            block = queries[start : start + step]
            some = None
            if left_out is not None:
                query, position = left_out
                is_here = (query >= start) & (query < start + step)
                some = query[is_here] - start, position[is_here]
            visits = cells.visit(block, self.n_visited_, some)
            yield len(block), visits, self.levels_.weights(visits, np.log(weight[visits.positions]))


def _members_of_groups(asked: Integers, groups: Integers) -> Pairs:
    """Pairs (query, position) of entries that are in the group of a query.

    >>> [pair.tolist() for pair in _members_of_groups(np.array([-1, 4]), np.array([4, -1, 4]))]
    [[1, 1], [0, 2]]
    """
    query, position = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for place in np.flatnonzero(asked != NO_GROUP).tolist():
        members = np.flatnonzero(groups == asked[place])
        query.append(np.full(len(members), place))
        position.append(members)
    return np.concatenate(query), np.concatenate(position)
