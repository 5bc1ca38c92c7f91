"""The fitted model: encode, search, weigh, vote, calibrate.

`FittedModel` is immutable. An edit builds the next one, which shares what did not change, and the
classifier swaps it in with one assignment; a reader keeps the model that it started with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from attnknn._limits import check_fits
from attnknn.attention.base import Attention, NeighborBatch, Voters
from attnknn.attention.direct import DirectAttention
from attnknn.calibration import Calibration
from attnknn.calibration.fitting import MAX_NEIGHBORS_FOR_NOISE, estimate_confusions
from attnknn.encoders import Encoder
from attnknn.errors import InvalidInputError, NotFittedYetError
from attnknn.leave_one_out import (
    LeaveOneOutBatch,
    LeaveOneOutPredictions,
    Trust,
    leave_one_out_batch,
    mean_of_nearest,
)
from attnknn.memory.base import Memory
from attnknn.memory.entries import NO_GROUP, Entries
from attnknn.memory.neighbor_graph import NeighborGraph
from attnknn.records import Floats, Integers, Neighbors, Weights
from attnknn.value_head import ValueHead
from attnknn.vote import class_prior, vote

Vectors = NDArray[np.float32]
Queries = Vectors | Sequence[Vectors]  # one array, or one per test-time-augmentation view
ROWS_AT_ONCE = 8192
CELLS_AT_ONCE = 1 << 24  # probabilities of a block, or scores of its neighbors
MIN_CHECKED_CELLS = 1 << 26  # smaller results always fit
MAX_LEFT_OUT = 20_000  # held-out entries: a share of 0.9 is then known to 0.002
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Answer:
    """Everything that led to the probabilities of B queries."""

    neighbors: Neighbors
    weights: Weights
    prior: Floats  # (C,), or (B, C) for leave-one-out
    shares: Floats  # (B, C) vote shares
    probabilities: Floats  # (B, C)
    is_exact: bool = True  # False if a value head gave the probabilities, and not the shares


@dataclass(frozen=True, eq=False)
class FittedModel:
    """An immutable fitted classifier: encoder, memory, attention, calibration and value head.

    Parameters
    ----------
    encoder : Encoder
        Turns rows into embeddings.
    memory : Memory
        The entries and their search.
    attention : Attention or DirectAttention
        Turns neighbors into weights, or finds the voters itself.
    calibration : Calibration
        Turns vote shares into probabilities.
    n_neighbors : int
        Number of neighbors that vote.
    classes : ndarray of shape (C,)
        The labels, in the order of label codes.
    value_head : ValueHead, default=None
        Gives the probabilities instead of the vote.
    views_factor : float, default=1.0
        Multiplies the exponent of the probability map where views are averaged.
    min_next_id : int, default=0
        Ids below it have been used; entries without a given id get larger ones.
    report : FitReport, default=None
        What the fit chose and why.
    stored_trust : ndarray of shape (N,), default=None
        Trust of the entries if it is known already, as from a model folder.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> model = clf.model_
    >>> clf = clf.forget([1])
    >>> len(model.memory), len(clf.model_.memory)  # the edit made another model
    (3, 2)
    >>> model.predict_proba(model.queries([[0.2]])).shape
    (1, 2)
    """

    encoder: Encoder
    memory: Memory
    attention: Attention | DirectAttention
    calibration: Calibration
    n_neighbors: int
    classes: NDArray[Any]
    value_head: ValueHead | None = None
    views_factor: float = 1.0
    min_next_id: int = 0
    report: Any = None
    stored_trust: Floats | None = field(default=None, repr=False)
    _cache: dict[Any, Any] = field(init=False, repr=False, default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_cache": {}}

    def cached(self, key: Any, compute: Callable[[], _Value]) -> _Value:
        """Compute a value that follows from the model, once.

        Parameters
        ----------
        key : hashable
            Name of the value.
        compute : callable
            Function without arguments that returns the value.

        Returns
        -------
        object
            The value, from the cache after the first call.
        """
        if key not in self._cache:
            self._cache[key] = compute()
        value: _Value = self._cache[key]
        return value

    def known(self, key: Any) -> Any:
        """Look up a value that `cached` has computed.

        Parameters
        ----------
        key : hashable
            Name of the value.

        Returns
        -------
        object
            The value, or None if it was not computed yet.
        """
        return self._cache.get(key)

    # Answers to queries

    @property
    def counts(self) -> Integers:
        """Number of entries (C,) of each class."""
        labels, n_classes = self.memory.entries.labels, len(self.classes)
        return self.cached("counts", lambda: np.bincount(labels, minlength=n_classes))

    @property
    def class_prior(self) -> Floats:
        """Class frequencies (C,) that the prior votes for."""
        return self.cached("class_prior", lambda: class_prior(self.counts))

    @property
    def rows_at_once(self) -> int:
        """Number of rows that are answered together; fewer if there are many classes or voters."""
        n_scores = self.attention.n_scoring_heads * min(self.n_neighbors, len(self.memory))
        if self.direct_attention is not None:
            n_scores = len(self.memory)  # nearly all entries may share a leaf with a query
        return max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // max(1, len(self.classes), n_scores)))

    @property
    def has_trained_encoder(self) -> bool:
        """Whether the encoder was trained on labels."""
        return self.encoder.is_trained

    @property
    def direct_attention(self) -> DirectAttention | None:
        """The attention, if it finds its voters without a search."""
        return self.attention if isinstance(self.attention, DirectAttention) else None

    def queries(self, X: Any) -> Queries:
        """Encode rows as the memory compares them.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows, as the encoder takes them.

        Returns
        -------
        ndarray of shape (n_rows, n_dimensions), or a list of them
            One array, or one for each test-time-augmentation view.
        """
        self.check_room_for(X)
        if not self.encoder.has_views:
            return self.memory.prepare(self.encoder.transform(X))
        encoder: Any = self.encoder
        return [self.memory.prepare(view) for view in encoder.embeddings(X, encoder.views)]

    def check_room_for(self, X: Any) -> None:
        """Raise `TooLargeError` if the embeddings of rows need more memory than there is.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows, as the encoder takes them.
        """
        shape = getattr(X, "shape", None)
        n_rows = shape[0] if shape else len(X) if hasattr(X, "__len__") else 0
        _check_size("The embeddings", n_rows, self.memory.vectors.width)

    def answer(self, queries: Vectors) -> Answer:
        """Search, weigh and vote for queries that are not entries.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_dimensions)
            Queries prepared by `memory`.

        Returns
        -------
        Answer
            Neighbors, weights, vote shares and probabilities.
        """
        direct = self.direct_attention
        if direct is not None:
            return self._answer_of(direct.voters(self, queries), self.class_prior)
        neighbors = self.memory.search_prepared(queries, self.n_neighbors)
        return self.answer_batch(self._neighbor_batch(queries, neighbors), self.class_prior)

    def _neighbor_batch(self, queries: Vectors, neighbors: Neighbors) -> NeighborBatch:
        trust = self.entry_trust
        values = None if trust is None else trust[neighbors.positions]
        return NeighborBatch.of(queries, neighbors, self.memory, values)

    def answer_batch(self, batch: NeighborBatch, prior: Floats) -> Answer:
        """Weigh and vote for queries whose neighbors are known.

        Parameters
        ----------
        batch : NeighborBatch
            Queries and their neighbors.
        prior : ndarray of shape (n_classes,) or (n_queries, n_classes)
            Class frequencies that the prior votes for.

        Returns
        -------
        Answer
            Neighbors, weights, vote shares and probabilities.
        """
        attention: Any = self.attention
        head = self.value_head
        with np.errstate(all="ignore"):  # what overflows is found below
            weights = attention.weigh(batch)
            shares = vote(batch.neighbors.labels, weights, prior)
            probabilities = self.calibration.probabilities(shares)
            if head is not None:
                probabilities = head.probabilities(batch, weights, shares, probabilities)
        _check_finite(probabilities)
        return Answer(batch.neighbors, weights, prior, shares, probabilities, head is None)

    def answers(self, queries: Queries) -> Iterator[Answer]:
        """Answer queries in blocks; the votes of several views are averaged.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_dimensions), or a sequence of them
            Queries prepared by `memory`, or one array for each view.

        Yields
        ------
        Answer
            The answer for the next block of queries.
        """
        if isinstance(queries, np.ndarray):
            step = self.rows_at_once
            for start in range(0, len(queries), step):
                yield self.answer(queries[start : start + step])
            return
        for views in self.blocks_of_views(queries):
            yield average_answers(views, self.view_calibration)

    def predict_proba(self, queries: Queries) -> Floats:
        """Class probabilities of queries.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_dimensions), or a sequence of them
            Queries prepared by `memory`, or one array for each view.

        Returns
        -------
        ndarray of shape (n_queries, n_classes)
            Columns follow `classes`; rows sum to one.
        """
        n_rows = len(queries if isinstance(queries, np.ndarray) else queries[0])
        _check_size("The probabilities", n_rows, len(self.classes))
        found = list(self.blocks_of_probabilities(queries))
        return np.concatenate(found) if found else np.zeros((0, len(self.classes)))

    def blocks_of_probabilities(self, queries: Queries) -> Iterator[Floats]:
        """Class probabilities of queries, in blocks.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_dimensions), or a sequence of them
            Queries prepared by `memory`, or one array for each view.

        Yields
        ------
        ndarray of shape (n_rows, n_classes)
            The probabilities of the next rows.
        """
        direct = self.direct_attention
        if direct is not None:
            yield from self._predict_directly(direct, queries)
        elif isinstance(queries, np.ndarray):
            yield from (answer.probabilities for answer in self.answers(queries))
        else:
            for views in self.blocks_of_views(queries):
                yield average_probabilities(views, self.view_calibration)

    def predict_with_distance(self, queries: Queries, n_nearest: int = 1) -> tuple[Floats, Floats]:
        """Class probabilities of queries, and how far the memory is from them.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_dimensions), or a sequence of them
            Queries prepared by `memory`, or one array for each view; the distance is that of the
            first view.
        n_nearest : int, default=1
            Number of entries over which the distance is averaged.

        Returns
        -------
        probabilities : ndarray of shape (n_queries, n_classes)
            As from `predict_proba`.
        distances : ndarray of shape (n_queries,)
            Mean distance to the nearest entries.
        """
        views = [queries] if isinstance(queries, np.ndarray) else list(queries)
        if self.direct_attention is not None:
            found = self.memory.search_prepared(views[0], n_nearest).distances
            return self.predict_proba(queries), mean_of_nearest(found, n_nearest)
        probabilities, nearest = [np.zeros((0, len(self.classes)))], [np.zeros(0)]
        for answers in self.blocks_of_views(views):  # one search gives both
            probabilities.append(average_probabilities(answers, self.view_calibration))
            nearest.append(mean_of_nearest(answers[0].neighbors.distances, n_nearest))
        return np.concatenate(probabilities), np.concatenate(nearest)

    @property
    def view_calibration(self) -> Calibration:
        """The calibration of averaged views."""
        if self.views_factor == 1.0:
            return self.calibration
        return replace(self.calibration, exponent=self.calibration.exponent * self.views_factor)

    def blocks_of_views(self, views: Sequence[Vectors]) -> Iterator[list[Answer]]:
        """Answer queries in blocks, each view by itself.

        Parameters
        ----------
        views : sequence of ndarray of shape (n_queries, n_dimensions)
            Prepared queries, one array for each view.

        Yields
        ------
        list of Answer
            One answer for each view of the next block.
        """
        step = self.rows_at_once
        for start in range(0, len(views[0]), step):
            yield [self.answer(view[start : start + step]) for view in views]

    def _predict_directly(self, direct: DirectAttention, queries: Queries) -> Iterator[Floats]:
        """Probabilities (B, C) of blocks of queries, without naming the voters."""
        views = [queries] if isinstance(queries, np.ndarray) else queries
        calibration = self.calibration if len(views) == 1 else self.view_calibration
        step = max(1, min(ROWS_AT_ONCE, CELLS_AT_ONCE // len(self.classes)))
        for start in range(0, len(views[0]), step):
            blocks = (view[start : start + step] for view in views)
            shares = [direct.shares(self, block) for block in blocks]
            with np.errstate(all="ignore"):
                mean = np.mean(shares, axis=0) if len(shares) > 1 else shares[0]
                probabilities = calibration.probabilities(mean)
            _check_finite(probabilities)
            yield probabilities

    def vote_shares(self, queries: Vectors, neighbors: Neighbors | None = None) -> Floats:
        """Vote shares of queries, without naming the voters where that is faster.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_dimensions)
            Queries prepared by `memory`.
        neighbors : Neighbors, default=None
            Their nearest entries, at least `n_neighbors`, if they are known; None searches.

        Returns
        -------
        ndarray of shape (n_queries, n_classes)
            They sum to one in each row.
        """
        direct = self.direct_attention
        if direct is not None:
            return direct.shares(self, queries)
        if neighbors is None:
            neighbors = self.memory.search_prepared(queries, self.n_neighbors)
        batch = self._neighbor_batch(queries, neighbors.nearest(self.n_neighbors))
        attention = cast(Attention, self.attention)
        with np.errstate(all="ignore"):  # what overflows is found in the probabilities
            return vote(batch.neighbors.labels, attention.weigh(batch), self.class_prior)

    def voters(self, queries: Vectors) -> Voters:
        """Entries that vote for queries, with their weights.

        Parameters
        ----------
        queries : ndarray of shape (n_queries, n_dimensions)
            Queries prepared by `memory`.

        Returns
        -------
        Voters
            Entries and weights.
        """
        if self.direct_attention is not None:
            return self.direct_attention.voters(self, queries)
        answer = self.answer(queries)
        return Voters(answer.neighbors, answer.weights)

    def _answer_of(self, voters: Voters, prior: Floats) -> Answer:
        """The answer of voters that were found without a search."""
        with np.errstate(all="ignore"):
            shares = vote(voters.neighbors.labels, voters.weights, prior)
            probabilities = self.calibration.probabilities(shares)
        _check_finite(probabilities)
        return Answer(voters.neighbors, voters.weights, prior, shares, probabilities)

    # Leave-one-out

    @property
    def neighbor_graph(self) -> NeighborGraph:
        """The nearest others of each entry: built once, then updated by each edit."""
        graph: NeighborGraph | None = self._cache.get("graph")
        if graph is None or not graph.matches(self.memory) or graph.k < self.n_neighbors:
            graph = self._cache["graph"] = NeighborGraph(self.memory, self.n_neighbors)
        return graph

    def existing_graph(self) -> NeighborGraph | None:
        """The neighbor graph of this state, if it was built.

        Returns
        -------
        NeighborGraph or None
            None also if an edit moved the graph on to the next model.
        """
        graph: NeighborGraph | None = self._cache.get("graph")
        return graph if graph is not None and graph.matches(self.memory) else None

    def trust(self) -> Trust | None:
        """How far the surroundings of each entry agree with its label.

        Returns
        -------
        Trust or None
            None if the attention does not use it.
        """
        if not self.attention.needs_trust:
            return None
        attention: Any = self.attention
        return self.cached("trust", lambda: Trust(self._everyone(), attention.first_look_))

    @property
    def entry_trust(self) -> Floats | None:
        """Trust (N,) of each entry: all that answering needs, and what a model folder stores."""
        if self.stored_trust is not None or not self.attention.needs_trust:
            return self.stored_trust
        trust = self.trust()
        return None if trust is None else trust.of_entries

    def leave_one_out(self, rows: Integers | None = None) -> LeaveOneOutBatch:
        """Entries with their neighbors, without themselves and their groups.

        Parameters
        ----------
        rows : ndarray of shape (n_rows,), default=None
            Positions of the entries; None is all.

        Returns
        -------
        LeaveOneOutBatch
            The entries as queries, with the trust of their neighbors.
        """
        trust = self.trust()
        if rows is not None and trust is None and "everyone" not in self._cache:
            return leave_one_out_batch(self.memory, self.counts, self.n_neighbors, rows)
        everyone = self._everyone()
        return (everyone if rows is None else everyone.part(rows)).with_trust(trust)

    def answer_left_out(self, left_out: LeaveOneOutBatch) -> Answer:
        """Answer entries by leave-one-out.

        Parameters
        ----------
        left_out : LeaveOneOutBatch
            Entries with their neighbors.

        Returns
        -------
        Answer
            Its prior leaves out each entry, too.
        """
        direct = self.direct_attention
        if direct is not None:
            return self._answer_of(direct.left_out_voters(self, left_out.rows), left_out.prior)
        return self.answer_batch(left_out.batch.nearest(self.n_neighbors), left_out.prior)

    def answer_forgotten(self, entries: Entries) -> Answer:
        """Answer entries that the memory no longer has, without the votes of their groups.

        Parameters
        ----------
        entries : Entries
            Forgotten entries, with prepared embeddings.

        Returns
        -------
        Answer
            One row for each of them.
        """
        prior, direct = class_prior(self.counts), self.direct_attention
        if direct is not None:
            return self._answer_of(direct.voters_of_forgotten(self, entries), prior)
        remaining, own = self.memory.entries.groups, entries.groups[:, None]
        grouped = remaining[remaining != NO_GROUP]
        largest = int(np.unique(grouped, return_counts=True)[1].max(initial=0))
        found = self.memory.search_prepared(entries.embeddings, self.n_neighbors + largest)
        trust = None if self.entry_trust is None else self.entry_trust[found.positions]
        batch = NeighborBatch.of(entries.embeddings, found, self.memory, trust)
        batch = batch.restricted((own == NO_GROUP) | (remaining[found.positions] != own))
        return self.answer_batch(batch.nearest(self.n_neighbors), prior)

    def left_out_voters(self, rows: Integers) -> Voters:
        """Entries that vote for entries by leave-one-out, with their weights.

        Parameters
        ----------
        rows : ndarray of shape (n,)
            Positions of the entries that are predicted.

        Returns
        -------
        Voters
            Entries and weights.
        """
        if self.direct_attention is not None:
            return self.direct_attention.left_out_voters(self, rows)
        answer = self.answer_left_out(self.leave_one_out(rows))
        return Voters(answer.neighbors, answer.weights)

    def left_out_vote_shares(self, rows: Integers, view: Vectors | None = None) -> Floats:
        """Vote shares of entries by leave-one-out.

        Parameters
        ----------
        rows : ndarray of shape (n,)
            Positions of the entries.
        view : ndarray of shape (n, n_dimensions), default=None
            Their embeddings in another view, prepared by `memory`; None is the stored ones.

        Returns
        -------
        ndarray of shape (n, n_classes)
            They sum to one in each row.
        """
        if view is not None:
            return self.left_out_view_shares(rows, view)
        if self.direct_attention is not None:
            return self.direct_attention.left_out_shares(self, rows)
        return self.left_out_shares(self.leave_one_out(rows))

    def left_out_view_shares(self, rows: Integers, view: Vectors) -> Floats:
        """Vote shares of entries in another view, each left out of its own voters.

        Parameters
        ----------
        rows : ndarray of shape (n,)
            Positions of the entries.
        view : ndarray of shape (n, n_dimensions)
            Their embeddings in the view, prepared by `memory`.

        Returns
        -------
        ndarray of shape (n, n_classes)
            They sum to one in each row.
        """
        direct = self.direct_attention
        if direct is not None:
            return direct.left_out_shares(self, rows, view)
        prior = class_prior(self.counts, self.memory.entries.labels[rows])
        trust = self.trust()
        neighbors = self.memory.search_prepared(view, self.n_neighbors, exclude=rows)
        values = None if trust is None else trust.without(rows, neighbors)
        attention: Any = self.attention
        weights = attention.weigh(NeighborBatch.of(view, neighbors, self.memory, values))
        return vote(neighbors.labels, weights, prior)

    def predict_left_out(self, left_out: LeaveOneOutBatch) -> LeaveOneOutPredictions:
        """Leave-one-out probabilities of entries.

        Parameters
        ----------
        left_out : LeaveOneOutBatch
            Entries with their neighbors.

        Returns
        -------
        LeaveOneOutPredictions
            Probabilities and distances to the nearest others.
        """
        _check_size("The leave-one-out probabilities", len(left_out), len(self.classes))
        step = self.rows_at_once
        parts = [left_out.part(slice(b, b + step)) for b in range(0, max(1, len(left_out)), step)]
        found = np.concatenate([self._left_out_probabilities(part) for part in parts])
        distances = left_out.batch.neighbors.distances
        return LeaveOneOutPredictions(left_out.rows, left_out.own, found, distances)

    def left_out_shares(self, left_out: LeaveOneOutBatch) -> Floats:
        """Vote shares of entries by leave-one-out.

        Parameters
        ----------
        left_out : LeaveOneOutBatch
            Entries with their neighbors.

        Returns
        -------
        ndarray of shape (n_entries, n_classes)
            They sum to one in each row.
        """
        direct = self.direct_attention
        if direct is None:
            return self.answer_left_out(left_out).shares
        return direct.left_out_shares(self, left_out.rows)

    def _left_out_probabilities(self, part: LeaveOneOutBatch) -> Floats:
        if self.direct_attention is None:
            return self.answer_left_out(part).probabilities
        return self.calibration.probabilities(self.left_out_shares(part))

    def held_out_predictions(
        self,
        *,
        samples: bool = True,
        includes_trained: bool = False,
        n_neighbors: int | None = None,
    ) -> LeaveOneOutPredictions:
        """Leave-one-out predictions for held-out entries.

        Parameters
        ----------
        samples : bool, default=True
            Take a sample if there are very many.
        includes_trained : bool, default=False
            Also predict entries that learned parts were trained on.
        n_neighbors : int, default=None
            Let fewer neighbors vote.

        Returns
        -------
        LeaveOneOutPredictions
            Probabilities and distances to the nearest others.
        """
        rows = np.flatnonzero(self.memory.entries.held_out | includes_trained)
        is_sample = samples and len(rows) > MAX_LEFT_OUT
        k = min(n_neighbors or self.n_neighbors, self.n_neighbors)
        k = self.n_neighbors if self.direct_attention is not None else k

        def compute() -> LeaveOneOutPredictions:
            chosen = self._sample(rows) if is_sample else rows
            model = self if k == self.n_neighbors else replace(self, n_neighbors=k)
            return model.predict_left_out(self.leave_one_out(chosen))

        return self.cached(("held_out", is_sample, includes_trained, k), compute)

    def confusions(self) -> Floats | None:
        """Probability of each observed label given each true one, for the current labels.

        Many neighbors smooth wrong labels away, so only the nearest ones vote, as in the fit.

        Returns
        -------
        ndarray of shape (n_classes, n_classes) or None
            Rows are true labels; None without a model of label noise.
        """

        def compute() -> Floats | None:
            found = self.held_out_predictions(n_neighbors=MAX_NEIGHBORS_FOR_NOISE)
            return estimate_confusions(self.calibration, found.probabilities, found.own)

        return self.cached("confusions", compute)

    def _everyone(self) -> LeaveOneOutBatch:
        make = partial(leave_one_out_batch, self.memory, self.counts, self.n_neighbors)
        return self.cached("everyone", lambda: make(graph=self.neighbor_graph))

    def _sample(self, rows: Integers) -> Integers:
        """A sample that depends on the ids of the entries, and not on their order."""
        ordered = rows[np.argsort(self.memory.entries.ids[rows])]
        chosen = np.random.default_rng(0).choice(len(rows), MAX_LEFT_OUT, replace=False)
        return np.sort(ordered[chosen])


def _check_size(what: str, n_rows: int, n_columns: int) -> None:
    if n_rows * n_columns > MIN_CHECKED_CELLS:
        size = f"{what} of {n_rows:,} rows in {n_columns:,} columns"
        check_fits(size, 16 * n_rows * n_columns, "Pass fewer rows at a time.")


def _check_finite(probabilities: Floats) -> None:
    if not np.isfinite(probabilities).all():
        raise InvalidInputError(
            "Probabilities must be finite, and some are NaN: numbers of the rows or of the "
            "fitted model are too extreme for float32. Scale the columns and fit again; do "
            "not use a model of unknown origin that raises this for ordinary rows."
        )


def require_model(owner: Any, method: str, *, may_be_empty: bool = False) -> FittedModel:
    """The fitted model of a classifier, or the model itself, checked to be fit for `method`."""
    model: FittedModel | None = (
        owner if isinstance(owner, FittedModel) else vars(owner).get("model_")
    )
    if model is None:
        raise NotFittedYetError(f"Call `fit` before `{method}`: nothing is remembered yet.")
    if not (may_be_empty or len(model.memory)):
        raise InvalidInputError("Nothing is remembered: every entry was forgotten. Call `add`.")
    return model


def average_probabilities(answers: Sequence[Answer], calibration: Calibration) -> Floats:
    """Probabilities (B, C) of the mean vote shares of several views of the same queries.

    A value head does not answer by shares: its probabilities are averaged.
    """
    if len(answers) == 1:
        return answers[0].probabilities
    if not answers[0].is_exact:
        return np.mean([answer.probabilities for answer in answers], axis=0)
    return calibration.probabilities(np.mean([answer.shares for answer in answers], axis=0))


def average_answers(answers: Sequence[Answer], calibration: Calibration) -> Answer:
    """One answer for several views of the same queries, with exact evidence if from a vote.

    A neighbor of several views appears once, with its mean weight over all views and its smallest
    distance. Neighbors with the largest weight come first.
    """
    if len(answers) == 1:
        return answers[0]
    rows = [_average_row(answers, row) for row in range(len(answers[0].shares))]
    width = max((len(weights) for _, _, _, weights in rows), default=0)
    blank = np.zeros((len(rows), width))
    positions, labels = blank.astype(np.int64), blank.astype(np.int64)
    distances, weights, mask = blank + np.inf, blank.copy(), blank.astype(bool)
    for row, parts in enumerate(rows):
        place = slice(len(parts[0]))
        positions[row, place], labels[row, place] = parts[:2]
        distances[row, place], weights[row, place] = parts[2:]
        mask[row, place] = True
    prior = np.mean([answer.weights.prior for answer in answers], axis=0)
    shares = np.mean([answer.shares for answer in answers], axis=0)
    return Answer(
        Neighbors(positions, labels, distances, mask),
        Weights(weights, prior),
        answers[0].prior,
        shares,
        average_probabilities(answers, calibration),
        answers[0].is_exact,
    )


def _average_row(answers: Sequence[Answer], row: int) -> tuple[Integers, Integers, Floats, Floats]:
    """Positions, labels, smallest distances and mean weights of all neighbors of one query."""
    found = [answer.neighbors.rows(row) for answer in answers]
    present = [neighbors.mask for neighbors in found]
    positions = np.concatenate([n.positions[m] for n, m in zip(found, present, strict=True)])
    labels = np.concatenate([n.labels[m] for n, m in zip(found, present, strict=True)])
    distances = np.concatenate([n.distances[m] for n, m in zip(found, present, strict=True)])
    weights = [a.weights.neighbors[row][m] for a, m in zip(answers, present, strict=True)]
    distinct, first, place = np.unique(positions, return_index=True, return_inverse=True)
    mean = np.bincount(place, np.concatenate(weights), len(distinct)) / len(answers)
    smallest = np.full(len(distinct), np.inf)
    np.minimum.at(smallest, place, distances)
    order = np.argsort(-mean, kind="stable")
    return distinct[order], labels[first][order], smallest[order], mean[order]
