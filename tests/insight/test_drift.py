"""The monitor of a classifier: what it notices, what it refuses, and that it can go on later."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from attnknn import AttnKNNClassifier
from attnknn.errors import InvalidInputError, InvalidSettingError, NotFittedYetError
from attnknn.insight import DriftMonitor


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    return X[order], y[order]


@pytest.fixture(scope="module")
def clf(digits):
    X, y = digits
    return AttnKNNClassifier(attention="distance", random_state=0).fit(X[:900], y[:900])


@pytest.fixture
def monitor(clf):
    return DriftMonitor(clf, random_state=0)


def through_json(state):
    return json.loads(json.dumps(state))


def test_rows_like_the_entries_raise_no_alarm(monitor, digits):
    X, y = digits
    seen = monitor.watch(X[900:], y[900:])
    assert seen.alarm is None
    assert seen.alarms == ()
    assert seen.sentence().startswith("No alarm in 897 rows; evidence of drift (martingale): 0.")
    assert "for labels" in seen.sentence()
    assert seen.rows.p_values.shape == seen.labels.log_martingale.shape == (897,)


def test_rows_from_elsewhere_are_noticed(monitor, digits, rng):
    X, _ = digits
    monitor.watch(X[900:1200])
    seen = monitor.watch(X[1200:1400] + rng.normal(scale=3.0, size=(200, 64)))
    assert seen.alarm < 60
    assert [alarm.kind for alarm in seen.alarms] == ["rows"]
    assert seen.alarms[0].row == 300 + seen.alarm
    assert str(seen).startswith(f"Alarm at row {300 + seen.alarm}: rows are farther")


def test_wrong_labels_are_noticed_and_said_to_be_labels(monitor, digits, rng):
    X, y = digits
    monitor.watch(X[900:1200], y[900:1200])
    labels = np.where(rng.random(500) < 0.2, (y[1200:1700] + 1) % 10, y[1200:1700])
    seen = monitor.watch(X[1200:1700], labels)
    assert seen.alarm < 100
    assert [alarm.kind for alarm in seen.alarms] == ["labels"]
    assert "labels agree less" in str(seen)


def test_copies_of_entries_raise_an_alarm_of_low_novelty(monitor, digits):
    X, y = digits
    seen = monitor.watch(X[:100], y[:100])
    assert "nearer to the memory" in str(seen)


def test_a_label_that_is_no_class_is_as_novel_as_can_be(monitor, digits):
    X, y = digits
    labels = y[900:960].copy()
    labels[10:] = 77
    seen = monitor.watch(X[900:960], labels)
    assert "labels" in [alarm.kind for alarm in seen.alarms]
    assert seen.labels.p_values[10] < 2 / 900


def test_p_values_are_ranks_among_the_leave_one_out_scores(monitor, clf, digits):
    X, y = digits
    seen = monitor.watch(X[900:901], y[900:901])
    left_out = clf.model_.held_out_predictions()
    nearest = clf.kneighbors(X[900:901], 1)[0][0, 0]
    n_above = (left_out.nearest() > nearest).sum()
    assert n_above / 901 <= seen.rows.p_values[0] <= (n_above + 1) / 901
    own = left_out.probabilities[np.arange(900), left_out.own]
    n_above = (own < clf.predict_proba(X[900:901])[0, y[900]]).sum()
    assert n_above / 901 <= seen.labels.p_values[0] <= (n_above + 1) / 901


def test_it_goes_on_after_being_stored_as_if_never_interrupted(clf, digits):
    X, y = digits
    X, y = X[900:1100] + 2.0, y[900:1100]
    whole, parts = DriftMonitor(clf, random_state=3), DriftMonitor(clf, random_state=3)
    expected = whole.watch(X, y)
    first = parts.watch(X[:77], y[:77])
    again = DriftMonitor.from_dict(clf, through_json(parts.to_dict()))
    second = again.watch(X[77:], y[77:])
    for name in ("rows", "labels"):
        together = [getattr(seen, name).p_values for seen in (first, second)]
        assert np.concatenate(together).tolist() == getattr(expected, name).p_values.tolist()
        martingale = getattr(second, name).log_martingale
        assert martingale[-1] == getattr(expected, name).log_martingale[-1]
    assert again.alarms == whole.alarms != ()
    assert again.to_dict() == whole.to_dict()


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_labels_may_be_missing_in_part(missing, clf, digits):
    X, y = digits
    labels = [label if row % 2 else missing for row, label in enumerate(y[900:1000].tolist())]
    seen = DriftMonitor(clf, random_state=0).watch(X[900:1000], labels)
    alone = DriftMonitor(clf, random_state=0).watch(X[901:1000:2], y[901:1000:2])
    assert seen.n_labels == 50
    assert np.isnan(seen.labels.p_values[::2]).all()
    assert seen.labels.p_values[1::2].tolist() == alone.labels.p_values.tolist()


def test_rows_without_labels_leave_the_martingale_of_labels_alone(monitor, digits):
    seen = monitor.watch(digits[0][900:1000])
    assert seen.labels.log_martingale == pytest.approx(np.zeros(100), abs=1e-12)
    assert "for labels" not in seen.sentence()


def test_rows_of_your_own_take_the_place_of_the_entries(clf, digits):
    X, y = digits
    novel = X[900:1100] + 4.0
    monitor = DriftMonitor(clf, calibration_rows=(novel[:100], y[900:1000]), random_state=0)
    assert monitor.watch(novel[100:]).alarm is None
    unlabeled = DriftMonitor(clf, calibration_rows=(novel[:100], None), random_state=0)
    assert unlabeled.watch(novel[100:], y[1000:1100]).n_labels == 100


def test_the_same_seed_gives_the_same_p_values_and_another_one_others(clf, digits):
    X, _ = digits
    first, same, other = (
        DriftMonitor(clf, random_state=seed).watch(X[900:920]).rows.p_values.tolist()
        for seed in (0, 0, 1)
    )
    assert first == same
    assert first != other


def test_fewer_false_alarms_take_a_higher_martingale(clf, digits):
    X, _ = digits
    found = [
        DriftMonitor(clf, false_alarm_rate=chance, random_state=0).watch(X[900:1100] + 2.0)
        for chance in (0.1, 0.001)
    ]
    assert [seen.bound for seen in found] == [20, 2000]
    assert found[0].alarm < found[1].alarm


def test_a_restart_forgets_stream_and_alarm(monitor, digits):
    X, _ = digits
    assert monitor.watch(X[900:1000] + 4.0).alarms
    monitor.restart()
    assert (monitor.n_rows, monitor.alarms) == (0, ())
    assert monitor.watch(X[1000:1100]).alarms == ()


@pytest.fixture
def small(rng):
    X, y = rng.normal(size=(60, 2)), np.arange(60) % 2
    return AttnKNNClassifier(attention="distance", random_state=0).fit(X + y[:, None], y)


@pytest.mark.parametrize(
    "edit",
    [
        lambda clf: clf.forget([3]),
        lambda clf: clf.relabel([3], 0),
        lambda clf: clf.add([[9.0, 9.0]], [1]),
    ],
    ids=["forget", "relabel", "add"],
)
def test_a_classifier_that_was_edited_is_refused(edit, small):
    monitor = DriftMonitor(small)
    state = monitor.to_dict()
    edit(small)
    for use in (lambda: monitor.watch([[0.0, 0.0]]), monitor.restart, monitor.to_dict):
        with pytest.raises(InvalidInputError, match="edited or fitted again"):
            use()
    with pytest.raises(InvalidInputError, match="state is of another classifier"):
        DriftMonitor.from_dict(small, state)


def test_a_refit_that_changes_answers_is_refused(small):
    monitor = DriftMonitor(small)
    state = monitor.to_dict()
    small.attention = "uniform"
    small.refit()
    with pytest.raises(InvalidInputError, match="edited or fitted again"):
        monitor.watch([[0.0, 0.0]])
    with pytest.raises(InvalidInputError, match="state is of another classifier"):
        DriftMonitor.from_dict(small, state)


def test_a_saved_model_takes_the_state_of_the_one_that_was_saved(clf, digits, tmp_path):
    monitor = DriftMonitor(clf, random_state=0)
    monitor.watch(digits[0][900:950])
    clf.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert DriftMonitor.from_dict(loaded, monitor.to_dict()).n_rows == 50


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows.known", [2.0, 1.0]),
        ("rows.shares", [1.0] * 5),
        ("labels.log_staked", float("nan")),
        ("labels.n_bets", -1),
        ("false_alarm_rate", 2),
        ("alarms", [["clouds", 3, True]]),
        ("seed", "0"),
    ],
)
def test_a_damaged_state_names_what_is_wrong(name, value, monitor, clf):
    state = monitor.to_dict()
    *outer, inner = name.split(".")
    (state[outer[0]] if outer else state)[inner] = value
    with pytest.raises(InvalidInputError, match=f"damaged: `{name}`"):
        DriftMonitor.from_dict(clf, state)


@pytest.mark.parametrize("state", [[], {}, {"format": "attnknn drift monitor", "version": 9}])
def test_what_is_no_state_is_refused(state, clf):
    with pytest.raises(InvalidInputError, match=r"no state|of version 1, got 9"):
        DriftMonitor.from_dict(clf, state)


def test_what_cannot_be_watched_is_named(monitor, clf, digits):
    X, y = digits
    with pytest.raises(InvalidInputError, match="`X` has 3 rows but `y` has 2 labels"):
        monitor.watch(X[:3], y[:2])
    with pytest.raises(InvalidInputError, match="'seven' differs from 0"):
        monitor.watch(X[:1], ["seven"])
    with pytest.raises(InvalidInputError, match="got 2 dimensions"):
        monitor.watch(X[:2], y[:2, None])
    with pytest.raises(ValueError, match="64 features"):
        monitor.watch(X[:2, :5])
    assert monitor.n_rows == 0
    for chance in (0, 1, "often", None):
        with pytest.raises(InvalidSettingError, match="`false_alarm_rate` must be"):
            DriftMonitor(clf, false_alarm_rate=chance)
    with pytest.raises(InvalidInputError, match="must be a pair"):
        DriftMonitor(clf, calibration_rows=X)
    with pytest.raises(NotFittedYetError, match="Call `fit`"):
        DriftMonitor(AttnKNNClassifier())


def test_one_entry_alone_has_no_leave_one_out_score():
    clf = AttnKNNClassifier(attention="uniform", calibration=None).fit([[0.0]], ["a"])
    with pytest.raises(InvalidInputError, match="give `calibration_rows`"):
        DriftMonitor(clf)
    monitor = DriftMonitor(clf, calibration_rows=([[1.0], [2.0]], None), random_state=0)
    assert DriftMonitor.from_dict(clf, through_json(monitor.to_dict())).watch([[1.5]]).alarm is None


def test_no_rows_are_no_news():
    texts = ["red apple", "green apple", "red brick", "gray brick"] * 5
    clf = AttnKNNClassifier(3, encoder="tfidf", attention="distance", random_state=0)
    monitor = DriftMonitor(clf.fit(texts, ["fruit", "fruit", "wall", "wall"] * 5))
    monitor.watch(["red apple"], ["fruit"])
    seen = monitor.watch([])
    assert seen.alarm is None
    assert str(seen) == "No rows were given; there is no alarm in the 1 before."
    assert monitor.n_rows == 1
