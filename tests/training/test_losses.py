"""Losses against slow loops, limits and other implementations."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from attnknn.errors import InvalidInputError
from attnknn.metrics import ece
from attnknn.training.losses import (
    contrastive_loss,
    entropy,
    selective_risk,
    soft_calibration_error,
)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


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
    with pytest.raises(InvalidInputError, match="same shape"):
        contrastive_loss(first, second[:3], torch.arange(4))


def clear_and_mixed_rows(n_rows: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels that follow the sign of a number if it is beyond ±1, and are drawn by chance else."""
    drawn = torch.rand(2, n_rows, generator=torch.Generator().manual_seed(seed)).double()
    numbers = 4 * drawn[0] - 2
    chances = torch.where(numbers.abs() > 1, (numbers > 0).double(), 0.5)
    return numbers[:, None], (drawn[1] < chances).long()


def trained_for(weight: float, coverage: float) -> torch.Tensor:
    """The slope (1,) of a logistic regression, by log-loss and selective risk."""
    inputs, labels = clear_and_mixed_rows(500, seed=0)
    slopes = torch.full((1,), 0.1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([slopes], lr=0.05)
    for _ in range(200):
        losses, confidences = losses_of(slopes, inputs, labels)
        loss = losses.mean() + weight * selective_risk(losses, confidences, coverage)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return slopes.detach()


def losses_of(slopes, inputs, labels):
    scores = inputs @ slopes
    logs = F.logsigmoid(torch.stack([-scores, scores], dim=1))
    return F.nll_loss(logs, labels, reduction="none"), logs.max(dim=1).values.exp()


def test_training_for_a_coverage_lowers_the_risk_at_it_on_other_rows():
    inputs, labels = clear_and_mixed_rows(2000, seed=5)
    risks = {}
    for weight in (0.0, 3.0):
        losses, confidences = losses_of(trained_for(weight, 0.5), inputs, labels)
        risks[weight] = losses[confidences >= confidences.median()].mean().item(), losses.mean()
    assert risks[3.0][0] < risks[0.0][0] - 0.01
    assert risks[3.0][1] > risks[0.0][1]  # at the expense of all rows together


def test_the_selective_risk_moves_confidence_from_wrong_rows_to_right_ones():
    losses = torch.tensor([0.1, 0.1, 3.0, 3.0], dtype=torch.float64)
    confidences = torch.tensor([0.7, 0.6, 0.65, 0.9], dtype=torch.float64, requires_grad=True)
    selective_risk(losses, confidences, 0.5).backward()
    gradient = confidences.grad
    assert gradient[0] < 0 < gradient[3]
    assert gradient.sum().abs() < 1e-9  # only the order of the rows counts
    assert gradient[3] < gradient.abs().max()  # far above the threshold, little can be moved


@given(seed=st.integers(0, 50), coverage=st.floats(0.05, 0.95))
def test_the_selective_risk_is_between_the_smallest_and_the_largest_loss(seed, coverage):
    losses, confidences = random(9, seed=seed).abs(), random(9, seed=seed + 1).sigmoid()
    risk = selective_risk(losses, confidences, coverage)
    assert losses.min() <= risk <= losses.max()
    assert torch.allclose(risk, selective_risk(losses, confidences + 0.3, coverage))


def test_a_hard_selection_is_the_mean_of_the_most_confident_rows():
    losses, confidences = random(20).abs(), random(20, seed=1)
    found = selective_risk(losses, confidences, 0.25, temperature=1e-9)
    order = confidences.argsort(descending=True)
    assert torch.allclose(found, losses[order[:5]].mean())
