"""Blocks of the CPU backend: every block boundary gives the same numbers."""

from __future__ import annotations

import pytest
import torch

from attnknn.vit.functional import NeighborConfig, convnn_attention, cpu, embedding_bag, reference
from attnknn.vit.functional.embedding_bag import image_blocks, row_blocks


@pytest.mark.parametrize("size", [1, 300, 2000, 1 << 20])
def test_blocks_of_any_size_agree_with_the_reference(monkeypatch, randn, size):
    monkeypatch.setattr(embedding_bag, "BLOCK_BYTES", size)
    query, key, value = (randn(3, 2, 7, 4, grad=True) for _ in range(3))
    kernel, mask, excluded = randn(4, 3, grad=True), randn(3, 2, 7, 7) > -1, torch.tensor([5, 0, 3])
    found = []
    for backend in (reference, cpu):
        scores, index = backend.nearest(query, key, 3, mask=mask)
        out = backend.combine(value, index, scores.softmax(-1).nan_to_num(), kernel)
        alone, _ = backend.nearest(query, key[:, :, excluded], 2, excluded=excluded)
        total = out.square().sum() + alone.square().sum()
        found.append([out, alone, *torch.autograd.grad(total, [query, key, value, kernel])])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other)


def test_blocks_cover_everything_once(monkeypatch):
    monkeypatch.setattr(embedding_bag, "BLOCK_BYTES", 100)
    seen = torch.zeros(5, 7)
    for part, rows in row_blocks(torch.arange(2, 5), 7, 40):
        seen[part, rows] += 1
    assert (seen[2:] == 1).all()
    assert (seen[:2] == 0).all()
    assert [part.stop - part.start for part in image_blocks(torch.arange(5), 40)] == [2, 2, 1]


def test_threads_take_shares_of_the_images_and_agree(monkeypatch, randn):
    query, kernel = randn(5, 2, 7, 4, grad=True), randn(4, 3, grad=True)

    def run():
        scores, index = cpu.nearest(query, query, 3)
        out = cpu.combine(query, index, scores.softmax(-1), kernel)
        return [out, *torch.autograd.grad(out.square().sum(), [query, kernel])]

    alone = run()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    for one, other in zip(alone, run(), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
def test_the_operators_pass_torchs_checks(randn):
    query, key = randn(2, 1, 5, 3, grad=True), randn(2, 1, 6, 3, grad=True)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(
        cpu.largest_products, (query, key, 2, None, None, None), test_utils=checks
    )


def test_no_n_by_n_matrix_is_saved_for_the_backward_pass(randn):
    kept = []
    tokens = randn(1, 1, 64, 4, grad=True)

    def keep(saved):
        kept.append(saved.numel())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda saved: saved):
        convnn_attention(tokens, tokens, tokens, torch.ones(4, 3), NeighborConfig(3))
    assert max(kept) <= 64 * 4
