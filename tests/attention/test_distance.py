"""Uniform and distance attention against their formulas."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from strategies import batch

from attnknn.attention import DistanceAttention, PowerDistanceAttention, UniformAttention
from attnknn.errors import InvalidSettingError


def plain_softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


@pytest.mark.parametrize("leaves_out", [False, True])
def test_distance_weights_are_a_softmax_over_neighbors_and_prior(leaves_out):
    seen = batch(leaves_out=leaves_out, n_entries=12, k=9)
    attention = DistanceAttention()
    attention.temperature_, attention.prior_score_ = 0.7, -1.5
    weights = attention.weigh(seen)
    for row in range(len(seen.queries)):
        found = seen.neighbors.mask[row]
        scores = -(seen.neighbors.distances[row][found] ** 2) / 0.7 + np.log(
            seen.sample_weight[row][found]
        )
        expected = plain_softmax(np.append(scores, -1.5))
        assert np.allclose(weights.neighbors[row][found], expected[:-1], atol=1e-12)
        assert weights.prior[row] == pytest.approx(expected[-1], abs=1e-12)
        assert (weights.neighbors[row][~found] == 0).all()


@pytest.mark.parametrize("power", [0.1, 1.0, 1.5])
def test_power_weights_are_those_of_the_distances_to_the_power(power):
    seen = batch(leaves_out=True, n_entries=12, k=9)
    attention, plain = PowerDistanceAttention(), DistanceAttention()
    attention.power_ = power
    for one in (attention, plain):
        one.temperature_, one.prior_score_ = 0.7, -1.5
    bent = replace(seen, squared=seen.squared**power)
    assert np.allclose(attention.weigh(seen).neighbors, plain.weigh(bent).neighbors, atol=1e-12)
    by_hand = PowerDistanceAttention(power=power)
    by_hand.temperature_, by_hand.prior_score_ = 0.7, -1.5
    assert np.array_equal(by_hand.weigh(seen).prior, attention.weigh(seen).prior)


class ScalarFits:
    """A stand-in for the fit: the loss grows with the distance from the best power."""

    def __init__(self, attention, best, needed):
        self.attention, self.best, self.needed = attention, best, needed

    def sample(self, n_rows, n_neighbors):
        assert n_rows > n_neighbors
        return self

    def fit_scalars(self):
        return SimpleNamespace(loss=abs(self.attention.power_ - self.best))

    def is_better(self, simple, rich):
        return simple.loss - rich.loss > self.needed


@pytest.mark.parametrize(("needed", "chosen"), [(0.3, 0.5), (0.6, 1.0)])
def test_the_best_power_is_kept_if_it_is_significantly_better_than_one(needed, chosen):
    attention = PowerDistanceAttention()
    attention.fit_parameters(ScalarFits(attention, 0.5, needed))
    assert attention.power_ == chosen


def test_a_power_must_be_above_zero():
    with pytest.raises(InvalidSettingError, match="`power` must be"):
        PowerDistanceAttention(power=0.0).scores(batch())


def test_some_places_are_empty_in_the_test_above():
    assert not batch(leaves_out=True, n_entries=12, k=9).neighbors.mask.all()


def test_uniform_weights_are_alike_up_to_sample_weight():
    seen = batch()
    weights = UniformAttention().weigh(seen)
    assert np.allclose(
        weights.neighbors, seen.sample_weight / seen.sample_weight.sum(axis=1, keepdims=True)
    )
    assert (weights.prior == 0).all()


@pytest.mark.parametrize("prior_weight", [0.0, 0.2, 0.9])
def test_the_prior_of_the_uniform_vote_has_the_weight_it_is_given(prior_weight):
    assert np.allclose(UniformAttention(prior_weight).weigh(batch()).prior, prior_weight)


def test_a_high_temperature_is_a_uniform_vote_and_a_low_one_the_nearest_neighbor():
    seen = batch()
    seen.sample_weight[:] = 1
    attention = DistanceAttention()
    attention.prior_score_ = -np.inf
    attention.temperature_ = 1e12
    assert np.allclose(attention.weigh(seen).effective_neighbors, 6)
    attention.temperature_ = 1e-9
    assert np.allclose(attention.weigh(seen).neighbors[:, 0], 1)
    assert np.allclose(attention.weigh(seen).effective_neighbors, 1)


def test_a_vote_of_nobody_goes_to_the_prior():
    seen = batch().nearest(0)
    assert (UniformAttention().weigh(seen).prior == 1).all()
    assert (DistanceAttention().weigh(seen).prior == 1).all()


def test_scores_of_any_size_do_not_overflow():
    seen = batch()
    seen.squared[:] *= 1e300
    weights = DistanceAttention().weigh(seen)
    assert np.isfinite(weights.neighbors).all()
    assert np.allclose(weights.neighbors.sum(axis=1) + weights.prior, 1)
