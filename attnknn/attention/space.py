"""Attentions that vote in another space than the memory's: a map of its embeddings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from attnknn.attention.base import Attention, Voters
from attnknn.attention.direct import DirectAttention, padded_voters, sparse_weights
from attnknn.attention.trees import entry_keys
from attnknn.memory.base import Memory
from attnknn.memory.entries import NO_GROUP, Entries, EntryColumns
from attnknn.records import Floats, Integers
from attnknn.vote import class_prior

if TYPE_CHECKING:
    from attnknn._stored import Fields
    from attnknn.model import FittedModel

Vectors = NDArray[np.float32]


class SpaceMap(Protocol):
    """How embeddings become vectors of another space; entries may be mapped by folds."""

    def of_queries(self, queries: Vectors) -> Vectors:
        """The vectors (B, S) of queries."""

    def of_entries(self, entries: Entries) -> Vectors:
        """The vectors (N, S) of entries, by what was not fitted on them."""


class SpaceAttention(DirectAttention):
    """Base class of attentions that vote in another space than that of the embeddings.

    Attributes
    ----------
    map_ : SpaceMap
        Maps embeddings to the space.
    inner_ : Attention or DirectAttention
        The attention in that space.
    n_neighbors_ : int
        Number of neighbors that vote there.
    """

    map_: Any
    inner_: Attention | DirectAttention
    n_neighbors_: int

    def shares(self, model: FittedModel, queries: Vectors) -> Floats:
        found = self.part(model).vote_shares(self.map_.of_queries(queries))
        return self.with_prior(found, model.class_prior)

    def left_out_shares(
        self, model: FittedModel, rows: Integers, queries: Vectors | None = None
    ) -> Floats:
        entries = model.memory.entries
        if queries is not None:
            queries = self.map_.of_entries(entries.take(rows).with_vectors(queries))
        found = self.part(model).left_out_vote_shares(rows, queries)
        return self.with_prior(found, class_prior(model.counts, entries.labels[rows]))

    def voters(self, model: FittedModel, queries: Vectors) -> Voters:
        found = self.part(model).voters(self.map_.of_queries(queries))
        return self._weighted(model, queries, found)

    def left_out_voters(self, model: FittedModel, rows: Integers) -> Voters:
        found = self.part(model).left_out_voters(rows)
        return self._weighted(model, model.memory.vectors[rows], found)

    def voters_of_forgotten(self, model: FittedModel, entries: Entries) -> Voters:
        mapped = replace(entries, embeddings=self.map_.of_entries(entries))
        answer = self.part(model).answer_forgotten(mapped)
        found = Voters(answer.neighbors, answer.weights)
        return self._weighted(model, entries.embeddings, found)

    def follow_edit(self, before: FittedModel, after: FittedModel, kept: Integers | None) -> None:
        known = before.known(self.map_)
        if known is None or not len(after.memory):
            return
        part = after.cached(self.map_, lambda: self._follow(known, after, kept))
        self.inner_.follow_edit(known, part, kept)

    def copy(self) -> SpaceAttention:
        copied = super().copy()
        copied.inner_ = self.inner_.copy()
        return copied

    def admit_class(self, embeddings: Vectors) -> None:
        self.inner_.admit_class(self.map_.of_queries(embeddings))

    def reorder_classes(self, order: Integers) -> None:
        self.inner_.reorder_classes(order)

    def part(self, model: FittedModel) -> FittedModel:
        """The model in which the entries vote in the other space.

        Parameters
        ----------
        model : FittedModel
            The model of the entries.

        Returns
        -------
        FittedModel
            Its memory holds the mapped entries; made once for each state of the model.
        """
        return model.cached(self.map_, lambda: self._part_of(model, self.mapped(model.memory)))

    def mapped(self, memory: Memory) -> Memory:
        """A memory of the same kind that holds the mapped entries.

        Parameters
        ----------
        memory : Memory
            The memory of the embeddings.

        Returns
        -------
        Memory
            The memory in the other space, with Euclidean distances.
        """
        return _moved(memory, self.map_.of_entries(memory.read()))

    def _inner_scalars(self) -> dict[str, Any]:
        """The scalars of the attention in the space, for a model folder."""
        score = self.inner_.prior_score_
        return {
            "n_neighbors": self.n_neighbors_,
            "temperature": float(self.inner_.temperature_),
            "inner_prior_score": None if np.isneginf(score) else float(score),
        }

    def _restore_inner_scalars(self, fields: Fields) -> None:
        self.n_neighbors_ = fields.integer("n_neighbors", least=1)
        self.inner_.temperature_ = fields.number("temperature", least=1e-300)
        score = fields.anything("inner_prior_score")
        self.inner_.prior_score_ = -np.inf if score is None else fields.number("inner_prior_score")

    def _part_of(self, model: FittedModel, memory: Memory) -> FittedModel:
        return replace(
            model,
            memory=memory,
            attention=self.inner_,
            n_neighbors=self.n_neighbors_,
            calibration=type(model.calibration)(),
            value_head=None,
            stored_trust=None,
        )

    def _follow(self, known: FittedModel, after: FittedModel, kept: Integers | None) -> FittedModel:
        """The part after an edit; only new entries are mapped."""
        vectors, entries = known.memory.vectors.all(), after.memory.entries
        vectors = vectors if kept is None else vectors[kept]
        if len(entries) > len(vectors):
            new = after.memory.read(np.arange(len(vectors), len(entries)))
            vectors = np.concatenate([vectors, self.map_.of_entries(new)])
        return self._part_of(after, _moved(after.memory, vectors))

    def _weighted(self, model: FittedModel, queries: Vectors, found: Voters) -> Voters:
        weights = sparse_weights(found, len(model.memory)) * (1.0 - self.prior_weight)
        return padded_voters(model.memory, queries, weights)


def folds_of(entries: EntryColumns, n_folds: int) -> Integers:
    """The fold (N,) of each entry by a hash of its id; rows of one group share a fold."""
    keys = entry_keys(entries.ids, entries.groups, NO_GROUP)
    return (keys % np.uint64(n_folds)).astype(np.int64)


def _moved(memory: Memory, vectors: Vectors) -> Memory:
    entries = memory.entries.with_vectors(vectors)
    return memory.local_copy().restore(entries, "euclidean", np.zeros(vectors.shape[1]))
