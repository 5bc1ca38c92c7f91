"""Every token attends to its nearest, each rank by its own tap of a learned kernel."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from attnknn._validation import check_at_least, check_choice
from attnknn.errors import InvalidSettingError
from attnknn.vit.functional import (
    Choice,
    Grid,
    Rule,
    choose,
    convnn_attention,
    random_candidates,
    spatial_candidates,
)
from attnknn.vit.functional.attend import FEATURES
from attnknn.vit.functional.grid import check_grid_size, grid_of
from attnknn.vit.layers.base import HeadedAttention
from attnknn.vit.layers.legacy import (
    LegacyRule,
    check_legacy,
    has_places,
    legacy_attention,
    legacy_choice,
)

CONVOLUTIONS = ("standard", "depthwise", "depthwise-separable")
SAMPLINGS = ("all", "random", "spatial")


class ConvNNAttention(HeadedAttention):
    """Convolutional nearest-neighbor attention.

    The `n_neighbors` nearest tokens of each token are weighed, and the j-th nearest meets the j-th
    tap of a kernel that all heads share. With K = N and a kernel of ones it is softmax attention,
    with K < N it is `KvtAttention`; chosen by place (`Loc`) and weighed by ones, a convolution.

    Parameters
    ----------
    n_neighbors
        K, the token itself included where it is among its nearest, and always with samples.
    sampling_type, num_samples, sample_padding
        Who may be chosen: `all`; `random`, `num_samples` tokens drawn again at each step of
        training and stay the same afterwards, by `seed`; or `spatial`, `num_samples` ×
        `num_samples` patches evenly spread over the grid, without its outer `sample_padding` rows
        and columns. Prefix tokens always may. −1 is all.
    magnitude_type
        `matmul`, `cosine` or `euclidean`.
    similarity_type, aggregation_type
        What is compared, and what is combined: features (`Col`), places (`Loc`) or both.
    convolution_type
        `depthwise`, a kernel for each channel; `standard`, which mixes channels; or
        `depthwise-separable`, one after the other.
    weights
        `softmax`, `raw` scores, or `ones`.
    coordinate_encoding
        The same as `Loc_Col` wherever `Col` was asked for.
    grid_size, num_prefix_tokens
        (height, width) of the patches, a square if None, and how many tokens stand before them;
        read where places are needed, and by samples.
    legacy
        Computes what the first implementation of the paper did, its slips included. Places are
        along the sequence there: `grid_size`, `num_prefix_tokens` and `feature_share` are not read.

    >>> ConvNNAttention(12, n_neighbors=2)(torch.zeros(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 1,
        qkv_bias: bool = False,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        *,
        n_neighbors: int = 9,
        sampling_type: str = "all",
        num_samples: int = -1,
        sample_padding: int = 0,
        magnitude_type: str = "matmul",
        similarity_type: str = "Col",
        aggregation_type: str = "Col",
        convolution_type: str = "depthwise",
        weights: str = "softmax",
        feature_share: float = 0.5,
        coordinate_encoding: bool = False,
        grid_size: int | tuple[int, int] | None = None,
        num_prefix_tokens: int = 0,
        seed: int = 0,
        legacy: bool = False,
        **projections: Any,
    ) -> None:
        similarity_type = _encoded("similarity_type", similarity_type, coordinate_encoding)
        aggregation_type = _encoded("aggregation_type", aggregation_type, coordinate_encoding)
        parts = 2 * (similarity_type != "Loc") + (aggregation_type != "Loc")
        if parts == 0:
            raise InvalidSettingError(
                "Places chosen by place say nothing about the image: `similarity_type` and "
                "`aggregation_type` must not both be 'Loc'."
            )
        super().__init__(
            dim, num_heads, qkv_bias, attn_drop, proj_drop, n_projected=parts, **projections
        )
        self.rule = Rule(n_neighbors, magnitude_type, similarity_type, weights, feature_share)
        self.aggregation_type = aggregation_type
        self.convolution_type = check_choice("convolution_type", convolution_type, CONVOLUTIONS)
        self.sampling_type = check_choice("sampling_type", sampling_type, SAMPLINGS)
        self.num_samples = num_samples if num_samples == -1 else _at_least_one(num_samples)
        self.sample_padding = check_at_least("sample_padding", sample_padding, 0)
        self.grid_size = check_grid_size(grid_size)
        self.num_prefix_tokens = check_at_least("num_prefix_tokens", num_prefix_tokens, 0)
        self.seed, self.legacy = seed, legacy
        if legacy:
            check_legacy(self.rule, aggregation_type, convolution_type)
        self._make_kernels()

    def _make_kernels(self) -> None:
        width, n = self.head_dim, self.rule.n_neighbors
        n_combined = width + (self.legacy and has_places(self.rule))
        make = self.proj.weight.new_empty
        mixes, is_separable = (self.convolution_type == name for name in CONVOLUTIONS[::2])
        self.kernel = self.position_kernel = self.pointwise = None
        if self.aggregation_type != "Loc":
            self.kernel = nn.Parameter(make((width, n_combined, n) if mixes else (n_combined, n)))
        if self.aggregation_type != "Col" and not self.legacy:
            self.position_kernel = nn.Parameter(make(width, 2, n))
        if is_separable:
            at = {"device": self.proj.weight.device, "dtype": self.proj.weight.dtype}
            self.pointwise = nn.Linear(n_combined, width, bias=False, **at)
        self.reset_kernels()

    @torch.no_grad()
    def reset_kernels(self) -> None:
        """Taps of one channel start at one, as in softmax attention; others at random."""
        for kernel in (self.kernel, self.position_kernel):
            if kernel is None:
                continue
            if kernel.dim() == 2 and not (self.legacy and self.pointwise is not None):
                kernel.fill_(1.0)
            else:
                bound = 1 / math.sqrt(kernel[0].numel())
                kernel.uniform_(-bound, bound)

    @property
    def sees_others(self) -> bool:  # type: ignore[override]
        """Whether a prefix token may look at patches: with samples, the first it sees is itself."""
        return self.rule.n_neighbors > 1 or not self._is_sampled

    @property
    def reads_prefix(self) -> bool:  # type: ignore[override]
        """Only for places and samples."""
        has_places = {self.rule.similarity_type, self.aggregation_type} != {"Col"}
        return not self.legacy and (has_places or self._is_sampled)

    @property
    def _is_sampled(self) -> bool:
        return self.sampling_type != "all" and self.num_samples != -1

    @torch.no_grad()
    def start_as_attention(self) -> None:
        """Taps by which channels stay as they are: with all tokens it is softmax attention."""
        if self.position_kernel is not None:
            self.position_kernel.zero_()
        if self.pointwise is not None:
            nn.init.eye_(self.pointwise.weight)
        if self.kernel is not None and self.kernel.dim() == 2:
            self.kernel.fill_(1.0)
        elif self.kernel is not None:
            same = torch.eye(*self.kernel.shape[:2], dtype=self.kernel.dtype)
            self.kernel.copy_(same[..., None].expand_as(self.kernel))

    def projected(self, x: Tensor) -> tuple[Any, ...]:
        """Queries, keys and values; choosing by place needs only values, and asks no more."""
        parts = super().projected(x)
        if self.rule.similarity_type == "Loc":
            return parts * 3
        return parts if len(parts) == 3 else (*parts, None)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        if self.legacy:
            return self._attend_as_before(query, key, value, mask)
        attended = convnn_attention(
            query,
            key,
            value,
            self.kernel,
            self.rule,
            candidates=self.candidates(query),
            grid=self._grid(query),
            position_kernel=self.position_kernel,
            mask=mask,
            dropout=self.dropped,
        )
        return attended if self.pointwise is None else self.pointwise(attended)

    def choose(self, x: Tensor, mask: Tensor | None = None) -> Choice:
        """The neighbors that the tokens (B, N, dim) choose."""
        query, key, _ = self.projected(x)
        if self.legacy:
            return legacy_choice(query, key, self.rule, self._old_sampling(mask))
        return choose(
            query,
            key,
            self.rule,
            candidates=self.candidates(query),
            grid=self._grid(query),
            mask=mask,
        )

    def candidates(self, query: Tensor) -> Tensor | None:
        """The tokens that may be chosen, all if None."""
        n_tokens, device = query.shape[2], query.device
        if not self._is_sampled:
            return None
        if self.sampling_type == "spatial":
            grid = grid_of(n_tokens, self.grid_size, self.num_prefix_tokens)
            return spatial_candidates(grid, self.num_samples, self.sample_padding, device=device)
        seed = None if self.training else self.seed
        return random_candidates(
            n_tokens, self.num_samples, self.num_prefix_tokens, seed=seed, device=device
        )

    def _grid(self, query: Tensor) -> Grid | None:
        if self.rule.similarity_type == self.aggregation_type == "Col":
            return None
        return grid_of(query.shape[2], self.grid_size, self.num_prefix_tokens)

    def _attend_as_before(
        self, query: Tensor, key: Tensor, value: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        assert value is not None  # the old rules always combine features, see `check_legacy`
        assert self.kernel is not None
        sampling = self._old_sampling(mask)
        return legacy_attention(
            query, key, value, self.kernel, self.rule, sampling, self.pointwise, self.dropped
        )

    def _old_sampling(self, mask: Tensor | None) -> LegacyRule:
        if mask is not None:
            raise InvalidSettingError("With `legacy=True` there are no attention masks.")
        return LegacyRule(self.sampling_type, self.num_samples, self.sample_padding)

    def extra_repr(self) -> str:
        rule = f"n_neighbors={self.rule.n_neighbors}, magnitude_type={self.rule.similarity!r}"
        sampled = f"sampling_type={self.sampling_type!r}, num_samples={self.num_samples}"
        return f"{super().extra_repr()}, {rule}, {sampled}"


def _encoded(name: str, features: str, is_encoded: bool) -> str:
    check_choice(name, features, FEATURES)
    return "Loc_Col" if features == "Col" and is_encoded else features


def _at_least_one(num_samples: int) -> int:
    try:
        return check_at_least("num_samples", num_samples, 1)
    except InvalidSettingError as error:
        raise InvalidSettingError(f"{error} Or −1 for all.") from None
