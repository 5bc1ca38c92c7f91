"""Outputs of the original implementation, from its formulas written as loops."""

from __future__ import annotations

import math

import pytest
import torch

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.vit.layers import ConvNNAttention, import_convnn

B, N, D, K, M = 2, 11, 12, 4, 5


def original_state(randn, heads, convolution="depthwise", *, is_encoded=False):
    """A state dict with its names."""
    width, n_combined = D // heads, D // heads + is_encoded
    state = {f"W_{part}.weight": randn(D, D) / 4 for part in "qkvo"}
    if convolution == "depthwise-separable":
        return state | {
            "conv.0.weight": randn(n_combined, 1, K),
            "conv.1.weight": randn(width, n_combined, 1),
        }
    mixed = 1 if convolution == "depthwise" else n_combined
    return state | {"conv.weight": randn(width, mixed, K)}


def distance(a, b):
    return (a - b).norm()


def scores(a, b, kind, width):
    """Scaled by the width of features, without the coordinate."""
    if kind == "euclidean":
        return distance(a, b)
    scale = a.norm() * b.norm() if kind == "cosine" else math.sqrt(width)
    return a @ b / scale


def and_place(vector, rank, n):
    """Append a channel that goes from −1 to 1 over n tokens."""
    return torch.cat([vector, vector.new_tensor([-1 + 2 * rank / (n - 1)])])


def original_implementation(x, state, heads, kind, candidates, is_softmax, *, is_encoded=False):
    """Its formulas, one token of one head at a time; `W_k` makes the queries."""
    width, is_far = D // heads, kind == "euclidean"
    combined = torch.zeros(B, heads, N, width, dtype=x.dtype)
    for b in range(B):
        for h in range(heads):
            part = slice(h * width, (h + 1) * width)
            query, key, value = (x[b] @ state[f"W_{p}.weight"][part].T for p in "kqv")
            pool = list(range(N)) if candidates is None else candidates
            key = key[pool]
            if is_encoded:  # samples count their own ranks, not their positions
                query, value, key = (
                    torch.stack([and_place(row, n, len(rows)) for n, row in enumerate(rows)])
                    for rows in (query, value, key)
                )
            for n in range(N):
                found = [
                    (float(scores(query[n], key[rank], kind, width)), m)
                    for rank, m in enumerate(pool)
                ]
                if candidates is not None:
                    found = [((1.1 if is_far else -0.1) if m == n else s, m) for s, m in found]
                found.sort(reverse=not is_far)
                chosen = found[:K] if candidates is None else [(1.0, n), *found[: K - 1]]
                s = torch.tensor([s for s, _ in chosen], dtype=x.dtype)
                if is_softmax:
                    w = (-s if is_far else s).softmax(0)
                else:
                    w = 1 / (s + 1e-8) if is_far else s
                gathered = torch.stack([w[j] * value[m] for j, (_, m) in enumerate(chosen)], -1)
                combined[b, h, n] = convolved(gathered, state)
    if heads > 1:  # (B·H, N, d) read as (B, H, d, N)
        combined = combined.reshape(B, heads, width, N).transpose(2, 3)
    return combined.transpose(1, 2).reshape(B, N, D) @ state["W_o.weight"].T


def convolved(gathered, state):
    """(d, K) to (d,)."""
    if "conv.1.weight" in state:
        return state["conv.1.weight"][..., 0] @ (gathered * state["conv.0.weight"][:, 0]).sum(-1)
    weight = state["conv.weight"]
    if weight.shape[1] == 1:
        return (gathered * weight[:, 0]).sum(-1)
    return (weight * gathered).sum((1, 2))


@pytest.mark.parametrize("kind", ["matmul", "cosine", "euclidean"])
@pytest.mark.parametrize("sampling", ["all", "random", "spatial"])
@pytest.mark.parametrize(("heads", "weights"), [(1, "softmax"), (3, "raw"), (3, "softmax")])
@pytest.mark.parametrize(
    ("convolution", "is_encoded"),
    [("depthwise", False), ("standard", True), ("depthwise-separable", True)],
)
def test_outputs_match_the_original_implementation(
    randn, kind, sampling, heads, weights, convolution, is_encoded
):
    state, x = original_state(randn, heads, convolution, is_encoded=is_encoded), randn(B, N, D)
    layer = ConvNNAttention(
        D,
        heads,
        n_neighbors=K,
        sampling_type=sampling,
        num_samples=M,
        magnitude_type=kind,
        weights=weights,
        convolution_type=convolution,
        coordinate_encoding=is_encoded,
        proj_bias=False,
        legacy=True,
        dtype=torch.float64,
    )
    layer.load_state_dict(import_convnn(state))
    torch.manual_seed(3)
    drawn = torch.randperm(N)[:M].tolist()
    along = torch.linspace(0, N - 1, M).long().tolist()
    candidates = {"all": None, "random": drawn, "spatial": along}[sampling]
    torch.manual_seed(3)
    expected = original_implementation(
        x, state, heads, kind, candidates, weights == "softmax", is_encoded=is_encoded
    )
    torch.testing.assert_close(layer(x), expected)


def test_b6_depthwise_convolutions_with_coordinates_cannot_be_built():
    with pytest.raises(ValueError, match="out_channels must be divisible by groups"):
        torch.nn.Conv1d(D + 1, D, K, stride=K, groups=D + 1, bias=False)
    with pytest.raises(InvalidSettingError, match="the original implementation has no such"):
        ConvNNAttention(D, legacy=True, coordinate_encoding=True)


@pytest.mark.parametrize("sampling", ["all", "spatial"])
def test_selected_neighbors_are_those_that_are_combined(randn, sampling):
    settings = {"sampling_type": sampling, "num_samples": M, "coordinate_encoding": True}
    layer = ConvNNAttention(
        D,
        n_neighbors=K,
        **settings,
        convolution_type="standard",
        legacy=True,
        dtype=torch.float64,
    )
    x = randn(B, N, D)
    tokens = layer.select_neighbors(x).tokens()
    assert tokens.shape == (B, 1, N, K)
    changed = x.clone()
    changed[:, 3] += 1e-6
    moved = ((layer(changed) - layer(x)).abs() > 1e-12).any(-1)
    selects = (tokens == 3).any(-1)[:, 0]
    selects[:, 3] = True
    assert torch.equal(moved, selects)


@pytest.mark.parametrize("convolution", ["standard", "depthwise-separable"])
def test_every_convolution_is_imported(randn, convolution):
    state, x = original_state(randn, 1, convolution), randn(B, N, D)
    settings = {"n_neighbors": K, "convolution_type": convolution, "proj_bias": False}
    expected = original_implementation(x, state, 1, "matmul", None, True)
    for legacy in (True, False):  # with one head and all candidates there is no difference
        layer = ConvNNAttention(D, 1, **settings, legacy=legacy, dtype=torch.float64)
        layer.load_state_dict(import_convnn(state))
        torch.testing.assert_close(layer(x), expected)


def test_biases_are_kept_and_a_foreign_state_is_refused(randn):
    state = original_state(randn, 1)
    state |= {f"W_{part}.bias": randn(D) for part in "qkvo"}
    layer = ConvNNAttention(D, 1, qkv_bias=True, n_neighbors=K, dtype=torch.float64)
    layer.load_state_dict(import_convnn(state))
    assert torch.equal(layer.qkv.bias[:D], state["W_k.bias"])
    with pytest.raises(InvalidInputError, match=r"'W_k\.weight' is missing"):
        import_convnn({"qkv.weight": randn(D, D)})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_neighbors": 9}, "at most 5"),
        ({"n_neighbors": 5, "sampling_type": "random", "num_samples": 3}, "at most 4"),
        ({"n_neighbors": 2, "sampling_type": "spatial"}, "must be at least 1, got -1"),
    ],
)
def test_more_neighbors_than_tokens_are_refused(settings, message):
    """B16: torch's own error mentions a selected index."""
    with pytest.raises(InvalidSettingError, match=message):
        ConvNNAttention(12, legacy=True, **settings)(torch.zeros(1, 5, 12))
