"""Sets and decisions of a classifier: what is promised is kept, before and after edits."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ATTENTIONS, blobs, swap

from attnknn import AttnKNNClassifier, DistanceAttention, PredictionSets
from attnknn.calibration.fitting import MAX_NEIGHBORS_FOR_NOISE
from attnknn.errors import InvalidInputError, InvalidSettingError, NotFittedYetError
from attnknn.metrics import set_coverage, set_size
from attnknn.research.evaluation.corruption import symmetric_noise

WAYS = {
    "lac": {},
    "aps": {"score": "aps"},
    "randomized": {"score": "raps", "random_state": 3},
    "by class": {"by_class": True},
    "jackknife+": {"method": "jackknife+"},
}


def fitted(n: int = 90, attention: str = "distance", **settings) -> AttnKNNClassifier:
    X, y = blobs(n, spread=1.2)
    clf = AttnKNNClassifier(6, attention=ATTENTIONS[attention], random_state=0, **settings)
    return clf.fit(X, y)


def from_scratch(clf: AttnKNNClassifier) -> AttnKNNClassifier:
    """The same fitted parts around a memory that remembers the same entries for the first time."""
    other = pickle.loads(pickle.dumps(clf))
    memory = type(clf.memory_)()
    memory.restore(clf.memory_.read(), clf.metric, clf.memory_.center_)
    return swap(other, memory=memory)


@pytest.mark.parametrize("attention", ["distance", "learned"])
@pytest.mark.parametrize("way", WAYS)
def test_sets_after_edits_are_those_of_a_classifier_built_from_scratch(way, attention):
    X, y = blobs(30, spread=1.2, seed=1)
    clf = fitted(attention=attention)
    before = clf.predict_set(X, 0.7, **WAYS[way]).members
    clf.add(X[:20], y[:20]).forget(np.arange(5, 15)).relabel([30, 31, 32], 1)
    after = clf.predict_set(X, 0.7, **WAYS[way]).members
    assert (after == from_scratch(clf).predict_set(X, 0.7, **WAYS[way]).members).all()
    assert (after != before).any()


@pytest.mark.parametrize("way", WAYS)
def test_the_order_of_the_entries_changes_nothing(way):
    clf, other = fitted(), fitted()
    order = np.random.default_rng(1).permutation(90)
    entries = clf.memory_.read(order)
    memory = type(clf.memory_)().restore(entries, clf.metric, clf.memory_.center_)
    swap(other, memory=memory)
    X, _ = blobs(30, spread=1.2, seed=1)
    expected = clf.predict_set(X, 0.7, **WAYS[way]).members
    assert (other.predict_set(X, 0.7, **WAYS[way]).members == expected).all()


@given(st.integers(0, 100))
def test_sets_grow_with_coverage(seed):
    X, _ = blobs(20, spread=1.5, seed=seed)
    clf = fitted()
    for way in WAYS.values():
        small, large = (clf.predict_set(X, c, **way).members for c in (0.5, 0.9))
        assert (large | ~small).all()


def test_sets_are_a_record_for_people_and_for_metrics():
    X, y = blobs(200, spread=1.2, seed=1)
    names = np.array(["ant", "bee", "cow"])
    clf = AttnKNNClassifier(6, attention="distance", random_state=0)
    clf.fit(*blobs(300, spread=1.2)[:1], names[blobs(300)[1]])
    sets = clf.predict_set(X, 0.9)
    assert isinstance(sets, PredictionSets)
    assert len(sets) == 200
    assert sets.labels()[0] == names[sets.members[0]].tolist()
    assert set_coverage(names[y], sets.members, classes=names) > 0.85
    assert set_size(sets.members) == pytest.approx(sets.sizes.mean())
    assert sets.thresholds.shape == (3,)


@pytest.mark.parametrize("method", ["leave_one_out", "jackknife+"])
def test_a_randomized_set_is_the_same_for_a_row_alone_and_among_others(method):
    X, y = blobs(150, spread=0.6, seed=1)
    clf = AttnKNNClassifier(6, attention="distance", random_state=0).fit(*blobs(300, spread=0.6))
    asked = {"coverage": 0.5, "score": "aps", "method": method, "random_state": 0}
    together = clf.predict_set(X, **asked).members
    alone = np.concatenate([clf.predict_set(row[None], **asked).members for row in X])
    assert (alone == together).mean() > 0.99  # but for rounding
    assert set_coverage(y, alone) == pytest.approx(0.5, abs=0.12)
    other = clf.predict_set(X, **(asked | {"random_state": 1})).members
    assert (other != together).any()


def test_sets_of_small_tables_cover_what_was_asked_on_average(rng):
    held = []
    for _ in range(40):
        y = rng.integers(0, 2, 330)
        X = rng.normal(size=(2, 8))[y] + 2.0 * rng.normal(size=(330, 8))
        clf = AttnKNNClassifier(random_state=0).fit(X[:30], y[:30])
        held.append(set_coverage(y[30:], clf.predict_set(X[30:], 0.9).members))
    assert 0.9 <= np.mean(held) < 0.95


def test_few_entries_cover_half_a_row_more_and_many_what_was_asked(monkeypatch):
    clf, X = fitted(), blobs(3)[0]
    found = clf.model_.held_out_predictions()
    own = np.sort(1 - found.probabilities[np.arange(90), found.own])
    few = {c: clf.predict_set(X, c).thresholds[0] for c in (0.9, 0.93, 0.989)}
    assert few[0.9] == own[82]  # ⌈91 · 0.9 + 0.5⌉ = 83
    assert few[0.93] == own[85]  # ⌈91 · 0.93 + 0.5⌉ = 86, and without the half 85
    assert few[0.989] == own[89]  # none is left to cover more
    monkeypatch.setattr("attnknn.conformal.prediction.FEW_ROWS", 90)
    assert fitted().predict_set(X, 0.93).thresholds[0] == own[84]


def test_by_class_half_a_row_is_of_all_entries():
    clf = fitted()
    found = clf.model_.held_out_predictions()
    own = 1 - found.probabilities[np.arange(90), found.own]
    sets = clf.predict_set(blobs(3)[0], 0.87, by_class=True)  # 31 · (0.87 + 0.5 / 91) = 27.1
    assert sets.thresholds == pytest.approx([np.sort(own[found.own == c])[27] for c in range(3)])


def test_split_sets_go_by_the_rows_that_are_given():
    clf = fitted()
    X, y = blobs(300, spread=1.2, seed=2)
    sets = clf.predict_set(X[150:], 0.9, method="split", calibration_rows=(X[:150], y[:150]))
    own = 1 - clf.predict_proba(X[:150])[np.arange(150), y[:150]]
    assert sets.thresholds == pytest.approx(np.sort(own)[135])  # ⌈151 · 0.9⌉ = 136
    assert 0.8 < set_coverage(y[150:], sets.members) <= 1.0


def test_wrong_labels_do_not_make_the_sets_of_true_ones_larger(rng):
    X, y = blobs(900, n_classes=4, spread=0.5)
    noisy = np.where(rng.random(900) < 0.3, (y + rng.integers(1, 4, 900)) % 4, y)
    test, truth = blobs(600, n_classes=4, spread=0.5, seed=1)
    aware = AttnKNNClassifier(32, attention="distance", random_state=0).fit(X, noisy)
    assert 0.2 < aware.label_noise_ < 0.4
    sets = aware.predict_set(test, 0.9)
    assert set_coverage(truth, sets.members) == pytest.approx(0.9, abs=0.05)
    unaware = AttnKNNClassifier(32, attention="distance", label_noise=None, random_state=0)
    large = unaware.fit(X, noisy).predict_set(test, 0.9)
    assert set_size(large.members) > set_size(sets.members) + 0.5
    whole = aware.predict_set(test, 0.9, method="jackknife+")  # of labels as observed
    assert set_size(whole.members) > set_size(sets.members) + 0.5


def test_sets_and_risks_follow_labels_that_are_corrected(rng):
    X, y = blobs(900, n_classes=4, spread=0.6)
    noisy = np.where(rng.random(900) < 0.3, (y + rng.integers(1, 4, 900)) % 4, y)
    test, truth = blobs(3000, n_classes=4, spread=0.6, seed=1)
    clf = AttnKNNClassifier(32, attention="distance", random_state=0).fit(X, noisy)
    before = clf.predict_set(test, 0.9)
    assert set_coverage(truth, before.members) == pytest.approx(0.9, abs=0.04)
    assert clf.model_.confusions()[0, 0] == pytest.approx(1 - clf.label_noise_, abs=0.02)
    wrong = np.flatnonzero(noisy != y)
    clf.relabel(wrong, y[wrong])
    assert clf.label_noise_ > 0.2  # as it was fitted
    assert clf.model_.confusions()[0, 0] > 0.97
    for way in ({}, {"score": "aps", "random_state": 0}, {"by_class": True}):
        after = clf.predict_set(test, 0.9, **way)
        assert set_coverage(truth, after.members) == pytest.approx(0.9, abs=0.03)
    decisions = clf.decide(test, max_risk=0.1)
    assert (decisions.predicted != truth)[decisions.is_answered].mean() < 0.1


def test_where_many_vote_the_nearest_tell_the_noise_of_now():
    X, y = blobs(1200, n_classes=4, spread=0.7)
    noisy = symmetric_noise(y, 0.25, random_state=0)
    test, truth = blobs(3000, n_classes=4, spread=0.7, seed=1)
    attention = DistanceAttention(temperature=2.0)  # so that far neighbors vote too
    clf = AttnKNNClassifier(128, attention=attention, label_noise="symmetric", random_state=0)
    clf.fit(X, noisy)
    assert clf.n_neighbors_ > MAX_NEIGHBORS_FOR_NOISE
    assert clf.model_.confusions()[0, 0] == pytest.approx(1 - clf.label_noise_, abs=0.04)
    clf.relabel(np.arange(1200), y)
    assert clf.model_.confusions()[0, 0] > 0.97
    assert set_coverage(truth, clf.predict_set(test, 0.9).members) > 0.87
    decisions = clf.decide(test, max_risk=0.1, novelty_level=0)
    assert (decisions.predicted != truth)[decisions.is_answered].mean() < 0.1


def test_by_class_entries_that_were_trained_on_help_where_held_out_ones_are_few():
    X, y = blobs(420, n_classes=6, spread=1.0)
    test, truth = blobs(3000, n_classes=6, spread=1.0, seed=1)
    clf = AttnKNNClassifier(16, attention=ATTENTIONS["learned"], random_state=0).fit(X, y)
    assert np.bincount(y[clf.held_out_]).min() < 19 < np.bincount(y).min()
    sets = clf.predict_set(test, 0.95, by_class=True)
    held = sets.members[np.arange(3000), truth]
    assert held.mean() == pytest.approx(0.95, abs=0.055)  # 63 held-out rows: 0.027 is their chance
    assert min(held[truth == c].mean() for c in range(6)) > 0.88
    with pytest.raises(InvalidInputError, match=r"at least 99 examples of each class; `.` has 70"):
        clf.predict_set(test, 0.99, by_class=True)
    with pytest.raises(InvalidInputError, match="19 held-out examples of each class"):
        clf.predict_set(test, 0.95, by_class=True, method="jackknife+")


def test_only_held_out_entries_are_examples():
    clf = fitted(attention="learned")
    assert 0 < clf.held_out_.sum() < 90
    assert (clf.model_.held_out_predictions().rows == np.flatnonzero(clf.held_out_)).all()
    left_out = clf.leave_one_out_proba()[clf.held_out_]
    assert clf.model_.held_out_predictions().probabilities == pytest.approx(left_out, abs=1e-6)


def test_of_very_many_held_out_entries_a_sample_is_used(monkeypatch):
    monkeypatch.setattr("attnknn.model.MAX_LEFT_OUT", 40)
    clf = fitted()
    clf.predict_set(blobs(3)[0], 0.9)
    assert len(clf.model_.held_out_predictions()) == 40
    assert (
        len(clf.model_.held_out_predictions(samples=False)) == 90
    )  # the rarest class needs all it has


def test_errors_name_what_cannot_be_guaranteed():
    clf = fitted()
    X, y = blobs(9)
    with pytest.raises(
        InvalidInputError,
        match=r"`coverage=0.99` by class needs at least 99 held-out examples of each class; `\d` "
        r"has 30. Lower the coverage, or use `by_class=False`.",
    ):
        clf.predict_set(X, 0.99, by_class=True)
    with pytest.raises(
        InvalidInputError, match="needs at least 99 held-out examples; there are 90"
    ):
        clf.predict_set(X, 0.99)
    with pytest.raises(InvalidInputError, match="has 30"):
        clf.predict_set(X, 0.99, by_class=True, method="jackknife+")
    with pytest.raises(InvalidSettingError, match=r"`coverage` must be .* above 0 and below 1"):
        clf.predict_set(X, 1.0)
    with pytest.raises(InvalidSettingError, match="No method is called 'jackknife'"):
        clf.predict_set(X, method="jackknife")
    with pytest.raises(InvalidSettingError, match="`calibration_rows` goes with"):
        clf.predict_set(X, method="split")
    with pytest.raises(InvalidSettingError, match="`calibration_rows` goes with"):
        clf.predict_set(X, calibration_rows=(X, y))
    with pytest.raises(InvalidInputError, match="has the label 7, which is not a known class"):
        clf.predict_set(X, 0.5, method="split", calibration_rows=(X, y * 0 + 7))
    with pytest.raises(InvalidInputError, match="has 9 rows but 3 labels"):
        clf.predict_set(X, 0.5, method="split", calibration_rows=(X, y[:3]))
    for rows in ((X,), (X, y, y), X):
        with pytest.raises(InvalidInputError, match=r"`calibration_rows` must be a pair \(X, y\)"):
            clf.predict_set(X, 0.5, method="split", calibration_rows=rows)
    with pytest.raises(NotFittedYetError, match="Call `fit` before `predict_set`"):
        AttnKNNClassifier().predict_set(X)
