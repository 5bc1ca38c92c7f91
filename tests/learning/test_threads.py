"""Threads: shares of a batch, each on its own core."""

from __future__ import annotations

import pytest
import torch

from attnknn.learning import threads
from attnknn.learning.threads import in_shares


@pytest.fixture
def three(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)


@pytest.mark.usefixtures("three")
def test_shares_are_all_rows_in_order():
    rows, written = torch.arange(8.0), torch.zeros(8)
    parts = in_shares(lambda a, b: (b.copy_(2 * a), a.tolist())[1], rows, written)
    assert parts == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert torch.equal(written, 2 * rows)
    assert in_shares(len, rows[:1]) == [1]


@pytest.mark.usefixtures("three")
def test_shares_have_no_gradients_and_pass_errors_on():
    weight = torch.ones(6, requires_grad=True)
    assert not any(part.requires_grad for part in in_shares(lambda rows: rows * 2, weight))
    with pytest.raises(ZeroDivisionError):
        in_shares(lambda rows: 1 / (len(rows) - 2), weight)


def test_one_thread_works_where_it_was_called(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(threads, "ThreadPoolExecutor", None)
    assert in_shares(len, torch.zeros(4)) == [4]
