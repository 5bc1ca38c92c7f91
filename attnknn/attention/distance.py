"""Attention that is not trained: all neighbors alike, or by their distance."""

from __future__ import annotations

import numpy as np

from attnknn._validation import Limits, check_limits
from attnknn.attention.base import Attention, NeighborBatch, Scores
from attnknn.errors import InvalidSettingError

LIMITS = {
    "temperature": Limits(above=0, may_be_none=True),
    "prior_score": Limits(may_be_none=True),
}
POWER = {"power": Limits(above=0, may_be_none=True)}


class UniformAttention(Attention):
    """The classical vote: every neighbor has the same say.

    Parameters
    ----------
    prior_weight : the prior's share of say, from 0 (none, the classical vote) to below 1
    """

    def __init__(self, prior_weight: float = 0.0) -> None:
        self.prior_weight = prior_weight

    def scores(self, batch: NeighborBatch) -> Scores:
        """Zero for each neighbor; the prior's makes its weight `prior_weight`."""
        if not 0 <= self.prior_weight < 1:
            raise InvalidSettingError(
                f"`prior_weight` must be from 0 to below 1, got {self.prior_weight!r}."
            )
        voters = (batch.sample_weight * batch.neighbors.mask).sum(axis=1)
        with np.errstate(divide="ignore"):
            prior = np.log(voters * self.prior_weight / (1 - self.prior_weight))
        return Scores(np.zeros_like(batch.squared)[:, None, :], prior[:, None])


class DistanceAttention(Attention):
    """Nearer neighbors have more say: score = −distance² / temperature.

    Parameters
    ----------
    temperature : in units of squared distance; None fits it, with the prior's score, by
        leave-one-out log-loss. Higher is closer to a uniform vote.
    prior_score : higher gives the prior more say; None fits it
    """

    def __init__(self, temperature: float | None = None, prior_score: float | None = None) -> None:
        self.temperature = temperature
        self.prior_score = prior_score

    def scores(self, batch: NeighborBatch) -> Scores:
        """Minus the squared distances, and zero for the prior."""
        check_limits(self, LIMITS)
        squared = np.where(batch.neighbors.mask, batch.squared, 0.0)
        return Scores(-squared[:, None, :], np.zeros((len(squared), 1)))


class PowerDistanceAttention(DistanceAttention):
    """By distance, in a shape that is fitted too: score = −(distance²)^power / temperature.

    With power 1 this is distance attention. Below, the nearest stand out more and the far ones keep
    a say: one kernel then takes the word of a copy and still asks many where there is none.

    Parameters
    ----------
    temperature : in units of squared distance to the power; None fits it
    prior_score : higher gives the prior more say; None fits it
    power : of the squared distance; None fits it by leave-one-out log-loss, and leaves it at 1
        where another one is not better beyond the noise

    Attributes
    ----------
    power_ : the one that was fitted
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
        """Minus the squared distances to the power, and zero for the prior."""
        check_limits(self, POWER)
        plain = super().scores(batch)
        power = self.power_ if self.power is None else self.power
        return Scores(-((-plain.neighbors) ** power), plain.prior)
