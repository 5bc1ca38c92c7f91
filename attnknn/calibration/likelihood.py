"""The log-loss of held-out rows as a function of a few scalars, with its gradient written out.

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
ROWS_PER_BLOCK = 512
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

    def confusions(self, n_classes: int) -> Floats | None:
        """Chance (C, C) of each observed label (column) for each true one (row); None: no noise.

        >>> Calibration(label_noise=0.25).confusions(2)
        array([[0.75, 0.25],
               [0.25, 0.75]])
        """
        if self.transition is not None or not self.label_noise or n_classes < 2:
            return self.transition
        return self.observed(np.eye(n_classes))

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


def most_noise(n_others: int) -> float:
    """The strongest symmetric noise that is considered; beyond, labels say what they are not.

    >>> most_noise(1)
    0.475
    """
    return 0.95 * n_others / (n_others + 1)


def surprise_of_any(observed: Floats, prior: Floats) -> float:
    """The loss of one row as likely anywhere and of any label as the prior (C,) says.

    It keeps a few rows that all came true from proving that nothing else can.

    >>> round(surprise_of_any(np.array([[0.5, 0.5]]), np.array([0.9, 0.1])), 4)
    0.6931
    """
    return float(-(np.log(np.maximum(observed, TINY)) @ prior).mean())


@dataclass(frozen=True)
class CalibrationBatch:
    """Fresh rows with the scores of their neighbors: what calibration is fitted on.

    Parameters
    ----------
    scores : as attention gives them, before temperature and prior's score
    log_sample_weight, labels, mask : (B, K) of the neighbors
    own : (B,) observed label codes of the rows
    prior : (B, C) class frequencies, each row's own label taken out
    """

    scores: Scores
    log_sample_weight: Floats
    labels: Integers
    mask: Booleans
    own: Integers
    prior: Floats

    @property
    def has_say(self) -> Booleans:
        """(B, H, K) where a neighbor was found and its head gives it a say."""
        return self.mask[:, None] & ~np.isneginf(self.scores.neighbors)

    def rows(self, chosen: Any) -> CalibrationBatch:
        """The same trial for some of the rows."""
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
        """The same trial with the `k` nearest neighbors only."""
        return replace(
            self,
            scores=replace(self.scores, neighbors=self.scores.neighbors[:, :, :k]),
            log_sample_weight=self.log_sample_weight[:, :k],
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

    def __init__(self, batch: CalibrationBatch, fixed: dict[str, float]) -> None:
        self.batch, self.fixed = batch, fixed
        self.n_others = max(batch.prior.shape[1] - 1, 1)
        starts = range(0, max(len(batch.own), 1), ROWS_PER_BLOCK)
        self.blocks = [_Block(batch.rows(slice(at, at + ROWS_PER_BLOCK))) for at in starts]

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
            losses, gradient, surprise = self._losses(values, free, transition)
            away = values - home
            total = losses.sum() + surprise + 0.5 * (pull * np.square(away)).sum()
            return float(total) / len(losses), (gradient + pull * away) / len(losses)

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
        return np.concatenate(
            [block.vote(temperature, prior_score).shares for block in self.blocks]
        )

    def _losses(
        self, values: Floats, free: Free, transition: Floats | None
    ) -> tuple[Floats, Floats, float]:
        """Losses (B,), the gradient of their sum, and the surprise of one row of any label.

        That one row, as likely anywhere and of any label as the prior says, keeps a few rows that
        all came true from proving that nothing else can.
        """
        numbers = self._named(values)
        exponent = numbers.exponent if free.exponent else 1.0
        noise = numbers.noise if free.noise else 0.0
        surprise_weight = 1 / max(len(self.batch.own), 1)
        parts = [
            block.losses(
                block.vote(numbers.temperature, numbers.prior_score),
                _Map(exponent, noise, transition),
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
        most = most_noise(self.n_others)
        level = 1 / (1 + math.exp(-min(max(values[3], -30.0), 30.0)))
        is_held = "label_noise" in self.fixed
        return _Numbers(
            self.fixed.get("temperature", math.exp(min(max(values[0], -300.0), 300.0))),
            self.fixed.get("prior_score", min(max(float(values[1]), -40.0), 40.0)),
            math.exp(min(max(values[2], -2.5), 2.5)),
            self.fixed["label_noise"] if is_held else most * level,
            0.0 if is_held else most * level * (1 - level),
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


@dataclass(frozen=True)
class _Map:
    """What turns shares into chances of observed labels."""

    exponent: float
    noise: float
    transition: Floats | None


@dataclass(frozen=True)
class _Votes:
    """A vote and how it came about.

    Parameters
    ----------
    scaled : (B, H, K) scores over temperature
    heads : weights (B, H, K) and (B, H), before the mean over heads
    shares : (B, C)
    """

    scaled: Floats
    heads: tuple[Floats, Floats]
    shares: Floats


@dataclass(frozen=True)
class _Part:
    """What a block adds: losses (B,), derivatives of their sum and of the surprise, surprise.

    The derivatives are by log temperature, prior's score, exponent and noise.
    """

    losses: Floats
    gradient: Floats
    surprise: float


class _Block:
    """Some rows of a trial: few enough for the processor's cache."""

    def __init__(self, batch: CalibrationBatch) -> None:
        self.batch = batch
        missing = ~batch.has_say
        self.scores = np.where(missing, 0.0, batch.scores.neighbors)
        self.sample_weight = np.where(missing, -np.inf, batch.log_sample_weight[:, None])
        self.own_place = (np.arange(len(batch.own)), batch.own)
        self.n_others = max(batch.prior.shape[1] - 1, 1)

    def vote(self, temperature: float, prior_score: float) -> _Votes:
        scaled = self.scores / temperature
        heads = softmax_weights(scaled + self.sample_weight, self.batch.scores.prior + prior_score)
        weights = mixed(*heads, self.batch.scores.mixing)
        shares = np.maximum(vote(self.batch.labels, weights, self.batch.prior), TINY)
        return _Votes(scaled, heads, shares)

    def losses(self, votes: _Votes, by: _Map, surprise_weight: float) -> _Part:
        """Losses and derivatives of the observed labels, of a vote through a map."""
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

    def _observed(self, likely: Floats, by: _Map) -> Floats:
        """The chance (B,) of the labels that were observed."""
        if by.transition is not None:
            chance = (likely * by.transition.T[self.batch.own]).sum(axis=1)
        else:
            own = likely[self.own_place]
            chance = (1 - by.noise) * own + by.noise * (1 - own) / self.n_others
        return np.maximum(chance, TINY)

    def _by_power(self, likely: Floats, observed: Floats, by: _Map) -> Floats:
        """Derivative (B, C) of the losses by exponent × log share."""
        if by.transition is not None:
            pull = by.transition.T[self.batch.own] / observed[:, None]
            return -likely * (pull - (likely * pull).sum(axis=1, keepdims=True))
        own = likely[self.own_place]
        pull = (1 - by.noise - by.noise / self.n_others) * own / observed
        slopes = likely * pull[:, None]
        slopes[self.own_place] -= pull
        return slopes


def _dot(first: Floats, second: Floats) -> float:
    """The sum of products; not by BLAS, whose threads wait for each other on work this small."""
    return float(np.einsum("bc,bc->", first, second))


def _by_scores(
    batch: CalibrationBatch, heads: tuple[Floats, Floats], by_share: Floats, scaled: Floats
) -> tuple[float, float]:
    """Derivatives of the summed loss by log temperature and by the prior's score.

    Parameters
    ----------
    heads : weights (B, H, K) and (B, H), before the mean over heads
    by_share : (B, C) derivative by the shares
    scaled : (B, H, K) scores over temperature
    """
    neighbors, prior = heads
    gain = np.take_along_axis(by_share, batch.labels, axis=1)[:, None]  # (B, 1, K)
    prior_gain = np.einsum("bc,bc->b", by_share, batch.prior)[:, None]  # (B, 1)
    mean_gain = (neighbors * gain).sum(axis=2) + prior * prior_gain  # (B, H)
    by_temperature = -(neighbors * (gain - mean_gain[:, :, None]) * scaled).sum(axis=2)
    by_prior = prior * (prior_gain - mean_gain)
    say = batch.scores.mixing if batch.scores.mixing is not None else 1.0 / prior.shape[1]
    return float((by_temperature * say).sum()), float((by_prior * say).sum())


def overall_noise(transition: Floats, probabilities: Floats) -> float:
    """The chance of a wrong label: each true class by its share, as `probabilities` (B, C) say.

    >>> overall_noise(np.array([[0.6, 0.4], [0.0, 1.0]]), np.array([[0.5, 0.5]]))
    0.2
    """
    return float(probabilities.mean(axis=0) @ (1 - np.diag(transition)))
