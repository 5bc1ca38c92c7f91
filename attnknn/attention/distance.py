"""Attentions without training: equal weights, or weights by distance."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from attnknn._stored import Arrays, fitted_fields
from attnknn._validation import Limits, check_limits
from attnknn.attention.base import Attention, NeighborBatch, ScalarFit, Scores
from attnknn.errors import InvalidSettingError
from attnknn.registry import register

LIMITS = {
    "temperature": Limits(above=0, may_be_none=True),
    "prior_score": Limits(may_be_none=True),
}
POWER = {"power": Limits(above=0, may_be_none=True)}
POWERS = (1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1, 0.05)  # candidates, of the squared distance
ROWS_TO_CHOOSE_POWER, NEIGHBORS_TO_CHOOSE_POWER = 1_000, 128


@register("attention", "uniform")
class UniformAttention(Attention):
    """Equal weights for all neighbors: the classical k-nearest-neighbor vote.

    Parameters
    ----------
    prior_weight : float, default=0.0
        Weight of the prior, from 0 (the classical vote) to below 1.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(2, attention="uniform").fit([[0.0], [1.0], [5.0]], ["a", "b", "b"])
    >>> clf.predict_proba([[0.4]])
    array([[0.5, 0.5]])
    """

    fitted_by: ClassVar[Literal["nothing", "scalars", "training"]] = "nothing"

    def __init__(self, prior_weight: float = 0.0) -> None:
        self.prior_weight = prior_weight

    def scores(self, batch: NeighborBatch) -> Scores:
        if not 0 <= self.prior_weight < 1:
            raise InvalidSettingError(
                f"`prior_weight` must be from 0 to below 1, got {self.prior_weight!r}."
            )
        total = (batch.sample_weight * batch.neighbors.mask).sum(axis=1)
        with np.errstate(divide="ignore"):
            prior = np.log(total * self.prior_weight / (1 - self.prior_weight))
        return Scores(np.zeros_like(batch.squared)[:, None, :], prior[:, None])


@register("attention", "distance")
class DistanceAttention(Attention):
    """Gaussian-kernel weights: score = −distance² / temperature.

    Parameters
    ----------
    temperature : float, default=None
        Temperature in units of squared distance; larger values are closer to a uniform vote. None
        fits it by leave-one-out log-loss.
    prior_score : float, default=None
        Larger values give the prior more weight. None fits it by leave-one-out log-loss.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention=DistanceAttention(temperature=0.5)).fit(X, y)
    >>> clf.attention_.temperature_
    0.5
    """

    def __init__(self, temperature: float | None = None, prior_score: float | None = None) -> None:
        self.temperature = temperature
        self.prior_score = prior_score

    def scores(self, batch: NeighborBatch) -> Scores:
        check_limits(self, LIMITS)
        squared = np.where(batch.neighbors.mask, batch.squared, 0.0)
        return Scores(-squared[:, None, :], np.zeros((len(squared), 1)))


@register("attention", "power")
class PowerDistanceAttention(DistanceAttention):
    """Distance weights with a fitted kernel shape: score = −(distance²)^power / temperature.

    With power 1 this is distance attention. A smaller power gives more weight to the nearest
    neighbors and, at the same time, keeps some for distant ones.

    Parameters
    ----------
    temperature : float, default=None
        Temperature in units of squared distance to the power; larger values are closer to a uniform
        vote. None fits it by leave-one-out log-loss.
    prior_score : float, default=None
        Larger values give the prior more weight. None fits it by leave-one-out log-loss.
    power : float, default=None
        Exponent of the squared distance. None chooses it by leave-one-out log-loss, and keeps 1
        unless another value is significantly better.

    Attributes
    ----------
    power_ : float
        The exponent in use.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> AttnKNNClassifier(attention="power").fit(X, y).attention_.power_
    1.0
    """

    power_: float = 1.0

    def __init__(
        self,
        temperature: float | None = None,
        prior_score: float | None = None,
        power: float | None = None,
    ) -> None:
        super().__init__(temperature, prior_score)
        self.power = power

    def scores(self, batch: NeighborBatch) -> Scores:
        check_limits(self, POWER)
        plain = super().scores(batch)
        power = self.power_ if self.power is None else self.power
        return Scores(-((-plain.neighbors) ** power), plain.prior)

    def fit_parameters(self, problem: ScalarFit) -> None:
        if self.power is not None:
            return
        sample = problem.sample(ROWS_TO_CHOOSE_POWER, NEIGHBORS_TO_CHOOSE_POWER)
        fits = {}
        for power in POWERS:
            self.power_ = power
            fits[power] = sample.fit_scalars()
        best = min(fits, key=lambda power: fits[power].loss)
        self.power_ = best if problem.is_better(fits[1.0], fits[best]) else 1.0

    def state(self) -> tuple[dict[str, Any], Arrays]:
        return {"power": float(self.power_)}, {}

    def restore(self, values: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:  # noqa: ARG002
        self.power_ = fitted_fields(values).number("power", least=1e-3)
