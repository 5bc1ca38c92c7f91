"""The frozen records that pass between stages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True)
class Neighbors:
    """What a search returns: per query its nearest entries, nearest first, ties by id.

    A place for which there was no entry has `mask` False, distance infinity, and position, label
    0 that mean nothing.

    Parameters
    ----------
    positions : (B, K) rows of the memory, valid until its next edit
    labels : (B, K) label codes
    distances : (B, K) smaller is closer; what they measure is the memory's `metric`
    mask : (B, K) True where there is an entry
    """

    positions: Integers
    labels: Integers
    distances: Floats
    mask: Booleans

    def nearest(self, k: int) -> Neighbors:
        """The same record cut to the `k` nearest places."""
        if k >= self.positions.shape[1]:
            return self
        return Neighbors(
            self.positions[:, :k], self.labels[:, :k], self.distances[:, :k], self.mask[:, :k]
        )

    def rows(self, chosen: Any) -> Neighbors:
        """The same record for some of the queries."""
        return Neighbors(
            self.positions[chosen], self.labels[chosen], self.distances[chosen], self.mask[chosen]
        )

    def __len__(self) -> int:
        return len(self.positions)


@dataclass(frozen=True)
class Evidence:
    """Why one row got its label: who voted, for what, with how much say.

    `shares[c] = sum(weights[labels == c]) + prior_weight * prior[c]`, exactly, over all neighbors;
    `probabilities` are the shares to the power of `exponent`, made to sum to one, if `is_exact`.
    Otherwise a value head gave them: shares and weights are then what it looked at, and the vote
    alone might have answered something else.

    Parameters
    ----------
    label : the answer
    classes : (C,) in the order of `shares`, `probabilities` and `prior`
    ids, labels, weights, distances, payloads : (K,) of the neighbors, most say first
    prior_weight : the say of the prior, which votes for the class frequencies `prior`
    """

    label: Any
    classes: NDArray[Any]
    probabilities: Floats
    shares: Floats
    ids: NDArray[Any]
    labels: NDArray[Any]
    weights: Floats
    distances: Floats
    payloads: list[Any] | None
    prior_weight: float
    prior: Floats
    exponent: float
    is_exact: bool = True

    @property
    def probability(self) -> float:
        """The probability of `label`."""
        return float(self.probabilities.max())

    @property
    def remark(self) -> str:
        """What to know before reading on; empty for exact evidence."""
        if self.is_exact:
            return ""
        powers = (self.shares / self.shares.max()) ** self.exponent
        best = int(powers.argmax())
        return (
            "Not exact evidence: a value head answered, and below is what it looked at. "
            f"The vote alone says {self.classes[best]} ({powers[best] / powers.sum():.3f})."
        )

    def table(self, n_neighbors: int = 5) -> str:
        """A small table: the answer, its `n_neighbors` weightiest voters, the rest, the prior."""
        ranked = np.argsort(-self.probabilities, kind="stable")[:3]
        chances = ", ".join(f"{self.classes[c]} {self.probabilities[c]:.3f}" for c in ranked)
        shown = range(min(n_neighbors, len(self.ids)))
        lines = [f"{self.label}  (probabilities: {chances})"]
        lines += [] if self.is_exact else [f"  {self.remark}"]
        lines += ["    say  label         distance  entry"]
        for i in shown:
            payload = "" if self.payloads is None else f"  {self.payloads[i]}"
            label = str(self.labels[i])
            lines.append(
                f"  {self.weights[i]:.3f}  {label:<12} {self.distances[i]:9.4f}  "
                f"#{self.ids[i]}{payload}"
            )
        n_rest = len(self.ids) - len(shown)
        if n_rest > 0:
            lines.append(f"  {self.weights[len(shown) :].sum():.3f}  {n_rest} more neighbors")
        lines.append(f"  {self.prior_weight:.3f}  the prior (class frequencies)")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain lists and numbers, ready for JSON."""
        payloads = {} if self.payloads is None else {"payloads": list(self.payloads)}
        remark = {} if self.is_exact else {"remark": self.remark}
        return {
            "label": _plain(self.label),
            "is_exact": self.is_exact,
            **remark,
            "probabilities": _by_class(self.classes, self.probabilities),
            "shares": _by_class(self.classes, self.shares),
            "exponent": self.exponent,
            "prior_weight": self.prior_weight,
            "prior": _by_class(self.classes, self.prior),
            "ids": self.ids.tolist(),
            "labels": self.labels.tolist(),
            "weights": self.weights.tolist(),
            "distances": self.distances.tolist(),
            **payloads,
        }

    def __str__(self) -> str:
        return self.table()


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _by_class(classes: NDArray[Any], values: Floats) -> dict[str, float]:
    return {str(name): float(value) for name, value in zip(classes, values, strict=True)}
