"""The differentiable vote equals the vote of the library, value and gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from attnknn.attention.base import Weights, softmax_weights
from attnknn.calibration import Calibration
from attnknn.fitting.objective import (
    further_terms,
    log_losses,
    log_of,
    observed_probabilities,
    smoothed_loss,
    softmax_with_prior,
)
from attnknn.training import LossTerms
from attnknn.training.losses import entropy, selective_risk, soft_calibration_error
from attnknn.vote import class_prior, class_prior_in_torch, vote, vote_in_torch


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


@given(seed=st.integers(0, 99), n_out=st.integers(0, 4))
def test_softmax_with_prior_is_that_of_attention(seed, n_out):
    scores, prior = random(3, 2, 5, seed=seed), random(3, 2, seed=seed + 1)
    scores[:, :, :n_out] = -torch.inf
    found = softmax_with_prior(scores, prior)
    neighbors, prior_weight = softmax_weights(scores.numpy(), prior.numpy())
    assert np.allclose(found[..., :-1].numpy(), neighbors, atol=1e-12)
    assert np.allclose(found[..., -1].numpy(), prior_weight, atol=1e-12)


def test_votes_with_a_gradient_are_the_vote_of_the_library():
    weights = softmax_with_prior(random(3, 7), torch.tensor(-1.0, dtype=torch.float64))
    codes = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    prior = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    expected = vote(
        np.tile(codes, (3, 1)),
        Weights(weights[:, :-1].numpy(), weights[:, -1].numpy()),
        prior.numpy(),
    )
    for labels in (codes.expand(3, 7), F.one_hot(codes, 3).double()):
        found = vote_in_torch(labels, weights[:, :-1], weights[:, -1], prior)
        assert np.allclose(found.numpy(), expected, atol=1e-12)


def test_a_row_without_voters_gets_the_prior():
    prior = torch.tensor([0.75, 0.25])
    weights = softmax_with_prior(torch.full((1, 3), -torch.inf), torch.tensor(0.0))
    shares = vote_in_torch(torch.eye(2)[[0, 0, 1]], weights[:, :-1], weights[:, -1], prior)
    assert torch.allclose(shares[0], prior)
    assert torch.isfinite(log_of(shares)).all()


def test_the_prior_without_a_row_is_that_of_the_library():
    counts, own = np.array([3, 1, 2]), np.array([0, 2])
    labels = F.one_hot(torch.from_numpy(own), 3).double()
    found = class_prior_in_torch(torch.from_numpy(counts).double(), labels)
    assert np.array_equal(found.numpy(), class_prior(counts, own))
    assert np.array_equal(
        class_prior_in_torch(torch.from_numpy(counts)).double().numpy(),
        class_prior(counts).astype(np.float32),
    )
    soft = class_prior_in_torch(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([[0.5, 0.5, 0.0]]))
    assert torch.allclose(soft.sum(), torch.tensor(1.0))


@pytest.mark.parametrize("kind", ["clean", "symmetric", "by class"])
def test_losses_under_label_noise_are_those_of_calibration(kind):
    shares = torch.softmax(random(6, 3), dim=1)
    own = torch.tensor([0, 1, 2, 0, 1, 2])
    matrix = np.array([[0.8, 0.1, 0.1], [0.0, 0.9, 0.1], [0.2, 0.2, 0.6]])
    noise, calibration = {
        "clean": (None, Calibration()),
        "symmetric": (torch.tensor(0.2, dtype=torch.float64), Calibration(label_noise=0.2)),
        "by class": (torch.from_numpy(matrix), Calibration(label_noise=0.2, transition=matrix)),
    }[kind]
    expected = calibration.losses(shares.numpy(), own.numpy())
    losses = log_losses(shares.log(), own, noise)
    assert np.allclose(losses.numpy(), expected, atol=1e-9)
    observed = observed_probabilities(shares.log(), noise)
    assert torch.allclose(observed.sum(dim=1), torch.ones(6, dtype=torch.float64))
    assert torch.allclose(observed.gather(1, own[:, None])[:, 0], (-losses).exp())


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_smoothing_is_that_of_torch(smoothing):
    logits, own = random(6, 3), torch.tensor([0, 1, 2, 0, 1, 2])
    logs = torch.log_softmax(logits, dim=1)
    found = smoothed_loss(log_losses(logs, own), logs, smoothing)
    assert torch.allclose(found, F.cross_entropy(logits, own, label_smoothing=smoothing))


def test_further_terms_are_added_by_their_weights():
    weights, probabilities = (torch.softmax(random(6, n, seed=n), dim=1) for n in (5, 3))
    own = torch.tensor([0, 1, 2, 0, 1, 2])
    losses = log_losses(probabilities.log(), own)
    given = weights, probabilities, losses, own
    assert further_terms(LossTerms(), *given) == {}
    found = sum(further_terms(LossTerms(0.5, 2.0, 3.0, 0.6), *given).values())
    expected = 2.0 * soft_calibration_error(probabilities, own) - 0.5 * entropy(weights)
    expected = expected + 3.0 * selective_risk(losses, probabilities.max(dim=1).values, 0.6)
    assert torch.allclose(found, expected)
