"""What a training makes small: cross-entropy with soft labels, entropy, calibration error."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor


def soft_cross_entropy(logits: Tensor, labels: Tensor, *, smoothing: float = 0.0) -> Tensor:
    """Mean over rows of −Σ_c t_c log softmax(logits)_c with t = (1 − s)·label + s/C.

    Lower is better; the least it can be is the entropy of t.

    Parameters
    ----------
    logits : (B, C), before the softmax
    labels : shares of the classes (B, C), each row summing to one; or label numbers (B,)
    smoothing : the share s that is taken from the labels and spread over all classes

    >>> logits = torch.tensor([[2.0, 0.0]])
    >>> round(soft_cross_entropy(logits, torch.tensor([[0.75, 0.25]])).item(), 4)
    0.6269
    """
    targets = shares_of(labels, logits)
    targets = (1 - smoothing) * targets + smoothing / logits.shape[1]
    return -(targets * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()


def shares_of(labels: Tensor, like: Tensor) -> Tensor:
    """Labels as shares of the classes, in the shape and kind of `like` (B, C)."""
    if labels.ndim == 2:
        return labels.to(like.dtype)
    return torch.nn.functional.one_hot(labels, like.shape[1]).to(like.dtype)


def entropy(shares: Tensor) -> Tensor:
    """Mean over rows of −Σ share·log share, from 0 (all on one) to the log of their number.

    Parameters
    ----------
    shares : (B, K), weights or probabilities; each row sums to one

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
    """Calibration error whose bins have soft edges, so that it has a gradient; lower is better.

    With confidences k_b (the largest probability of row b), hits h_b (the share of the label that
    lies on the predicted class) and bins in equal steps from 0 to 1 with middles μ_m:

        u_bm  = softmax_m(−(k_b − μ_m)² / temperature)
        error = (Σ_m Σ_b u_bm/B · |Σ_b u_bm (h_b − k_b) / Σ_b u_bm|^power)^(1/power)

    As the temperature goes to zero every row falls to the bin with the nearest middle: the error
    by bins of equal width. Gradients flow through confidences and bins, not through hits.

    Parameters
    ----------
    labels : label numbers (B,), or shares of the classes (B, C)
    power : 1 weighs gaps as they are; 2 the large ones more

    >>> probabilities = torch.tensor([[0.9, 0.1], [0.9, 0.1]])
    >>> round(soft_calibration_error(probabilities, torch.tensor([0, 1])).item(), 4)
    0.4
    """
    confidences, predicted = probabilities.max(dim=1)
    hits = shares_of(labels, probabilities).gather(1, predicted[:, None])[:, 0].detach()
    middles = (torch.arange(n_bins, device=confidences.device) + 0.5) / n_bins
    offsets = confidences[:, None] - middles.to(confidences.dtype)
    shares = torch.softmax(-offsets.square() / temperature, dim=1)  # (B, bins)
    sizes = shares.sum(dim=0)
    gaps = (shares * (hits - confidences)[:, None]).sum(dim=0).abs()
    tiny = torch.finfo(sizes.dtype).tiny
    if power == 1:
        return gaps.sum() / len(confidences)  # the sizes of the bins cancel
    squares = (gaps.square() / sizes.clamp_min(tiny)).sum() / len(confidences)
    return squares.clamp_min(tiny).sqrt()  # at zero a root has no gradient
