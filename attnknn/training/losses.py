"""Losses: entropy, soft calibration error, selective risk, contrastive loss of two views."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from attnknn.errors import InvalidInputError


def one_hot(labels: Tensor, n_classes: int) -> Tensor:
    """Label numbers (B,) as class probabilities (B, C)."""
    return F.one_hot(labels, n_classes).to(torch.get_default_dtype())


def entropy(shares: Tensor) -> Tensor:
    """Mean entropy of rows of weights or probabilities (B, K), from 0 to the log of K.

    >>> round(entropy(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).item(), 4)
    0.3466
    """
    tiny = torch.finfo(shares.dtype).tiny  # 0·log 0 is 0, and so must be its gradient
    return -(shares * shares.clamp_min(tiny).log()).sum(dim=1).mean()


def soft_calibration_error(
    probabilities: Tensor,
    labels: Tensor,
    *,
    n_bins: int = 15,
    temperature: float = 0.001,
    power: Literal[1, 2] = 1,
) -> Tensor:
    """Expected calibration error with soft bins, so that it has a gradient; lower is better.

    With confidences k_b (the largest probability of row b), hits h_b (the label's probability of
    the predicted class) and equal-width bins from 0 to 1 with centers μ_m:

        u_bm  = softmax_m(−(k_b − μ_m)² / temperature)
        error = (Σ_m Σ_b u_bm/B · |Σ_b u_bm (h_b − k_b) / Σ_b u_bm|^power)^(1/power)

    As the temperature goes to zero every row falls into the bin with the nearest center: the ECE
    with bins of equal width. Gradients flow through confidences and bins, not through hits.

    `labels`: label numbers (B,), or class probabilities (B, C); `power`: 2 weighs large gaps more
    than 1.

    >>> probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1]])
    >>> round(soft_calibration_error(probabilities, torch.tensor([0, 1])).item(), 4)
    0.4
    """
    confidences, predicted = probabilities.max(dim=1)
    if labels.ndim == 1:
        labels = F.one_hot(labels, probabilities.shape[1])
    hits = labels.to(probabilities.dtype).gather(1, predicted[:, None])[:, 0].detach()
    centers = (torch.arange(n_bins, device=confidences.device) + 0.5) / n_bins
    offsets = confidences[:, None] - centers.to(confidences.dtype)
    shares = torch.softmax(-offsets.square() / temperature, dim=1)  # (B, bins)
    sizes = shares.sum(dim=0)
    gaps = (shares * (hits - confidences)[:, None]).sum(dim=0).abs()
    tiny = torch.finfo(sizes.dtype).tiny
    if power == 1:
        return gaps.sum() / len(confidences)  # the sizes of the bins cancel
    squares = (gaps.square() / sizes.clamp_min(tiny)).sum() / len(confidences)
    return squares.clamp_min(tiny).sqrt()  # at zero a root has no gradient


def selective_risk(
    losses: Tensor, confidences: Tensor, coverage: float, *, temperature: float = 0.05
) -> Tensor:
    """Mean loss of the most confident rows, with a soft selection; lower is better.

    With losses l_b and confidences k_b, of which θ is the quantile at 1 − coverage:

        g_b  = sigmoid((k_b − θ) / temperature)
        risk = Σ_b g_b l_b / Σ_b g_b

    As the temperature goes to zero, the most confident rows are selected, a share `coverage` of
    all. The gradient lowers the losses of selected rows. Through g it raises the confidence of rows
    whose loss is below the risk and lowers that of rows whose loss is above it, most for rows near
    θ. Since θ moves with the confidences, the coverage needs no penalty, and adding a constant to
    all confidences changes nothing.

    >>> losses, confidences = torch.tensor([0.1, 0.3, 2.0, 3.0]), torch.tensor([0.9, 0.8, 0.5, 0.4])
    >>> round(selective_risk(losses, confidences, 0.5, temperature=1e-3).item(), 4)
    0.2
    """
    threshold = torch.quantile(confidences, 1 - coverage)
    selected = torch.sigmoid((confidences - threshold) / temperature)
    return (selected * losses).sum() / selected.sum()


def contrastive_loss(
    first: Tensor,
    second: Tensor,
    labels: Tensor,
    *,
    temperature: float = 0.1,
    margin: float = 0.0,
) -> Tensor:
    """Supervised contrastive loss of two views of a batch; lower is better.

    The 2B views z_i (unit length) are compared with each other, never with themselves:

        a_ij = 1 if i and j are views of one row, else Σ_c label_ic · label_jc
        s_ij = (⟨z_i, z_j⟩ − margin · a_ij) / temperature
        loss = mean_i of −Σ_{j≠i} a_ij log(exp s_ij / Σ_{l≠i} exp s_il) / Σ_{j≠i} a_ij

    A row's other view and rows of the same class are positives; with soft labels a pair counts by
    how much the labels agree. A margin requires positives to be closer than others by that much.

    Parameters
    ----------
    first, second : embeddings (B, D) of the two views
    labels : label numbers (B,), or class probabilities (B, C)
    temperature : lower values emphasize the closest negatives
    margin : in units of the cosine, 0 to 2

    >>> views = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> apart = contrastive_loss(views, views, torch.tensor([0, 1]))
    >>> mixed = contrastive_loss(views, views.flip(0), torch.tensor([0, 1]))
    >>> bool(apart < 0.001 < 5 < mixed)
    True
    """
    if first.shape != second.shape:
        raise InvalidInputError(
            f"The two views must have the same shape, got {tuple(first.shape)} and "
            f"{tuple(second.shape)}."
        )
    views = F.normalize(torch.cat([first, second]), dim=1)  # (2B, D)
    itself = torch.eye(len(views), dtype=torch.bool, device=views.device)
    agreement = _agreement(labels).to(views.dtype).repeat(2, 2).masked_fill(itself, 0.0)
    scores = (views @ views.T - margin * agreement) / temperature
    log_shares = torch.log_softmax(scores.masked_fill(itself, -torch.inf), dim=1)
    log_shares = log_shares.masked_fill(itself, 0.0)  # 0 · −inf would be NaN
    per_view = -(agreement * log_shares).sum(dim=1) / agreement.sum(dim=1)
    return per_view.mean()


def _agreement(labels: Tensor) -> Tensor:
    """Agreement (B, B) of the labels of two rows; 1 for two views of one row."""
    if labels.ndim == 1:
        return (labels[:, None] == labels).float()
    agreement = labels @ labels.T
    own = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return agreement.masked_fill(own, 1.0)
