"""The largest scores of short rows agree with `torch.topk`."""

from __future__ import annotations

import pytest
import torch

from attnknn.vit.functional import cpu
from attnknn.vit.functional.cpu import largest


@pytest.mark.parametrize("block", [1, 40, 1 << 15])
@pytest.mark.parametrize("n_columns", [1, 2, 33, 256, 257])
def test_scores_and_columns_are_those_of_torch(monkeypatch, randn, block, n_columns):
    monkeypatch.setattr(cpu, "BLOCK_KEYS", block)
    scores = randn(3, 2, 5, n_columns).float() * 1e20
    for n in {1, (n_columns + 1) // 2, n_columns}:
        for some in (scores, scores[:, 1:], scores.mT.contiguous().mT):
            values, columns = largest(some, n)
            expected = some.topk(n)
            assert torch.equal(values, expected.values)
            assert torch.equal(columns, expected.indices)


def test_every_float_keeps_its_order_and_its_bits():
    tiny = torch.finfo(torch.float32).smallest_normal
    ordered = torch.tensor([torch.inf, 3e38, 1.0, tiny, tiny / 4, 0.0, -tiny / 4, -1.0, -torch.inf])
    shuffled = torch.randperm(len(ordered))
    values, columns = largest(ordered[shuffled], len(ordered))
    assert torch.equal(values, ordered)
    assert torch.equal(shuffled[columns], torch.arange(len(ordered)))


def test_equal_scores_are_in_the_order_of_their_columns():
    values, columns = largest(torch.tensor([[2.0, 5.0, 2.0, 5.0, 2.0]]), 4)
    assert values.tolist() == [[5.0, 5.0, 2.0, 2.0]]
    assert columns.tolist() == [[1, 3, 0, 2]]


def test_scores_that_are_not_numbers_come_first():
    values, columns = largest(torch.tensor([1.0, torch.nan, 2.0]), 2)
    assert values[0].isnan()
    assert columns.tolist() == [1, 2]


def test_other_precisions_and_no_scores_are_left_to_torch(randn):
    scores = randn(2, 7)
    assert torch.equal(largest(scores, 3)[1], scores.topk(3).indices)
    assert largest(scores.float(), 0)[0].shape == (2, 0)
    assert largest(scores.float()[:0], 2)[1].shape == (0, 2)
    with pytest.raises(RuntimeError, match="out of range"):
        largest(scores.float(), 8)
