"""Rows of a batch judged by each other: scores by distance, kin left out, the prior votes."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor


@dataclass(frozen=True)
class Voters:
    """Embedded images that may vote, and all that a vote must know of them.

    Parameters
    ----------
    embeddings : (M, D) of unit length
    labels : shares of the classes (M, C)
    kin : (M, S) numbers of what each image was made of; images that share one never judge each
        other. S is 2 where images are mixed of two
    """

    embeddings: Tensor
    labels: Tensor
    kin: Tensor

    def __len__(self) -> int:
        return len(self.embeddings)

    def joined(self, other: Voters) -> Voters:
        """These voters followed by the `other` ones."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Voters(*(torch.cat(pair) for pair in pairs))


@dataclass(frozen=True)
class Ballot:
    """The outcome of a vote with a gradient.

    Parameters
    ----------
    weights : (B, M + 1) of each voter and, last, of the prior
    shares : (B, C)
    """

    weights: Tensor
    shares: Tensor

    def losses(self, labels: Tensor) -> Tensor:
        """−Σ_c label_c · log share_c of each row (B,)."""
        tiny = torch.finfo(self.shares.dtype).tiny  # the log of an underflow is NaN
        return -(labels * self.shares.clamp_min(tiny).log()).sum(dim=1)


def are_kin(queries: Tensor, voters: Tensor) -> Tensor:
    """Whether a query (B, S) and a voter (M, S) share what they were made of: (B, M).

    >>> are_kin(torch.tensor([[0, 1]]), torch.tensor([[2, 3], [1, 4]])).tolist()
    [[False, True]]
    """
    kin = torch.zeros(len(queries), len(voters), dtype=torch.bool, device=queries.device)
    for mine in queries.unbind(1):
        for theirs in voters.unbind(1):
            kin |= mine[:, None] == theirs
    return kin


def scores_of(queries: Tensor, entries: Tensor, temperature: Tensor) -> Tensor:
    """−d²/temperature (B, M) of unit vectors (B, D) and (M, D)."""
    return (2 * (queries @ entries.T) - 2) / temperature


def ballot(scores: Tensor, labels: Tensor, prior_score: Tensor, prior: Tensor) -> Ballot:
    """Weights and shares of a vote in which all queries ask the same voters, and the prior.

    Parameters
    ----------
    scores : (B, M), −inf where a voter has no say
    labels : shares of the classes of each voter (M, C)
    prior : (B, C) or (C,) class frequencies
    """
    last = prior_score.expand(len(scores), 1)
    weights = torch.softmax(torch.cat([scores, last], dim=1), dim=1)
    return Ballot(weights, weights[:, :-1] @ labels + weights[:, -1:] * prior)


def prior_without(counts: Tensor, labels: Tensor) -> Tensor:
    """Class frequencies (B, C) as each row sees them, its own label (B, C) taken out.

    >>> prior_without(torch.tensor([3.0, 1.0]), torch.tensor([[1.0, 0.0]]))
    tensor([[0.6250, 0.3750]])
    """
    smoothed = counts + 0.5
    return (smoothed - labels).clamp_min(0) / (smoothed.sum() - 1)
