"""Fits temperatures, the prior's score, the map and the label noise on fresh rows.

The map takes shares to probabilities, p_c ∝ share_c^exponent, and keeps their order. The observed
label of a row is its true one with probability 1 − ε and another one otherwise: what is fitted is
the likelihood of the observed labels, what is answered is the probability of the true one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnknn.attention.base import Scores
from attnknn.records import Booleans, Floats, Integers
from attnknn.vote import vote_in_torch

if TYPE_CHECKING:
    from torch import Tensor

LabelNoise = Literal["auto", "symmetric", "by_class"]
LEAST_NOISE = 0.03  # below this the prior does the smoothing, and modelling noise costs log-loss
BEYOND_NOISE = 2.0  # standard errors by which a richer model must be better
MOST_ROWS = 20_000  # a few scalars need no more
MOST_CELLS = 8_000_000  # rows × classes held at once


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

    def losses(self, shares: Floats, own: Integers) -> Floats:
        """Log-loss (B,) of the observed labels."""
        likely = self.observed(self.probabilities(shares))[np.arange(len(own)), own]
        return -np.log(np.maximum(likely, np.finfo(float).tiny))


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


def sample_of(
    n_rows: int, n_classes: int, generator: np.random.Generator, most: int | None = None
) -> Integers:
    """Rows to fit on: all, or `most` of them (by default what a few scalars need)."""
    if most is None:
        most = min(MOST_ROWS, max(1000, MOST_CELLS // max(n_classes, 1)))
    if n_rows <= most:
        return np.arange(n_rows)
    return np.sort(generator.choice(n_rows, most, replace=False))


def fit(
    trial: Trial,
    *,
    label_noise: LabelNoise | None = "auto",
    fits_map: bool = True,
    start: tuple[float, float] | None = None,
    fixed: dict[str, float] | None = None,
) -> Fitted:
    """Fit temperature, prior's score, exponent and noise; richer models must earn their place.

    Parameters
    ----------
    label_noise : None leaves noise out; 'auto' keeps symmetric noise only where the likelihood
        asks for it beyond the noise; 'symmetric' and 'by_class' keep it always
    start : temperature and prior's score to start from; None finds a start
    fixed : 'temperature' or 'prior_score' that the user has set
    """
    problem = _Problem(trial, fixed or {})
    starts = [start] if start else _starts(trial)
    kept = min((problem.solve(_Free(), begin) for begin in starts), key=lambda f: f.loss)
    richer = kept
    if fits_map:
        richer = problem.solve(_Free(exponent=True), kept)
        kept = richer if _is_better(kept, richer) else kept
    if label_noise is None:
        return kept
    noisy = problem.solve(_Free(exponent=fits_map, noise=True), richer)
    if label_noise == "by_class":
        return _fit_by_class(problem, noisy, fits_map)
    is_earned = noisy.calibration.label_noise >= LEAST_NOISE and _is_better(richer, noisy)
    return noisy if is_earned or label_noise == "symmetric" else kept


def rule_of_thumb(trial: Trial, fixed: dict[str, float]) -> Fitted:
    """Scalars without a fit: a temperature of a fifth of the typical score, a faint prior."""
    temperature, prior_score = _starts(trial)[1]
    temperature = fixed.get("temperature", temperature)
    prior_score = fixed.get("prior_score", prior_score)
    return Fitted(temperature, prior_score, Calibration(), np.zeros(0))


def _is_better(simple: Fitted, rich: Fitted) -> bool:
    gains = simple.losses - rich.losses
    error = gains.std() / math.sqrt(max(len(gains), 1))
    return bool(gains.mean() > BEYOND_NOISE * error and gains.mean() > 0)


def _starts(trial: Trial) -> list[tuple[float, float]]:
    """Temperatures at three shares of the typical score, the prior level with a far neighbor."""
    scores = -trial.scores.neighbors[_has_say(trial)]
    typical = float(scores.mean()) if scores.size else 1.0
    typical = typical if np.isfinite(typical) and typical > 0 else 1.0
    return [(typical * share, -1.0 / share) for share in (0.05, 0.2, 1.0)]


def _has_say(trial: Trial) -> Booleans:
    """(B, H, K) where a neighbor was found and its head gives it a say."""
    return trial.mask[:, None] & ~np.isneginf(trial.scores.neighbors)


@dataclass(frozen=True)
class _Free:
    """Which numbers beside temperature and prior's score are free."""

    exponent: bool = False
    noise: bool = False


class _Problem:
    """The log-loss of a trial as a function of at most four numbers, with its gradient."""

    def __init__(self, trial: Trial, fixed: dict[str, float]) -> None:
        import torch

        self.fixed = fixed
        self.trial = trial
        self.n_others = max(trial.prior.shape[1] - 1, 1)
        has_say = _has_say(trial)
        self.scores = torch.from_numpy(np.where(has_say, trial.scores.neighbors, 0.0))
        self.prior_scores = torch.from_numpy(trial.scores.prior)
        self.log_importance = torch.from_numpy(trial.log_importance)[:, None]
        self.is_missing = torch.from_numpy(~has_say)
        mixing = trial.scores.mixing
        self.mixing = None if mixing is None else torch.from_numpy(mixing)[:, :, None]
        self.labels = torch.from_numpy(trial.labels)
        self.own = torch.from_numpy(trial.own)
        self.prior = torch.from_numpy(trial.prior)

    def shares(self, temperature: Tensor, prior_score: Tensor) -> Tensor:
        import torch

        scores = self.scores / temperature + self.log_importance
        scores = scores.masked_fill(self.is_missing, -torch.inf)
        together = torch.cat([scores, (self.prior_scores + prior_score)[..., None]], dim=2)
        per_head = torch.softmax(together, dim=2)
        weights = per_head.mean(1) if self.mixing is None else (self.mixing * per_head).sum(1)
        shares = vote_in_torch(self.labels, weights[:, :-1], weights[:, -1], self.prior)
        return shares.clamp_min(np.finfo(float).tiny)  # a prior far below the neighbors underflows

    def losses(self, shares: Tensor, exponent: Tensor, noise: Tensor | None) -> Tensor:
        powers = exponent * shares.log()
        likely = (powers.gather(1, self.own[:, None])[:, 0] - powers.logsumexp(dim=1)).exp()
        if noise is not None:
            likely = (1 - noise) * likely + noise * (1 - likely) / self.n_others
        return -likely.clamp_min(np.finfo(float).tiny).log()

    def losses_by_class(self, shares: Tensor, exponent: Tensor, transition: Tensor) -> Tensor:
        import torch

        probabilities = torch.softmax(exponent * shares.log(), dim=1)
        return -(probabilities * transition.T[self.own]).sum(dim=1).log()

    def solve(
        self,
        free: _Free,
        begin: tuple[float, float] | Fitted,
        transition: Floats | None = None,
    ) -> Fitted:
        """Minimize over the free numbers, from a start or an earlier fit."""
        import torch

        given = None if transition is None else torch.from_numpy(transition)

        def losses(numbers: Tensor) -> Tensor:
            temperature, prior_score, exponent, noise = self._named(numbers)
            shares = self.shares(temperature, prior_score)
            exponent = exponent if free.exponent else torch.ones_like(exponent)
            if given is not None:
                return self.losses_by_class(shares, exponent, given)
            return self.losses(shares, exponent, noise if free.noise else None)

        found = _minimize(losses, self._packed(begin))
        with torch.no_grad():
            numbers = torch.from_numpy(found)
            temperature, prior_score, exponent, noise = (v.item() for v in self._named(numbers))
            per_row = losses(numbers).numpy()
        calibration = Calibration(
            exponent if free.exponent else 1.0,
            _overall(transition, self.trial)
            if transition is not None
            else (noise if free.noise else 0.0),
            transition,
        )
        return Fitted(temperature, prior_score, calibration, per_row)

    def _named(self, numbers: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        import torch

        def chosen(name: str, value: Tensor) -> Tensor:
            is_set = name in self.fixed
            return torch.tensor(self.fixed[name], dtype=value.dtype) if is_set else value

        most = 0.95 * self.n_others / (self.n_others + 1)  # beyond, labels say what they are not
        return (
            chosen("temperature", numbers[0].clamp(-60, 60).exp()),
            chosen("prior_score", numbers[1]),
            numbers[2].clamp(-2.5, 2.5).exp(),
            most * torch.sigmoid(numbers[3]),
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


def _minimize(losses: Callable[[Tensor], Tensor], start: Floats) -> Floats:
    import torch
    from scipy.optimize import minimize

    def value_and_gradient(numbers: Floats) -> tuple[float, Floats]:
        tensor = torch.from_numpy(numbers.copy()).requires_grad_()
        loss = losses(tensor).mean()
        loss.backward()
        assert tensor.grad is not None
        return loss.item(), tensor.grad.numpy()

    return minimize(value_and_gradient, start, jac=True, method="L-BFGS-B").x


def _overall(transition: Floats, trial: Trial) -> float:
    """The chance of a wrong label, classes weighed by their frequency."""
    return float(trial.prior.mean(axis=0) @ (1 - np.diag(transition)))


def _fit_by_class(problem: _Problem, noisy: Fitted, fits_map: bool) -> Fitted:
    """Alternate between the chances of each confusion and the scalars."""
    n_classes = problem.n_others + 1
    noise = max(noisy.calibration.label_noise, LEAST_NOISE)
    symmetric = np.full((n_classes, n_classes), noise / problem.n_others)
    np.fill_diagonal(symmetric, 1 - noise)
    fitted, transition = noisy, symmetric
    for _ in range(4):
        transition = _expected_confusions(problem, fitted, transition, symmetric)
        fitted = problem.solve(_Free(exponent=fits_map), fitted, transition)
    return fitted


def _expected_confusions(
    problem: _Problem, fitted: Fitted, transition: Floats, symmetric: Floats
) -> Floats:
    """Twenty steps of expectation-maximization; each class starts with one symmetric example."""
    import torch

    with torch.no_grad():
        shares = problem.shares(
            torch.tensor(fitted.temperature, dtype=torch.float64),
            torch.tensor(fitted.prior_score, dtype=torch.float64),
        ).numpy()
    probabilities = fitted.calibration.probabilities(shares)
    own = problem.trial.own
    for _ in range(20):
        blame = probabilities * transition.T[own]  # (B, C): who may have been behind this label
        blame /= blame.sum(axis=1, keepdims=True)
        counts = symmetric.copy()
        np.add.at(counts.T, own, blame)
        transition = counts / counts.sum(axis=1, keepdims=True)
    return transition
