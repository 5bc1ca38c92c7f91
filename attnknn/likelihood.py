"""The log-loss of fresh rows as a function of a few scalars, with its gradient written out.

NumPy on purpose: torch's threads wait for each other on work this small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnknn.attention.base import Scores, mixed, softmax_weights
from attnknn.records import Booleans, Floats, Integers
from attnknn.vote import vote

# On few rows the likelihood may not mind a temperature and an exponent that are both absurd and
# make up for each other; this pull home, worth one row, minds, and is nothing beside a hundred.
PULL = 1.0
TINY = np.finfo(float).tiny  # a prior far below the neighbors underflows


@dataclass(frozen=True)
class Calibration:
    """What stands between shares and probabilities, as fitted.

    Parameters
    ----------
    exponent : p ∝ share^exponent; above 1 the vote was too timid, below 1 too sure
    label_noise : the chance that an observed label is not the true one
    transition : (C, C) chance of each observed label (column) for each true one (row), where the
        noise differs by class
    """

    exponent: float = 1.0
    label_noise: float = 0.0
    transition: Floats | None = None

    def probabilities(self, shares: Floats) -> Floats:
        """Probabilities (B, C) of the true labels.

        >>> Calibration(exponent=2.0).probabilities(np.array([[0.75, 0.25]]))
        array([[0.9, 0.1]])
        """
        if self.exponent == 1.0:
            return shares / shares.sum(axis=1, keepdims=True)
        relative = shares / shares.max(axis=1, keepdims=True)  # else small powers underflow
        powers = relative**self.exponent
        return powers / powers.sum(axis=1, keepdims=True)

    def observed(self, probabilities: Floats) -> Floats:
        """Probabilities (B, C) of the labels that annotators would give."""
        if self.transition is not None:
            return probabilities @ self.transition
        n_others = max(probabilities.shape[1] - 1, 1)
        noise = self.label_noise
        return (1 - noise) * probabilities + noise * (1 - probabilities) / n_others

    def with_classes(self, n_classes: int) -> Calibration:
        """The same with room for classes whose labels are taken to be right."""
        if self.transition is None:
            return self
        wider = np.eye(n_classes)
        wider[: len(self.transition), : len(self.transition)] = self.transition
        return replace(self, transition=wider)

    def with_order(self, order: Integers) -> Calibration:
        """The same with class `order[i]` as class i."""
        if self.transition is None:
            return self
        return replace(self, transition=self.transition[np.ix_(order, order)])

    def losses(self, shares: Floats, own: Integers) -> Floats:
        """Log-loss (B,) of the observed labels."""
        likely = self.observed(self.probabilities(shares))[np.arange(len(own)), own]
        return -np.log(np.maximum(likely, TINY))


@dataclass(frozen=True)
class Trial:
    """Fresh rows with the scores of their neighbors: what calibration is fitted on.

    Parameters
    ----------
    scores : as attention gives them, before temperature and prior's score
    log_importance, labels, mask : (B, K) of the neighbors
    own : (B,) observed label codes of the rows
    prior : (B, C) class frequencies, each row's own label taken out
    """

    scores: Scores
    log_importance: Floats
    labels: Integers
    mask: Booleans
    own: Integers
    prior: Floats

    @property
    def has_say(self) -> Booleans:
        """(B, H, K) where a neighbor was found and its head gives it a say."""
        return self.mask[:, None] & ~np.isneginf(self.scores.neighbors)

    def rows(self, chosen: Any) -> Trial:
        """The same trial for some of the rows."""
        return Trial(
            Scores(
                self.scores.neighbors[chosen],
                self.scores.prior[chosen],
                None if self.scores.mixing is None else self.scores.mixing[chosen],
            ),
            self.log_importance[chosen],
            self.labels[chosen],
            self.mask[chosen],
            self.own[chosen],
            self.prior[chosen],
        )

    def nearest(self, k: int) -> Trial:
        """The same trial with the `k` nearest neighbors only."""
        return replace(
            self,
            scores=replace(self.scores, neighbors=self.scores.neighbors[:, :, :k]),
            log_importance=self.log_importance[:, :k],
            labels=self.labels[:, :k],
            mask=self.mask[:, :k],
        )


@dataclass(frozen=True)
class Fitted:
    """The outcome of a fit: scalars of the attention, the calibration, and the loss per row."""

    temperature: float
    prior_score: float
    calibration: Calibration
    losses: Floats

    @property
    def loss(self) -> float:
        """Mean log-loss of the observed labels."""
        return float(self.losses.mean())


@dataclass(frozen=True)
class Free:
    """Which numbers beside temperature and prior's score are free."""

    exponent: bool = False
    noise: bool = False


class Likelihood:
    """The log-loss of a trial as a function of at most four numbers, with its gradient."""

    def __init__(self, trial: Trial, fixed: dict[str, float]) -> None:
        self.trial, self.fixed = trial, fixed
        self.n_others = max(trial.prior.shape[1] - 1, 1)
        missing = ~trial.has_say
        self.scores = np.where(missing, 0.0, trial.scores.neighbors)
        self.importance = np.where(missing, -np.inf, trial.log_importance[:, None])
        self.everyone = np.arange(len(trial.own))

    def solve(
        self,
        free: Free,
        begin: tuple[float, float] | Fitted,
        transition: Floats | None = None,
    ) -> Fitted:
        """Minimize over the free numbers, from a start or an earlier fit."""
        from scipy.optimize import minimize

        start = self._packed(begin)
        home = np.array([start[0], 0.0, 0.0, 0.0])
        pull = np.array([PULL, 0.0, PULL, 0.0])  # temperature and exponent; see PULL

        def mean_loss(values: Floats) -> tuple[float, Floats]:
            losses, gradients, surprise = self._losses(values, free, transition)
            away = values - home
            total = losses.sum() + surprise + 0.5 * (pull * np.square(away)).sum()
            return float(total) / len(losses), (gradients + pull * away) / len(losses)

        found = minimize(mean_loss, start, jac=True, method="L-BFGS-B").x
        numbers = self._named(found)
        noise = numbers.noise if free.noise else 0.0
        exponent = numbers.exponent if free.exponent else 1.0
        if transition is not None:
            shares = self.shares(numbers.temperature, numbers.prior_score)
            noise = overall_noise(transition, Calibration(exponent).probabilities(shares))
        return Fitted(
            numbers.temperature,
            numbers.prior_score,
            Calibration(exponent, noise, transition),
            self._losses(found, free, transition)[0],
        )

    def shares(self, temperature: float, prior_score: float) -> Floats:
        """Shares (B, C) of the trial at these scalars."""
        heads = softmax_weights(
            self.scores / temperature + self.importance, self.trial.scores.prior + prior_score
        )
        weights = mixed(*heads, self.trial.scores.mixing)
        return np.maximum(vote(self.trial.labels, weights, self.trial.prior), TINY)

    def _losses(
        self, values: Floats, free: Free, transition: Floats | None
    ) -> tuple[Floats, Floats, float]:
        """Losses (B,), the gradient of their sum, and the surprise of one row of any label.

        That one row, as likely anywhere and of any label as the prior says, keeps a few rows that
        all came true from proving that nothing else can.
        """
        numbers = self._named(values)
        exponent = numbers.exponent if free.exponent else 1.0
        scaled = self.scores / numbers.temperature
        heads = softmax_weights(
            scaled + self.importance, self.trial.scores.prior + numbers.prior_score
        )
        weights = mixed(*heads, self.trial.scores.mixing)
        shares = np.maximum(vote(self.trial.labels, weights, self.trial.prior), TINY)
        logs = np.log(shares)
        powers = exponent * logs
        powers -= powers.max(axis=1, keepdims=True)
        likely = np.exp(powers)
        sums = likely.sum(axis=1, keepdims=True)
        likely /= sums  # (B, C) probabilities of the true labels
        observed = self._observed(likely, numbers.noise if free.noise else 0.0, transition)
        by_power = self._by_power(
            likely, observed, numbers.noise if free.noise else 0.0, transition
        )
        prior = self.trial.prior  # its rows sum to one
        surprise = (np.log(sums).sum() - np.vdot(prior, powers)) / len(likely)
        by_power += (likely - prior) / len(likely)
        by_share = by_power / shares
        by_share *= exponent
        by_scores = _by_scores(self.trial, heads, by_share, scaled)
        by_noise = 0.0
        if free.noise and transition is None:
            own = likely[self.everyone, self.trial.own]
            by_noise = -(((1 - own) / self.n_others - own) / observed).sum()
        gradient = np.array(
            [
                by_scores[0] * ("temperature" not in self.fixed),
                by_scores[1] * ("prior_score" not in self.fixed),
                np.vdot(by_power, logs) * exponent * free.exponent,
                by_noise * numbers.noise_slope,
            ]
        )
        return -np.log(observed), gradient, float(surprise)

    def _observed(self, likely: Floats, noise: float, transition: Floats | None) -> Floats:
        """The chance (B,) of the labels that were observed."""
        if transition is not None:
            chance = (likely * transition.T[self.trial.own]).sum(axis=1)
        else:
            own = likely[self.everyone, self.trial.own]
            chance = (1 - noise) * own + noise * (1 - own) / self.n_others
        return np.maximum(chance, TINY)

    def _by_power(
        self, likely: Floats, observed: Floats, noise: float, transition: Floats | None
    ) -> Floats:
        """Derivative (B, C) of the losses by exponent × log share."""
        if transition is not None:
            pull = transition.T[self.trial.own] / observed[:, None]
            return -likely * (pull - (likely * pull).sum(axis=1, keepdims=True))
        own = likely[self.everyone, self.trial.own]
        pull = (1 - noise - noise / self.n_others) * own / observed
        slopes = likely * pull[:, None]
        slopes[self.everyone, self.trial.own] -= pull
        return slopes

    def _named(self, values: Floats) -> _Numbers:
        most = 0.95 * self.n_others / (self.n_others + 1)  # beyond, labels say what they are not
        level = 1 / (1 + math.exp(-min(max(values[3], -30.0), 30.0)))
        return _Numbers(
            self.fixed.get("temperature", math.exp(min(max(values[0], -300.0), 300.0))),
            self.fixed.get("prior_score", min(max(float(values[1]), -40.0), 40.0)),
            math.exp(min(max(values[2], -2.5), 2.5)),
            most * level,
            most * level * (1 - level),
        )

    def _packed(self, begin: tuple[float, float] | Fitted) -> Floats:
        if isinstance(begin, tuple):
            return np.array([math.log(begin[0]), begin[1], 0.0, -2.5])
        known = begin.calibration
        noise = min(max(known.label_noise, 0.05), 0.6)
        return np.array(
            [
                math.log(begin.temperature),
                begin.prior_score,
                math.log(known.exponent),
                math.log(noise / (1 - noise)),
            ]
        )


@dataclass(frozen=True)
class _Numbers:
    """What the four packed values mean; `noise_slope` is the noise's derivative by its own."""

    temperature: float
    prior_score: float
    exponent: float
    noise: float
    noise_slope: float


def _by_scores(
    trial: Trial, heads: tuple[Floats, Floats], by_share: Floats, scaled: Floats
) -> tuple[float, float]:
    """Derivatives of the summed loss by log temperature and by the prior's score.

    Parameters
    ----------
    heads : weights (B, H, K) and (B, H), before the mean over heads
    by_share : (B, C) derivative by the shares
    scaled : (B, H, K) scores over temperature
    """
    neighbors, prior = heads
    gain = np.take_along_axis(by_share, trial.labels, axis=1)[:, None]  # (B, 1, K)
    prior_gain = np.einsum("bc,bc->b", by_share, trial.prior)[:, None]  # (B, 1)
    mean_gain = (neighbors * gain).sum(axis=2) + prior * prior_gain  # (B, H)
    by_temperature = -(neighbors * (gain - mean_gain[:, :, None]) * scaled).sum(axis=2)
    by_prior = prior * (prior_gain - mean_gain)
    say = trial.scores.mixing if trial.scores.mixing is not None else 1.0 / prior.shape[1]
    return float((by_temperature * say).sum()), float((by_prior * say).sum())


def overall_noise(transition: Floats, probabilities: Floats) -> float:
    """The chance of a wrong label: each true class by its share, as `probabilities` (B, C) say.

    >>> overall_noise(np.array([[0.6, 0.4], [0.0, 1.0]]), np.array([[0.5, 0.5]]))
    0.2
    """
    return float(probabilities.mean(axis=0) @ (1 - np.diag(transition)))
