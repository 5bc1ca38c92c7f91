"""The objective that all trainings share: log-loss of a differentiable vote, and further terms.

Other rows vote on the label of each row; the row itself and its group are left out, of the vote and
of the class frequencies. `softmax_with_prior` is the twin of `attention.base.softmax_weights`;
`vote_in_torch` and `class_prior_in_torch` in `attnknn.vote` are those of `vote` and `class_prior`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attnknn.training.config import LossTerms
from attnknn.training.losses import entropy, selective_risk, soft_calibration_error

TINY = torch.finfo(torch.float32).tiny  # the logarithm of an underflow is infinite


def softmax_with_prior(scores: Tensor, prior_score: Tensor) -> Tensor:
    """Weights (…, K + 1) of neighbors with scores (…, K) and, last, of the prior (…) or scalar.

    >>> softmax_with_prior(torch.zeros(1, 3), torch.tensor(0.0))
    tensor([[0.2500, 0.2500, 0.2500, 0.2500]])
    """
    prior = prior_score.expand(scores.shape[:-1])[..., None]
    return torch.softmax(torch.cat([scores, prior], dim=-1), dim=-1)


def log_of(shares: Tensor) -> Tensor:
    """Logarithms of vote shares (B, C), finite where a share underflows."""
    return shares.clamp_min(TINY).log()


def log_losses(log_probabilities: Tensor, own: Tensor, noise: Tensor | None = None) -> Tensor:
    """Log-loss (B,) of the observed labels `own` (B,) under log-probabilities (B, C) of true ones.

    `noise`: None for clean labels; a scalar, the probability that a label was replaced by one of
    the others; or a matrix (C, C) of P(observed | true).

    >>> log_losses(torch.tensor([[0.9, 0.1]]).log(), torch.tensor([0]), torch.tensor(0.1)).exp()
    tensor([1.2195])
    """
    if noise is not None and noise.ndim == 2:
        return -log_of((log_probabilities.exp() * noise.T[own]).sum(dim=1))
    mine = log_probabilities.gather(1, own[:, None])[:, 0]
    if noise is None:
        return -mine
    likely, n_others = mine.exp(), max(log_probabilities.shape[1] - 1, 1)
    return -((1 - noise) * likely + noise * (1 - likely) / n_others).log()


def observed_probabilities(log_probabilities: Tensor, noise: Tensor | None = None) -> Tensor:
    """Probabilities (B, C) of the observed labels; `noise` as in `log_losses`.

    >>> observed_probabilities(torch.tensor([[0.9, 0.1]]).log(), torch.tensor(0.1))
    tensor([[0.8200, 0.1800]])
    """
    true = log_probabilities.exp()
    if noise is None:
        return true
    if noise.ndim == 2:
        return true @ noise
    return (1 - noise) * true + noise * (1 - true) / max(true.shape[1] - 1, 1)


def smoothed_loss(losses: Tensor, log_probabilities: Tensor, smoothing: float) -> Tensor:
    """Mean of `losses` (B,) with a share `smoothing` of each label spread over all classes."""
    if not smoothing:
        return losses.mean()
    return losses.mean() * (1 - smoothing) - smoothing * log_probabilities.mean()


def further_terms(
    terms: LossTerms, weights: Tensor, probabilities: Tensor, losses: Tensor, labels: Tensor
) -> dict[str, Tensor]:
    """What is added to the log-loss, by name.

    `weights` (B, K + 1): of the voters and the prior; `probabilities` (B, C): of the observed
    labels; `losses` (B,): log-losses; `labels`: label numbers (B,) or class probabilities (B, C).
    """
    found: dict[str, Tensor] = {}
    if terms.entropy_weight:
        found["entropy"] = -terms.entropy_weight * entropy(weights)
    if terms.calibration_weight:
        error = soft_calibration_error(probabilities, labels)
        found["calibration"] = terms.calibration_weight * error
    if terms.selective_weight:
        confidences = probabilities.max(dim=1).values
        risk = selective_risk(losses, confidences, terms.selective_coverage)
        found["selective"] = terms.selective_weight * risk
    return found
