"""Votes over several numbers of neighbors: the average of separate votes, or the one chosen."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import batch

from attnknn.attention import AdaptiveAttention, DistanceAttention, KEnsembleAttention
from attnknn.attention.several import entropies, neighborhood
from attnknn.vote import vote

PRIOR = np.array([0.2, 0.3, 0.5])


def votes_apart(seen, sizes, temperature, prior_score):
    """(H, B, C): the vote of distance attention over each size by itself."""
    attention = DistanceAttention()
    attention.temperature_, attention.prior_score_ = temperature, prior_score
    nearest = [seen.nearest(size) for size in sizes]
    return np.array([vote(s.neighbors.labels, attention.weigh(s), PRIOR) for s in nearest])


def settled(attention, n_neighbors=64, temperature=0.8, prior_score=-2.0):
    attention.settle(n_neighbors)
    attention.temperature_, attention.prior_score_ = temperature, prior_score
    return attention


@pytest.mark.parametrize("leaves_out", [False, True])
def test_the_ensemble_is_the_plain_average_of_separate_votes(leaves_out):
    seen = batch(n_entries=14, k=12, leaves_out=leaves_out)
    ensemble = settled(KEnsembleAttention(sizes=(1, 4, 12)))
    ours = vote(seen.neighbors.labels, ensemble.weigh(seen), PRIOR)
    assert np.allclose(ours, votes_apart(seen, (1, 4, 12), 0.8, -2.0).mean(axis=0), atol=1e-12)


def test_a_weighted_ensemble_is_the_weighted_average_of_separate_votes():
    seen = batch(k=12)
    ensemble = settled(KEnsembleAttention(sizes=(2, 12)))
    ensemble.weights_ = np.array([0.3, 0.7])
    apart = votes_apart(seen, (2, 12), 0.8, -2.0)
    ours = vote(seen.neighbors.labels, ensemble.weigh(seen), PRIOR)
    assert np.allclose(ours, 0.3 * apart[0] + 0.7 * apart[1], atol=1e-12)


@pytest.mark.parametrize("threshold", [0.0, 0.5, 5.0])
def test_adaptive_attention_is_the_vote_over_the_size_it_chose(threshold):
    seen = batch(k=12, n_queries=30)
    adaptive = settled(AdaptiveAttention(sizes=(2, 5, 12)))
    adaptive.threshold_ = threshold
    apart = votes_apart(seen, (2, 5, 12), 0.8, -2.0)
    ours = vote(seen.neighbors.labels, adaptive.weigh(seen), PRIOR)
    chosen = adaptive.mixing(seen).argmax(axis=1)
    assert np.allclose(ours, apart[chosen, np.arange(30)], atol=1e-12)


def test_small_sizes_are_chosen_where_neighbors_agree_and_large_ones_where_not():
    seen = batch(k=12, n_queries=40, n_entries=200)
    adaptive = settled(AdaptiveAttention(sizes=(2, 5, 12)))
    adaptive.threshold_ = 0.1
    chosen = adaptive.mixing(seen).argmax(axis=1)
    labels = seen.neighbors.labels
    for row in range(40):
        is_pure = [len(set(labels[row, :size])) == 1 for size in (2, 5, 12)]
        assert chosen[row] == (is_pure.index(True) if any(is_pure) else 2)
    assert set(chosen) >= {0, 2}


def test_a_higher_threshold_is_content_with_fewer_neighbors():
    seen = batch(k=12, n_queries=40, n_entries=200)
    adaptive = settled(AdaptiveAttention(sizes=(2, 5, 12)))
    means = []
    for threshold in (0.0, 0.6, 9.0):
        adaptive.threshold_ = threshold
        means.append(adaptive.mixing(seen).argmax(axis=1).mean())
    assert means == sorted(means, reverse=True)
    assert means[-1] == 0


def test_entropy_is_that_of_the_plain_vote():
    seen = batch(k=8)
    found = entropies(seen, (3, 8))
    for row in range(len(seen.queries)):
        for column, size in enumerate((3, 8)):
            say, labels = seen.sample_weight[row, :size], seen.neighbors.labels[row, :size]
            shares = np.array([say[labels == c].sum() for c in range(3)]) / say.sum()
            shares = shares[shares > 0]
            assert found[row, column] == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-12)


def test_what_the_mixture_looks_at_has_no_unit():
    seen = batch(k=8)
    before = neighborhood(seen, (2, 8))
    seen.squared[:] *= 1e6
    assert np.allclose(neighborhood(seen, (2, 8)), before)
    assert before.shape == (7, 4)
    assert np.allclose(before[:, 3], 1)


def test_default_sizes_are_parts_of_the_largest():
    assert settled(KEnsembleAttention(), 64).sizes_ == (4, 16, 64)
    assert settled(KEnsembleAttention(), 3).sizes_ == (1, 3)
