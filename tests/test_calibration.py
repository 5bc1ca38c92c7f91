"""Calibration: what it fits is what the data were made with, and its gradients are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from attnknn.attention import DistanceAttention, Scores, Weights
from attnknn.attention.base import softmax_weights
from attnknn.calibration import Calibration, CalibrationBatch, fit
from attnknn.calibration.fitting import (
    estimate_confusions,
    fit_given_noise,
    heuristic_fit,
    identity_fit,
    sample_rows,
)
from attnknn.calibration.likelihood import Free, Likelihood
from attnknn.calibration.mixing import _loss, fit_mixing
from attnknn.vote import vote


def simulated(
    n: int = 2500, k: int = 6, n_classes: int = 4, *, sharpness: float = 1.0, seed: int = 0
) -> CalibrationBatch:
    """Rows whose true labels are drawn from their own shares at temperature 2, prior's score -1.

    With `sharpness` other than 1 they are drawn from the shares to that power.
    """
    generator = np.random.default_rng(seed)
    squared = np.sort(generator.gamma(1.0, 6.0, (n, k)), axis=1)
    labels = generator.integers(0, n_classes, (n, k))
    prior = np.full((n, n_classes), 1 / n_classes)
    batch = CalibrationBatch(
        Scores(-squared[:, None], np.zeros((n, 1))),
        np.zeros((n, k)),
        labels,
        np.ones((n, k), dtype=bool),
        np.zeros(n, dtype=np.int64),
        prior,
    )
    shares = shares_of(batch, 2.0, -1.0)
    chances = Calibration(exponent=sharpness).probabilities(shares)
    own = (generator.random((n, 1)) > chances.cumsum(axis=1)).sum(axis=1)
    return replace(batch, own=np.minimum(own, n_classes - 1))


def shares_of(batch: CalibrationBatch, temperature: float, prior_score: float) -> np.ndarray:
    scores = batch.scores.neighbors / temperature + batch.log_sample_weight[:, None]
    neighbors, prior = softmax_weights(scores, batch.scores.prior + prior_score)
    return vote(batch.labels, Weights(neighbors[:, 0], prior[:, 0]), batch.prior)


def noised(batch: CalibrationBatch, chances: np.ndarray, seed: int = 1) -> CalibrationBatch:
    """Labels seen through a matrix of confusions, true by observed."""
    generator = np.random.default_rng(seed)
    seen = (generator.random((len(batch.own), 1)) > chances[batch.own].cumsum(axis=1)).sum(axis=1)
    return replace(batch, own=seen)


def symmetric(noise: float, n_classes: int = 4) -> np.ndarray:
    return np.where(np.eye(n_classes, dtype=bool), 1 - noise, noise / (n_classes - 1))


def test_temperature_and_prior_are_recovered():
    fitted = fit(simulated(), label_noise=None)
    assert fitted.temperature == pytest.approx(2.0, rel=0.25)
    assert fitted.prior_score == pytest.approx(-1.0, abs=0.35)
    assert fitted.calibration == Calibration(no_estimate="not modeled: label_noise=None")


def test_the_exponent_is_recovered_where_the_scores_are_given():
    batch = simulated(sharpness=2.5)
    given_scores = {"temperature": 2.0, "prior_score": -1.0}
    fitted = fit(batch, label_noise=None, fixed=given_scores)
    assert fitted.calibration.exponent == pytest.approx(2.5, rel=0.1)
    assert (fitted.temperature, fitted.prior_score) == (2.0, -1.0)
    assert (
        fit(batch, label_noise=None, fixed=given_scores, fits_map=False).calibration.exponent == 1
    )


def test_what_the_user_set_is_respected():
    fitted = fit(simulated(400), fixed={"temperature": 7.0})
    assert fitted.temperature == 7.0
    fitted = fit(simulated(400), fixed={"prior_score": 0.5})
    assert fitted.prior_score == 0.5


def test_thirty_percent_of_wrong_labels_are_found():
    batch = noised(simulated(6000, sharpness=4.0), symmetric(0.3))
    fitted = fit(batch)
    assert fitted.calibration.label_noise == pytest.approx(0.3, abs=0.03)
    assert fit(batch, label_noise=None).calibration.label_noise == 0.0


def test_clean_labels_show_no_noise():
    assert fit(simulated(4000, sharpness=4.0)).calibration.label_noise == 0.0
    assert fit(simulated(4000)).calibration.label_noise == 0.0


@pytest.mark.parametrize(("n", "rate"), [(500, 0.1), (2000, 0.3)])
def test_the_standard_error_of_noise_is_that_of_a_share_or_a_little_more(n, rate):
    estimates = []
    for seed in range(4):
        batch = noised(simulated(n, sharpness=6.0), symmetric(rate), seed)
        found = fit(batch).calibration
        of_share = np.sqrt(rate * (1 - rate) / n)
        assert of_share < found.noise_error < 3 * of_share
        estimates.append((found.label_noise - rate) / found.noise_error)
    assert np.abs(estimates).max() < 3.0


def test_small_noise_is_not_found_but_bounded():
    found = fit(noised(simulated(4000, sharpness=6.0), symmetric(0.01))).calibration
    assert found.label_noise == 0.0
    assert found.estimated_noise == 0.0
    assert 0.01 < 2 * found.noise_error < 0.03
    assert found.noise_words == f"none found, at most {2 * found.noise_error:.3f}"


def test_noise_is_not_estimable_from_votes_without_information(rng):
    batch = simulated(300)
    found = fit(replace(batch, own=rng.integers(0, 4, 300))).calibration
    assert found.label_noise == 0.0
    assert np.isnan(found.estimated_noise)
    assert found.noise_words.startswith("not estimable: wrong labels and ambiguous rows")


def test_noise_of_few_rows_is_not_estimable():
    found = fit(noised(simulated(12, sharpness=4.0), symmetric(0.1))).calibration
    assert np.isnan(found.estimated_noise)
    assert not found.has_noise


def test_noise_that_is_asked_for_has_an_error_that_reaches_zero_where_it_is_not_significant(rng):
    batch = replace(simulated(300), own=rng.integers(0, 4, 300))
    found = fit(batch, label_noise="symmetric").calibration
    assert found.has_noise
    assert 2 * found.noise_error >= found.label_noise


def test_symmetric_noise_is_kept_when_asked_for():
    assert 0 < fit(simulated(1000), label_noise="symmetric").calibration.label_noise < 0.1


@pytest.mark.parametrize("transition", [None, symmetric(0.3)])
def test_noise_that_is_known_is_held_and_the_rest_is_fitted(transition):
    batch = noised(simulated(6000), symmetric(0.3))
    fitted = fit_given_noise(Calibration(label_noise=0.3, transition=transition), batch)
    assert fitted.calibration.label_noise == pytest.approx(0.3, abs=1e-6)
    assert fitted.calibration.exponent == pytest.approx(1.0, abs=0.15)
    assert fitted.temperature == pytest.approx(2.0, rel=0.2)


def test_confusions_by_class_are_found():
    truth = np.eye(4)
    truth[0] = [0.7, 0.3, 0, 0]
    truth[2] = [0, 0, 0.8, 0.2]
    fitted = fit(noised(simulated(8000, sharpness=5.0), truth), label_noise="by_class")
    transition = fitted.calibration.transition
    assert np.allclose(transition.sum(axis=1), 1)
    assert np.abs(transition - truth).max() < 0.08
    assert fitted.calibration.label_noise == pytest.approx((0.3 + 0.2) / 4, abs=0.03)


def test_the_losses_of_a_fit_are_those_of_its_calibration():
    batch = noised(simulated(500, sharpness=3.0), symmetric(0.3))
    for noise in (None, "symmetric", "by_class"):
        fitted = fit(batch, label_noise=noise)
        shares = shares_of(batch, fitted.temperature, fitted.prior_score)
        assert np.allclose(fitted.calibration.losses(shares, batch.own), fitted.losses, atol=1e-9)
        assert fitted.loss == pytest.approx(fitted.losses.mean())


def total(found):
    losses, _, surprise = found
    return losses.sum() + surprise


@pytest.mark.parametrize("free", [Free(), Free(exponent=True), Free(exponent=True, noise=True)])
@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("mixes", [False, True])
def test_gradients_agree_with_finite_differences(free, by_class, mixes, rng):
    batch = noised(simulated(60), symmetric(0.2))
    batch.mask[:5, 3:] = False
    if mixes:
        both = np.repeat(batch.scores.neighbors, 2, axis=1)
        both[:, 0, 2:] = -np.inf
        scores = Scores(both, np.zeros((60, 2)), rng.dirichlet([1, 1], 60))
        batch = replace(batch, scores=scores)
    problem = Likelihood(batch, {})
    transition = symmetric(0.3) if by_class else None
    start = np.array([0.4, -0.7, 0.3, -1.0])
    _, gradient, _ = problem._losses(start, free, transition)
    for place in range(4):
        step = np.zeros(4)
        step[place] = 1e-6
        above = total(problem._losses(start + step, free, transition))
        below = total(problem._losses(start - step, free, transition))
        assert gradient[place] == pytest.approx((above - below) / 2e-6, rel=1e-5, abs=1e-6)


shares_strategy = arrays(np.float64, (3, 4), elements=st.floats(1e-12, 1.0))


@given(shares=shares_strategy, exponent=st.floats(0.08, 12.0))
def test_the_map_gives_probabilities_and_keeps_the_winner(shares, exponent):
    shares = shares / shares.sum(axis=1, keepdims=True)
    probabilities = Calibration(exponent=exponent).probabilities(shares)
    assert np.allclose(probabilities.sum(axis=1), 1, atol=1e-12)
    assert (probabilities > 0).all()
    winner = shares.argmax(axis=1)
    assert (probabilities[np.arange(3), winner] == probabilities.max(axis=1)).all()
    above = shares[:, :, None] >= shares[:, None]
    assert (probabilities[:, :, None] >= probabilities[:, None])[above].all()


@given(shares=shares_strategy, noise=st.floats(0.0, 0.7))
def test_observed_labels_have_probabilities_too(shares, noise):
    shares = shares / shares.sum(axis=1, keepdims=True)
    plain = Calibration(label_noise=noise).observed(shares)
    assert np.allclose(plain.sum(axis=1), 1)
    by_class = Calibration(label_noise=noise, transition=symmetric(noise)).observed(shares)
    assert np.allclose(plain, by_class)


def test_the_map_takes_shares_of_any_size():
    found = Calibration(12.0).probabilities(np.array([[1e-40, 2e-40], [1e40, 1e40]]))
    assert found == pytest.approx(np.array([[1 / 4097, 4096 / 4097], [0.5, 0.5]]))


def test_a_new_class_is_taken_to_be_labeled_right():
    wider = Calibration(label_noise=0.3, transition=symmetric(0.3)).with_classes(5)
    assert wider.transition.shape == (5, 5)
    assert wider.transition[4].tolist() == [0, 0, 0, 0, 1]
    assert np.allclose(wider.transition.sum(axis=1), 1)


def test_one_class_fits_without_a_noise_of_labels():
    batch = simulated(50)
    alone = replace(batch, labels=batch.labels * 0, own=batch.own * 0, prior=np.ones((50, 1)))
    for noise in ("auto", "symmetric", "by_class"):
        found = fit(alone, label_noise=noise).calibration
        assert found == Calibration(no_estimate="not estimable: there is one class")


def test_where_no_neighbor_is_right_the_prior_gets_all_the_weight():
    batch = simulated(50)
    novel = replace(batch, own=np.full(50, 3), labels=batch.labels % 3)
    fitted = fit(novel, label_noise=None)
    assert fitted.losses == pytest.approx(np.full(50, np.log(4)), abs=1e-3)


def test_a_fit_without_calibration_keeps_to_a_rule_of_thumb():
    fitted = heuristic_fit(simulated(50), {"prior_score": -2.0})
    assert fitted.prior_score == -2.0
    assert fitted.temperature > 0


def test_large_problems_are_fitted_on_a_sample(rng):
    assert len(sample_rows(500_000, 10, rng)) == 10_000
    assert sample_rows(7, 10, rng).tolist() == list(range(7))
    assert len(np.unique(sample_rows(100, 10, rng, 30))) == 30


def test_neighbors_that_were_not_found_move_nothing():
    batch = simulated(200)
    scores = Scores(
        np.pad(batch.scores.neighbors, ((0, 0), (0, 0), (0, 2)), constant_values=-9e9),
        batch.scores.prior,
    )
    padded = replace(
        batch,
        scores=scores,
        log_sample_weight=np.pad(batch.log_sample_weight, ((0, 0), (0, 2))),
        labels=np.pad(batch.labels, ((0, 0), (0, 2))),
        mask=np.pad(batch.mask, ((0, 0), (0, 2))),
    )
    one, two = fit(batch, label_noise=None), fit(padded, label_noise=None)
    assert two.loss == pytest.approx(one.loss, abs=1e-9)


def test_the_fit_moves_with_the_unit_of_distance():
    batch = simulated(800)
    wider = replace(batch, scores=replace(batch.scores, neighbors=batch.scores.neighbors * 1e6))
    one, two = fit(batch, label_noise=None), fit(wider, label_noise=None)
    assert two.temperature == pytest.approx(one.temperature * 1e6, rel=0.02)
    assert two.loss == pytest.approx(one.loss, abs=1e-4)
    assert DistanceAttention().temperature is None


def test_few_rows_leave_temperature_and_exponent_near_home():
    batch = simulated(30)
    sure = replace(batch, own=batch.labels[:, 0])  # the nearest is always right: sharper is better
    fitted = fit(sure, label_noise=None, start=(1.0, 0.0))
    assert 1e-2 < fitted.temperature < 1e2
    assert fitted.calibration.exponent < 12


def test_scores_left_as_they_are_have_the_losses_of_their_shares():
    batch = simulated(40)
    fitted = identity_fit(batch)
    assert (fitted.temperature, fitted.prior_score) == (1.0, 0.0)
    shares = Likelihood(batch, {}).shares(1.0, 0.0)
    assert fitted.losses == pytest.approx(-np.log(shares[np.arange(40), batch.own]))


@pytest.mark.parametrize("kind", ["symmetric", "by class"])
def test_the_noise_of_now_is_what_corrections_leave(kind, rng):
    p = rng.dirichlet(np.full(3, 0.2), 6000)
    true = (p.cumsum(axis=1) > rng.random((6000, 1))).argmax(axis=1)
    by_class = np.array([[0.7, 0.3, 0.0], [0.0, 0.9, 0.1], [0.1, 0.1, 0.8]])
    fitted = (
        Calibration(label_noise=0.3) if kind == "symmetric" else Calibration(1.0, 0.2, by_class)
    )
    observed = (fitted.confusions(3)[true].cumsum(axis=1) > rng.random((6000, 1))).argmax(axis=1)
    left = np.where(np.arange(6000) < 3000, true, observed)
    too_sure = Calibration(exponent=1.5).probabilities(p)
    for probabilities in (p, too_sure):
        for labels, strength in ((observed, 1.0), (left, 0.5), (true, 0.0)):
            found = estimate_confusions(fitted, probabilities, labels)
            expected = np.eye(3) + strength * (fitted.confusions(3) - np.eye(3))
            assert found == pytest.approx(expected, abs=0.04)
    assert estimate_confusions(Calibration(), p, observed) is None


def some_mixed_votes(rng, n=400):
    """Votes of three heads and the prior (4, n, 3), and labels drawn from two of the heads."""
    votes = rng.dirichlet(np.full(3, 0.5), (4, n))
    mixed = 0.8 * votes[0] + 0.2 * votes[1]
    return votes, (mixed.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)


@pytest.mark.parametrize("noise", [None, 0.0, 0.1])
def test_the_gradient_of_a_mixture_of_votes_is_that_of_finite_differences(rng, noise):
    votes, own = some_mixed_votes(rng, 40)
    values, step = rng.normal(size=6), 1e-6
    found = _loss(values, votes, own, noise)[1]
    for place in range(6):
        moved = step * np.eye(6)[place]
        losses = [_loss(v, votes, own, noise)[0] for v in (values + moved, values - moved)]
        rise = losses[0] - losses[1]
        assert found[place] == pytest.approx(rise / (2 * step), rel=1e-4, abs=1e-7)


def test_votes_are_mixed_as_the_labels_were_drawn(rng):
    votes, own = some_mixed_votes(rng, 4000)
    found = fit_mixing(list(votes[:3]), own, np.full((4000, 3), 1 / 3))
    assert found == pytest.approx([0.8, 0.2, 0.0], abs=0.06)
    assert found.sum() == pytest.approx(1)


def test_label_noise_forgives_votes_that_are_confident_and_sometimes_wrong(rng):
    n = 2000
    own, is_wrong = rng.integers(0, 2, n), rng.random(n) < 0.02
    bold = np.where(is_wrong, 1, 0) + np.where(is_wrong, -1, 1) * rng.uniform(0.55, 0.99, n)
    is_unclear = is_wrong | (rng.random(n) < 0.5)  # so says the other vote
    careful = np.where(is_unclear, np.where(is_wrong, 0.1, 0.9), 0.999)
    is_own = np.eye(2)[own] > 0
    votes = [np.where(is_own, right[:, None], 1 - right[:, None]) for right in (bold, careful)]
    prior = np.full((n, 2), 0.5)
    given, without = (fit_mixing(votes, own, prior, noise)[0] for noise in (0.02, 0.0))
    assert given > 1.5 * without
