"""Rows of one class pulled together and others apart: supervised contrastive losses."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from attnknn.errors import InvalidInputError


def contrastive_loss(
    first: Tensor,
    second: Tensor,
    labels: Tensor,
    *,
    temperature: float = 0.1,
    margin: float = 0.0,
) -> Tensor:
    """Supervised contrastive loss of a batch that is seen twice; lower is better.

    The 2B views z_i (unit length) compare with each other, never with themselves:

        a_ij = 1 if i and j are views of one row, else Σ_c label_ic · label_jc
        s_ij = (⟨z_i, z_j⟩ − margin · a_ij) / temperature
        loss = mean_i of −Σ_{j≠i} a_ij log(exp s_ij / Σ_{l≠i} exp s_il) / Σ_{j≠i} a_ij

    So a row's other view is always a positive, rows of the same class are positives, and with
    soft labels a pair counts by how much the labels agree. A margin asks positives to be closer
    than the others by that much more.

    Parameters
    ----------
    first, second : embeddings (B, D) of the two views
    labels : label numbers (B,), or shares of the classes (B, C)
    temperature : the lower, the more the closest wrong pairs count
    margin : in units of the cosine, 0 to 2

    >>> views = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> apart = contrastive_loss(views, views, torch.tensor([0, 1]))
    >>> mixed = contrastive_loss(views, views.flip(0), torch.tensor([0, 1]))
    >>> bool(apart < 0.001 < 5 < mixed)
    True
    """
    if first.shape != second.shape:
        raise InvalidInputError(
            f"The two views must have one shape, got {tuple(first.shape)} and "
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
    """How much two rows' labels agree (B, B); a row with its own other view entirely."""
    if labels.ndim == 1:
        return (labels[:, None] == labels).float()
    agreement = labels @ labels.T
    own = torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return agreement.masked_fill(own, 1.0)
