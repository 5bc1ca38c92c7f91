"""Baselines: uniform kNN, a linear probe, and an MLP on the same table encoder."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize_scalar
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.preprocessing import StandardScaler
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from attnknn.encoders.learned_table import LearnedTableEncoder, NetworkName
from attnknn.errors import InvalidInputError, InvalidSettingError, unknown_name
from attnknn.fitting.holdout import trained_rows
from attnknn.memory.entries import NO_GROUP
from attnknn.metrics import nll
from attnknn.records import Floats, Integers
from attnknn.training.optimizers import parameter_groups

SMALL = 1_000_000  # numbers


class _MostProbable(ClassifierMixin, BaseEstimator):
    """A classifier whose prediction is its most probable class, the first one of a tie."""

    def predict(self, X: Any) -> NDArray[Any]:
        codes = self.predict_proba(X).argmax(axis=1)
        return self.classes_[codes]


class UniformKNN(_MostProbable):
    """Uniform kNN: scikit-learn's `KNeighborsClassifier` with the best K.

    K is the one in 1..`max_neighbors` with the best leave-one-out accuracy on the training rows,
    or on the held-out ones if `fit` gets these (the smallest of equals), from one search in
    which no row finds itself. `n_neighbors_` is the K in use.

    >>> model = UniformKNN().fit([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2]], [0, 0, 0, 1, 1, 1])
    >>> model.n_neighbors_, model.predict([[0.9]]).tolist()
    (1, [1])
    """

    def __init__(self, max_neighbors: int = 64, metric: str = "euclidean") -> None:
        self.max_neighbors = max_neighbors
        self.metric = metric

    def fit(self, X: ArrayLike, y: ArrayLike, held_out: ArrayLike | None = None) -> Self:
        """Choose K and remember the rows.

        `held_out` (N,) is true for rows that no encoder was trained on: these choose K, all vote.
        """
        if self.max_neighbors < 1:
            raise InvalidSettingError(
                f"`max_neighbors` must be an integer of at least 1, got {self.max_neighbors}."
            )
        rows, codes = _checked(self, X, y)
        most = min(self.max_neighbors, len(rows) - 1)
        chosen = _choosing_rows(held_out, len(rows))
        search = NearestNeighbors(metric=self.metric).fit(rows)
        votes = codes[_nearest_others(search, rows, chosen, most)] if most else codes[chosen, None]
        scores = _leave_one_out_accuracy(votes, codes[chosen], len(self.classes_))
        self.n_neighbors_ = int(np.argmax(scores)) + 1
        self.model_ = KNeighborsClassifier(self.n_neighbors_, metric=self.metric).fit(rows, codes)
        return self

    def predict_proba(self, X: ArrayLike) -> Floats:
        """The share of each class among the K nearest rows."""
        check_is_fitted(self)
        return self.model_.predict_proba(_checked_rows(self, X))


class LinearProbe(_MostProbable):
    """Logistic regression whose regularization is chosen on a part of the training rows.

    Each C is tried on 80 % of the rows (stratified where every class has two or more) and compared
    by the log-loss on the other 20 %; the best one is fitted on all rows.

    Parameters
    ----------
    Cs : the values to try; larger means less regularization
    scaling : "standard" scales columns to variance one; "none" leaves them; "auto" leaves them
        where all rows have unit length, as sentence embeddings do, and scales otherwise
    max_iter : of each fit; a fit that stops there is used as it is, see `is_converged_`
    random_state : draws the 20 %

    `C_` is the value in use.

    >>> X = [[i / 10] for i in range(20)]
    >>> model = LinearProbe(random_state=0).fit(X, [0] * 10 + [1] * 10)
    >>> model.C_, model.predict([[0.2], [1.9]]).tolist()
    (100.0, [0, 1])
    """

    def __init__(
        self,
        Cs: Sequence[float] = (0.01, 0.1, 1.0, 10.0, 100.0),
        scaling: Literal["auto", "standard", "none"] = "auto",
        max_iter: int = 300,
        random_state: int | None = None,
    ) -> None:
        self.Cs = Cs
        self.scaling = scaling
        self.max_iter = max_iter
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Choose C and fit it on all rows."""
        if self.scaling not in ("auto", "standard", "none"):
            raise unknown_name("scaling", self.scaling, ["auto", "standard", "none"])
        if not len(self.Cs) or min(self.Cs) <= 0:
            raise InvalidSettingError(f"`Cs` must hold numbers above 0, got {self.Cs}.")
        rows, codes = _checked(self, X, y)
        if len(self.classes_) < 2:
            raise InvalidInputError("`y` must have at least two classes, got one class.")
        self.scaler_ = StandardScaler().fit(rows) if self._scales(rows) else None
        rows = self._scaled(rows)
        self.C_ = self._best_C(rows, codes)
        self.model_ = self._fitted(self.C_, rows, codes)
        self.n_iter_ = int(self.model_.n_iter_.max())
        self.is_converged_ = self.n_iter_ < self.max_iter
        return self

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Class probabilities, columns in the order of `classes_`."""
        check_is_fitted(self)
        return self.model_.predict_proba(self._scaled(_checked_rows(self, X)))

    def _best_C(self, rows: Floats, codes: Integers) -> float:
        method_settings = [float(C) for C in self.Cs]
        counts = np.bincount(codes)
        if len(method_settings) == 1 or len(codes) < 10:
            return method_settings[0]
        enough = counts.min() >= 2 and len(codes) >= 5 * len(counts)
        train, validation, y_train, y_validation = train_test_split(
            rows,
            codes,
            test_size=0.2,
            random_state=self.random_state,
            stratify=codes if enough else None,
        )
        if len(np.unique(y_train)) < 2:
            return method_settings[0]
        losses = []
        for C in method_settings:
            model = self._fitted(C, train, y_train)
            shares = np.zeros((len(validation), len(counts)))
            shares[:, model.classes_] = model.predict_proba(validation)
            losses.append(nll(y_validation, shares))
        return method_settings[int(np.argmin(losses))]

    def _fitted(self, C: float, rows: Floats, codes: Integers) -> LogisticRegression:
        # On busy cores a second thread of a small product is waited for longer than it works.
        threads = threadpool_limits(1 if rows.size < SMALL else None)
        with threads, warnings.catch_warnings():  # said by `is_converged_` instead
            warnings.simplefilter("ignore", ConvergenceWarning)
            # Newton's method finds the same optimum in fewer steps if its Hessian is small.
            is_small = rows.shape[1] * len(self.classes_) <= 1000
            solver = "newton-cholesky" if is_small else "lbfgs"
            return LogisticRegression(C=C, max_iter=self.max_iter, solver=solver).fit(rows, codes)

    def _scales(self, rows: Floats) -> bool:
        if self.scaling == "auto":
            return not np.allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-2)
        return self.scaling == "standard"

    def _scaled(self, rows: Floats) -> Floats:
        return rows if self.scaler_ is None else self.scaler_.transform(rows)


def _choosing_rows(held_out: ArrayLike | None, n_rows: int) -> Integers:
    """Positions of the rows that choose K."""
    if held_out is None:
        return np.arange(n_rows)
    is_held_out = np.asarray(held_out)
    if is_held_out.shape != (n_rows,) or is_held_out.dtype != bool or not is_held_out.any():
        raise InvalidInputError(
            f"`held_out` must hold true or false for each of {n_rows} rows, and true at least once."
        )
    return np.flatnonzero(is_held_out)


def _nearest_others(search: Any, rows: Floats, chosen: Integers, k: int) -> Integers:
    """Positions (n, K) of the nearest other rows."""
    found = search.kneighbors(rows[chosen], k + 1, return_distance=False)
    is_other = found != chosen[:, None]
    is_other[is_other.all(axis=1), 0] = False  # among many copies a row may not be listed
    return found[is_other].reshape(len(chosen), k)


def _leave_one_out_accuracy(votes: Integers, codes: Integers, n_classes: int) -> Floats:
    """Accuracy (K,) of the vote of the nearest 1..K other rows, whose labels are `votes` (N, K)."""
    counts = np.zeros((len(codes), n_classes), dtype=np.int32)
    everyone = np.arange(len(codes))
    accuracy = np.empty(votes.shape[1])
    for k in range(votes.shape[1]):
        counts[everyone, votes[:, k]] += 1
        accuracy[k] = np.mean(counts.argmax(axis=1) == codes)
    return accuracy


def _checked(estimator: Any, X: ArrayLike, y: ArrayLike) -> tuple[Floats, Integers]:
    rows, labels = validate_data(estimator, X, y, dtype=[np.float64, np.float32])
    check_classification_targets(labels)
    estimator.classes_, codes = np.unique(labels, return_inverse=True)
    return rows, codes


def _checked_rows(estimator: Any, X: ArrayLike) -> Floats:
    return validate_data(estimator, X, reset=False, dtype=[np.float64, np.float32])


EPOCHS, PATIENCE = 30, 8


class TableMLP(_MostProbable):
    """The network of `LearnedTableEncoder` with a linear head, trained by cross-entropy.

    It has the same columns, networks and held-out rows, but no vote. The held-out rows choose the
    network, stop the training and fit a temperature.

    Parameters
    ----------
    encoder : LearnedTableEncoder, optional
        Its network and training settings; None is the default.
    random_state : int, optional

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
            return nll(own, softmax(scores / math.exp(log_temperature), axis=1))

        self.temperature_ = math.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded").x)
        return self

    def predict_proba(self, X: Any) -> Floats:
        """Probabilities (n, C)."""
        check_is_fitted(self)
        return softmax(self._scores(self.encoder_.inputs(X)) / self.temperature_, axis=1)

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
        trained, held_out = (
            torch.from_numpy(np.flatnonzero(m)) for m in (is_trained_on, ~is_trained_on)
        )
        both = nn.Sequential(net, nn.ReLU(), head)

        def loss_of(batch: Tensor) -> Tensor:
            both.train()
            return nn.functional.cross_entropy(both(rows[trained[batch]]), labels[trained[batch]])

        def validation_loss() -> float:
            both.eval()
            with torch.no_grad():
                return float(nn.functional.cross_entropy(both(rows[held_out]), labels[held_out]))

        config = self.encoder_.train_config()
        groups = parameter_groups(
            both, learning_rate=config.learning_rate, weight_decay=config.weight_decay
        )
        size = min(config.batch_size, len(trained))
        config = replace(config, epochs=EPOCHS, batch_size=size, patience=PATIENCE)
        result = train(both, loss_of, validation_loss, len(trained), config, groups, chance)
        net.seeded_dropout.generator = None
        both.eval()
        return min(result.validation_losses), network, net, head

    def _scores(self, inputs: NDArray[np.float32]) -> Floats:
        embeddings = np.maximum(self.encoder_.embed(inputs), 0).astype(np.float64)
        weight, bias = (p.detach().numpy().astype(np.float64) for p in self.head_.parameters())
        return embeddings @ weight.T + bias


class AsCategories(TransformerMixin, BaseEstimator):
    """Convert text columns to pandas categories, for gradient boosting.

    >>> rows = pd.DataFrame({"job": ["cook", "nurse"]})
    >>> AsCategories().fit(rows).transform(rows)["job"].dtype.name
    'category'
    """

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  (scikit-learn's signature)
        """Learn the categories of each column of texts."""
        table = pd.DataFrame(X)
        texts = [c for c in table if not pd.api.types.is_numeric_dtype(table[c])]
        # As texts: XGBoost takes no categories that are floats.
        self.categories_ = {c: pd.Index(_texts(table[c]).dropna().unique()) for c in texts}
        return self

    def transform(self, X: Any) -> pd.DataFrame:
        """Convert a table; categories that `fit` did not see become missing values."""
        table = pd.DataFrame(X).copy()
        for column, categories in self.categories_.items():
            values = _texts(table[column])
            known = values.where(values.isin(categories))
            table[column] = pd.Categorical(known, categories=categories)
        return table


def _texts(values: pd.Series[Any]) -> pd.Series[Any]:
    """A column as texts; missing values stay missing."""
    return values.astype(object).map(str, na_action="ignore")
