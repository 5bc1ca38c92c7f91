"""A trained value head: its inputs, its probabilities, and the classes that it knows."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn.attention.base import NeighborBatch
from attnknn.records import Floats, Integers, Weights
from attnknn.training.threads import SMALL, one_thread_if
from attnknn.vote import vote

if TYPE_CHECKING:
    from torch import Tensor

    from attnknn.value_head.network import HeadInput, ValueNet

MAX_NEIGHBORS = 64  # whose differences from the query are used
FLOOR = 1e-6  # a class without any vote would be beyond the reach of a correction
FAINT = 1e-6  # nearest neighbors with less weight cannot represent all
BLOCK = 1 << 22  # numbers of compared neighbors held at once


class ValueHead:
    """Class probabilities from a query and the weighted values of its neighbors, as in TabR.

    A value head replaces the vote of a classifier with `value_head=True`. Its probabilities are not
    a sum over neighbors, so evidence is not exact.

    Parameters
    ----------
    net : ValueNet
        The trained network.
    temperature : float
        Divides its log-probabilities; fitted on held-out rows.
    places : ndarray of shape (C,)
        Output of the network for each class; -1 for a class that it was not trained with, which
        keeps the probability of the vote.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention="distance", value_head=True, random_state=0).fit(X, y)
    >>> clf.value_head_.places.tolist()
    [0, 1, 2]
    """

    def __init__(self, net: ValueNet, temperature: float, places: Integers) -> None:
        self.net, self.temperature, self.places = net, temperature, places

    def with_classes(self, n_classes: int) -> ValueHead:
        """Return a copy for more classes, which it does not know.

        Parameters
        ----------
        n_classes : int
            Number of classes.

        Returns
        -------
        ValueHead
            The copy.
        """
        wider = copy(self)
        n_new = n_classes - len(self.places)
        wider.places = np.concatenate([self.places, np.full(n_new, -1, dtype=np.int64)])
        return wider

    def with_order(self, order: Integers) -> ValueHead:
        """Return a copy with class `order[i]` as class i.

        Parameters
        ----------
        order : ndarray of shape (C,)
            Permutation of the classes.

        Returns
        -------
        ValueHead
            The copy.
        """
        moved = copy(self)
        moved.places = self.places[order]
        return moved

    def probabilities(
        self, batch: NeighborBatch, weights: Weights, shares: Floats, by_vote: Floats
    ) -> Floats:
        """Return class probabilities for queries on which the neighbors voted.

        Parameters
        ----------
        batch : NeighborBatch
            Queries and their neighbors.
        weights : Weights
            Weights of the neighbors and the prior.
        shares : ndarray of shape (B, C)
            Vote shares.
        by_vote : ndarray of shape (B, C)
            Calibrated probabilities of the vote.

        Returns
        -------
        ndarray of shape (B, C)
            Probabilities; each row sums to one.
        """
        import torch

        inputs = head_input(batch, weights, shares, by_vote, self.places)
        vectors, places = batch.vectors.gather(batch.neighbors.positions[:, :MAX_NEIGHBORS])
        logs = self.logs(replace(inputs, positions=torch.from_numpy(places)), vectors)
        return redistribute(logs / self.temperature, by_vote, known_classes(self.places))

    def logs(self, inputs: HeadInput, entries: NDArray[np.float32]) -> Floats:
        """Return log-probabilities of the classes that the network knows, before the temperature.

        Parameters
        ----------
        inputs : HeadInput
            Inputs of the network.
        entries : ndarray of shape (N, D)
            Embeddings; `inputs.positions` are its rows.

        Returns
        -------
        ndarray of shape (B, C)
            Log-probabilities in the order of the network.
        """
        import torch

        projected = self._projected(entries)
        width = max(1, inputs.near.shape[1]) * self.net.shape.value_dim
        step = max(1, BLOCK // width)
        with torch.inference_mode(), one_thread_if(len(inputs.near) * width < SMALL):
            parts = [
                self.net(inputs.rows(slice(start, start + step)), projected)
                for start in range(0, max(1, len(inputs.near)), step)
            ]
            return torch.cat(parts).numpy().astype(np.float64)

    def _projected(self, entries: NDArray[np.float32]) -> Tensor:
        """Entries (N, V) through the projection; for the same array it is computed once."""
        import torch

        known = self.__dict__.get("_projection")  # read once: another thread may replace it
        if known is None or known[0] is not entries:
            with torch.inference_mode():
                projected = self.net.project(torch.from_numpy(entries))
            known = self._projection = (entries, projected)
        return known[1]

    def __getstate__(self) -> dict[str, Any]:
        kept = ("net", "temperature", "places")
        return {name: value for name, value in dict(self.__dict__).items() if name in kept}


def head_input(
    batch: NeighborBatch, weights: Weights, shares: Floats, by_vote: Floats, places: Integers
) -> HeadInput:
    """Inputs of a head with these `places`; neighbors of unknown classes are left out."""
    import torch

    from attnknn.value_head.network import HeadInput

    def tensor(array: Floats) -> Tensor:
        return torch.from_numpy(array.astype(np.float32))

    neighbors, columns = batch.neighbors.nearest(MAX_NEIGHBORS), known_classes(places)
    is_known = places[batch.neighbors.labels] >= 0
    known = np.where(is_known, weights.neighbors, 0.0)  # (B, K)
    near = known[:, :MAX_NEIGHBORS]
    labels = np.maximum(places[neighbors.labels], 0)
    no_prior = np.zeros(len(near))
    by_near = vote(labels, Weights(near, no_prior), np.zeros(len(columns)))
    total, of_near = known.sum(axis=1), near.sum(axis=1)
    return HeadInput(
        queries=torch.from_numpy(batch.queries),
        start=tensor(np.log(np.maximum(by_vote[:, columns], FLOOR))),
        near=tensor(near),
        labels=torch.from_numpy(labels),
        positions=torch.from_numpy(neighbors.positions),
        rest=tensor(np.maximum(shares[:, columns] - by_near, 0.0)),  # may round below zero
        reach=tensor(np.divide(total, of_near, out=np.ones_like(total), where=of_near > FAINT)),
    )


def redistribute(logs: Floats, by_vote: Floats, columns: Integers) -> Floats:
    """Probabilities (B, C): `logs` redistribute the vote among the classes in `columns`.

    >>> redistribute(np.zeros((1, 2)), np.array([[0.5, 0.2, 0.3]]), np.array([0, 2]))
    array([[0.4, 0.2, 0.4]])
    """
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    answer = by_vote.copy()
    left = answer[:, columns].sum(axis=1, keepdims=True)
    answer[:, columns] = left * powers / powers.sum(axis=1, keepdims=True)
    return answer


def known_classes(places: Integers) -> Integers:
    """The classes that a head knows, in the order of its outputs.

    >>> known_classes(np.array([1, -1, 0])).tolist()
    [2, 0]
    """
    known = np.flatnonzero(places >= 0)
    return known[np.argsort(places[known])]
