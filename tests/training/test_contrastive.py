"""Contrastive loss against slow loops: own view a positive, itself never, soft labels by weight."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from attnknn.errors import InvalidInputError
from attnknn.training.contrastive import contrastive_loss


def views(n: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(2, n, 5, generator=generator, dtype=torch.float64)
    return drawn[0], drawn[1]


def slow_loss(first, second, shares, temperature, margin):
    """The formula in loops: entry i is row i % B, seen in view i // B."""
    z = F.normalize(torch.cat([first, second]), dim=1).tolist()
    n = len(first)
    total = 0.0
    for i in range(2 * n):
        score, weight = {}, {}
        for j in range(2 * n):
            if j == i:
                continue
            same_row = i % n == j % n
            weight[j] = (
                1.0
                if same_row
                else sum(a * b for a, b in zip(shares[i % n], shares[j % n], strict=True))
            )
            cosine = sum(a * b for a, b in zip(z[i], z[j], strict=True))
            score[j] = (cosine - margin * weight[j]) / temperature
        norm = math.log(sum(math.exp(value) for value in score.values()))
        mine = -sum(weight[j] * (score[j] - norm) for j in score) / sum(weight.values())
        total += mine / (2 * n)
    return total


@given(
    n=st.integers(1, 6),
    seed=st.integers(0, 99),
    temperature=st.floats(0.1, 2.0),
    margin=st.sampled_from([0.0, 0.3]),
    is_soft=st.booleans(),
)
def test_the_loss_equals_the_loops(n, seed, temperature, margin, is_soft):
    first, second = views(n, seed)
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(0, 3, (n,), generator=generator)
    shares = F.one_hot(numbers, 3).double()
    if is_soft:
        shares = torch.softmax(torch.randn(n, 3, generator=generator, dtype=torch.float64), dim=1)
    found = contrastive_loss(
        first, second, shares if is_soft else numbers, temperature=temperature, margin=margin
    )
    expected = slow_loss(first, second, shares.tolist(), temperature, margin)
    assert float(found) == pytest.approx(expected, abs=1e-9)


def test_one_hot_shares_are_label_numbers():
    first, second = views(8)
    numbers = torch.arange(8) % 3
    soft = contrastive_loss(first, second, F.one_hot(numbers, 3).double())
    assert torch.allclose(soft, contrastive_loss(first, second, numbers))


def test_rows_that_share_no_label_leave_only_the_own_view():
    """Then it is the loss of two views alone: each must find its twin among all."""
    first, second = views(6)
    z = F.normalize(torch.cat([first, second]), dim=1)
    scores = (z @ z.T / 0.1).fill_diagonal_(-torch.inf)
    twins = torch.arange(12).roll(6)
    expected = F.cross_entropy(scores, twins)
    assert torch.allclose(contrastive_loss(first, second, torch.arange(6)), expected)


def test_the_order_of_rows_and_views_does_not_matter():
    first, second = views(7)
    labels, order = torch.arange(7) % 2, torch.randperm(7, generator=torch.Generator())
    loss = contrastive_loss(first, second, labels)
    assert torch.allclose(loss, contrastive_loss(second, first, labels))
    assert torch.allclose(loss, contrastive_loss(first[order], second[order], labels[order]))
    assert torch.allclose(loss, contrastive_loss(3 * first, 0.2 * second, labels))


def test_a_margin_asks_for_more_and_gradients_are_finite():
    first, second = (view.requires_grad_() for view in views(6))
    labels = torch.arange(6) % 2
    plain = contrastive_loss(first, second, labels)
    asked = contrastive_loss(first, second, labels, margin=0.3)
    assert asked > plain
    asked.backward()
    assert torch.isfinite(first.grad).all()
    assert first.grad.abs().sum() > 0


def test_views_of_two_shapes_are_refused():
    first, second = views(4)
    with pytest.raises(InvalidInputError, match="one shape"):
        contrastive_loss(first, second[:3], torch.arange(4))
