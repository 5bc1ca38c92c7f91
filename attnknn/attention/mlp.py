"""MLP attention: neighbors in the space of the scores of multilayer perceptrons vote."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn._stored import fitted_fields
from attnknn._validation import Limits, check_limits
from attnknn.attention.direct import DirectFit
from attnknn.attention.distance import DistanceAttention
from attnknn.attention.space import SpaceAttention, Vectors, folds_of
from attnknn.errors import ModelFolderError
from attnknn.memory.entries import Entries
from attnknn.records import Floats
from attnknn.registry import register

if TYPE_CHECKING:
    from attnknn._stored import Arrays

LIMITS = {
    "n_folds": Limits(least=2, is_whole=True),
    "hidden_size": Limits(least=1, is_whole=True),
    "max_epochs": Limits(least=1, is_whole=True),
    "learning_rate": Limits(above=0),
    "dropout": Limits(least=0, most=0.9),
    "prior_score": Limits(may_be_none=True),
}
MIN_VALUES = 5  # different values of a column that gets periodic features
MAX_PERIODIC = 100  # columns with periodic features
ROOT = 0.25  # power of the probabilities that are compared
LARGE = 3.0  # standard deviations beyond which values are compressed
BLOCK = 4_000_000  # numbers computed at once


@dataclass(frozen=True, eq=False)
class Inputs:
    """How columns become the inputs of a network: scaled, those with many values first."""

    order: NDArray[np.int32]  # (D,) columns, those with periodic features first
    center: NDArray[np.float32]  # (D,) in this order
    scale: NDArray[np.float32]  # (D,) in this order

    @classmethod
    def fitted(cls, X: Vectors) -> tuple[Inputs, int]:
        """The scales of the columns, and how many of them get periodic features."""
        sample = X[:: -(-len(X) // 2_000) or 1]
        has_many = np.array([len(np.unique(column)) >= MIN_VALUES for column in sample.T])
        has_many[np.flatnonzero(has_many)[MAX_PERIODIC:]] = False
        order = np.argsort(~has_many, kind="stable").astype(np.int32)
        center, scale = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
        scale = np.where(scale > 0, scale, 1.0)
        parts = (values[order].astype(np.float32) for values in (center, scale))
        return cls(order, *parts), int(has_many.sum())

    def __call__(self, X: Vectors) -> Floats:
        """The inputs (B, D): standardized, and bounded by a smooth function."""
        scaled = (X[:, self.order].astype(np.float64) - self.center) / self.scale
        return np.asarray(scaled / np.sqrt(1.0 + (scaled / LARGE) ** 2))


@dataclass(frozen=True, eq=False)
class MLPMaps:
    """Predictions by networks of F folds, computed with NumPy.

    In float64: float32 products of one row and of many are rounded differently, and after an edit
    the same entries would have other vectors.
    """

    inputs: Inputs
    arrays: Arrays  # the state of `FoldMLPs`

    @property
    def n_folds(self) -> int:
        """Number of folds."""
        return len(self.arrays["phase"])

    def of_queries(self, queries: Vectors) -> Vectors:
        """Roots of probabilities (B, C) by the mean scores of all networks."""
        rows = self.inputs(queries)
        found = [self._scores(fold, rows) for fold in range(self.n_folds)]
        return compressed(np.mean(found, axis=0))

    def of_entries(self, entries: Entries) -> Vectors:
        """Those of entries (N, C), by the network that was trained without the entry's fold."""
        folds, rows = folds_of(entries, self.n_folds), self.inputs(entries.embeddings)
        scores = np.empty((len(entries), self._layers(0)[-1][1].shape[-1]))
        for fold in range(self.n_folds):
            of_fold = folds == fold
            scores[of_fold] = self._scores(fold, rows[of_fold])
        return compressed(scores)

    @cached_property
    def _doubled(self) -> dict[str, Floats]:
        return {name: array.astype(np.float64) for name, array in self.arrays.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {"inputs": self.inputs, "arrays": self.arrays}

    def _layers(self, fold: int) -> list[tuple[Floats, Floats]]:
        names = sorted(name for name in self.arrays if name.startswith("weights."))
        weights = [self._doubled[name][fold] for name in names]
        biases = [self._doubled[name.replace("weights", "biases")][fold] for name in names]
        return list(zip(weights, biases, strict=True))

    def _scores(self, fold: int, rows: Floats) -> Floats:
        frequency, phase, column = (
            self._doubled[name][fold] for name in ("frequency", "phase", "column")
        )
        layers = self._layers(fold)
        scores = np.empty((len(rows), layers[-1][1].shape[-1]))
        for part in _blocks(len(rows), frequency.size + layers[0][0].size // 16):
            periodic = rows[part, : len(phase), None]  # (B, P, 1)
            waves = np.cos(periodic * frequency + phase).transpose(1, 0, 2)  # (P, B, Q)
            columns = (waves @ column).transpose(1, 0, 2)  # (B, P, E)
            hidden = np.hstack([rows[part], columns.reshape(len(columns), -1)])
            for weight, bias in layers[:-1]:
                hidden = hidden @ weight + bias
                hidden = hidden / (1.0 + np.exp(-np.clip(hidden, -80.0, 80.0)))  # SiLU
            weight, bias = layers[-1]
            scores[part] = hidden @ weight + bias
        return scores


def compressed(scores: Floats) -> Vectors:
    """The fourth roots (B, C) of the probabilities that scores stand for.

    The scores of improbable classes differ a lot between the networks. In this space their
    differences are small, and those of probable ones are not.
    """
    shifted = scores - scores.max(axis=1, keepdims=True)
    total = np.exp(shifted).sum(axis=1, keepdims=True)
    return np.asarray(np.exp(ROOT * (shifted - np.log(total))), dtype=np.float32)


def _blocks(n_rows: int, n_numbers: int) -> Iterator[slice]:
    step = max(1, BLOCK // max(1, n_numbers))
    return (slice(start, start + step) for start in range(0, n_rows, step))


@register("attention", "mlp")
class MLPAttention(SpaceAttention):
    """Distance attention in the space of the scores of multilayer perceptrons.

    Rows are mapped to the class scores of a neural network with two hidden layers, which sees
    columns with many values through periodic features, too. The entries that are nearest there
    vote. The scores are cross-fitted: the rows are split into folds, an entry is mapped by the
    network that was trained without its fold, and a query by the mean of all networks. So every
    entry is held out. It helps where classes have smooth boundaries of many numeric columns.

    Parameters
    ----------
    n_folds : int, default=5
        Number of folds, and of networks.
    hidden_size : int, default=256
        Number of units of each hidden layer.
    max_epochs : int, default=40
        Number of training epochs. The epoch with the lowest log-loss of the folds left out is used.
    learning_rate : float, default=0.004
        Highest learning rate of AdamW; it falls along a cosine.
    dropout : float, default=0.15
        Share of the hidden units that are dropped in training. Larger values regularize more.
    prior_score : float, default=None
        Logit of the weight of the prior, in addition to its weight in the vote. None fits it by
        leave-one-out log-loss.

    Attributes
    ----------
    map_ : MLPMaps
        The networks of all folds.
    inner_ : DistanceAttention
        The attention in the space of scores.
    n_neighbors_ : int
        Number of neighbors that vote.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention="mlp", random_state=0).fit(X, y)
    >>> clf.predict(X[[0, 60, 120]]).tolist()
    [0, 1, 2]
    """

    map_: MLPMaps
    inner_: DistanceAttention

    def __init__(
        self,
        n_folds: int = 5,
        hidden_size: int = 256,
        max_epochs: int = 40,
        learning_rate: float = 4e-3,
        dropout: float = 0.15,
        prior_score: float | None = None,
    ) -> None:
        self.n_folds = n_folds
        self.hidden_size = hidden_size
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.dropout = dropout
        self.prior_score = prior_score

    def fit_entries(self, problem: DirectFit) -> None:
        from attnknn.training.mlp import MLPSettings, train_fold_mlps

        check_limits(self, LIMITS)
        entries = problem.memory.read()
        inputs, n_periodic = Inputs.fitted(entries.embeddings)
        _, codes = np.unique(entries.labels, return_inverse=True)
        arrays = train_fold_mlps(
            inputs(entries.embeddings).astype(np.float32),
            n_periodic,
            codes,
            entries.effective_weight,
            folds_of(entries, self.n_folds),
            self.n_folds,
            MLPSettings(
                hidden_size=self.hidden_size,
                max_epochs=self.max_epochs,
                learning_rate=self.learning_rate,
                dropout=self.dropout,
            ),
            problem.random_state % 2**31,
        )
        self.map_, self.inner_ = MLPMaps(inputs, arrays), DistanceAttention()
        memory = self.mapped(problem.memory)
        self.n_neighbors_ = problem.fit_head(self.inner_, memory, are_scores=True)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        inputs = self.map_.inputs
        columns = {"order": inputs.order, "center": inputs.center, "scale": inputs.scale}
        return self._inner_scalars(), {**columns, **self.map_.arrays}

    def restore(self, values: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:
        networks = dict(arrays)
        inputs = Inputs(*(networks.pop(name) for name in ("order", "center", "scale")))
        _check_inputs(inputs, dim)
        self._check_networks(networks, dim, n_classes)
        self.map_, self.inner_ = MLPMaps(inputs, networks), DistanceAttention()
        self._restore_inner_scalars(fitted_fields(values))

    def _check_networks(self, arrays: Arrays, dim: int, n_classes: int) -> None:
        n_periodic, n_frequencies, column_dim = (
            arrays["column"].shape[1:] if arrays["column"].ndim == 4 else (0, 0, 0)
        )
        n_scores = arrays["biases.2"].shape[-1]
        sizes = [dim + n_periodic * column_dim, self.hidden_size, self.hidden_size, n_scores]
        expected: dict[str, tuple[int, ...]] = {
            "frequency": (n_periodic, n_frequencies),
            "phase": (n_periodic, n_frequencies),
            "column": (n_periodic, n_frequencies, column_dim),
        }
        for layer, (before, after) in enumerate(itertools.pairwise(sizes)):
            expected |= {f"weights.{layer}": (before, after), f"biases.{layer}": (1, after)}
        found = {name: array.shape for name, array in arrays.items()}
        if (
            found != {name: (self.n_folds, *shape) for name, shape in expected.items()}
            or not 1 <= n_scores <= n_classes
            or n_periodic > dim
            or any(a.dtype != np.float32 or not np.isfinite(a).all() for a in arrays.values())
        ):
            raise ModelFolderError("The stored networks must be finite and fit the embeddings.")


def _check_inputs(inputs: Inputs, dim: int) -> None:
    scales = inputs.center, inputs.scale
    if (
        inputs.order.dtype != np.int32
        or not np.array_equal(np.sort(inputs.order), np.arange(dim))
        or any(s.dtype != np.float32 or s.shape != (dim,) for s in scales)
        or not all(np.isfinite(s).all() for s in scales)
        or not (inputs.scale > 0).all()
    ):
        raise ModelFolderError("The stored scales of the columns must fit the embeddings.")
