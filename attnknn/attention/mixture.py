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
from attnknn.errors import InvalidSettingError
from attnknn.memory.entries import Entries
from attnknn.records import Floats, Integers
from attnknn.registry import find, register
from attnknn.vote import class_prior

if TYPE_CHECKING:
    from attnknn._stored import Tensors
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
        The fitted attentions.
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
        self.heads_, self.n_neighbors_ = self._unfitted_heads(), []
        for head in self.heads_:
            if isinstance(head, DirectAttention):
                head.fit_entries(problem)
                head.prior_score_ = -np.inf
                self.n_neighbors_.append(1)
            else:
                self.n_neighbors_.append(problem.fit_searching(head))
        self.mixing_ = problem.fit_mixing(self, self._left_out_shares_of_heads)

    def follow_edit(self, before: FittedModel, after: FittedModel, kept: Integers | None) -> None:
        for head in self.heads_:
            head.follow_edit(before, after, kept)

    def shares(self, model: FittedModel, queries: NDArray[np.float32]) -> Floats:
        shares = [
            head.shares(model, queries)
            if isinstance(head, DirectAttention)
            else self._part(model, place).answer(queries).shares
            for place, head in enumerate(self.heads_)
        ]
        mixed = np.tensordot(self.mixing_, shares, axes=1)
        return self.with_prior(mixed, class_prior(model.counts))

    def left_out_shares(
        self,
        model: FittedModel,
        rows: Integers,
        queries: NDArray[np.float32] | None = None,
    ) -> Floats:
        shares = self._left_out_shares_of_heads(model, rows, queries)
        prior = class_prior(model.counts, model.memory.entries.labels[rows])
        return self.with_prior(np.tensordot(self.mixing_, shares, axes=1), prior)

    def _left_out_shares_of_heads(
        self,
        model: FittedModel,
        rows: Integers,
        queries: NDArray[np.float32] | None = None,
    ) -> list[Floats]:
        """Vote shares (B, C) of entries by each attention, without the entries themselves."""
        found = []
        for place, head in enumerate(self.heads_):
            if isinstance(head, DirectAttention):
                found.append(head.left_out_shares(model, rows, queries))
                continue
            part = self._part(model, place)
            if queries is None:
                found.append(part.left_out_shares(part.leave_one_out(rows)))
            else:
                found.append(part.left_out_view_shares(rows, queries))
        return found

    def voters(self, model: FittedModel, queries: NDArray[np.float32]) -> Voters:
        found = [
            head.voters(model, queries)
            if isinstance(head, DirectAttention)
            else _voters_of(self._part(model, place).answer(queries))
            for place, head in enumerate(self.heads_)
        ]
        return self._mixed(model, queries, found)

    def left_out_voters(self, model: FittedModel, rows: Integers) -> Voters:
        found = []
        for place, head in enumerate(self.heads_):
            if isinstance(head, DirectAttention):
                found.append(head.left_out_voters(model, rows))
            else:
                part = self._part(model, place)
                found.append(_voters_of(part.answer_left_out(part.leave_one_out(rows))))
        return self._mixed(model, model.memory.entries.embeddings[rows], found)

    def voters_of_forgotten(self, model: FittedModel, entries: Entries) -> Voters:
        found = [
            head.voters_of_forgotten(model, entries)
            if isinstance(head, DirectAttention)
            else _voters_of(self._part(model, place).answer_forgotten(entries))
            for place, head in enumerate(self.heads_)
        ]
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

    def state(self) -> tuple[dict[str, Any], Tensors]:
        fitted, tensors = [], {}
        for place, head in enumerate(self.heads_):
            values, of_head = head.state()
            scalars = {"temperature": float(head.temperature_), "prior_score": _plain(head)}
            fitted.append({**scalars, "n_neighbors": self.n_neighbors_[place], "fitted": values})
            tensors.update({f"{place}.{name}": tensor for name, tensor in of_head.items()})
        return {"heads": fitted, "mixing": self.mixing_.tolist()}, tensors

    def restore(self, stored: dict[str, Any], tensors: Tensors, dim: int, n_classes: int) -> None:
        self.heads_, self.n_neighbors_ = self._unfitted_heads(), []
        self.mixing_ = fitted_fields(stored).array("mixing", (len(self.heads_),))
        for place, (head, known) in enumerate(zip(self.heads_, stored["heads"], strict=True)):
            fields = fitted_fields(known)
            head.temperature_ = fields.number("temperature", least=1e-300)
            score = fields.anything("prior_score")
            head.prior_score_ = -np.inf if score is None else fields.number("prior_score")
            self.n_neighbors_.append(fields.integer("n_neighbors", least=1))
            start = f"{place}."
            of_head = {
                name.removeprefix(start): tensor
                for name, tensor in tensors.items()
                if name.startswith(start)
            }
            head.restore(fields.of("fitted").to_dict(), of_head, dim, n_classes)

    def _part(self, model: FittedModel, place: int) -> FittedModel:
        """The model in which only one of the attentions votes; for one that searches."""

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


def _voters_of(answer: Any) -> Voters:
    return Voters(answer.neighbors, answer.weights)


def _plain(head: Head) -> float | None:
    return None if np.isneginf(head.prior_score_) else float(head.prior_score_)
