"""Convolutional nearest-neighbor attention: each rank of neighbors has its own kernel tap."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.amp import is_autocast_available

from attnknn._validation import check_at_least, check_choice
from attnknn.errors import InvalidSettingError
from attnknn.vit.functional import (
    Grid,
    NeighborConfig,
    TokenNeighbors,
    convnn_attention,
    select_neighbors,
)
from attnknn.vit.functional.attention import FEATURES
from attnknn.vit.functional.grid import (
    check_grid_size,
    infer_grid,
    random_candidates,
    spatial_candidates,
)
from attnknn.vit.layers.base import AttentionLayer, is_plain_linear, split_heads
from attnknn.vit.layers.legacy import (
    LegacySampling,
    check_legacy,
    encodes_coordinates,
    legacy_attention,
    select_legacy_neighbors,
)

CONVOLUTIONS = ("standard", "depthwise", "depthwise-separable")
SAMPLINGS = ("all", "random", "spatial")
DEFAULT_NEIGHBORS = 9


class ConvNNAttention(AttentionLayer):
    """Convolutional nearest-neighbor attention.

    Each token attends to its `n_neighbors` nearest tokens, and the j-th nearest is multiplied by
    the j-th tap of a kernel that all heads share. With K = N and a kernel of ones it is softmax
    attention, with K < N it is `KvtAttention`; selected by position ('Loc') with weights of one, it
    is a convolution.

    Parameters
    ----------
    dim : int
        Width of the tokens.
    num_heads : int, default=1
        Number of heads.
    qkv_bias : bool, default=False
        Whether the input projection has a bias.
    attn_drop, proj_drop : float, default=0.0
        Dropout of attention weights and of outputs, in training.
    n_neighbors : int, default=None
        Neighbors K of each token. The token itself counts if it is among its nearest; with
        sampling it is always the first. None is 9, or fewer if there are fewer samples.
    sampling_type : {'all', 'random', 'spatial'}, default='all'
        Tokens that can be neighbors: all; `num_samples` tokens drawn in each training step (in
        evaluation fixed by `seed`); or `num_samples` × `num_samples` patches spread evenly over
        the grid. Prefix tokens always can.
    num_samples : int, default=-1
        Size of the sample; -1 is all tokens.
    sample_padding : int, default=0
        Outer rows and columns of the grid that 'spatial' leaves out.
    magnitude_type : {'matmul', 'cosine', 'euclidean'}, default='matmul'
        Similarity of queries and keys.
    similarity_type, aggregation_type : {'Col', 'Loc', 'Loc_Col'}, default='Col'
        What is compared and what is combined: features, positions, or both.
    convolution_type : {'depthwise', 'standard', 'depthwise-separable'}, default='depthwise'
        Kernel over ranks: per channel, mixing channels, or one after the other.
    weights : {'softmax', 'raw', 'ones'}, default='softmax'
        Weights of neighbors, see `NeighborConfig`.
    feature_weight : float, default=0.5
        Weight of features when both features and positions are compared.
    coordinate_encoding : bool, default=False
        Replace 'Col' by 'Loc_Col' in `similarity_type` and `aggregation_type`.
    grid_size : int or (int, int), default=None
        (height, width) of the patch grid; None infers a square.
    num_prefix_tokens : int, default=0
        Class and register tokens before the patches; used by positions and sampling.
    seed : int, default=0
        Seed of the sample in evaluation.
    legacy : bool, default=False
        Reproduce the original implementation of the paper, including its errors. Positions are
        along the sequence then; `grid_size`, `num_prefix_tokens` and `feature_weight` are unused.
    **projections : Any
        `proj_bias`, `device`, `dtype` and other arguments of `AttentionLayer`.

    Examples
    --------
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
        n_neighbors: int | None = None,
        sampling_type: str = "all",
        num_samples: int = -1,
        sample_padding: int = 0,
        magnitude_type: str = "matmul",
        similarity_type: str = "Col",
        aggregation_type: str = "Col",
        convolution_type: str = "depthwise",
        weights: str = "softmax",
        feature_weight: float = 0.5,
        coordinate_encoding: bool = False,
        grid_size: int | tuple[int, int] | None = None,
        num_prefix_tokens: int = 0,
        seed: int = 0,
        legacy: bool = False,
        **projections: Any,
    ) -> None:
        similarity_type = _resolve("similarity_type", similarity_type, coordinate_encoding)
        aggregation_type = _resolve("aggregation_type", aggregation_type, coordinate_encoding)
        n_projections = 2 * (similarity_type != "Loc") + (aggregation_type != "Loc")
        if n_projections == 0:
            raise InvalidSettingError(
                "`similarity_type` and `aggregation_type` must not both be 'Loc': the output would "
                "not depend on the image."
            )
        super().__init__(
            dim,
            num_heads,
            qkv_bias,
            attn_drop,
            proj_drop,
            n_projections=n_projections,
            **projections,
        )
        self.aggregation_type = aggregation_type
        self.convolution_type = check_choice("convolution_type", convolution_type, CONVOLUTIONS)
        self.sampling_type = check_choice("sampling_type", sampling_type, SAMPLINGS)
        self.num_samples = num_samples if num_samples == -1 else _check_num_samples(num_samples)
        self.sample_padding = check_at_least("sample_padding", sample_padding, 0)
        self.grid_size = check_grid_size(grid_size)
        self.num_prefix_tokens = check_at_least("num_prefix_tokens", num_prefix_tokens, 0)
        self.seed, self.legacy = seed, legacy
        self.config = NeighborConfig(
            self._resolve_neighbors(n_neighbors),
            magnitude_type,
            similarity_type,
            weights,
            feature_weight,
        )
        if legacy:
            check_legacy(self.config, aggregation_type, convolution_type)
        self._make_kernels()

    def _resolve_neighbors(self, n_neighbors: int | None) -> int:
        """The number of neighbors, which samples limit."""
        most = max_neighbors(self.sampling_type, self.num_samples, self.num_prefix_tokens)
        if self.legacy and self._is_sampled:  # both are samples of the sequence
            most = self.num_samples + 1
        if n_neighbors is None:
            return DEFAULT_NEIGHBORS if most is None else min(DEFAULT_NEIGHBORS, most)
        check_at_least("n_neighbors", n_neighbors, 1)
        if most is not None and n_neighbors > most:
            raise InvalidSettingError(
                f"`n_neighbors` must be at most {most}, the token itself and the tokens that "
                f"`sampling_type={self.sampling_type!r}` with `num_samples={self.num_samples}` "
                f"leaves, got {n_neighbors}. Omit it, or increase `num_samples`."
            )
        return n_neighbors

    @torch.no_grad()
    def _make_kernels(self) -> None:
        """Depthwise taps start at one, as in softmax attention; others at random."""
        width, n = self.head_dim, self.config.n_neighbors
        n_combined = width + (self.legacy and encodes_coordinates(self.config))
        make = self.proj.weight.new_empty
        mixes, is_separable = (self.convolution_type == name for name in CONVOLUTIONS[::2])
        self.kernel = self.position_kernel = self.pointwise = None
        if self.aggregation_type != "Loc":
            self.kernel = nn.Parameter(make((width, n_combined, n) if mixes else (n_combined, n)))
        if self.aggregation_type != "Col" and not self.legacy:
            self.position_kernel = nn.Parameter(make(width, 2, n))
        if is_separable:
            like = {"device": self.proj.weight.device, "dtype": self.proj.weight.dtype}
            self.pointwise = nn.Linear(n_combined, width, bias=False, **like)
        for kernel in (self.kernel, self.position_kernel):
            if kernel is None:
                continue
            if kernel.dim() == 2 and not (self.legacy and is_separable):
                kernel.fill_(1.0)
            else:
                bound = 1 / math.sqrt(kernel[0].numel())
                kernel.uniform_(-bound, bound)

    @torch.no_grad()
    def init_as_attention(self) -> None:
        """Set the kernels so that the layer is softmax attention if all tokens are neighbors."""
        if self.position_kernel is not None:
            self.position_kernel.zero_()
        if self.pointwise is not None:
            nn.init.eye_(self.pointwise.weight)
        if self.kernel is not None and self.kernel.dim() == 2:
            self.kernel.fill_(1.0)
        elif self.kernel is not None:
            identity = torch.eye(*self.kernel.shape[:2], dtype=self.kernel.dtype)
            self.kernel.copy_(identity[..., None].expand_as(self.kernel))

    @property
    def prefix_attends_patches(self) -> bool:  # type: ignore[override]
        """Whether a prefix token can attend to patches; its first neighbor may be itself."""
        return self.config.n_neighbors > 1 or not self._is_sampled

    @property
    def uses_prefix_count(self) -> bool:  # type: ignore[override]
        """Whether outputs depend on the number of prefix tokens: by positions or sampling."""
        has_positions = {self.config.similarity_type, self.aggregation_type} != {"Col"}
        return not self.legacy and (has_positions or self._is_sampled)

    @property
    def _is_sampled(self) -> bool:
        return self.sampling_type != "all" and self.num_samples != -1

    def project(self, x: Tensor) -> tuple[Any, ...]:
        parts = self._project_merged(x) if self._can_merge(x) else super().project(x)
        if self.config.similarity_type == "Loc":  # values alone; queries and keys are not read
            return parts * 3
        return parts if len(parts) == 3 else (*parts, None)

    def _can_merge(self, x: Tensor) -> bool:
        """Whether `_project_merged` gives the same attention, and is faster."""
        config = self.config
        return (
            self.num_heads == 1
            and not self.legacy
            and config.similarity_type != "Loc"
            and (config.similarity, config.weights) == ("matmul", "softmax")
            and x.shape[0] * x.shape[1] >= 2 * x.shape[2]  # merging is one more product
            and x.dtype in (torch.float32, torch.float64)  # others would round it
            and not _has_autocast(x)
            and not torch.compiler.is_compiling()  # maybe for any number of images
            and is_plain_linear(self.qkv)
        )

    def _project_merged(self, x: Tensor) -> tuple[Tensor, ...]:
        """Queries whose products with the tokens are those of queries and keys, without keys.

        With one head, ⟨Q x, K y⟩ = ⟨Kᵀ Q x, y⟩, so that the tokens themselves are the keys. A bias
        of the keys adds the same to all scores of a query, which a softmax ignores.
        """
        query, key, *value = self.qkv.weight.split(self.head_dim)
        weight = torch.cat([key.T @ query, *value])
        bias = None
        if self.qkv.bias is not None:
            of_query, _, *of_value = self.qkv.bias.split(self.head_dim)
            bias = torch.cat([key.T @ of_query, *of_value])
        merged, *projected = split_heads(F.linear(x, weight, bias), 1, self.head_dim)
        return merged, x[:, None], *projected

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        if self.legacy:
            assert value is not None  # see `check_legacy`
            assert self.kernel is not None
            return legacy_attention(
                query,
                key,
                value,
                self.kernel,
                self.config,
                self._legacy_sampling(mask),
                self.pointwise,
                self.active_dropout,
            )
        attended = convnn_attention(
            query,
            key,
            value,
            self.kernel,
            self.config,
            candidates=self.candidates(query.shape[2], query.device),
            grid=self._grid(query),
            position_kernel=self.position_kernel,
            mask=mask,
            dropout=self.active_dropout,
        )
        return attended if self.pointwise is None else self.pointwise(attended)

    def select_neighbors(self, x: Tensor, mask: Tensor | None = None) -> TokenNeighbors:
        """Select the neighbors of each token.

        Parameters
        ----------
        x : Tensor of shape (B, N, dim)
            Tokens.
        mask : Tensor, default=None
            As `attn_mask` of `forward`.

        Returns
        -------
        TokenNeighbors
            The neighbors that `forward` combines.
        """
        query, key, _ = self.project(x)
        if self.legacy:
            return select_legacy_neighbors(query, key, self.config, self._legacy_sampling(mask))
        candidates = self.candidates(x.shape[1], x.device)
        grid = self._grid(query)
        return select_neighbors(
            query, key, self.config, candidates=candidates, grid=grid, mask=mask
        )

    def candidates(self, n_tokens: int, device: torch.device | None = None) -> Tensor | None:
        """Tokens that can be selected as neighbors.

        Parameters
        ----------
        n_tokens : int
            Number of tokens, prefix tokens included.
        device : torch.device, default=None
            Device of the result.

        Returns
        -------
        Tensor of shape (M,) or None
            Token numbers; None is all.
        """
        if not self._is_sampled:
            return None
        if self.sampling_type == "spatial":
            grid = infer_grid(n_tokens, self.grid_size, self.num_prefix_tokens)
            return spatial_candidates(grid, self.num_samples, self.sample_padding, device=device)
        seed = None if self.training else self.seed
        return random_candidates(
            n_tokens, self.num_samples, self.num_prefix_tokens, seed=seed, device=device
        )

    def _grid(self, query: Tensor) -> Grid | None:
        if self.config.similarity_type == self.aggregation_type == "Col":
            return None
        return infer_grid(query.shape[2], self.grid_size, self.num_prefix_tokens)

    def _legacy_sampling(self, mask: Tensor | None) -> LegacySampling:
        if mask is not None:
            raise InvalidSettingError("`legacy=True` does not support attention masks.")
        return LegacySampling(self.sampling_type, self.num_samples, self.sample_padding)

    def extra_repr(self) -> str:
        config = self.config
        neighbors = f"n_neighbors={config.n_neighbors}, magnitude_type={config.similarity!r}"
        sampled = f"sampling_type={self.sampling_type!r}, num_samples={self.num_samples}"
        return f"{super().extra_repr()}, {neighbors}, {sampled}"


def max_neighbors(sampling_type: str, num_samples: int, n_prefix: int) -> int | None:
    """The most neighbors that samples allow: prefix tokens, samples, and the token itself.

    None is no limit but the number of tokens.

    >>> max_neighbors("random", 4, 1), max_neighbors("spatial", 4, 1), max_neighbors("all", 4, 1)
    (6, 18, None)
    """
    if sampling_type == "all" or num_samples == -1:
        return None
    n_samples = num_samples**2 if sampling_type == "spatial" else num_samples
    return n_samples + n_prefix + 1


def _resolve(name: str, features: str, coordinate_encoding: bool) -> str:
    check_choice(name, features, FEATURES)
    return "Loc_Col" if features == "Col" and coordinate_encoding else features


def _has_autocast(x: Tensor) -> bool:
    kind = x.device.type
    return is_autocast_available(kind) and torch.is_autocast_enabled(kind)


def _check_num_samples(num_samples: int) -> int:
    try:
        return check_at_least("num_samples", num_samples, 1)
    except InvalidSettingError as error:
        raise InvalidSettingError(f"{error} Use −1 for all tokens.") from None
