"""The original implementation of ConvNN-attention, and the conversion of its weights.

It differs from `ConvNNAttention` in six ways that change its numbers:

- its `W_k` makes the queries and its `W_q` the keys;
- with sampling, a token always has the score 1 with itself (or the distance 1), and as a sample
  the score −0.1 (or the distance 1.1), so that it can be selected twice;
- `spatial` samples are spread along the sequence, and random ones are drawn in evaluation too;
- with `coordinate_encoding`, features get one more channel, which goes from −1 to 1 along the
  sequence, or along the samples in the order in which they were drawn; the scale of the scores
  ignores it;
- dropout applies to the combined values, not to the weights;
- with several heads, tokens and channels of a head are swapped before the heads are merged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.vit.functional import NeighborConfig, TokenNeighbors, reference
from attnknn.vit.functional.reference import similarity_scores


@dataclass(frozen=True)
class LegacySampling:
    """Tokens that can be selected."""

    sampling_type: str
    num_samples: int
    sample_padding: int

    def count(self, n_tokens: int) -> int:
        """Number of candidates."""
        if self.sampling_type == "random":
            return len(range(n_tokens)[: self.num_samples])
        if self.num_samples < 1:
            raise InvalidSettingError(
                "With `legacy=True` and `sampling_type='spatial'`, `num_samples` must be at least "
                f"1, got {self.num_samples}."
            )
        return self.num_samples

    def candidates(self, n_tokens: int, device: torch.device) -> Tensor:
        """Candidates (M,) along the sequence."""
        if self.sampling_type == "random":
            return torch.randperm(n_tokens, device=device)[: self.num_samples]
        first, last = self.sample_padding, n_tokens - 1 - self.sample_padding
        return torch.linspace(first, last, self.num_samples, device=device).long()


def check_legacy(config: NeighborConfig, aggregation_type: str, convolution_type: str) -> None:
    """Raise an error for settings that the original implementation does not have."""
    features = (config.similarity_type, aggregation_type)
    if features not in (("Col", "Col"), ("Loc_Col", "Loc_Col")) or config.weights == "ones":
        raise InvalidSettingError(
            "`legacy=True` supports positions only through `coordinate_encoding`, and no weights "
            "of one. Omit `similarity_type`, `aggregation_type` and `weights='ones'`."
        )
    if encodes_coordinates(config) and convolution_type == "depthwise":
        # d + 1 channels in groups of one cannot become d channels.
        raise InvalidSettingError(
            "With `legacy=True` and `coordinate_encoding`, `convolution_type` must be 'standard' "
            "or 'depthwise-separable', got 'depthwise': the original implementation has no such "
            "layer."
        )


def encodes_coordinates(config: NeighborConfig) -> bool:
    """Whether the position along the sequence is one of a token's channels."""
    return config.similarity_type == "Loc_Col"


def legacy_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kernel: Tensor,
    config: NeighborConfig,
    sampling: LegacySampling,
    pointwise: Callable[[Tensor], Tensor] | None,
    dropout: float,
) -> Tensor:
    """Attention of `ConvNNAttention` (B, H, N, d) as the original implementation computes it."""
    neighbors = select_legacy_neighbors(query, key, config, sampling)
    value = _append_position(value) if encodes_coordinates(config) else value
    combined = reference.combine(value, neighbors.index, _weights(neighbors.scores, config), kernel)
    combined = combined if pointwise is None else pointwise(combined)
    return _swap_tokens_and_channels(F.dropout(combined, dropout))


def select_legacy_neighbors(
    query: Tensor, key: Tensor, config: NeighborConfig, sampling: LegacySampling
) -> TokenNeighbors:
    """The neighbors of each token; the index includes tokens themselves."""
    n_tokens, is_all = query.shape[2], sampling.sampling_type == "all"
    n_available = n_tokens if is_all else 1 + sampling.count(n_tokens)
    if config.n_neighbors > n_available:
        raise InvalidSettingError(
            f"`n_neighbors` must be at most {n_available}, the tokens that can be selected, got "
            f"{config.n_neighbors}."
        )
    if is_all:
        return TokenNeighbors(*_scores(query, key, config).topk(config.n_neighbors))
    is_distance = config.similarity == "euclidean"  # scores are negative distances
    candidates = sampling.candidates(n_tokens, query.device)
    scores = _scores(query, key[:, :, candidates], config)
    itself = torch.arange(n_tokens, device=query.device)[:, None]
    scores = scores.masked_fill(itself == candidates, -1.1 if is_distance else -0.1)
    best = scores.topk(config.n_neighbors - 1)
    first = torch.full_like(scores[..., :1], -1.0 if is_distance else 1.0)
    index = torch.cat([itself.expand(first.shape), candidates[best.indices]], -1)
    return TokenNeighbors(torch.cat([first, best.values], -1), index)


def _scores(query: Tensor, key: Tensor, config: NeighborConfig) -> Tensor:
    if not encodes_coordinates(config):
        return similarity_scores(query, key, config.similarity)
    width = query.shape[-1]
    scores = similarity_scores(_append_position(query), _append_position(key), config.similarity)
    return scores * math.sqrt((width + 1) / width) if config.similarity == "matmul" else scores


def _append_position(features: Tensor) -> Tensor:
    """Append a channel that goes from −1 to 1: (B, H, N, d + 1)."""
    *shape, n_tokens, _ = features.shape
    positions = torch.linspace(-1, 1, n_tokens, device=features.device, dtype=features.dtype)
    return torch.cat([features, positions[:, None].expand(*shape, -1, -1)], -1)


def _weights(scores: Tensor, config: NeighborConfig) -> Tensor:
    if config.weights == "softmax":
        return scores.softmax(-1)
    return 1 / (1e-8 - scores) if config.similarity == "euclidean" else scores


def _swap_tokens_and_channels(combined: Tensor) -> Tensor:
    if combined.shape[1] == 1:
        return combined
    batch, heads, n_tokens, width = combined.shape
    return combined.reshape(batch, heads, width, n_tokens).mT


def import_convnn(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Convert weights of the original ConvNN-attention code to those of `ConvNNAttention`.

    The layer that loads them needs `proj_bias=False` unless there are biases, and otherwise the
    settings of the original. Weights trained with `coordinate_encoding` need `legacy=True`; all
    others work with both values.

    Parameters
    ----------
    state : Mapping[str, Tensor]
        State dict with the keys `W_q`, `W_k`, `W_v`, `W_o` and `conv`.

    Returns
    -------
    dict[str, Tensor]
        State dict of `ConvNNAttention`; queries and keys, which the original swaps, are in place.

    Raises
    ------
    InvalidInputError
        If a key is missing.

    Examples
    --------
    >>> state = {f"W_{part}.weight": torch.eye(2) for part in "qkvo"}
    >>> sorted(import_convnn({**state, "conv.weight": torch.ones(2, 1, 3)}))
    ['kernel', 'proj.weight', 'qkv.weight']
    >>> from attnknn.vit.layers import ConvNNAttention
    >>> layer = ConvNNAttention(2, n_neighbors=3, proj_bias=False, legacy=True)
    >>> layer.load_state_dict(import_convnn({**state, "conv.weight": torch.ones(2, 1, 3)}))
    <All keys matched successfully>
    """
    try:
        ours = {"qkv.weight": _stacked(state, "weight"), "proj.weight": state["W_o.weight"]}
        if "W_q.bias" in state:
            ours |= {"qkv.bias": _stacked(state, "bias"), "proj.bias": state["W_o.bias"]}
        if "conv.1.weight" in state:
            ours["pointwise.weight"] = state["conv.1.weight"].squeeze(-1)
        kernel = state["conv.0.weight" if "conv.1.weight" in state else "conv.weight"]
    except KeyError as error:
        raise InvalidInputError(
            f"A ConvNN-attention layer needs W_q, W_k, W_v, W_o and conv; {error} is missing."
        ) from None
    is_depthwise = kernel.shape[1] == 1
    return {**ours, "kernel": kernel.squeeze(1) if is_depthwise else kernel}


def _stacked(state: Mapping[str, Tensor], kind: str) -> Tensor:
    return torch.cat([state[f"W_{part}.{kind}"] for part in "kqv"])
