"""One of every layer, for tests that apply to all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from attnknn.vit.layers import (
    Attention,
    BranchingAttention,
    BranchingConv,
    ConvNNAttention,
    KvtAttention,
    LocalAttention,
    NeighborhoodAttention1D,
    NeighborhoodAttention2D,
    SparseAttention,
    TokenConv1d,
    TokenConv2d,
)

DIM, GRID = 12, {"grid_size": (3, 4), "num_prefix_tokens": 1}  # 13 tokens
N = 13


def convnn(**settings: Any) -> Callable[..., nn.Module]:
    return lambda **more: ConvNNAttention(
        DIM, **{"num_heads": 3, "n_neighbors": 4, **GRID, **settings, **more}
    )


def of(kind: type[nn.Module], **settings: Any) -> Callable[..., nn.Module]:
    return lambda **more: kind(DIM, **{"num_heads": 3, **settings, **more})


LAYERS: dict[str, Callable[..., nn.Module]] = {
    "attention": of(Attention),
    "kvt": of(KvtAttention, n_neighbors=4),
    "local": of(LocalAttention, window_size=2),
    "neighborhood_1d": of(NeighborhoodAttention1D, kernel_size=5),
    "neighborhood_2d": of(NeighborhoodAttention2D, **GRID),
    "sparse_local": of(SparseAttention, mode="local", context_window=4),
    "sparse_strided": of(SparseAttention, mode="strided", context_window=4),
    "conv_1d": of(TokenConv1d, kernel_size=3),
    "conv_2d": of(TokenConv2d, **GRID),
    "branching_attention": of(BranchingAttention, n_neighbors=4),
    "branching_attention_0": of(BranchingAttention, n_neighbors=4, branch_ratio=0.0),
    "branching_attention_1": of(BranchingAttention, n_neighbors=4, branch_ratio=1.0),
    "branching_conv_1d": of(BranchingConv, n_neighbors=4, n_axes=1, kernel_size=3),
    "branching_conv_1d_0": of(BranchingConv, n_neighbors=4, n_axes=1, branch_ratio=0.0),
    "branching_conv_2d": of(BranchingConv, n_neighbors=4, **GRID),
    "branching_conv_2d_0": of(BranchingConv, n_neighbors=4, branch_ratio=0.0, **GRID),
    "convnn": convnn(),
    "convnn_one_head": convnn(num_heads=1, qkv_bias=True),
    "convnn_one_head_random": convnn(num_heads=1, sampling_type="random", num_samples=5),
    "convnn_cosine": convnn(magnitude_type="cosine", weights="raw"),
    "convnn_euclidean": convnn(magnitude_type="euclidean"),
    "convnn_euclidean_raw": convnn(magnitude_type="euclidean", weights="raw"),
    "convnn_random": convnn(sampling_type="random", num_samples=5),
    "convnn_random_euclidean": convnn(
        sampling_type="random", num_samples=5, magnitude_type="euclidean"
    ),
    "convnn_spatial": convnn(sampling_type="spatial", num_samples=2),
    "convnn_padded": convnn(
        sampling_type="spatial", num_samples=1, sample_padding=1, n_neighbors=2
    ),
    "convnn_standard": convnn(convolution_type="standard"),
    "convnn_separable": convnn(convolution_type="depthwise-separable"),
    "convnn_coordinates": convnn(coordinate_encoding=True),
    "convnn_coordinates_random": convnn(
        coordinate_encoding=True, sampling_type="random", num_samples=5
    ),
    "convnn_loc": convnn(similarity_type="Loc"),
    "convnn_loc_spatial": convnn(similarity_type="Loc", sampling_type="spatial", num_samples=3),
    "convnn_of_places": convnn(aggregation_type="Loc"),
    "convnn_legacy": convnn(legacy=True),
    "convnn_legacy_random": convnn(legacy=True, sampling_type="random", num_samples=5),
    "convnn_legacy_spatial": convnn(
        legacy=True, sampling_type="spatial", num_samples=5, magnitude_type="euclidean"
    ),
    "convnn_legacy_coordinates": convnn(
        legacy=True, coordinate_encoding=True, convolution_type="standard"
    ),
    "convnn_legacy_coordinates_spatial": convnn(
        legacy=True,
        coordinate_encoding=True,
        convolution_type="depthwise-separable",
        sampling_type="spatial",
        num_samples=5,
    ),
}
