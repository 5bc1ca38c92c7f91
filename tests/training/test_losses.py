"""Losses against slow loops, limits and other implementations."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from attnknn.metrics import ece
from attnknn.training.losses import entropy, soft_calibration_error, soft_cross_entropy


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@given(seed=st.integers(0, 99), smoothing=st.floats(0.0, 0.9))
def test_cross_entropy_equals_the_sum_written_out(seed, smoothing):
    logits, labels = random(5, 4, seed=seed), torch.softmax(random(5, 4, seed=seed + 1), dim=1)
    total = 0.0
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        norm = math.log(sum(math.exp(value) for value in row))
        for value, share in zip(row, label, strict=True):
            total -= ((1 - smoothing) * share + smoothing / 4) * (value - norm) / 5
    found = soft_cross_entropy(logits, labels, smoothing=smoothing)
    assert float(found) == pytest.approx(total)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_label_numbers_give_the_loss_of_torch(smoothing):
    logits, labels = random(6, 3), torch.tensor([0, 1, 2, 2, 1, 0])
    expected = F.cross_entropy(logits, labels, label_smoothing=smoothing)
    assert torch.allclose(soft_cross_entropy(logits, labels, smoothing=smoothing), expected)


def test_cross_entropy_is_least_at_the_smoothed_labels():
    labels = torch.softmax(random(4, 3), dim=1)
    targets = 0.8 * labels + 0.2 / 3
    best = soft_cross_entropy(targets.log(), labels, smoothing=0.2)
    for seed in range(5):
        moved = targets.log() + 0.1 * random(4, 3, seed=seed)
        assert soft_cross_entropy(moved, labels, smoothing=0.2) >= best
    assert torch.allclose(best, entropy(targets))


@given(n=st.integers(1, 9))
def test_entropy_is_that_of_even_and_certain_shares(n):
    even = torch.full((2, n), 1 / n, dtype=torch.float64)
    assert float(entropy(even)) == pytest.approx(math.log(n), abs=1e-9)
    certain = torch.eye(n, dtype=torch.float64).requires_grad_()
    value = entropy(certain)
    assert float(value.detach()) == 0.0
    value.backward()
    assert torch.isfinite(certain.grad).all()


def left_out(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    probabilities = torch.softmax(2 * random(200, 4, seed=seed), dim=1)
    drawn = torch.randint(0, 4, (200,), generator=torch.Generator().manual_seed(seed))
    return probabilities, drawn


@pytest.mark.parametrize("n_bins", [5, 15])
def test_the_soft_error_tends_to_the_one_by_bins(n_bins):
    probabilities, labels = left_out()
    expected = ece(labels.numpy(), probabilities.numpy(), n_bins=n_bins)
    found = [
        float(soft_calibration_error(probabilities, labels, n_bins=n_bins, temperature=t))
        for t in (1e-2, 1e-4, 1e-9)
    ]
    assert found[-1] == pytest.approx(expected, abs=1e-9)
    assert abs(found[1] - expected) < abs(found[0] - expected) + 1e-9


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("is_soft", [False, True])
def test_the_soft_error_equals_the_formula_written_out(power, is_soft):
    probabilities, labels = left_out(seed=3)
    shares = torch.softmax(random(200, 4, seed=4), dim=1) if is_soft else F.one_hot(labels, 4)
    total = 0.0
    memberships = []
    for row in probabilities.tolist():
        closeness = [math.exp(-((max(row) - (m + 0.5) / 7) ** 2) / 0.01) for m in range(7)]
        memberships.append([value / sum(closeness) for value in closeness])
    for m in range(7):
        size = sum(row[m] for row in memberships)
        gap = 0.0
        for row, share, member in zip(
            probabilities.tolist(), shares.tolist(), memberships, strict=True
        ):
            gap += member[m] * (share[row.index(max(row))] - max(row))
        total += size / 200 * abs(gap / size) ** power
    found = soft_calibration_error(
        probabilities, shares if is_soft else labels, n_bins=7, temperature=0.01, power=power
    )
    assert float(found) == pytest.approx(total ** (1 / power))


@pytest.mark.parametrize("power", [1, 2])
def test_following_the_gradient_calibrates(power):
    """Overconfident logits are divided by a number that the error alone finds."""
    truth = torch.softmax(random(2000, 3), dim=1)
    labels = torch.multinomial(truth, 1, generator=torch.Generator().manual_seed(0))[:, 0]
    log_scale = torch.tensor(math.log(3.0), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([log_scale], lr=0.05)
    for _ in range(120):
        optimizer.zero_grad()
        probabilities = torch.softmax(log_scale.exp() * truth.log(), dim=1)
        soft_calibration_error(probabilities, labels, temperature=0.01, power=power).backward()
        optimizer.step()
    assert float(log_scale.detach().exp()) == pytest.approx(1.0, abs=0.15)
