"""Joint training: the gradient of one vote reaches an encoder and learned attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from attnknn.attention.learned import LearnedAttention
from attnknn.attention.scores import Features, NeighborScores, learned_distances
from attnknn.fitting.attention import HEAD_NOISE, shape_of
from attnknn.fitting.objective import softmax_with_prior
from attnknn.training.config import LossTerms

N_NEIGHBORS = 64  # nearest voters that are scored, unless the encoder's settings say how many
START = 0.25  # temperature in units of the typical squared distance
PRIOR_SCORE = -4.0
FOLLOWED = 0.05  # how much of the typical distance of a batch is new
MIN_WEIGHT = 1e-6  # of all other neighbors, for the gradient of the support


class JointVote(nn.Module):
    """Learned attention over embeddings that are still being trained.

    `scores` is the module with which `LearnedAttention` goes on. Its unit, the typical squared
    distance of neighbors, follows the embeddings; so does their center, which the memory will
    subtract.
    """

    center: Tensor
    n_batches: Tensor

    def __init__(
        self, attention: LearnedAttention, dim: int, n_classes: int, random_state: int
    ) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(random_state)  # a training sets its own
        self.dropout, self.terms = attention.dropout, attention.loss or LossTerms()
        self.settings = {name: repr(value) for name, value in attention.get_params().items()}
        self.scores = NeighborScores(shape_of(attention, dim, n_classes, has_trust=False))
        self.register_buffer("center", torch.zeros(dim))
        self.register_buffer("n_batches", torch.zeros((), dtype=torch.int64))
        self._start(attention.temperature or START)

    def _start(self, temperature: float) -> None:
        """Begin like distance attention: heads keep distances, and prototypes know no class."""
        scores = self.scores
        scores.start_at(temperature, PRIOR_SCORE)
        with torch.no_grad():
            noise = torch.randn(scores.projection.shape, generator=self.generator)
            head_dim, dim = scores.projection.shape[1:]
            if head_dim == dim:
                scores.projection.copy_(torch.eye(dim) + HEAD_NOISE * noise)
            else:  # embeddings have no main axes yet
                axes = torch.linalg.qr(noise.transpose(1, 2)).Q  # (H, D, E)
                scores.projection.copy_(axes.transpose(1, 2))
            if scores.shape.dot_product:
                scores.query_projection.copy_(scores.projection)
            if scores.shape.prototypes:
                drawn = torch.randn(scores.prototypes.shape, generator=self.generator)
                scores.prototypes.copy_(nn.functional.normalize(drawn, dim=1))

    def forward(
        self, queries: Tensor, entries: Tensor, places: Tensor, mask: Tensor, codes: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Scores (B, H, K) of the entries (M, D) at `places` (B, K), and (B, H) of the prior.

        `codes` (M,): label codes of the entries; `mask` (B, K): which places may vote.
        """
        used, where = places.unique(return_inverse=True)
        known = entries[used]
        squared = (queries[:, None] - known[where]).square().sum(-1)  # (B, K)
        if self.training:
            self._follow(squared.detach()[mask], known.detach())
        labels = codes[places]
        temperature = self.scores.unit * self.scores.temperatures.mean()
        first_look = torch.softmax((-squared / temperature).masked_fill(~mask, -torch.inf), dim=1)
        features = Features(
            queries=queries - self.center,
            squared=squared,
            labels=labels,
            mask=mask,
            support=support_in_torch(labels, first_look, self.scores.shape.n_classes),
            trust=torch.zeros_like(squared),
        )
        if self.scores.shape.dot_product:  # which depend on the origin, as distances do not
            queries, known = features.queries, known - self.center
        projected = self.scores.project_queries(queries)
        learned = learned_distances(self.scores, projected, self.scores.project(known), where, mask)
        neighbors, prior = self.scores(learned, features)
        return neighbors, prior

    def weigh(
        self,
        queries: Tensor,
        entries: Tensor,
        places: Tensor,
        mask: Tensor,
        codes: Tensor,
        log_weight: Tensor | None = None,
    ) -> Tensor:
        """Weights (B, K + 1) of the entries at `places` and, last, of the prior.

        While training, `dropout` of the neighbors are left out, as in the training of attention
        alone. `log_weight` (B, K) is added to the scores.
        """
        neighbors, prior = self(queries, entries, places, mask, codes)
        if log_weight is not None:
            neighbors = neighbors + log_weight[:, None]
        if self.training and self.dropout:
            drawn = torch.rand(mask.shape, generator=self.generator).to(mask.device)
            mask = mask & (drawn >= self.dropout)
        neighbors = neighbors.masked_fill(~mask[:, None], -torch.inf)
        return softmax_with_prior(neighbors, prior).mean(dim=1)

    def _follow(self, squared: Tensor, entries: Tensor) -> None:
        """Move unit and center to the squared distances and the entries of this batch."""
        if not len(squared):
            return
        share = FOLLOWED if self.n_batches else 1.0
        typical = squared.mean().clamp_min(torch.finfo(squared.dtype).tiny)
        self.scores.unit.lerp_(typical, share)
        self.center.lerp_(entries.mean(dim=0), share)
        self.n_batches += 1


def support_in_torch(labels: Tensor, weights: Tensor, n_classes: int) -> Tensor:
    """`attention.learned.support_of` with a gradient: (B, K) from labels and weights (B, K)."""
    sums = weights.new_zeros(len(weights), n_classes).scatter_add(1, labels, weights)
    same = sums.gather(1, labels) - weights
    others = weights.sum(dim=1, keepdim=True) - weights
    return same / others.clamp_min(MIN_WEIGHT)


def nearest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Places (B, K) of the highest scores (B, M), and whether they may vote: −inf may not."""
    top = scores.detach().topk(min(k, scores.shape[1]), dim=1)
    return top.indices, top.values > -torch.inf
