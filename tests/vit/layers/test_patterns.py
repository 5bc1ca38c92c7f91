"""Local, neighborhood and sparse attention against definitions and other packages."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from attnknn.errors import InvalidSettingError
from attnknn.vit.layers import (
    LocalAttention,
    NeighborhoodAttention1D,
    NeighborhoodAttention2D,
    SparseAttention,
)
from attnknn.vit.layers.base import add_causal_mask
from attnknn.vit.layers.patterns import apply_rotary, window_mask
from tests.vit.layers.every_layer import DIM, LAYERS

CPU = torch.device("cpu")


def window_of(i, length, size):
    """Start and end of the window of token i, one case after the other."""
    start = i - size // 2
    start = 0 if start < 0 else start
    return (length - size, length) if start + size > length else (start, start + size)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 9])
def test_windows_have_one_size_and_move_inwards_at_borders(size):
    found = window_mask(9, size, 1, CPU)
    for i in range(9):
        start, end = window_of(i, 9, size)
        assert found[i].nonzero().flatten().tolist() == list(range(start, end))


@pytest.mark.parametrize("dilation", [2, 3])
def test_dilated_windows_are_windows_of_every_dth_token(dilation):
    found = window_mask(11, 3, dilation, CPU)
    for group in range(dilation):
        members = torch.arange(group, 11, dilation)
        assert torch.equal(found[members][:, members], window_mask(len(members), 3, 1, CPU))
    assert (found.sum(1) == 3).all()


def test_windows_on_a_grid_are_windows_of_rows_and_of_columns():
    layer = NeighborhoodAttention2D(4, 1, kernel_size=(3, 1), grid_size=(4, 5))
    pattern = layer.pattern(20, CPU).view(4, 5, 4, 5)
    assert pattern[0, 2].nonzero().tolist() == [[0, 2], [1, 2], [2, 2]]
    assert (pattern.sum((2, 3)) == 3).all()


@pytest.mark.parametrize(
    ("layer", "sees"),
    [
        (NeighborhoodAttention1D(4, 1, kernel_size=3), [5, 6, 7]),
        (LocalAttention(4, 1, window_size=2), [4, 5, 6, 7, 8]),
        (SparseAttention(4, 1, mode="local", context_window=2), [5, 6, 7]),
        (SparseAttention(4, 1, mode="strided", context_window=4), [2, 6, 10]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_token_only_affects_those_that_attend_to_it(layer, sees):
    x = torch.randn(1, 13, 4)
    changed = x.clone()
    changed[:, 6] += 1
    moved = (layer(x) - layer(changed)).abs().amax((0, 2)) > 1e-6
    assert moved.nonzero().flatten().tolist() == sees


def test_prefix_tokens_attend_to_all_and_all_to_them():
    layer = NeighborhoodAttention2D(4, 1, kernel_size=1, grid_size=(2, 3), num_prefix_tokens=1)
    x = torch.randn(1, 7, 4)
    for token, sees in [(0, list(range(7))), (3, [0, 3])]:
        changed = x.clone()
        changed[:, token] += 1
        moved = (layer(x) - layer(changed)).abs().amax((0, 2)) > 1e-6
        assert moved.nonzero().flatten().tolist() == sees


def test_rotary_scores_depend_only_on_offsets(randn):
    query, key = randn(1, 6), randn(1, 6)
    scores = apply_rotary(query.expand(9, 6)) @ apply_rotary(key.expand(9, 6)).T
    torch.testing.assert_close(scores.diagonal(2), scores[0, 2].expand(7))
    assert not torch.isclose(scores[0, 2], scores[2, 0])
    with_prefix = apply_rotary(query.expand(9, 6), 2)
    torch.testing.assert_close(with_prefix[:2], query.expand(2, 6))
    torch.testing.assert_close(with_prefix[2:], apply_rotary(query.expand(7, 6)))


def test_a_full_window_is_softmax_attention(randn):
    x = randn(2, 9, 12)
    for layer in (
        NeighborhoodAttention1D(12, 3, kernel_size=9),
        NeighborhoodAttention2D(12, 3, kernel_size=3),
        LocalAttention(12, 3, window_size=9, is_rotary=False),
        SparseAttention(12, 3),
    ):
        query, key, value = layer.double().project(x)
        expected = F.scaled_dot_product_attention(query, key, value)
        torch.testing.assert_close(layer.attend(query, key, value, None), expected)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NeighborhoodAttention1D(4, 1, kernel_size=0), "`kernel_size` must be"),
        (lambda: LocalAttention(9, 3), "heads of even width, got 3"),
        (lambda: SparseAttention(4, 1, mode="strided", context_window=0), "`context_window`"),
        (lambda: SparseAttention(4, 1, mode="stride"), "Did you mean 'strided'"),
        (lambda: NeighborhoodAttention2D(4, 1, dilation=(1, 0)), "`dilation` must be"),
    ],
)
def test_invalid_settings_are_refused_by_the_constructor(make, message):
    with pytest.raises(InvalidSettingError, match=message):
        make()


def test_a_window_larger_than_the_sequence_is_refused_by_forward():
    with pytest.raises(InvalidSettingError, match="at most the 5 tokens along an axis, got 9 × 1"):
        NeighborhoodAttention1D(4, 1, kernel_size=9)(torch.zeros(1, 5, 4))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("size", "dilation"), [(9, 1), (8, 1), (5, 2)])
def test_neighborhoods_along_a_sequence_match_natten(size, dilation):
    natten = pytest.importorskip("natten")
    layer = NeighborhoodAttention1D(16, 2, kernel_size=size, dilation=dilation)
    parts = layer.project(torch.randn(2, 21, 16))
    with torch.no_grad():
        expected = natten.na1d(
            *(part.transpose(1, 2).contiguous() for part in parts),
            kernel_size=size,
            dilation=dilation,
        )
    torch.testing.assert_close(layer.attend(*parts, None).transpose(1, 2), expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("size", "dilation"), [((3, 3), (1, 1)), ((4, 3), (1, 2))])
def test_neighborhoods_on_a_grid_match_natten(size, dilation):
    natten = pytest.importorskip("natten")
    layer = NeighborhoodAttention2D(16, 2, kernel_size=size, dilation=dilation, grid_size=(6, 7))
    parts = layer.project(torch.randn(2, 42, 16))
    with torch.no_grad():
        expected = natten.na2d(
            *(part.transpose(1, 2).unflatten(1, (6, 7)).contiguous() for part in parts),
            kernel_size=size,
            dilation=dilation,
        )
    got = layer.attend(*parts, None).transpose(1, 2).unflatten(1, (6, 7))
    torch.testing.assert_close(got, expected)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("is_rotary", [False, True])
def test_local_attention_matches_its_package(is_rotary):
    """The package rotates queries one window too far if it looks ahead, so rotary ones do not."""
    local = pytest.importorskip("local_attention")
    layer = LocalAttention(16, 2, window_size=4, is_rotary=is_rotary)
    x = torch.randn(2, 19, 16)
    parts = layer.project(x)
    oracle = local.LocalAttention(
        window_size=4,
        causal=is_rotary,
        look_backward=1,
        look_forward=int(not is_rotary),
        autopad=True,
        exact_windowsize=True,
        dim=8 if is_rotary else None,
        use_rotary_pos_emb=is_rotary,
    )
    everybody = torch.ones(2, 19, dtype=torch.bool)  # or padding would be looked at
    mask = add_causal_mask(None, x) if is_rotary else None
    torch.testing.assert_close(layer.attend(*parts, mask), oracle(*parts, mask=everybody))


@pytest.mark.parametrize("name", ["local", "neighborhood_2d", "sparse_local", "convnn_random"])
def test_more_prefix_tokens_than_tokens_are_refused(name, randn):
    layer = LAYERS[name](num_prefix_tokens=9)
    with pytest.raises(InvalidSettingError, match="at most 5, the number of tokens, got 9"):
        layer(randn(1, 5, DIM).float())
