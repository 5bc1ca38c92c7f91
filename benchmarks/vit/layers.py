"""The layers that are timed: ours, and plain formulations of the same formulas.

The plain ConvNN attention copies the values of all neighbors, weights them, and convolves with a
stride of K, as the original implementation does; with samples its softmax runs over copies for
every channel. The plain k-NN attention masks all scores but the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from attnknn.vit.layers import Attention, ConvNNAttention, KvtAttention, NeighborhoodAttention1D

DIM, K, N_SAMPLES = 192, 9, 32


class PlainConvNN(nn.Module):
    """ConvNN attention with one head that copies the values of all neighbors."""

    def __init__(self, n_samples: int | None = None) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (
            nn.Linear(DIM, DIM, bias=False) for _ in range(4)
        )
        self.conv = nn.Conv1d(DIM, DIM, K, stride=K, groups=DIM, bias=False)
        nn.init.ones_(self.conv.weight)
        self.n_samples = n_samples

    def forward(self, x: Tensor) -> Tensor:
        n_images, n_tokens, _ = x.shape
        value = self.value(x).mT.contiguous()  # (B, C, N)
        index, weights = self.chosen(x) if self.n_samples is None else self.sampled(x)
        index = index[:, None].expand(n_images, DIM, n_tokens, K)
        copies = value[..., None].expand(n_images, DIM, n_tokens, K).contiguous()
        weighted = weights * copies.gather(2, index)
        return self.out(self.conv(weighted.view(n_images, DIM, n_tokens * K)).mT)

    def scores(self, x: Tensor, others: Tensor) -> Tensor:
        query, key = self.query(x).mT.contiguous(), self.key(others).mT.contiguous()
        return query.mT @ key / math.sqrt(DIM)

    def chosen(self, x: Tensor) -> tuple[Tensor, Tensor]:
        best = self.scores(x, x).topk(K)
        return best.indices, best.values.softmax(-1)[:, None].expand(-1, DIM, -1, -1)

    def sampled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        n_images, n_tokens, _ = x.shape
        drawn = torch.randperm(n_tokens)[: self.n_samples]
        scores = self.scores(x, x[:, drawn])
        scores[:, drawn, torch.arange(len(drawn))] = -0.1
        best = scores.topk(K - 1)
        itself = torch.arange(n_tokens)[None, :, None].expand(n_images, -1, 1)
        index = torch.cat([itself, drawn[best.indices]], -1)
        shape = (n_images, DIM, n_tokens)
        others = best.values[:, None].expand(*shape, K - 1)
        return index, torch.cat([x.new_ones(*shape, 1), others], -1).softmax(-1)


class PlainKvt(Attention):
    """k-NN attention that masks all other scores."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        del mask
        scores = query @ key.mT * query.shape[-1] ** -0.5
        kept = torch.zeros_like(scores).scatter_(-1, scores.topk(K).indices, 1.0)
        far = torch.full_like(scores, float("-inf"))
        return torch.where(kept > 0, scores, far).softmax(-1) @ value


class LinearMaps(Attention):
    """Only the projections that every layer has: a lower bound of the time."""

    def attend(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        del mask
        return value + 0 * query[..., :1] + 0 * key[..., :1]  # uses all three


def sampled() -> nn.Module:
    """Our layer with random samples."""
    return ConvNNAttention(
        DIM, n_neighbors=K, sampling_type="random", num_samples=N_SAMPLES, proj_bias=False
    )


LINEAR = "linear maps alone"
PLAIN, OURS, SDPA = "plain ConvNN", "ConvNN", "SDPA"
PLAIN_SAMPLED, SAMPLED = "plain ConvNN, 32 samples", "ConvNN, 32 samples"
PLAIN_KVT, KVT = "plain KVT, 3 heads", "KVT, 3 heads"
MAKE: dict[str, Callable[[], nn.Module]] = {
    LINEAR: lambda: LinearMaps(DIM, 1, proj_bias=False),
    SDPA: lambda: Attention(DIM, 1, proj_bias=False),
    PLAIN: PlainConvNN,
    OURS: lambda: ConvNNAttention(DIM, n_neighbors=K, proj_bias=False),
    PLAIN_SAMPLED: lambda: PlainConvNN(N_SAMPLES),
    SAMPLED: sampled,
    PLAIN_KVT: lambda: PlainKvt(DIM, 3, proj_bias=False),
    KVT: lambda: KvtAttention(DIM, 3, n_neighbors=K, proj_bias=False),
}


def neighborhood() -> nn.Module:
    """Our neighborhood attention along the sequence."""
    return NeighborhoodAttention1D(DIM, 3, kernel_size=K, qkv_bias=True)


def build_layer(name: str) -> nn.Module:
    """A layer in training mode with reproducible initial weights."""
    torch.manual_seed(0)
    return MAKE[name]().train()
