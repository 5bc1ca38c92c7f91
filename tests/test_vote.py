"""The vote: weights and labels become shares, the same with and without a gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attnknn.attention import Weights
from attnknn.vote import class_prior, class_prior_in_torch, vote, vote_in_torch


def some_votes(seed: int, n_queries: int, k: int, n_classes: int):
    generator = np.random.default_rng(seed)
    masses = generator.random((n_queries, k + 1))
    masses /= masses.sum(axis=1, keepdims=True)
    labels = generator.integers(0, n_classes, (n_queries, k))
    prior = generator.dirichlet(np.ones(n_classes), n_queries)
    return labels, Weights(masses[:, :k], masses[:, k]), prior


sizes = {
    "seed": st.integers(0, 1000),
    "n_queries": st.integers(1, 5),
    "k": st.integers(0, 6),
    "n_classes": st.integers(1, 4),
}


@given(**sizes)
def test_the_vote_is_the_plain_sum(seed, n_queries, k, n_classes):
    labels, weights, prior = some_votes(seed, n_queries, k, n_classes)
    shares = vote(labels, weights, prior)
    for row in range(n_queries):
        for c in range(n_classes):
            plain = (
                weights.neighbors[row][labels[row] == c].sum() + weights.prior[row] * prior[row, c]
            )
            assert shares[row, c] == pytest.approx(plain, abs=1e-14)
    assert np.allclose(shares.sum(axis=1), 1, atol=1e-14)
    assert shares.dtype == np.float64


@given(**sizes)
def test_the_order_of_the_neighbors_does_not_matter(seed, n_queries, k, n_classes):
    labels, weights, prior = some_votes(seed, n_queries, k, n_classes)
    order = np.random.default_rng(seed).permutation(k)
    moved = vote(labels[:, order], Weights(weights.neighbors[:, order], weights.prior), prior)
    assert np.allclose(moved, vote(labels, weights, prior), atol=1e-14)


@given(**sizes)
def test_the_vote_with_a_gradient_gives_the_same_shares(seed, n_queries, k, n_classes):
    labels, weights, prior = some_votes(seed, n_queries, k, n_classes)
    tensors = [torch.from_numpy(a) for a in (labels, weights.neighbors, weights.prior, prior)]
    assert np.allclose(vote_in_torch(*tensors).numpy(), vote(labels, weights, prior), atol=1e-14)


def test_the_gradient_of_the_vote_is_right():
    labels, weights, prior = some_votes(0, 3, 4, 3)
    inputs = [torch.from_numpy(a).requires_grad_() for a in (weights.neighbors, weights.prior)]
    assert torch.autograd.gradcheck(
        lambda neighbors, own: vote_in_torch(
            torch.from_numpy(labels), neighbors, own, torch.from_numpy(prior)
        ),
        inputs,
    )


def test_one_prior_serves_all_queries():
    labels, weights, _ = some_votes(0, 3, 4, 2)
    prior = np.array([0.25, 0.75])
    assert np.array_equal(
        vote(labels, weights, prior), vote(labels, weights, np.tile(prior, (3, 1)))
    )


@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=5))
def test_the_prior_sums_to_one_and_no_class_is_impossible(counts):
    prior = class_prior(np.array(counts))
    assert prior.sum() == pytest.approx(1)
    assert (prior > 0).all()


@given(counts=st.lists(st.integers(1, 9), min_size=2, max_size=5))
def test_an_entry_is_taken_out_of_its_own_prior(counts):
    counts = np.array(counts)
    for own in range(len(counts)):
        without = counts - np.eye(len(counts), dtype=int)[own]
        found = class_prior(counts, own=np.array([own]))[0]
        assert np.allclose(found, class_prior(without))
        assert (found > 0).all()


def test_the_prior_in_torch_is_the_same_with_and_without_the_own_label(rng):
    counts, own = np.array([5, 1, 3]), rng.integers(0, 3, 6)
    found = class_prior_in_torch(torch.from_numpy(counts).double())
    assert found.numpy() == pytest.approx(class_prior(counts))
    without = class_prior_in_torch(torch.from_numpy(counts).double(), torch.eye(3)[own].double())
    assert without.numpy() == pytest.approx(class_prior(counts, own))
    assert class_prior(counts, own).sum(axis=1) == pytest.approx(1)


def test_neighbors_that_all_queries_share_vote_with_class_probabilities(rng):
    masses = rng.dirichlet(np.ones(6), 4)
    codes, prior = rng.integers(0, 3, 5), rng.dirichlet(np.ones(3))
    weights = Weights(masses[:, :5], masses[:, 5])
    expected = vote(np.tile(codes, (4, 1)), weights, prior)
    arrays = (np.eye(3)[codes], weights.neighbors, weights.prior, prior)
    tensors = [torch.from_numpy(array) for array in arrays]
    assert vote_in_torch(*tensors).numpy() == pytest.approx(expected)
