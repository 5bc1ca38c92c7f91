"""Mixture attention: several attentions vote together, each with a fitted weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone

from attnknn._stored import fitted_fields
from attnknn.attention.base import Attention, Head, Voters
from attnknn.attention.direct import DirectAttention, DirectFit, padded_voters, sparse_weights
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.memory.entries import Entries
from attnknn.records import Floats, Integers
from attnknn.registry import find, register
from attnknn.vote import class_prior

if TYPE_CHECKING:
    from attnknn._stored import Arrays
    from attnknn.model import FittedModel

DEFAULT = ("distance", "forest")


@register("attention", "mixture")
class MixtureAttention(DirectAttention):
    """A weighted mean of the votes of several attentions, with weights fitted by leave-one-out.

    The weight of an entry is the weighted mean of its weights in the attentions, so the evidence is
    exact.

    Parameters
    ----------
    heads : sequence of str or attention, default=('distance', 'forest')
        The attentions, by name or as objects.
    prior_score : float, default=None
        Logit of the weight of the prior, in addition to what the heads give it. None fits it by
        leave-one-out log-loss.

    Attributes
    ----------
    heads_ : list of Attention or DirectAttention
        The fitted attentions whose weight is not 0.
    kept_ : list of int
        Their places in `heads`.
    n_neighbors_ : list of int
        Number of neighbors of each attention; 1 for those that do not search.
    mixing_ : ndarray of shape (n_heads,)
        Weights of the attentions, which sum to one.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention="mixture", random_state=0).fit(X, y)
    >>> clf.predict(X[[0, 60, 120]]).tolist()
    [0, 1, 2]
    """

    heads_: list[Attention | DirectAttention]
    kept_: list[int]
    n_neighbors_: list[int]
    mixing_: Floats

    def __init__(self, heads: Sequence[Any] = DEFAULT, prior_score: float | None = None) -> None:
        self.heads = heads
        self.prior_score = prior_score

    def _unfitted_heads(self) -> list[Attention | DirectAttention]:
        if isinstance(self.heads, str) or len(self.heads) < 1:
            raise InvalidSettingError(
                f"`heads` must be a sequence of attentions or their names, got {self.heads!r}."
            )
        return [
            clone(head) if isinstance(head, Head) else find("attention", head)()
            for head in self.heads
        ]

    def fit_entries(self, problem: DirectFit) -> None:
        heads = self._unfitted_heads()
        n_neighbors = [problem.fit_head(head) for head in heads]
        self.set_heads(heads, n_neighbors, np.full(len(heads), 1.0 / len(heads)))
        mixing = problem.fit_mixing(self, self._left_out_shares_of_heads)
        self.set_heads(heads, n_neighbors, mixing)

    def set_heads(
        self, heads: Sequence[Attention | DirectAttention], n_neighbors: list[int], mixing: Floats
    ) -> None:
        """Set fitted attentions; those of weight 0 are dropped.

        Parameters
        ----------
        heads : sequence of Attention or DirectAttention
            Fitted attentions, one for each item of the parameter `heads`.
        n_neighbors : list of int
            Number of neighbors of each.
        mixing : ndarray of shape (n_heads,)
            Weight of each.
        """
        self.kept_ = np.flatnonzero(mixing).tolist()
        self.heads_ = [heads[place] for place in self.kept_]
        self.n_neighbors_ = [n_neighbors[place] for place in self.kept_]
        self.mixing_ = mixing[self.kept_]

    def follow_edit(self, before: FittedModel, after: FittedModel, kept: Integers | None) -> None:
        for place, head in enumerate(self.heads_):
            known = before.known(("head", place))
            if known is not None:
                head.follow_edit(known, self._part(after, place), kept)

    def shares(self, model: FittedModel, queries: NDArray[np.float32]) -> Floats:
        parts = self._parts(model)
        k = [part.n_neighbors for part in parts if part.direct_attention is None]
        is_shared = len(k) > 1 and model.memory.is_exact  # a wider search finds the same entries
        found = model.memory.search_prepared(queries, max(k)) if is_shared else None
        shares = [part.vote_shares(queries, found) for part in parts]
        return self.with_prior(self._mean(shares), model.class_prior)

    def left_out_shares(
        self,
        model: FittedModel,
        rows: Integers,
        queries: NDArray[np.float32] | None = None,
    ) -> Floats:
        shares = self._left_out_shares_of_heads(model, rows, queries)
        prior = class_prior(model.counts, model.memory.entries.labels[rows])
        return self.with_prior(self._mean(shares), prior)

    def _mean(self, shares: list[Floats]) -> Floats:
        """The weighted mean of the heads' shares; the rows of a block do not affect each other."""
        mixed = np.zeros_like(shares[0])
        for weight, of_head in zip(self.mixing_.tolist(), shares, strict=True):
            mixed += weight * of_head
        return mixed

    def _left_out_shares_of_heads(
        self,
        model: FittedModel,
        rows: Integers,
        queries: NDArray[np.float32] | None = None,
    ) -> list[Floats]:
        """Vote shares (B, C) of entries by each attention, without the entries themselves."""
        return [part.left_out_vote_shares(rows, queries) for part in self._parts(model)]

    def voters(self, model: FittedModel, queries: NDArray[np.float32]) -> Voters:
        return self._mixed(model, queries, [part.voters(queries) for part in self._parts(model)])

    def left_out_voters(self, model: FittedModel, rows: Integers) -> Voters:
        found = [part.left_out_voters(rows) for part in self._parts(model)]
        return self._mixed(model, model.memory.vectors[rows], found)

    def voters_of_forgotten(self, model: FittedModel, entries: Entries) -> Voters:
        answers = [part.answer_forgotten(entries) for part in self._parts(model)]
        found = [Voters(answer.neighbors, answer.weights) for answer in answers]
        return self._mixed(model, entries.embeddings, found)

    def admit_class(self, embeddings: NDArray[np.float32]) -> None:
        for head in self.heads_:
            head.admit_class(embeddings)

    def reorder_classes(self, order: Integers) -> None:
        for head in self.heads_:
            head.reorder_classes(order)

    def copy(self) -> MixtureAttention:
        copied = super().copy()
        copied.heads_ = [head.copy() for head in self.heads_]
        return copied

    def state(self) -> tuple[dict[str, Any], Arrays]:
        fitted, arrays = [], {}
        for place, head in enumerate(self.heads_):
            values, of_head = head.state()
            scalars = {"temperature": float(head.temperature_), "prior_score": _plain(head)}
            fitted.append({**scalars, "n_neighbors": self.n_neighbors_[place], "fitted": values})
            arrays.update({f"{place}.{name}": array for name, array in of_head.items()})
        return {"kept": self.kept_, "heads": fitted, "mixing": self.mixing_.tolist()}, arrays

    def restore(self, stored: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:
        heads, fields = self._unfitted_heads(), fitted_fields(stored)
        self.kept_ = [int(place) for place in fields.array("kept", (len(stored["heads"]),))]
        if not self.kept_ or sorted({*self.kept_} & {*range(len(heads))}) != self.kept_:
            raise ModelFolderError("The stored mixture must name its heads in order.")
        self.heads_ = [heads[place] for place in self.kept_]
        self.n_neighbors_ = []
        self.mixing_ = fields.array("mixing", (len(self.heads_),))
        if not (self.mixing_ > 0).all() or abs(self.mixing_.sum() - 1.0) > 1e-6:
            raise ModelFolderError("The stored weights of a mixture must be shares of one.")
        for place, (head, known) in enumerate(zip(self.heads_, stored["heads"], strict=True)):
            of_head = fitted_fields(known)
            head.temperature_ = of_head.number("temperature", least=1e-300)
            score = of_head.anything("prior_score")
            head.prior_score_ = -np.inf if score is None else of_head.number("prior_score")
            self.n_neighbors_.append(of_head.integer("n_neighbors", least=1))
            start = f"{place}."
            of_place = {
                name.removeprefix(start): array
                for name, array in arrays.items()
                if name.startswith(start)
            }
            head.restore(of_head.of("fitted").to_dict(), of_place, dim, n_classes)

    def _parts(self, model: FittedModel) -> list[FittedModel]:
        return [self._part(model, place) for place in range(len(self.heads_))]

    def _part(self, model: FittedModel, place: int) -> FittedModel:
        """The model in which only one of the attentions votes."""

        def make() -> FittedModel:
            part = replace(
                model,
                attention=self.heads_[place],
                n_neighbors=self.n_neighbors_[place],
                calibration=type(model.calibration)(),
                stored_trust=None,
            )
            graph = model.existing_graph()
            if graph is not None:
                part.cached("graph", lambda: graph)
            return part

        return model.cached(("head", place), make)

    def _mixed(
        self, model: FittedModel, queries: NDArray[np.float32], found: list[Voters]
    ) -> Voters:
        n_entries = len(model.memory)
        shape = (len(queries), n_entries)
        total = sparse.csr_array(shape)
        for weight, voters in zip(self.mixing_, found, strict=True):
            total = total + sparse_weights(voters, n_entries) * weight
        return padded_voters(
            model.memory, queries, sparse.csr_array(total * (1.0 - self.prior_weight))
        )


def _plain(head: Head) -> float | None:
    return None if np.isneginf(head.prior_score_) else float(head.prior_score_)
