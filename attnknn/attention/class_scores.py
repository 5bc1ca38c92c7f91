"""Class-score attention: distances among class scores, and the scores of the query itself."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn._stored import Arrays, fitted_fields
from attnknn._validation import Limits, check_limits
from attnknn.attention.base import NeighborBatch, ScalarFit, Scores
from attnknn.attention.distance import DistanceAttention
from attnknn.errors import ModelFolderError
from attnknn.records import Integers
from attnknn.registry import register

GAP_WEIGHT = {"gap_weight": Limits(least=0, may_be_none=True)}
FACTORS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0)  # candidates, in typical distances
ROWS_TO_CHOOSE, NEIGHBORS_TO_CHOOSE = 1_000, 256
UNKNOWN = -1  # the column of a class that has no score


@register("attention", "class-scores")
class ClassScoreAttention(DistanceAttention):
    """Distance weights among class scores: −(distance² + gap_weight · gap) / temperature.

    The gap of a neighbor is how far the query's score of the neighbor's class is below the query's
    highest score. With a gap weight of 0 this is distance attention; with a large one, the classes
    vote by the softmax of the query's scores. In between, neighbors correct what the scores say.
    The embeddings must be class scores, as those of `NgramEncoder` are. In `ProjectionAttention`
    this attention votes in the space of the scores.

    Parameters
    ----------
    temperature : float, default=None
        Temperature in units of squared distance; larger values are closer to a uniform vote. None
        fits it by leave-one-out log-loss.
    prior_score : float, default=None
        Larger values give the prior more weight. None fits it by leave-one-out log-loss.
    gap_weight : float, default=None
        Weight of the gap. None chooses it by leave-one-out log-loss, and keeps 0 unless another
        value is significantly better.

    Attributes
    ----------
    gap_weight_ : float
        The weight in use.
    columns_ : ndarray of shape (n_classes,)
        The column with the scores of each class: the one in which its rows stand out most. -1 is a
        class without rows; its entries count for the class of their own highest score.

    See Also
    --------
    ProjectionAttention : Computes class scores of other embeddings.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> texts = ["my card is lost", "lost card, please help", "what is the fee?", "fees?"] * 10
    >>> clf = AttnKNNClassifier(encoder="ngrams", attention="class-scores", random_state=0)
    >>> clf.fit(texts, ["lost", "lost", "fee", "fee"] * 10).attention_.columns_.tolist()
    [0, 1]
    """

    gap_weight_: float = 0.0
    columns_: Integers

    def __init__(
        self,
        temperature: float | None = None,
        prior_score: float | None = None,
        gap_weight: float | None = None,
    ) -> None:
        super().__init__(temperature, prior_score)
        self.gap_weight = gap_weight

    def scores(self, batch: NeighborBatch) -> Scores:
        check_limits(self, GAP_WEIGHT)
        plain = super().scores(batch)
        weight = self.gap_weight_ if self.gap_weight is None else self.gap_weight
        if not weight:
            return plain
        of_labels = np.take_along_axis(batch.queries, self._columns(batch), axis=1)  # (B, K)
        gaps = batch.queries.max(axis=1, keepdims=True) - of_labels
        return Scores(plain.neighbors - weight * gaps[:, None, :].astype(np.float64), plain.prior)

    def _columns(self, batch: NeighborBatch) -> Integers:
        """The column (B, K) of the class of each neighbor."""
        labels = batch.neighbors.labels
        known = getattr(self, "columns_", np.full(labels.max(initial=0) + 1, UNKNOWN))
        columns = np.asarray(known[labels])
        is_unknown = columns == UNKNOWN
        if is_unknown.any():
            entries = batch.vectors[batch.neighbors.positions[is_unknown]]
            columns[is_unknown] = entries.argmax(axis=1)
        return columns

    def fit_parameters(self, problem: ScalarFit) -> None:
        batch = problem.batch
        self.columns_ = columns_of(batch.queries, problem.labels, problem.prior.shape[1])
        if self.gap_weight is not None:
            return
        found = batch.squared[batch.neighbors.mask]
        typical = float(np.sqrt(found.mean())) if found.size else 0.0
        sample = problem.sample(ROWS_TO_CHOOSE, NEIGHBORS_TO_CHOOSE)
        fits = {}
        for factor in FACTORS:
            self.gap_weight_ = factor * typical
            fits[factor] = sample.fit_scalars()
        best = min(fits, key=lambda factor: fits[factor].loss)
        self.gap_weight_ = best * typical if problem.is_better(fits[0.0], fits[best]) else 0.0

    def admit_class(self, embeddings: NDArray[np.float32]) -> None:  # noqa: ARG002
        if hasattr(self, "columns_"):
            self.columns_ = np.append(self.columns_, UNKNOWN)

    def reorder_classes(self, order: Integers) -> None:
        if hasattr(self, "columns_"):
            self.columns_ = self.columns_[order]

    def state(self) -> tuple[dict[str, Any], Arrays]:
        columns = getattr(self, "columns_", None)
        stored = None if columns is None else columns.tolist()
        return {"gap_weight": float(self.gap_weight_), "columns": stored}, {}

    def restore(self, values: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:  # noqa: ARG002
        fields = fitted_fields(values)
        self.gap_weight_ = fields.number("gap_weight", least=0.0)
        if fields.anything("columns") is None:
            return
        columns = fields.array("columns", (n_classes,))
        if not np.isin(columns, np.arange(UNKNOWN, dim)).all():
            raise ModelFolderError(f"The stored columns of classes must be below {dim}.")
        self.columns_ = columns.astype(np.int64)


def columns_of(scores: NDArray[np.float32], labels: Integers, n_classes: int) -> Integers:
    """For each class the column (C,) of the scores (n, D) in which its rows stand out most.

    Which column belongs to a class is not assumed: classes may be added, and codes change.

    >>> columns_of(np.array([[0.0, 9.0], [1.0, 9.0], [2.0, 5.0]]), np.array([0, 0, 2]), 3)
    array([ 1, -1,  0])
    """
    sums = np.zeros((n_classes, scores.shape[1]))
    np.add.at(sums, labels, scores - scores.mean(axis=0, dtype=np.float64))
    has_rows = np.bincount(labels, minlength=n_classes) > 0
    return np.where(has_rows, sums.argmax(axis=1), UNKNOWN)
