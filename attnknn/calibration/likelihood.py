"""The log-loss of held-out rows as a function of a few scalars, with an analytic gradient.

Written in NumPy: the threads of torch cost more than they save on arrays this small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from attnknn.attention.base import Scores, mix_heads, softmax_weights
from attnknn.calibration.probability_map import TINY, Calibration
from attnknn.records import Booleans, Floats, Integers
from attnknn.training.threads import one_blas_thread_if
from attnknn.vote import vote

# On few rows the likelihood may be flat along extreme temperatures and exponents that compensate
# each other. This penalty, worth one row, prevents that and is negligible for a hundred rows.
PENALTY = 1.0
ROWS_PER_BLOCK = 512


def max_noise(n_others: int) -> float:
    """The strongest symmetric noise that is considered; at more, labels carry no information.

    >>> max_noise(1)
    0.475
    """
    return 0.95 * n_others / (n_others + 1)


def pseudo_row_loss(observed: Floats, prior: Floats) -> float:
    """The mean loss (1 row) of a pseudo-label drawn from the prior (C,), averaged over all rows.

    It keeps a few rows that are all predicted correctly from driving probabilities to one.

    >>> round(pseudo_row_loss(np.array([[0.5, 0.5]]), np.array([0.9, 0.1])), 4)
    0.6931
    """
    return float(-(np.log(np.maximum(observed, TINY)) @ prior).mean())


@dataclass(frozen=True)
class CalibrationBatch:
    """Held-out rows with the scores of their neighbors, on which calibration is fitted.

    Attributes
    ----------
    scores : Scores
        Scores of the attention, before temperature and prior score.
    log_sample_weight, labels, mask : ndarray of shape (n_rows, n_neighbors)
        Logarithm of the effective weight and label code of each neighbor; True for a neighbor,
        False for padding.
    own : ndarray of shape (n_rows,)
        Codes of the observed labels of the rows.
    prior : ndarray of shape (n_rows, n_classes)
        Class frequencies, without the label of the row itself.

    Examples
    --------
    >>> zeros = np.zeros((1, 1, 1))
    >>> batch = CalibrationBatch(
    ...     Scores(zeros, zeros[0]), zeros[0], np.array([[0]]), np.array([[True]]), np.array([0]),
    ...     np.array([[0.5, 0.5]]))
    >>> batch.has_weight.tolist()
    [[[True]]]
    """

    scores: Scores
    log_sample_weight: Floats
    labels: Integers
    mask: Booleans
    own: Integers
    prior: Floats

    @property
    def has_weight(self) -> Booleans:
        """Neighbors that get a weight in each head, of shape (n_rows, n_heads, n_neighbors)."""
        return self.mask[:, None] & ~np.isneginf(self.scores.neighbors)

    def rows(self, chosen: Any) -> CalibrationBatch:
        """Select rows.

        Parameters
        ----------
        chosen : slice or ndarray
            Index of the rows.

        Returns
        -------
        CalibrationBatch
            The chosen rows.
        """
        return CalibrationBatch(
            Scores(
                self.scores.neighbors[chosen],
                self.scores.prior[chosen],
                None if self.scores.mixing is None else self.scores.mixing[chosen],
            ),
            self.log_sample_weight[chosen],
            self.labels[chosen],
            self.mask[chosen],
            self.own[chosen],
            self.prior[chosen],
        )

    def nearest(self, k: int) -> CalibrationBatch:
        """Keep the nearest neighbors only.

        Parameters
        ----------
        k : int
            Number of neighbors to keep.

        Returns
        -------
        CalibrationBatch
            The same rows with at most `k` neighbors.
        """
        return replace(
            self,
            scores=replace(self.scores, neighbors=self.scores.neighbors[:, :, :k]),
            log_sample_weight=self.log_sample_weight[:, :k],
            labels=self.labels[:, :k],
            mask=self.mask[:, :k],
        )


@dataclass(frozen=True)
class CalibrationFit:
    """The result of a calibration fit.

    Attributes
    ----------
    temperature : float
        Divisor of the neighbors' scores in the softmax; larger values make weights more equal.
    prior_score : float
        Score of the prior in the softmax; larger values give the prior more weight.
    calibration : Calibration
        Probability map and label noise.
    losses : ndarray of shape (n_rows,)
        Log-loss of the observed label of each row.

    Examples
    --------
    >>> CalibrationFit(1.0, 0.0, Calibration(), np.array([0.25, 0.75])).loss
    0.5
    """

    temperature: float
    prior_score: float
    calibration: Calibration
    losses: Floats

    @property
    def loss(self) -> float:
        """Mean log-loss of the observed labels."""
        return float(self.losses.mean())

    def with_calibration(self, **changes: Any) -> CalibrationFit:
        """Change fields of the calibration.

        Parameters
        ----------
        **changes : dict
            New values by name.

        Returns
        -------
        CalibrationFit
            The same fit with another calibration.
        """
        return replace(self, calibration=replace(self.calibration, **changes))

    def with_noise_of(self, other: Calibration) -> CalibrationFit:
        """Take over the standard error of label noise, or why it was not estimated.

        Parameters
        ----------
        other : Calibration
            Where label noise was estimated.

        Returns
        -------
        CalibrationFit
            The same fit with another calibration.
        """
        return self.with_calibration(noise_error=other.noise_error, no_estimate=other.no_estimate)


@dataclass(frozen=True)
class Free:
    """Which parameters are fitted in addition to temperature and prior score."""

    exponent: bool = False
    noise: bool = False


class Likelihood:
    """The log-loss of a batch as a function of at most four parameters, with its gradient."""

    def __init__(self, batch: CalibrationBatch, fixed: dict[str, float]) -> None:
        self.batch, self.fixed = batch, fixed
        self.n_others = max(batch.prior.shape[1] - 1, 1)
        starts = range(0, max(len(batch.own), 1), ROWS_PER_BLOCK)
        self.blocks = [_Block(batch.rows(slice(at, at + ROWS_PER_BLOCK))) for at in starts]

    def solve(
        self,
        free: Free,
        begin: tuple[float, float] | CalibrationFit,
        transition: Floats | None = None,
    ) -> CalibrationFit:
        """Minimize over the free parameters, from a starting point or an earlier fit."""
        from scipy.optimize import minimize

        start = self._packed(begin)
        home = np.array([start[0], 0.0, 0.0, 0.0])
        pull = np.array([PENALTY, 0.0, PENALTY, 0.0])  # temperature and exponent; see PENALTY

        def mean_loss(values: Floats) -> tuple[float, Floats]:
            losses, gradient, surprise = self._losses(values, free, transition)
            away = values - home
            total = losses.sum() + surprise + 0.5 * (pull * np.square(away)).sum()
            return float(total) / len(losses), (gradient + pull * away) / len(losses)

        with one_blas_thread_if(True):  # of four numbers
            found = minimize(mean_loss, start, jac=True, method="L-BFGS-B").x
        numbers = self._named(found)
        noise = numbers.noise if free.noise else 0.0
        exponent = numbers.exponent if free.exponent else 1.0
        if transition is not None:
            shares = self.shares(numbers.temperature, numbers.prior_score)
            noise = overall_noise(transition, Calibration(exponent).probabilities(shares))
        return CalibrationFit(
            numbers.temperature,
            numbers.prior_score,
            Calibration(exponent, noise, transition),
            self._losses(found, free, transition)[0],
        )

    def shares(self, temperature: float, prior_score: float) -> Floats:
        """Vote shares (B, C) of the batch at these scalars."""
        return np.concatenate(
            [block.vote(temperature, prior_score).shares for block in self.blocks]
        )

    def _losses(
        self, values: Floats, free: Free, transition: Floats | None
    ) -> tuple[Floats, Floats, float]:
        """Losses (B,), the gradient of their sum, and the loss of one pseudo-row.

        The pseudo-row has the mean prediction of all rows and a label drawn from the prior; see
        `pseudo_row_loss`.
        """
        numbers = self._named(values)
        exponent = numbers.exponent if free.exponent else 1.0
        noise = numbers.noise if free.noise else 0.0
        surprise_weight = 1 / max(len(self.batch.own), 1)
        parts = [
            block.losses(
                block.vote(numbers.temperature, numbers.prior_score),
                Calibration(exponent, noise, transition),
                surprise_weight,
            )
            for block in self.blocks
        ]
        slopes = sum((part.gradient for part in parts), np.zeros(4))
        is_free = [
            "temperature" not in self.fixed,
            "prior_score" not in self.fixed,
            free.exponent,
            free.noise and transition is None,
        ]
        gradient = slopes * is_free * [1.0, 1.0, exponent, numbers.noise_slope]
        losses = np.concatenate([part.losses for part in parts])
        return losses, gradient, sum(part.surprise for part in parts)

    def _named(self, values: Floats) -> _Numbers:
        most = max_noise(self.n_others)
        level = 1 / (1 + math.exp(-min(max(values[3], -30.0), 30.0)))
        is_held = "label_noise" in self.fixed
        return _Numbers(
            self.fixed.get("temperature", math.exp(min(max(values[0], -300.0), 300.0))),
            self.fixed.get("prior_score", min(max(float(values[1]), -40.0), 40.0)),
            math.exp(min(max(values[2], -2.5), 2.5)),
            self.fixed["label_noise"] if is_held else most * level,
            0.0 if is_held else most * level * (1 - level),
        )

    def _packed(self, begin: tuple[float, float] | CalibrationFit) -> Floats:
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
    """The four parameters; `noise_slope` is the derivative of the noise by its packed value."""

    temperature: float
    prior_score: float
    exponent: float
    noise: float
    noise_slope: float


@dataclass(frozen=True)
class _Votes:
    """A vote and its intermediate results."""

    scaled: Floats  # (B, H, K) scores over temperature
    heads: tuple[Floats, Floats]  # weights (B, H, K) and (B, H), before the mean over heads
    shares: Floats  # (B, C)


@dataclass(frozen=True)
class _Part:
    """The part of one block: losses (B,), gradient of their sum and of the pseudo-row, its loss.

    The gradient is by log temperature, prior score, exponent and noise.
    """

    losses: Floats
    gradient: Floats
    surprise: float


class _Block:
    """Some rows of a batch, few enough for the cache of the processor."""

    def __init__(self, batch: CalibrationBatch) -> None:
        self.batch = batch
        missing = ~batch.has_weight
        self.scores = np.where(missing, 0.0, batch.scores.neighbors)
        self.sample_weight = np.where(missing, -np.inf, batch.log_sample_weight[:, None])
        self.own_place = (np.arange(len(batch.own)), batch.own)
        self.n_others = max(batch.prior.shape[1] - 1, 1)

    def vote(self, temperature: float, prior_score: float) -> _Votes:
        scaled = self.scores / temperature
        heads = softmax_weights(scaled + self.sample_weight, self.batch.scores.prior + prior_score)
        weights = mix_heads(*heads, self.batch.scores.mixing)
        shares = np.maximum(vote(self.batch.labels, weights, self.batch.prior), TINY)
        return _Votes(scaled, heads, shares)

    def losses(self, votes: _Votes, by: Calibration, surprise_weight: float) -> _Part:
        """Losses of the observed labels and their gradient, for a vote and a probability map."""
        logs = np.log(votes.shares)
        powers = by.exponent * logs
        powers -= powers.max(axis=1, keepdims=True)
        likely = np.exp(powers)
        sums = likely.sum(axis=1, keepdims=True)
        likely /= sums  # (B, C) probabilities of the true labels
        observed = self._observed(likely, by)
        by_power = self._by_power(likely, observed, by)
        prior = self.batch.prior  # its rows sum to one
        surprise = surprise_weight * (np.log(sums).sum() - _dot(prior, powers))
        by_power += surprise_weight * (likely - prior)
        by_share = by_power / votes.shares
        by_share *= by.exponent
        own = likely[self.own_place]
        by_noise = -(((1 - own) / self.n_others - own) / observed).sum()
        by_scores = _by_scores(self.batch, votes.heads, by_share, votes.scaled)
        gradient = np.array([*by_scores, _dot(by_power, logs), by_noise])
        return _Part(-np.log(observed), gradient, float(surprise))

    def _observed(self, likely: Floats, by: Calibration) -> Floats:
        """The probability (B,) of the observed labels."""
        if by.transition is not None:
            chance = (likely * by.transition.T[self.batch.own]).sum(axis=1)
        else:
            own = likely[self.own_place]
            chance = (1 - by.label_noise) * own + by.label_noise * (1 - own) / self.n_others
        return np.maximum(chance, TINY)

    def _by_power(self, likely: Floats, observed: Floats, by: Calibration) -> Floats:
        """Derivative (B, C) of the losses by exponent × log share."""
        if by.transition is not None:
            pull = by.transition.T[self.batch.own] / observed[:, None]
            return -likely * (pull - (likely * pull).sum(axis=1, keepdims=True))
        own = likely[self.own_place]
        pull = (1 - by.label_noise - by.label_noise / self.n_others) * own / observed
        slopes = likely * pull[:, None]
        slopes[self.own_place] -= pull
        return slopes


def _dot(first: Floats, second: Floats) -> float:
    """The sum of products, without BLAS, whose threads cost more than they save here."""
    return float(np.einsum("bc,bc->", first, second))


def _by_scores(
    batch: CalibrationBatch, heads: tuple[Floats, Floats], by_share: Floats, scaled: Floats
) -> tuple[float, float]:
    """Derivatives of the summed loss by log temperature and by the prior score.

    `heads`: weights (B, H, K) and (B, H), before the mean over heads; `by_share` (B, C): derivative
    by the shares; `scaled` (B, H, K): scores over temperature.
    """
    neighbors, prior = heads
    gain = np.take_along_axis(by_share, batch.labels, axis=1)[:, None]  # (B, 1, K)
    prior_gain = np.einsum("bc,bc->b", by_share, batch.prior)[:, None]  # (B, 1)
    mean_gain = (neighbors * gain).sum(axis=2) + prior * prior_gain  # (B, H)
    by_temperature = -(neighbors * (gain - mean_gain[:, :, None]) * scaled).sum(axis=2)
    by_prior = prior * (prior_gain - mean_gain)
    mixing = batch.scores.mixing if batch.scores.mixing is not None else 1.0 / prior.shape[1]
    return float((by_temperature * mixing).sum()), float((by_prior * mixing).sum())


def overall_noise(transition: Floats, probabilities: Floats) -> float:
    """The share of wrong labels, with the class frequencies of `probabilities` (B, C).

    >>> overall_noise(np.array([[0.6, 0.4], [0.0, 1.0]]), np.array([[0.5, 0.5]]))
    0.2
    """
    return float(probabilities.mean(axis=0) @ (1 - np.diag(transition)))
