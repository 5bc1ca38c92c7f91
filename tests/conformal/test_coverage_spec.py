"""Thresholds: the right order statistic, more with more coverage, and right under label noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnknn.calibration import Calibration
from attnknn.conformal import Aps, Lac, members, min_examples, thresholds
from attnknn.conformal.coverage_spec import label_weights, make_coverage_spec, threshold
from attnknn.errors import InvalidInputError

COVERAGES = st.sampled_from([0.07, 0.35, 0.5, 0.7, 0.9, 0.95, 0.99])


@given(st.integers(1, 200), COVERAGES)
@settings(max_examples=60)
def test_the_threshold_is_the_order_statistic(n, coverage):
    scores = np.random.default_rng(n).permutation(n) + 1.0
    rank = math.ceil(round((n + 1) * coverage, 6))
    assert threshold(scores, coverage) == (rank if rank <= n else math.inf)
    assert (threshold(scores, coverage) < math.inf) == (n >= min_examples(coverage))


@given(st.integers(0, 1000), st.booleans())
def test_sets_grow_with_coverage_and_no_order_of_rows_matters(seed, by_class):
    generator = np.random.default_rng(seed)
    p = generator.dirichlet(np.ones(4), 60)
    own, order = generator.integers(0, 4, 60), generator.permutation(60)
    scores, before = Aps().of_all(p), np.zeros((60, 4), dtype=bool)
    for coverage in (0.3, 0.6, 0.9, 0.99):
        found = thresholds(scores, own, coverage, by_class=by_class)
        assert (found == thresholds(scores[order], own[order], coverage, by_class=by_class)).all()
        inside = members(scores, found)
        assert (inside | ~before).all()
        before = inside


def simulated(rng, n, n_classes=4):
    """Probabilities that are true, and labels drawn from them."""
    p = rng.dirichlet(np.full(n_classes, 0.5), n)
    return p, (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)


def covered(inside, own):
    return inside[np.arange(len(own)), own]


def test_randomized_aps_covers_exactly_and_split_sets_at_least_what_was_asked(rng):
    """Means over many splits of new rows: within four standard errors."""
    hits = {"lac": [], "aps": [], "randomized": []}
    n, coverage = 39, 0.8  # (n + 1)·coverage is a whole number: exactly 0.8 without ties
    for _ in range(1500):
        p, own = simulated(rng, n + 1)
        u = rng.random(n + 1)
        tried = {"lac": Lac().of_all(p), "aps": Aps().of_all(p), "randomized": Aps().of_all(p, u)}
        for name, scores in tried.items():
            found = thresholds(scores[:n], own[:n], coverage)
            hits[name] += covered(members(scores[n:], found), own[n:]).tolist()
    error = 4 * math.sqrt(0.8 * 0.2 / 1500)
    assert np.mean(hits["randomized"]) == pytest.approx(0.8, abs=error)
    assert np.mean(hits["lac"]) > 0.8 - error
    assert np.mean(hits["aps"]) > 0.8 - error


def test_each_class_is_covered_where_that_is_asked_for(rng):
    p, own = simulated(rng, 8000)
    p = np.where(np.arange(4) == 3, 0.3 * p, p)  # the last class is told too little of
    p /= p.sum(axis=1, keepdims=True)
    scores, half = Lac().of_all(p), 4000
    for by_class in (False, True):
        found = thresholds(scores[:half], own[:half], 0.8, by_class=by_class)
        inside = covered(members(scores[half:], found), own[half:])
        last = inside[own[half:] == 3].mean()
        assert (abs(last - 0.8) < 0.04) == by_class


def too_well(scores, own, held_out):
    """The scores of rows that a part was trained on: those of their own labels are halved."""
    seen = scores.copy()
    seen[np.arange(len(own)), own] *= np.where(held_out, 1.0, 0.5)
    return seen


def test_few_held_out_rows_of_each_class_are_enough_with_others_that_score_too_well(rng):
    p, own = simulated(rng, 12_000)
    p = np.where(np.arange(4) == 3, 0.3 * p, p)  # the last class is told too little of
    p /= p.sum(axis=1, keepdims=True)
    scores, half, held_out = Lac().of_all(p), 6000, rng.random(6000) < 0.15
    seen = too_well(scores[:half], own[:half], held_out)
    found = thresholds(seen, own[:half], 0.8, by_class=True, held_out=held_out)
    inside = covered(members(scores[half:], found), own[half:])
    of_class = [inside[own[half:] == c].mean() for c in range(4)]
    assert of_class == pytest.approx([0.8] * 4, abs=0.06)
    taken_as_held_out = thresholds(seen, own[:half], 0.8, by_class=True)
    assert covered(members(scores[half:], taken_as_held_out), own[half:]).mean() < 0.7


def test_thresholds_of_few_held_out_rows_are_unbiased_in_small_classes(rng):
    """A class of 30 rows has steps of 3 %: coverage is at least as asked, by half a step."""
    hits = []
    for _ in range(200):
        own, scores = np.repeat(np.arange(20), 30), rng.random((600, 20))
        held_out = rng.random(600) < 0.3
        found = thresholds(scores, own, 0.9, by_class=True, held_out=held_out)
        hits.append(np.minimum(found, 1.0).mean())  # of uniform scores
    assert 0.9 < np.mean(hits) < 0.9 + 1 / 30


@given(st.integers(9, 60), st.integers(0, 1000))
@settings(max_examples=40)
def test_where_all_rows_are_held_out_the_threshold_of_a_class_is_the_usual_one(n, seed):
    scores, own = np.random.default_rng(seed).random((n, 1)), np.zeros(n, dtype=int)
    usual = thresholds(scores, own, 0.9, by_class=True)
    assert thresholds(scores, own, 0.9, by_class=True, held_out=np.ones(n, dtype=bool)) == usual


@pytest.mark.parametrize("n_trained", [0, 1])
def test_a_small_class_of_held_out_rows_is_covered_and_not_held_by_every_set(n_trained, rng):
    """Trained rows push the level beyond what twelve rows reach: they end at the largest score."""
    own = np.concatenate([np.repeat(np.arange(5), 60), np.repeat(5, 12)])
    hits = []
    for _ in range(300):
        scores, held_out = rng.random((312, 6)), (np.arange(312) % 5 == 0) | (own == 5)
        held_out[300 : 300 + n_trained] = False
        seen = too_well(scores, own, held_out)
        found = thresholds(seen, own, 0.9, by_class=True, held_out=held_out)
        assert np.isfinite(found).all()
        hits.append(found[5])  # of uniform scores
    assert 0.9 < np.mean(hits) < 0.95  # 12 / 13


def test_a_class_too_small_for_the_level_is_refused_and_not_held_by_every_set(rng):
    own = np.concatenate([np.repeat(np.arange(5), 60), np.repeat(5, 12)])
    scores, held_out = rng.random((312, 6)), np.arange(312) % 5 == 0
    seen = too_well(scores, own, held_out)
    spec = make_coverage_spec(0.9, True, "lac", None)
    with pytest.raises(
        InvalidInputError, match=r"9 held-out examples of `f`.* got 3 held-out ones of 12"
    ):
        spec.thresholds(seen, own, np.array(list("abcdef")), held_out=held_out)


CONFUSED = {
    "symmetric": Calibration(label_noise=0.3),
    "by class": Calibration(
        transition=np.array(
            [[0.6, 0.4, 0, 0], [0.1, 0.9, 0, 0], [0, 0, 0.8, 0.2], [0.1, 0.1, 0.1, 0.7]]
        )
    ),
}


@pytest.mark.parametrize("kind", CONFUSED)
@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("score", [Lac(), Aps()])
def test_true_labels_are_covered_as_asked_though_observed_ones_are_wrong(
    kind, by_class, score, rng
):
    p, own = simulated(rng, 16_000)
    sharper = p**1.5 / (p**1.5).sum(axis=1, keepdims=True)  # need not be right for it
    confusions = CONFUSED[kind].confusions(4)
    observed = (confusions[own].cumsum(axis=1) > rng.random((16_000, 1))).argmax(axis=1)
    scores, half = score.of_all(sharper), 8000
    found = thresholds(
        scores[:half], observed[:half], 0.8, by_class=by_class, confusions=confusions
    )
    naive = thresholds(scores[:half], observed[:half], 0.8, by_class=by_class)
    inside = covered(members(scores[half:], found), own[half:])
    if score == Lac():
        assert inside.mean() == pytest.approx(0.8, abs=0.04)  # errors of inverse weights add up
    assert inside.mean() > 0.76
    assert covered(members(scores[half:], naive), own[half:]).mean() > inside.mean() + 0.02
    if by_class:
        least = min(inside[own[half:] == c].mean() for c in range(4))
        assert least > 0.72


def test_without_noise_each_row_counts_for_its_own_label():
    assert Calibration().confusions(3) is None
    assert (label_weights(np.array([1, 0]), 2) == [[0, 1], [1, 0]]).all()
    weights = label_weights(np.array([0, 2]), 3, Calibration(label_noise=0.4).confusions(3))
    assert weights.sum(axis=1) == pytest.approx(1.0)


def test_noise_that_leaves_nothing_of_the_truth_is_refused():
    with pytest.raises(InvalidInputError, match="say nothing about the true ones"):
        label_weights(np.array([0]), 2, np.full((2, 2), 0.5))
