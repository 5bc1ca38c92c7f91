"""Baselines for raw tables: the same network with a linear head, and gradient boosting."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from attnknn.encoders.learned_table import LearnedTableEncoder, NetworkName
from attnknn.fitting.holdout import trained_rows
from attnknn.memory.entries import NO_GROUP
from attnknn.metrics import nll
from attnknn.records import Floats, Integers
from attnknn.training.optimizers import parameter_groups

EPOCHS, PATIENCE = 30, 8


class TableMLP(ClassifierMixin, BaseEstimator):
    """The network of `LearnedTableEncoder` with a linear head, trained by cross-entropy.

    Same columns, same networks, same held-out rows; these choose the network, stop the training
    and fit a temperature. What it lacks is the vote.

    Parameters
    ----------
    encoder : its network and training settings; None is the default

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> encoder = LearnedTableEncoder(embed_dim=8, network="deep", width=16)
    >>> TableMLP(encoder, random_state=0).fit(X, y).predict_proba(X[:1]).shape
    (1, 3)
    """

    def __init__(
        self, encoder: LearnedTableEncoder | None = None, random_state: int | None = None
    ) -> None:
        self.encoder = encoder
        self.random_state = random_state

    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Train network and head on most rows; the others stop it and fit the temperature."""
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        self.encoder_ = (self.encoder or LearnedTableEncoder()).fit(X)
        inputs = self.encoder_.inputs(X)
        generator = np.random.default_rng(self.random_state)
        alone = np.full(len(codes), NO_GROUP)
        is_trained_on = trained_rows(codes, alone, self.encoder_.holdout, len(codes), generator)
        seed = int(generator.integers(2**31))
        trials = [
            self._train(inputs, codes, is_trained_on, seed, network)
            for network in self.encoder_.networks()
        ]
        _, self.encoder_.network_, self.encoder_.module_, self.head_ = min(
            trials, key=lambda t: t[0]
        )
        scores, own = self._scores(inputs[~is_trained_on]), codes[~is_trained_on]

        def loss(log_temperature: float) -> float:
            return nll(own, _softmax(scores / math.exp(log_temperature)))

        self.temperature_ = math.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (n, C)."""
        check_is_fitted(self)
        return _softmax(self._scores(self.encoder_.inputs(X)) / self.temperature_)

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        return self.classes_[self.predict_proba(X).argmax(axis=1)]

    def _train(
        self,
        inputs: NDArray[np.float32],
        codes: Integers,
        is_trained_on: NDArray[np.bool_],
        seed: int,
        network: NetworkName,
    ) -> tuple[float, NetworkName, Any, Any]:
        import torch
        from torch import Tensor, nn

        from attnknn.training.loop import train

        self.encoder_.build(seed, network)
        net = self.encoder_.module_
        chance = torch.Generator().manual_seed(seed)
        net.seeded_dropout.generator = chance
        head = nn.utils.skip_init(nn.Linear, self.encoder_.embed_dim, len(self.classes_))
        with torch.no_grad():
            head.weight.normal_(0, 0.1, generator=chance)
            head.bias.zero_()
        rows, labels = torch.from_numpy(inputs), torch.from_numpy(codes)
        trained, judges = (
            torch.from_numpy(np.flatnonzero(m)) for m in (is_trained_on, ~is_trained_on)
        )
        both = nn.Sequential(net, nn.ReLU(), head)

        def loss_of(batch: Tensor) -> Tensor:
            both.train()
            return nn.functional.cross_entropy(both(rows[trained[batch]]), labels[trained[batch]])

        def judge() -> float:
            both.eval()
            with torch.no_grad():
                return float(nn.functional.cross_entropy(both(rows[judges]), labels[judges]))

        config = self.encoder_.train_config()
        groups = parameter_groups(
            both, learning_rate=config.learning_rate, weight_decay=config.weight_decay
        )
        size = min(config.batch_size, len(trained))
        config = replace(config, epochs=EPOCHS, batch_size=size, patience=PATIENCE)
        outcome = train(both, loss_of, judge, len(trained), config, groups, chance)
        net.seeded_dropout.generator = None
        both.eval()
        return min(outcome.validation_losses), network, net, head

    def _scores(self, inputs: NDArray[np.float32]) -> Floats:
        embeddings = np.maximum(self.encoder_.embed(inputs), 0).astype(np.float64)
        weight, bias = (p.detach().numpy().astype(np.float64) for p in self.head_.parameters())
        return embeddings @ weight.T + bias


class AsCategories(TransformerMixin, BaseEstimator):
    """Text columns as pandas categories, as gradient boosting takes them.

    >>> rows = pd.DataFrame({"job": ["cook", "nurse"]})
    >>> AsCategories().fit(rows).transform(rows)["job"].dtype.name
    'category'
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  (scikit-learn's signature)
        """Learn the categories of each column of texts."""
        table = pd.DataFrame(X)
        texts = [c for c in table if not pd.api.types.is_numeric_dtype(table[c])]
        self.categories_ = {c: pd.Index(table[c].dropna().unique()) for c in texts}
        return self

    def transform(self, X: Any) -> pd.DataFrame:
        """The same table; categories that `fit` did not see are missing values."""
        table = pd.DataFrame(X).copy()
        for column, categories in self.categories_.items():
            is_known = table[column].isin(categories)
            table[column] = pd.Categorical(table[column].where(is_known), categories=categories)
        return table


def _softmax(scores: Floats) -> Floats:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
