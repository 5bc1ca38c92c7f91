"""A toy of each kind that another package can register; one file outside of attnknn.

`test_plugins.py` installs this file as a distribution with entry points, see `ENTRY_POINTS`.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from attnknn.attention import Attention, Scores
from attnknn.encoders import Encoder
from attnknn.memory import Memory
from attnknn.memory.distances import in_order, keys_between
from attnknn.registry import Option

ENTRY_POINTS = """
[attnknn.encoders]
toy = attnknn_toys:ToyEncoder
toy-trained = attnknn_toys:ToyTrainedEncoder

[attnknn.attentions]
toy = attnknn_toys:ToyAttention

[attnknn.memories]
toy = attnknn_toys:ToyMemory

[attnknn.attentions]
toy = attnknn_toys:ToyAttention
"""


class ToyEncoder(Encoder):
    """Columns minus their mean, times a factor."""

    options: ClassVar[tuple[Option, ...]] = (
        Option("--toy-factor", "factor", "Factor of the toy encoder.", float),
    )

    def __init__(self, factor: float = 2.0) -> None:
        self.factor = factor

    def fit(self, X: Any, y: Any = None) -> Self:
        rows = np.asarray(X, dtype=float)
        self.mean_ = rows.mean(axis=0)
        self.n_features_in_ = self.width_ = rows.shape[1]
        return self

    def transform(self, X: Any) -> np.ndarray:
        self.check_fitted()
        return (np.asarray(X, dtype=float) - self.mean_) * self.factor

    def to_settings(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        return {"encoder": self.name, "factor": self.factor}, {"mean": self.mean_}

    @classmethod
    def from_settings(cls, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        encoder = cls(settings["factor"])
        encoder.mean_ = arrays["mean"]
        encoder.n_features_in_ = encoder.width_ = len(encoder.mean_)
        return encoder


class ToyTrainedEncoder(ToyEncoder):
    """A toy with its own trainer, which weighs each column by how well it separates classes."""

    is_trained: ClassVar[bool] = True
    holdout = 0.2

    def fit(self, X: Any, y: Any = None) -> Self:
        super().fit(X)
        self.weights_ = np.ones(self.width_)
        return self

    def train(self, X: Any, labels: np.ndarray, *, is_trained_on: np.ndarray, **_: Any) -> None:
        rows, labels = np.asarray(X, dtype=float)[is_trained_on], labels[is_trained_on]
        means = np.array([rows[labels == code].mean(axis=0) for code in np.unique(labels)])
        self.weights_ = means.std(axis=0) / rows.std(axis=0)

    def transform(self, X: Any) -> np.ndarray:
        return super().transform(X) * self.weights_

    def to_settings(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        settings, arrays = super().to_settings()
        return settings, {**arrays, "weights": self.weights_}

    @classmethod
    def from_settings(cls, settings: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        encoder = super().from_settings(settings, arrays)
        encoder.weights_ = arrays["weights"]
        return encoder


class ToyMemory(Memory):
    """Every distance by its definition, in blocks of queries."""

    def __init__(self, block: int = 16) -> None:
        self.block = block

    def build_index(self) -> None:
        """The entries are the index."""

    def find_nearest(self, queries, k, exclude):
        found = []
        for start in range(0, len(queries), self.block):
            rows = slice(start, start + self.block)
            keys = keys_between(queries[rows, None], self.vectors.all()[None], self.metric_)
            if exclude is not None:
                keys[self.exclusion.pairs(exclude[rows])] = np.inf
            positions = np.broadcast_to(np.arange(len(self)), keys.shape)
            found.append(in_order(positions, keys, self.id_lookup, k))
        return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))


class ToyAttention(Attention):
    """Scores fall with a fixed power of the distance, in units of the typical one."""

    unit_ = 1.0

    options: ClassVar[tuple[Option, ...]] = (
        Option("--toy-power", "power", "Power of the toy attention.", float),
    )

    def __init__(self, power: float = 1.5) -> None:
        self.power = power

    def fit_parameters(self, problem):
        self.unit_ = float(np.median(problem.batch.squared[problem.batch.neighbors.mask]))

    def state(self):
        return {"unit": self.unit_}, {}

    def restore(self, values, arrays, dim, n_classes):
        self.unit_ = float(values["unit"])

    def scores(self, batch):
        powers = (batch.squared / self.unit_) ** (self.power / 2)
        neighbors = np.where(batch.neighbors.mask, -powers, -np.inf)
        return Scores(neighbors[:, None], np.zeros((len(neighbors), 1)))
