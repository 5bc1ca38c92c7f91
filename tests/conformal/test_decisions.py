"""Decisions: the risk stays below its bound, p-values of novelty are exact, reasons are text."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import blobs

from attnknn import AttnKNNClassifier, Decisions
from attnknn.conformal.decisions import (
    NOVEL,
    clopper_pearson_bound,
    confidence_for_risk,
    decide,
    novelty_p_values,
    novelty_p_values_of_entries,
)
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.leave_one_out import LeaveOneOutPredictions

SPREAD = 0.6


def left_out(rng, n, n_classes=3):
    """Predictions with true probabilities."""
    p = rng.dirichlet(np.full(n_classes, 0.4), n)
    own = (p.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return LeaveOneOutPredictions(np.arange(n), own, p, np.ones((n, 1)))


def true_risk(predictions, limit):
    confidence = predictions.probabilities.max(axis=1)
    return (1 - confidence[confidence >= limit]).mean()


def test_the_risk_is_kept_as_often_as_guaranteed(rng):
    everyone = left_out(rng, 20_000)
    limits = [confidence_for_risk(left_out(rng, 1000), 0.2) for _ in range(100)]
    risks = np.array([true_risk(everyone, limit) for limit in limits])
    assert (risks > 0.2).mean() < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 100)
    assert np.median(risks) > 0.12  # and not by answering next to nothing


def test_wrong_labels_do_not_count_as_risk(rng):
    clean = left_out(rng, 4000)
    confusions = np.full((3, 3), 0.1) + 0.7 * np.eye(3)
    observed = (confusions[clean.own].cumsum(axis=1) > rng.random((4000, 1))).argmax(axis=1)
    noisy = LeaveOneOutPredictions(clean.rows, observed, clean.probabilities, clean.distances)
    with pytest.raises(InvalidInputError, match="cannot be guaranteed"):
        confidence_for_risk(noisy, 0.2)
    limit = confidence_for_risk(noisy, 0.2, confusions)
    assert 0.1 < true_risk(clean, limit) < 0.2


@pytest.mark.parametrize("wrong", [0.5, 0.6])
def test_where_labels_are_as_often_wrong_as_right_no_risk_can_be_guaranteed(wrong, rng):
    confusions = np.array([[1 - wrong, wrong, 0.0], [0.1, 0.9, 0.0], [wrong, 0.0, 1 - wrong]])
    with pytest.raises(InvalidInputError, match="no risk can be"):
        confidence_for_risk(left_out(rng, 500), 0.3, confusions)


def test_an_error_names_a_risk_that_can_be_guaranteed(rng):
    rows = left_out(rng, 300)
    said = set()
    for asked in (0.0001, 0.02, 0.05):
        with pytest.raises(InvalidInputError, match="cannot be guaranteed") as refused:
            confidence_for_risk(rows, asked)
        least = float(re.search(r"; ([\d.]+) can be", str(refused.value))[1])
        assert confidence_for_risk(rows, 1.05 * least) <= 1
        said.add(least)
    assert max(said) < 1.35 * min(said)  # whatever was asked


def test_a_bound_holds_its_rate():
    from scipy.stats import binom

    for n_wrong, n in ((0, 59), (3, 100), (50, 60)):
        assert binom.cdf(n_wrong, n, clopper_pearson_bound(n_wrong, n, 0.05)) == pytest.approx(0.05)
    assert clopper_pearson_bound(5, 5, 0.05) == clopper_pearson_bound(0, 0, 0.05) == 1.0


@given(st.integers(0, 1000), st.integers(2, 30))
def test_novelty_p_value_is_that_of_full_conformal_prediction(seed, n):
    """The row is put among the entries, and its distance to the nearest compared with theirs."""
    generator = np.random.default_rng(seed)
    rows = generator.integers(-3, 4, size=(n + 1, 2)).astype(float)  # with ties and duplicates
    far = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    np.fill_diagonal(far, np.inf)
    whole = far.min(axis=1)
    expected = (whole >= whole[-1]).mean()
    known = far[:n, :n].min(axis=1)
    assert novelty_p_values(far[-1:].min(axis=1), known) == pytest.approx(expected)


def test_rows_like_the_entries_are_seldom_called_novel(rng):
    n, hits = 49, []
    for _ in range(600):
        rows = rng.normal(size=(n + 1, 2))
        far = np.linalg.norm(rows[:, None] - rows[None], axis=2)
        np.fill_diagonal(far, np.inf)
        hits.append(novelty_p_values(far[-1:].min(axis=1), far[:n, :n].min(axis=1))[0] <= 0.1)
    assert np.mean(hits) == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / 600))


def test_entries_have_the_p_values_of_rows_at_their_distance():
    known = np.array([1.0, 2.0, 2.0, 5.0])
    for place in range(4):
        others = np.delete(known, place)
        alone = novelty_p_values(known[[place]], others)[0]
        assert novelty_p_values_of_entries(known)[place] == pytest.approx(alone)


def test_reasons_are_words():
    p = np.array([[0.6, 0.3, 0.1], [0.9, 0.05, 0.05], [0.9, 0.05, 0.05]])
    found = decide(
        p,
        np.array([0.5, 0.5, 0.01]),
        np.array(["cat", "dog", "eel"]),
        min_confidence=0.8,
        novelty_level=0.01,
    )
    assert found.labels() == [None, "cat", None]
    assert found.reasons == ["unsure between cat and dog", "", NOVEL]
    assert found.predicted.tolist() == ["cat", "cat", "cat"]
    assert len(found) == 3


def fitted(n=500):
    X, y = blobs(n, spread=SPREAD)
    return AttnKNNClassifier(8, attention="distance", random_state=0).fit(X, y)


def test_a_classifier_keeps_its_risk_and_knows_what_it_does_not_know():
    clf = fitted()
    X, y = blobs(2000, spread=SPREAD, seed=1)
    found = clf.decide(X, max_risk=0.05)
    assert isinstance(found, Decisions)
    wrong = (found.predicted != y)[found.is_answered]
    assert 0.3 < found.is_answered.mean() < 1.0
    assert wrong.mean() < 0.05 < (found.predicted != y).mean()
    assert (found.novelty_p_values <= 0.05).mean() == pytest.approx(0.05, abs=0.04)
    away = clf.decide(X[:5] + 50.0)
    assert away.reasons == [NOVEL] * 5
    assert away.min_confidence == 0.0


def test_the_stricter_of_risk_and_confidence_counts():
    clf = fitted()
    X, _ = blobs(50, spread=SPREAD, seed=1)
    by_risk = clf.decide(X, 0.1).min_confidence
    assert clf.decide(X, 0.1, min_confidence=0.999).min_confidence == 0.999
    assert clf.decide(X, 0.1, min_confidence=0.01).min_confidence == by_risk


def test_the_risk_is_that_of_entries_which_are_not_novel():
    X, y = blobs(100, spread=0.9, seed=2)
    clf = AttnKNNClassifier(6, attention="distance", random_state=0).fit(X, y)
    found = clf.model_.held_out_predictions()
    is_known = novelty_p_values_of_entries(found.nearest()) > 0.1  # one of them is 0.1
    limit = confidence_for_risk(found.part(is_known), 0.2)
    assert clf.decide(X, 0.2, novelty_level=0.1).min_confidence == limit < 0.7


def test_an_added_example_makes_rows_near_it_known_at_once():
    clf = fitted()
    row = np.full((1, 4), 40.0)
    assert clf.decide(row).reasons == [NOVEL]
    clf.add(row, [2])
    assert clf.decide(row + 0.1).labels() == [2]
    clf.forget([500])
    assert clf.decide(row + 0.1).reasons == [NOVEL]


def test_novelty_by_several_nearest_entries_uses_their_mean_distance():
    clf = fitted()
    X, _ = blobs(200, spread=SPREAD, seed=1)
    rows = clf.memory_.vectors.all().astype(float)
    far = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    np.fill_diagonal(far, np.inf)
    known = np.sort(far, axis=1)[:, :3].mean(axis=1)
    asked = clf.kneighbors(X, 3)[0].mean(axis=1)
    found = clf.decide(X, n_nearest=3)
    expected = [(1 + (known >= distance).sum()) / 501 for distance in asked]
    np.testing.assert_allclose(found.novelty_p_values, expected, atol=2.1 / 501)
    assert clf.decide(X[:2] + 50.0, n_nearest=3).reasons == [NOVEL] * 2
    with pytest.raises(InvalidSettingError, match=r"at most `n_neighbors_` \(8\), got 9"):
        clf.decide(X, n_nearest=9)
    with pytest.raises(InvalidSettingError, match="`n_nearest` must be an integer"):
        clf.decide(X, n_nearest=0)


def test_one_added_example_is_not_enough_for_two():
    clf = fitted()
    row = np.full((1, 4), 40.0)
    clf.add(row, [2])
    assert clf.decide(row + 0.1, n_nearest=2).reasons == [NOVEL]
    clf.add(row + 0.2, [2])
    assert clf.decide(row + 0.1, n_nearest=2).labels() == [2]


def test_errors_name_what_cannot_be_decided():
    clf = fitted(60)
    X, _ = blobs(5)
    needed = r"with 60 held-out entries: at least 99 are needed. Use 0, or at least 0.016\."
    with pytest.warns(UserWarning, match=needed):
        clf.decide(X)
    with pytest.raises(InvalidInputError, match=r"`max_risk=0.001` cannot be guaranteed with 60"):
        clf.decide(X, max_risk=0.001, novelty_level=0)
    with pytest.raises(InvalidSettingError, match="`max_risk` must be"):
        clf.decide(X, max_risk=0.0)
    with pytest.raises(InvalidSettingError, match="`min_confidence` must be"):
        clf.decide(X, min_confidence=1.5)
    with pytest.raises(InvalidSettingError, match="`novelty_level` must be"):
        clf.decide(X, novelty_level=-0.1)
