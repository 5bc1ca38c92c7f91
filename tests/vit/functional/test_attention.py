"""Nearest-neighbor attention: both backends against loops, and identities."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from attnknn.errors import InvalidSettingError
from attnknn.vit.functional import (
    Grid,
    NeighborConfig,
    attention,
    convnn_attention,
    cpu,
    reference,
    select_neighbors,
)
from attnknn.vit.functional.grid import random_candidates, token_coordinates

B, H, N, D, K = 2, 2, 10, 4, 3
GRID = Grid(3, 3, n_prefix=1)
BACKENDS = {"reference": reference, "cpu": cpu}


def go(monkeypatch, backend):
    monkeypatch.setattr(attention, "select_backend", lambda *_: BACKENDS[backend])


def score(q, k, similarity):
    if similarity == "cosine":
        return (q @ k / (q.norm() * k.norm())).item()
    return (q @ k / math.sqrt(len(q)) if similarity == "matmul" else -(q - k).norm()).item()


def in_loops(query, key, value, kernel, similarity, weights):
    """The definition, one token at a time; kernel (C, E, K)."""
    out = torch.zeros_like(query)
    for b, h, n in itertools.product(range(B), range(H), range(N)):
        ranked = sorted((-score(query[b, h, n], k, similarity), m) for m, k in enumerate(key[b, h]))
        scores = -torch.tensor([s for s, _ in ranked[:K]], dtype=torch.float64)
        if weights == "softmax":
            scores = scores.softmax(0)
        elif weights == "raw" and similarity == "euclidean":
            scores = 1 / (1 - scores)
        for rank, (_, m) in enumerate(ranked[:K]):
            weight = 1.0 if weights == "ones" else scores[rank]
            out[b, h, n] += weight * kernel[..., rank] @ value[b, h, m]
    return out


@pytest.mark.parametrize("similarity", ["matmul", "cosine", "euclidean"])
@pytest.mark.parametrize("weights", ["softmax", "raw", "ones"])
def test_both_backends_compute_the_definition(monkeypatch, randn, similarity, weights):
    query, key, value = (randn(B, H, N, D) for _ in range(3))
    kernel = randn(D, K) if similarity == "cosine" else randn(D, D, K)
    full = kernel if kernel.dim() == 3 else torch.stack([taps.diag() for taps in kernel.T], -1)
    expected = in_loops(query, key, value, full, similarity, weights)
    for backend in BACKENDS:
        go(monkeypatch, backend)
        got = convnn_attention(
            query, key, value, kernel, NeighborConfig(K, similarity, weights=weights)
        )
        torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("similarity", ["matmul", "cosine", "euclidean"])
@pytest.mark.parametrize("features", ["Col", "Loc", "Loc_Col"])
def test_both_backends_agree_forward_and_backward(monkeypatch, randn, similarity, features):
    for is_sampled, kernel_dim in itertools.product([False, True], [None, 2, 3]):
        agree(monkeypatch, randn, similarity, features, is_sampled, kernel_dim)


def agree(monkeypatch, randn, similarity, features, is_sampled, kernel_dim):
    tensors = [randn(B, H, N, D, grad=True) for _ in range(3)]
    shapes = {None: None, 2: (D, K), 3: (D, D, K)}
    kernel = randn(*shapes[kernel_dim], grad=True) if kernel_dim else None
    places = randn(D, 2, K, grad=True)
    mask = randn(1, 1, N, N) > -0.5
    candidates = random_candidates(N, 5, 1, seed=0) if is_sampled else None
    toward = randn(B, H, N, D)
    found = []
    for backend in BACKENDS:
        go(monkeypatch, backend)
        out = convnn_attention(
            *tensors,
            kernel,
            NeighborConfig(K, similarity, features),
            candidates=candidates,
            grid=GRID,
            position_kernel=places,
            mask=mask,
        )
        leaves = [*tensors[2 * (features == "Loc") :], places, *([kernel] if kernel_dim else [])]
        found.append([out, *torch.autograd.grad((out * toward).sum(), leaves)])
    for one, other in zip(*found, strict=True):
        assert one.isfinite().all()
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("similarity", ["matmul", "cosine", "euclidean"])
@pytest.mark.parametrize("kernel_dim", [2, 3])
@pytest.mark.parametrize("is_sampled", [False, True])
def test_gradients_match_finite_differences(randn, similarity, kernel_dim, is_sampled):
    inputs = [randn(1, 2, 5, 3, grad=True) for _ in range(3)]
    inputs.append(randn(*(3,) * (kernel_dim - 1), 2, grad=True))
    candidates = torch.tensor([0, 2, 3]) if is_sampled else None

    def run(query, key, value, kernel):
        rule = NeighborConfig(2, similarity)
        return convnn_attention(query, key, value, kernel, rule, candidates=candidates)

    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_all_neighbors_with_taps_of_one_equal_softmax_attention(monkeypatch, randn, backend):
    go(monkeypatch, backend)
    query, key, value = (randn(B, H, N, D) for _ in range(3))
    expected = F.scaled_dot_product_attention(query, key, value)
    for kernel in (None, torch.ones(D, N, dtype=torch.float64)):
        torch.testing.assert_close(
            convnn_attention(query, key, value, kernel, NeighborConfig(N)), expected
        )


def test_few_neighbors_with_taps_of_one_equal_softmax_over_the_largest_scores(randn):
    query, key, value = (randn(B, H, N, D) for _ in range(3))
    scores = query @ key.mT / math.sqrt(D)
    least = scores.topk(K).values[..., -1:]
    expected = scores.masked_fill(scores < least, -torch.inf).softmax(-1) @ value
    torch.testing.assert_close(
        convnn_attention(query, key, value, None, NeighborConfig(K)), expected
    )


@pytest.mark.parametrize("size", [3, 5, 7])
def test_nearest_positions_with_weights_of_one_equal_a_convolution(randn, size):
    grids = [Grid(7, 7), Grid(4, 9), Grid(9, 4), Grid(2, 3)]
    for grid, is_depthwise in itertools.product(grids, [False, True]):
        is_convolution(randn, size, grid, is_depthwise)


def is_convolution(randn, size, grid, is_depthwise):
    value = randn(2, 1, grid.n_tokens, 3)
    weight = randn(3, 1 if is_depthwise else 3, size, size)
    images = value[:, 0].mT.unflatten(-1, (grid.height, grid.width))
    expected = F.conv2d(images, weight, padding=size // 2, groups=3 if is_depthwise else 1)
    kernel = weight.flatten(2).squeeze(1) if is_depthwise else weight.flatten(2)
    rule = NeighborConfig(size * size, similarity_type="Loc", weights="ones")
    got = convnn_attention(value, value, value, kernel, rule, grid=grid)
    torch.testing.assert_close(got[:, 0].mT, expected.flatten(2))


def test_images_are_independent(randn):
    query, key, value = (randn(3, H, N, D) for _ in range(3))
    together = convnn_attention(query, key, value, None, NeighborConfig(K))
    alone = convnn_attention(query[1:2], key[1:2], value[1:2], None, NeighborConfig(K))
    torch.testing.assert_close(together[1:2], alone)


@pytest.mark.parametrize("backend", BACKENDS)
def test_masked_tokens_are_never_selected_and_empty_rows_are_zero(monkeypatch, randn, backend):
    go(monkeypatch, backend)
    query, key, value = (randn(B, H, N, D, grad=True) for _ in range(3))
    mask = torch.ones(N, N, dtype=torch.bool)
    mask[0] = False
    mask[1, 2:] = False  # two left, three requested
    for similarity in ("matmul", "euclidean"):
        out = convnn_attention(query, key, value, None, NeighborConfig(K, similarity), mask=mask)
        assert (out[:, :, 0] == 0).all()
        gradients = torch.autograd.grad(out[:, :, 1].sum(), [query, key, value])
        assert all(gradient.isfinite().all() for gradient in gradients)
        assert (gradients[2][:, :, 2:] == 0).all()
        assert (gradients[2][:, :, :2] != 0).all()


@pytest.mark.parametrize("shape", [(N, N), (1, 1, N, N), (B, 1, N, N), (B, H, N, N), (B, 1, 1, N)])
def test_masks_broadcast_and_floats_are_added(monkeypatch, randn, shape):
    query, key, value = (randn(B, H, N, D) for _ in range(3))
    bias = randn(*shape)
    some = torch.tensor([1, 4, 6, 9])
    for mask, candidates in itertools.product((bias, bias > -1), (None, some)):
        found = []
        for backend in BACKENDS:
            go(monkeypatch, backend)
            settings = {"mask": mask, "candidates": candidates}
            found.append(convnn_attention(query, key, value, None, NeighborConfig(K), **settings))
        torch.testing.assert_close(*found)
        whole = {"mask": mask.expand(B, H, N, N), "candidates": candidates}
        torch.testing.assert_close(
            found[0], convnn_attention(query, key, value, None, NeighborConfig(K), **whole)
        )


def test_float_masks_that_the_cpu_backend_cannot_add_use_the_reference(randn):
    bias, query = randn(N, N), randn(1, 1, N, D)
    assert attention.select_backend(query, "euclidean", bias) is reference
    assert attention.select_backend(query, "matmul", bias.requires_grad_()) is reference
    assert attention.select_backend(query, "euclidean", bias > 0) is cpu
    assert attention.select_backend(query.to("meta")) is reference


def test_a_learned_bias_gets_a_gradient(randn):
    query, bias = randn(1, 1, N, D), randn(N, N, grad=True)
    convnn_attention(
        query, query, query, None, NeighborConfig(K), mask=bias
    ).square().sum().backward()
    assert (bias.grad != 0).sum() == N * K


@pytest.mark.parametrize("similarity", ["matmul", "cosine", "euclidean"])
def test_a_sampled_token_is_its_own_first_neighbor_and_never_a_second_time(randn, similarity):
    query, key = randn(B, H, N, D), randn(B, H, N, D)
    candidates = torch.tensor([0, 1, 4, 7])
    tokens = select_neighbors(
        query, key, NeighborConfig(4, similarity), candidates=candidates
    ).tokens()
    assert (tokens[..., 0] == torch.arange(N)).all()
    assert (tokens[..., 1:] != torch.arange(N)[:, None]).all()
    assert set(tokens[..., 1:].unique().tolist()) <= {0, 1, 4, 7}


def test_sampling_every_token_equals_no_sampling(randn):
    query, key, value = (randn(B, H, N, D) for _ in range(3))
    sampled = convnn_attention(
        query, key, value, None, NeighborConfig(N), candidates=torch.arange(N)
    )
    torch.testing.assert_close(sampled, F.scaled_dot_product_attention(query, key, value))


def test_one_neighbor_among_samples_is_the_token_itself(randn):
    value = randn(B, H, N, D)
    out = convnn_attention(
        value, value, value, None, NeighborConfig(1), candidates=torch.tensor([2])
    )
    torch.testing.assert_close(out, value)


def test_a_single_token_attends_to_itself(randn):
    value = randn(B, H, 1, D)
    torch.testing.assert_close(
        convnn_attention(value, -value, value, None, NeighborConfig(1)), value
    )


def test_too_many_neighbors_are_refused_with_the_maximum(randn):
    few = randn(1, 1, 4, D)
    with pytest.raises(InvalidSettingError, match=r"`n_neighbors` must be at most 4.*got 5"):
        convnn_attention(few, few, few, None, NeighborConfig(5))
    with pytest.raises(InvalidSettingError, match=r"at most 3, since there are 2 .*itself, got 4"):
        convnn_attention(few, few, few, None, NeighborConfig(4), candidates=torch.tensor([0, 1]))


@pytest.mark.parametrize(
    "settings",
    [
        {"n_neighbors": 0},
        {"n_neighbors": 2, "similarity": "dot"},
        {"n_neighbors": 2, "weights": "sofmax"},
        {"n_neighbors": 2, "similarity_type": "Color"},
        {"n_neighbors": 2, "feature_weight": 1.5},
    ],
)
def test_invalid_neighbor_configs_are_refused(settings):
    with pytest.raises(ValueError):
        NeighborConfig(**settings)


def test_positions_without_a_grid_are_refused(randn):
    with pytest.raises(InvalidSettingError, match="`grid`"):
        convnn_attention(*[randn(1, 1, 4, D)] * 3, None, NeighborConfig(2, similarity_type="Loc"))


@pytest.mark.parametrize("share", [1e-6, 1.0])
@pytest.mark.parametrize("similarity", ["matmul", "euclidean"])
def test_the_feature_weight_interpolates_from_positions_to_features(randn, share, similarity):
    grid = Grid(3, 4)
    query, key = randn(1, 1, 12, D), randn(1, 1, 12, D)
    both = select_neighbors(
        query, key, NeighborConfig(1, similarity, "Loc_Col", feature_weight=share), grid=grid
    )
    alone = select_neighbors(query, key, NeighborConfig(1, similarity)) if share == 1 else None
    expected = alone.tokens() if alone else torch.arange(12).view(1, 1, 12, 1)
    assert (both.tokens() == expected).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("similarity", ["matmul", "cosine", "euclidean"])
def test_low_precision_selects_like_float64_and_keeps_its_dtype(randn, dtype, similarity):
    short = [randn(B, H, N, D).to(dtype).requires_grad_() for _ in range(3)]
    kernel = randn(D, K).to(dtype)
    out = convnn_attention(*short, kernel, NeighborConfig(K, similarity))
    assert out.dtype == dtype
    out.sum().backward()
    assert all(each.grad.dtype == dtype and each.grad.isfinite().all() for each in short)
    exact = [each.detach().double() for each in short]
    expected = convnn_attention(*exact, kernel.double(), NeighborConfig(K, similarity))
    torch.testing.assert_close(out.double(), expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_vectors_have_distance_zero_and_finite_gradients(monkeypatch, backend):
    go(monkeypatch, backend)
    same = torch.ones(1, 1, 6, D, requires_grad=True)
    out = convnn_attention(same, same, same, None, NeighborConfig(K, "euclidean"))
    out.sum().backward()
    assert same.grad.isfinite().all()


def test_dropout_drops_neighbors_and_keeps_the_mean(randn):
    value = torch.ones(4, 1, 200, 1, dtype=torch.float64)
    query = randn(4, 1, 200, D)
    out = convnn_attention(query, query, value, None, NeighborConfig(8), dropout=0.5)
    assert out.std() > 0.1
    assert out.mean().item() == pytest.approx(1.0, abs=0.1)


def test_position_kernels_combine_coordinates_of_neighbors(randn):
    grid, query, key = Grid(3, 3), randn(1, 1, 9, D), randn(1, 1, 9, D)
    taps = torch.zeros(2, 2, K, dtype=torch.float64)
    taps[0, 0, 0] = taps[1, 1, 0] = 1.0  # row and column of the nearest
    rule = NeighborConfig(K, weights="ones")
    out = convnn_attention(query, key, None, None, rule, grid=grid, position_kernel=taps)
    nearest = select_neighbors(query, key, rule).tokens()[..., 0]
    torch.testing.assert_close(out, token_coordinates(grid).double()[nearest])


@pytest.mark.parametrize("kind", [torch.bool, torch.float64])
def test_masks_do_not_affect_the_padding_of_the_grid(randn, kind):
    grid, value = Grid(3, 3), randn(1, 1, 9, D)
    mask = torch.ones(9, 9, dtype=torch.bool)
    mask[:, 0] = False
    given = mask if kind is torch.bool else torch.zeros(9, 9).masked_fill(~mask, -torch.inf)
    neighbors = select_neighbors(
        value, value, NeighborConfig(9, similarity_type="Loc"), grid=grid, mask=given
    )
    assert torch.equal(neighbors.scores.isneginf(), neighbors.tokens() == 0)
