"""What the first implementation of ConvNN-attention computes, and the way from its weights to ours.

It differs from `ConvNNAttention` in six ways, which change its numbers:

- its `W_k` makes the queries and its `W_q` the keys;
- with samples, a token has the score 1 with itself (or the distance 1) whatever it is, and as a
  sample it is given −0.1 (or 1.1), so that it may well be chosen again;
- `spatial` samples stand evenly along the sequence, and random ones are drawn again in evaluation;
- with `coordinate_encoding`, features get one channel more, which goes from −1 to 1 along the
  sequence, or along the samples in the order they were drawn; scores are scaled as without it;
- dropout is on what was combined, not on weights;
- with several heads, tokens and channels of a head change places before the heads are merged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.vit.functional import plain
from attnknn.vit.functional.attend import Choice, Rule
from attnknn.vit.functional.similarity import scores_of


@dataclass(frozen=True)
class LegacyRule:
    """Who may be chosen."""

    sampling_type: str
    num_samples: int
    sample_padding: int

    def n_of(self, query: Tensor) -> int:
        """How many candidates there are."""
        if self.sampling_type == "random":
            return len(range(query.shape[2])[: self.num_samples])
        if self.num_samples < 1:
            raise InvalidSettingError(
                "With `legacy=True` and `sampling_type='spatial'`, `num_samples` must be at least "
                f"1, got {self.num_samples}."
            )
        return self.num_samples

    def candidates(self, n_tokens: int, device: torch.device) -> Tensor:
        """(M,), along the sequence."""
        if self.sampling_type == "random":
            return torch.randperm(n_tokens, device=device)[: self.num_samples]
        first, last = self.sample_padding, n_tokens - 1 - self.sample_padding
        return torch.linspace(first, last, self.num_samples, device=device).long()


def check_legacy(rule: Rule, aggregation_type: str, convolution_type: str) -> None:
    """The first implementation knows features, and coordinates beside them in both of its steps."""
    features = (rule.similarity_type, aggregation_type)
    if features not in (("Col", "Col"), ("Loc_Col", "Loc_Col")) or rule.weights == "ones":
        raise InvalidSettingError(
            "`legacy=True` knows places only by `coordinate_encoding`, and no weights of ones: "
            "leave out `similarity_type`, `aggregation_type` and `weights='ones'`."
        )
    if has_places(rule) and convolution_type == "depthwise":
        # In groups of one channel, d + 1 of them cannot become d.
        raise InvalidSettingError(
            "With `legacy=True` and `coordinate_encoding`, `convolution_type` must be 'standard' "
            "or 'depthwise-separable', got 'depthwise': the first implementation has no such layer."
        )


def has_places(rule: Rule) -> bool:
    """Whether a token's place along the sequence is one of its channels."""
    return rule.similarity_type == "Loc_Col"


def legacy_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kernel: Tensor,
    rule: Rule,
    sampling: LegacyRule,
    pointwise: Callable[[Tensor], Tensor] | None,
    dropout: float,
) -> Tensor:
    """(B, H, N, d), as `ConvNNAttention` would, by the old rules."""
    choice = legacy_choice(query, key, rule, sampling)
    value = _with_place(value) if has_places(rule) else value
    combined = plain.combine(value, choice.index, _weights(choice.scores, rule), kernel)
    combined = combined if pointwise is None else pointwise(combined)
    return _changed_places(F.dropout(combined, dropout))


def legacy_choice(query: Tensor, key: Tensor, rule: Rule, sampling: LegacyRule) -> Choice:
    """The neighbors by the old rules; tokens themselves are in the index like all others."""
    n_known = query.shape[2] if sampling.sampling_type == "all" else 1 + sampling.n_of(query)
    if rule.n_neighbors > n_known:
        raise InvalidSettingError(
            f"`n_neighbors` must be at most {n_known}, the tokens that can be chosen, got "
            f"{rule.n_neighbors}."
        )
    if sampling.sampling_type == "all":
        return Choice(*_scores(query, key, rule).topk(rule.n_neighbors))
    n_tokens, is_far = query.shape[2], rule.similarity == "euclidean"  # negative distances
    candidates = sampling.candidates(n_tokens, query.device)
    scores = _scores(query, key[:, :, candidates], rule)
    itself = torch.arange(n_tokens, device=query.device)[:, None]
    shown = scores.masked_fill(itself == candidates, -1.1 if is_far else -0.1)
    best = shown.topk(rule.n_neighbors - 1)
    first = torch.full_like(scores[..., :1], -1.0 if is_far else 1.0)
    index = torch.cat([itself.expand(first.shape), candidates[best.indices]], -1)
    return Choice(torch.cat([first, best.values], -1), index)


def _scores(query: Tensor, key: Tensor, rule: Rule) -> Tensor:
    if not has_places(rule):
        return scores_of(query, key, rule.similarity)
    width = query.shape[-1]
    scores = scores_of(_with_place(query), _with_place(key), rule.similarity)
    return scores * math.sqrt((width + 1) / width) if rule.similarity == "matmul" else scores


def _with_place(features: Tensor) -> Tensor:
    """(B, H, N, d + 1): the last channel goes from −1 to 1."""
    *shape, n_tokens, _ = features.shape
    places = torch.linspace(-1, 1, n_tokens, device=features.device, dtype=features.dtype)
    return torch.cat([features, places[:, None].expand(*shape, -1, -1)], -1)


def _weights(scores: Tensor, rule: Rule) -> Tensor:
    if rule.weights == "softmax":
        return scores.softmax(-1)
    return 1 / (1e-8 - scores) if rule.similarity == "euclidean" else scores


def _changed_places(combined: Tensor) -> Tensor:
    if combined.shape[1] == 1:
        return combined
    batch, heads, n_tokens, width = combined.shape
    return combined.reshape(batch, heads, width, n_tokens).mT


def import_convnn(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of the first implementation's layer, as one of `ConvNNAttention`.

    Its biases are kept if it has any. The names of queries and keys are put right, so the result
    is for `legacy=True` and for `legacy=False` alike; with `coordinate_encoding` only for the
    first, since it has one coordinate, and the grid two. A layer that takes it has
    `proj_bias=False` unless there are biases, and the rest as it was there.

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
            f"A ConvNN-attention layer has W_q, W_k, W_v, W_o and conv; {error} is missing."
        ) from None
    is_depthwise = kernel.shape[1] == 1
    return {**ours, "kernel": kernel.squeeze(1) if is_depthwise else kernel}


def _stacked(state: Mapping[str, Tensor], kind: str) -> Tensor:
    return torch.cat([state[f"W_{part}.{kind}"] for part in "kqv"])
