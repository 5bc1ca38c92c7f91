"""Operation counts equal those counted by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from attnknn.vit.functional import reference
from attnknn.vit.functional.attention import select_backend
from attnknn.vit.layers import Attention, ConvNNAttention, KvtAttention
from attnknn.vit.model import count_operations, vit_tiny

B, N, D, K = 2, 10, 6, 3
PROJECTIONS = 2 * B * N * D * 4 * D
CHOOSING = B * N * (N + K * math.ceil(math.log2(K + 1)))


def counted(layer: nn.Module):
    return count_operations(layer, torch.randn(B, N, D))


def test_attention_counts_only_products():
    count = counted(Attention(D, 1))
    assert (count.products, count.selection) == (PROJECTIONS + 4 * B * N * N * D, 0)


def test_selection_and_aggregation_are_counted():
    count = counted(KvtAttention(D, 1, n_neighbors=K))
    assert count.products == PROJECTIONS + 2 * B * N * N * D
    assert count.selection == CHOOSING
    assert count.aggregation == 2 * B * N * K * D
    assert count.total == count.products + count.selection + count.aggregation


@pytest.mark.parametrize(
    ("convolution", "extra"),
    [("depthwise", B * N * K * D), ("standard", 2 * B * N * K * D * D)],
)
def test_a_kernel_over_ranks_adds_the_products_of_its_table(convolution, extra):
    layer = ConvNNAttention(D, 2, n_neighbors=K, convolution_type=convolution)
    extra = extra if convolution == "depthwise" else extra // 2
    assert counted(layer).products == PROJECTIONS + 2 * B * N * N * D + extra


def test_one_head_needs_a_projection_fewer_for_many_tokens():
    layer = ConvNNAttention(D, 1, n_neighbors=K)
    merged = 2 * B * N * D * 3 * D + 2 * D**3
    extra = 2 * B * N * N * D + B * N * K * D
    assert counted(layer).products == merged + extra
    few = count_operations(layer, torch.randn(1, N, D))
    assert few.products == (PROJECTIONS + extra) / B


def test_samples_need_fewer_operations():
    kwargs = {"n_neighbors": K, "sampling_type": "random"}
    few, more = (counted(ConvNNAttention(D, 1, num_samples=n, **kwargs)) for n in (4, 8))
    assert few.products < more.products
    assert few.selection < more.selection


def test_the_reference_backend_counts_selection_too(monkeypatch):
    assert select_backend(torch.zeros(1)) is not reference
    monkeypatch.setattr("attnknn.vit.functional.attention.select_backend", lambda *_: reference)
    assert counted(KvtAttention(D, 1, n_neighbors=K)).selection == CHOOSING


def test_the_model_is_unchanged():
    model = vit_tiny(depth=1, image_size=32, drop=0.5).train()
    count_operations(model, torch.zeros(1, 3, 32, 32))
    assert model.training
    assert all(p.grad is None for p in model.parameters())
