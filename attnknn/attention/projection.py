"""Projection attention: neighbors in the space of a linear classifier's scores vote."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from attnknn._stored import fitted_fields
from attnknn._validation import Limits, check_limits
from attnknn.attention.class_scores import ClassScoreAttention
from attnknn.attention.direct import DirectFit
from attnknn.attention.space import SpaceAttention, Vectors, folds_of
from attnknn.encoders.softmax_regression import fit_softmax_regression
from attnknn.errors import ModelFolderError
from attnknn.memory.entries import Entries
from attnknn.records import Floats, Integers
from attnknn.registry import register

if TYPE_CHECKING:
    from attnknn._stored import Arrays

LIMITS = {
    "n_folds": Limits(least=2, is_whole=True),
    "prior_score": Limits(may_be_none=True),
}
STRENGTHS = (1.0, 0.1, 0.01, 1e-3, 1e-4)  # of the regularization, per row, strongest first


@register("attention", "projection")
class ProjectionAttention(SpaceAttention):
    """Class-score attention in the space of a linear classifier's scores.

    Rows are projected to the class scores of a logistic regression, and the entries that are
    nearest there vote, above all those of the classes with high scores. The projection is
    cross-fitted: the rows are split into folds, an entry is projected by the classifier that was
    not trained on its fold, and a query by the mean of all classifiers. So every entry is held out.
    It helps if the classes are almost linearly separable: in tables with many weak columns, and in
    embeddings of texts.

    Parameters
    ----------
    n_folds : int, default=5
        Number of folds.
    prior_score : float, default=None
        Logit of the weight of the prior, in addition to its weight in the vote. None fits it by
        leave-one-out log-loss.

    Attributes
    ----------
    map_ : LinearMaps
        The linear maps to the scores, one for each fold.
    strength_ : float
        Strength of the regularization, chosen by the log-loss of the folds left out.
    inner_ : ClassScoreAttention
        The attention in the space of scores.
    n_neighbors_ : int
        Number of neighbors that vote.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention="projection", random_state=0).fit(X, y)
    >>> clf.predict(X[[0, 60, 120]]).tolist()
    [0, 1, 2]
    """

    map_: LinearMaps
    strength_: float
    inner_: ClassScoreAttention

    def __init__(self, n_folds: int = 5, prior_score: float | None = None) -> None:
        self.n_folds = n_folds
        self.prior_score = prior_score

    def fit_entries(self, problem: DirectFit) -> None:
        check_limits(self, LIMITS)
        entries = problem.memory.read()
        maps, self.strength_ = cross_fit(
            entries.embeddings,
            entries.labels,
            entries.effective_weight,
            folds_of(entries, self.n_folds),
            self.n_folds,
        )
        self.map_, self.inner_ = LinearMaps(maps), ClassScoreAttention()
        memory = self.mapped(problem.memory)
        self.n_neighbors_ = problem.fit_head(self.inner_, memory, are_scores=True)

    def state(self) -> tuple[dict[str, Any], Arrays]:
        inner, _ = self.inner_.state()
        fitted = {"strength": self.strength_, **self._inner_scalars(), "inner": inner}
        return fitted, {"maps": self.map_.maps}

    def restore(self, values: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:
        fields, maps = fitted_fields(values), arrays["maps"]
        n_scores = maps.shape[-1] if maps.ndim == 3 else 0
        if (
            maps.dtype != np.float32
            or maps.shape != (self.n_folds, dim + 1, n_scores)
            or not 1 <= n_scores <= n_classes
            or not np.isfinite(maps).all()
        ):
            raise ModelFolderError("The stored projections must be finite and fit the embeddings.")
        self.map_, self.inner_ = LinearMaps(maps), ClassScoreAttention()
        self.strength_ = fields.number("strength", least=0.0)
        self._restore_inner_scalars(fields)
        self.inner_.restore(fields.of("inner").to_dict(), {}, n_scores, n_classes)


@dataclass(frozen=True, eq=False)
class LinearMaps:
    """Linear maps (F, D + 1, S), one for each fold; the last row is added to the scores."""

    maps: NDArray[np.float32]

    def of_queries(self, queries: Vectors) -> Vectors:
        """Scores (B, S) by the mean of all maps."""
        # In float64: float32 products of one row and of many are rounded differently.
        weights, shift = self._mean
        return (queries.astype(np.float64) @ weights + shift).astype(np.float32)

    @cached_property
    def _mean(self) -> tuple[Floats, Floats]:
        mean = self.maps.mean(axis=0, dtype=np.float64)
        return mean[:-1], mean[-1]

    def of_entries(self, entries: Entries) -> Vectors:
        """Scores (N, S), each by the map that was fitted without the entry's fold."""
        folds = folds_of(entries, len(self.maps))
        scores = np.empty((len(entries), self.maps.shape[2]), dtype=np.float32)
        for fold, weights in enumerate(self.maps):
            rows = folds == fold
            doubled = weights.astype(np.float64)  # as for queries
            scores[rows] = entries.embeddings[rows].astype(np.float64) @ doubled[:-1] + doubled[-1]
        return scores


def cross_fit(
    X: NDArray[np.float32],
    labels: Integers,
    sample_weight: Floats,
    folds: Integers,
    n_folds: int,
) -> tuple[NDArray[np.float32], float]:
    """Maps (F, D + 1, S) of logistic regressions, each without one fold, and their strength.

    The strength of the regularization is chosen by the log-loss of the folds left out; each goes
    on from the weights of a stronger one.
    """
    center, scale = X.mean(axis=0, dtype=np.float64), X.std(axis=0, dtype=np.float64)
    scale = np.where(scale > 0, scale, 1.0)
    rows = np.column_stack([(X - center) / scale, np.ones(len(X))]).astype(np.float32)
    _, codes = np.unique(labels, return_inverse=True)
    counts = np.bincount(codes, sample_weight)
    # The same for all folds: frequencies without a fold would tell which classes are in it.
    offset = np.log((counts + 1) / (counts + 1).sum()).astype(np.float32)
    maps = np.zeros((n_folds, rows.shape[1], len(counts)), dtype=np.float32)
    best_loss, best_strength, best = np.inf, STRENGTHS[0], maps
    for strength in STRENGTHS:
        maps, losses = maps.copy(), np.zeros(len(rows))
        for fold in range(n_folds):
            out = folds == fold
            kept = ~out
            if kept.any():
                maps[fold] = fit_softmax_regression(
                    rows[kept], codes[kept], offset, strength, maps[fold], sample_weight[kept]
                )
            scores = (rows[out] @ maps[fold] + offset).astype(np.float64)
            losses[out] = logsumexp(scores, axis=1) - scores[np.arange(out.sum()), codes[out]]
        loss = float(np.average(losses, weights=sample_weight))
        if loss < best_loss:
            best_loss, best_strength, best = loss, strength, maps
        elif loss > 1.02 * best_loss:
            break  # weaker regularization is worse still
    weights = best[:, :-1] / scale[:, None]  # (F, D, S)
    # No intercepts: all scores have the mean 0, since frequent classes have more votes already.
    shift = -np.einsum("d,fds->fs", center, weights)
    return np.concatenate([weights, shift[:, None]], axis=1).astype(np.float32), best_strength
