"""A trained value head: what it looks at, what it answers, and the classes that it knows."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn.attention.base import NeighborBatch, Weights
from attnknn.records import Floats, Integers
from attnknn.training.threads import SMALL, one_thread_if
from attnknn.vote import vote

if TYPE_CHECKING:
    from torch import Tensor

    from attnknn.value_head.network import Seen, ValueNet

MOST_NEIGHBORS = 64  # whose differences are looked at
FLOOR = 1e-6  # a class without any vote would be beyond the reach of a correction
FAINT = 1e-6  # nearest neighbors with less to say cannot stand for all
BLOCK = 1 << 22  # numbers of compared neighbors held at once


class ValueHead:
    """Probabilities from a query and the weighed values of its neighbors: no exact evidence.

    Parameters
    ----------
    net : the trained network
    temperature : divides its log-probabilities; fitted on held-out rows
    places : (C,) where the network has each class; -1 for one that it was not trained with, which
        keeps the probability that the vote gives it
    """

    def __init__(self, net: ValueNet, temperature: float, places: Integers) -> None:
        self.net, self.temperature, self.places = net, temperature, places

    def with_classes(self, n_classes: int) -> ValueHead:
        """The same with room for classes that it does not know."""
        wider = copy(self)
        n_new = n_classes - len(self.places)
        wider.places = np.concatenate([self.places, np.full(n_new, -1, dtype=np.int64)])
        return wider

    def with_order(self, order: Integers) -> ValueHead:
        """The same with class `order[i]` as class i."""
        moved = copy(self)
        moved.places = self.places[order]
        return moved

    def probabilities(
        self, batch: NeighborBatch, weights: Weights, shares: Floats, by_vote: Floats
    ) -> Floats:
        """Probabilities (B, C) where the vote gave `shares`, and `by_vote` after calibration."""
        seen = look(batch, weights, shares, by_vote, self.places)
        logs = self.logs(seen, batch.entries)
        return shared_out(logs / self.temperature, by_vote, columns_of(self.places))

    def logs(self, seen: Seen, entries: NDArray[np.float32]) -> Floats:
        """What the network says (B, C) of the classes that it knows, before the temperature."""
        import torch

        projected = self._projected(entries)
        width = max(1, seen.near.shape[1]) * self.net.shape.value_dim
        step = max(1, BLOCK // width)
        with torch.inference_mode(), one_thread_if(len(seen.near) * width < SMALL):
            parts = [
                self.net(seen.rows(slice(start, start + step)), projected)
                for start in range(0, max(1, len(seen.near)), step)
            ]
            return torch.cat(parts).numpy().astype(np.float64)

    def _projected(self, entries: NDArray[np.float32]) -> Tensor:
        """All entries (N, V) as they are compared, once per state of the memory."""
        import torch

        if self.__dict__.get("_projected_from") is not entries:
            with torch.inference_mode():
                self._projection = self.net.project(torch.from_numpy(entries))
            self._projected_from = entries
        return self._projection

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k in ("net", "temperature", "places")}


def look(
    batch: NeighborBatch, weights: Weights, shares: Floats, by_vote: Floats, places: Integers
) -> Seen:
    """What a head with these `places` of classes sees of an answer.

    Neighbors of classes that it does not know are left out; the others have the more to say.
    """
    import torch

    from attnknn.value_head.network import Seen

    def tensor(array: Floats) -> Tensor:
        return torch.from_numpy(array.astype(np.float32))

    neighbors, columns = batch.neighbors.nearest(MOST_NEIGHBORS), columns_of(places)
    is_known = places[batch.neighbors.labels] >= 0
    known = np.where(is_known, weights.neighbors, 0.0)  # (B, K)
    near = known[:, :MOST_NEIGHBORS]
    labels = np.maximum(places[neighbors.labels], 0)
    nobody = np.zeros(len(near))
    by_near = vote(labels, Weights(near, nobody), np.zeros(len(columns)))
    said, heard = known.sum(axis=1), near.sum(axis=1)
    return Seen(
        queries=torch.from_numpy(batch.queries),
        start=tensor(np.log(np.maximum(by_vote[:, columns], FLOOR))),
        near=tensor(near),
        labels=torch.from_numpy(labels),
        positions=torch.from_numpy(neighbors.positions),
        rest=tensor(np.maximum(shares[:, columns] - by_near, 0.0)),  # may round below zero
        reach=tensor(np.divide(said, heard, out=np.ones_like(said), where=heard > FAINT)),
    )


def shared_out(logs: Floats, by_vote: Floats, columns: Integers) -> Floats:
    """Probabilities (B, C): the classes in `columns` share by `logs` what the vote gives them.

    >>> shared_out(np.zeros((1, 2)), np.array([[0.5, 0.2, 0.3]]), np.array([0, 2]))
    array([[0.4, 0.2, 0.4]])
    """
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    answer = by_vote.copy()
    left = answer[:, columns].sum(axis=1, keepdims=True)
    answer[:, columns] = left * powers / powers.sum(axis=1, keepdims=True)
    return answer


def columns_of(places: Integers) -> Integers:
    """The classes that a head knows, in its own order.

    >>> columns_of(np.array([1, -1, 0])).tolist()
    [2, 0]
    """
    known = np.flatnonzero(places >= 0)
    return known[np.argsort(places[known])]
