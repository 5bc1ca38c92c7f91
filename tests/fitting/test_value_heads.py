"""Training a value head: what it learns, that it is honest, and when there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from strategies import blobs, swap

from attnknn import AttnKNNClassifier, LearnedAttention
from attnknn.fitting import value_heads
from attnknn.fitting.value_heads import Split, _inputs_of, train_value_head
from attnknn.training import TrainConfig


def slope(n, seed=0):
    """Labels by a line through many columns, of which neighbors tell little."""
    rows = np.random.default_rng(seed).normal(size=(n, 8))
    return rows, (rows @ np.linspace(-1, 1, 8) > 0).astype(int)


def log_loss(classifier, X, y):
    return float(-np.log(classifier.predict_proba(X)[np.arange(len(y)), y]).mean())


def with_head(*data, **settings):
    settings = {"attention": "distance", "random_state": 0, **settings}
    return AttnKNNClassifier(16, value_head=True, **settings).fit(*data)


@pytest.fixture
def short(monkeypatch):
    """A training of few epochs, for what does not depend on its success."""
    monkeypatch.setattr(value_heads, "EPOCHS", (1, 4))


# ---- what it learns


def test_a_head_learns_what_the_vote_cannot():
    clf, test = with_head(*slope(400)), slope(400, seed=1)
    ours = log_loss(clf, *test)
    swap(clf, value_head=None)
    assert ours < 0.6 * log_loss(clf, *test)


@pytest.mark.usefixtures("short")
def test_the_report_compares_head_and_vote_on_held_out_rows():
    clf = with_head(*slope(200))
    assert clf.held_out_.sum() == 30
    text = clf.fit_report_.value_head
    assert text.startswith("log-loss on 30 held-out rows is 0.")
    assert "by the vote and 0." in text
    assert f"value head        {text}" in str(clf.fit_report_)


@pytest.mark.usefixtures("short")
def test_rows_held_out_of_attention_validate_the_head_too():
    X, y = slope(200)
    attention = LearnedAttention(training=TrainConfig(epochs=1))
    plain = AttnKNNClassifier(16, attention=attention, random_state=0).fit(X, y)
    clf = with_head(X, y, attention=attention)
    assert clf.held_out_.tolist() == plain.held_out_.tolist()
    assert f"on {plain.held_out_.sum()} held-out rows" in clf.fit_report_.value_head


@pytest.mark.usefixtures("short")
def test_rows_held_out_of_the_encoder_validate_the_head_too(monkeypatch):
    monkeypatch.setattr("attnknn.fitting.tables.EPOCHS", (1, 60))
    monkeypatch.setattr("attnknn.fitting.tables.N_STEPS", 1)
    X, y = slope(120)
    plain = AttnKNNClassifier(encoder="learned-tabular", random_state=0).fit(X, y)
    clf = AttnKNNClassifier(encoder="learned-tabular", value_head=True, random_state=0).fit(X, y)
    assert clf.held_out_.tolist() == plain.held_out_.tolist()
    assert f"on {plain.held_out_.sum()} held-out rows" in clf.fit_report_.value_head


def test_wrong_labels_are_taken_for_noise_and_not_learned(rng):
    X, y = blobs(600, 6, 4, spread=0.5)
    noisy = np.where(rng.random(600) < 0.3, rng.integers(0, 4, 600), y)
    clf, test = with_head(X, noisy), blobs(400, 6, 4, spread=0.5, seed=1)
    assert clf.label_noise_ > 0.15
    ours = log_loss(clf, *test)
    swap(clf, value_head=None)
    assert ours < log_loss(clf, *test) + 0.05


@pytest.mark.usefixtures("short")
def test_refit_trains_it_again():
    X, y = slope(100)
    clf = with_head(X, y, calibration=None)
    weights, words = clf.value_head_.net.exit.weight.clone(), clf.fit_report_.value_head
    clf.relabel(np.arange(100), 1 - y).refit()
    assert not torch.equal(clf.value_head_.net.exit.weight, weights)
    assert clf.fit_report_.value_head != words


# ---- honest training


def test_random_labels_cannot_be_learned(rng):
    X, y = rng.normal(size=(400, 20)), rng.integers(0, 4, 400)
    clf = with_head(X, y)
    chance = np.log(4)
    new_X, new_y = rng.normal(size=(400, 20)), rng.integers(0, 4, 400)
    assert log_loss(clf, new_X, new_y) < chance + 0.1
    trained = clf.leave_one_out_proba()[~clf.held_out_]
    own = y[~clf.held_out_]
    assert -np.log(trained[np.arange(len(own)), own]).mean() > 0.8 * chance


@pytest.mark.parametrize(
    ("attention", "rounding"),
    [
        ("distance", 0.0),
        (LearnedAttention(trust=True, training=TrainConfig(epochs=1)), 0.02),
    ],  # trust knows counts
    ids=["distance", "learned"],
)
def test_no_row_sees_its_own_label_or_its_groups(attention, rounding, rng):
    X, y = rng.normal(size=(90, 3)), rng.integers(0, 3, 90)
    groups = np.arange(90) // 3
    clf = AttnKNNClassifier(8, attention=attention, random_state=0).fit(X, y, groups=groups)
    split = Split.of(clf.model_, np.ones(90, dtype=bool), np.random.default_rng(0))
    rows = split.trained[:1]
    group = np.flatnonzero(groups == groups[rows[0]])

    def seen():
        swap(clf).model_.cached("counts", lambda: counts)
        return _inputs_of(clf.model_, clf.model_.trust(), split, rows)[0]

    counts = clf.model_.counts
    before = seen()
    entries = clf.memory_.entries
    labels = entries.labels.copy()
    labels[group] = (labels[group] + 1) % 3
    clf.memory_.entries = replace(entries, labels=labels)
    after = seen()
    assert torch.equal(before.labels, after.labels)
    for name in ("near", "rest", "start"):
        assert torch.allclose(getattr(before, name), getattr(after, name), 0, rounding), name


def test_validation_rows_do_not_vote_on_each_other():
    clf = AttnKNNClassifier(8, attention="distance", random_state=0).fit(*blobs(90))
    split = Split.of(clf.model_, np.ones(90, dtype=bool), np.random.default_rng(0))
    seen, _ = _inputs_of(clf.model_, None, split, split.validation)
    asked = seen.positions.numpy()[seen.near.numpy() > 0]
    assert not set(asked) & set(split.validation)
    assert set(asked) <= set(split.trained)


def test_every_row_sees_the_same_prior():
    clf = AttnKNNClassifier(8, attention="distance", random_state=0).fit(*blobs(90))
    clf.attention_.prior_score_ = 1e6  # nobody else has a say
    split = Split.of(clf.model_, np.ones(90, dtype=bool), np.random.default_rng(0))
    seen, _ = _inputs_of(clf.model_, None, split, split.trained)
    assert (seen.rest == seen.rest[0]).all()


# ---- repeatable


@pytest.mark.usefixtures("short")
def test_one_random_state_gives_one_head():
    X, y = slope(150)
    first, second, other = (
        with_head(X, y, random_state=seed).predict_proba(X).tobytes() for seed in (3, 3, 4)
    )
    assert first == second
    assert first != other


@pytest.mark.usefixtures("short")
def test_training_leaves_the_global_generators_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with_head(*slope(60)).predict(slope(60)[0])
    assert torch.equal(torch.get_rng_state(), before)


# ---- when there is none


def test_one_class_and_few_rows_have_no_head_and_the_report_says_why():
    X, y = blobs(40)
    one = with_head(X, np.zeros(40))
    assert one.value_head_ is None
    assert one.fit_report_.value_head == "none, there is one class only"
    few = with_head(X[:20], y[:20])
    assert few.value_head_ is None
    assert "fewer than 30 rows" in few.fit_report_.value_head
    assert few.explain(X[:1])[0].is_exact
    assert with_head([[1.0]], ["a"]).predict([[2.0]]).tolist() == ["a"]


@pytest.mark.usefixtures("short")
def test_a_class_without_trained_rows_is_left_to_the_vote():
    X, y = slope(60)
    clf = AttnKNNClassifier(8, attention="distance", value_head=True, random_state=0)
    clf.partial_fit(X, y, classes=[0, 1, 2])
    assert clf.value_head_.places.tolist() == [0, 1, -1]
    found = clf.predict_proba(X)
    swap(clf, value_head=None)
    assert found[:, 2].tolist() == clf.predict_proba(X)[:, 2].tolist()


def test_too_few_held_out_rows_leave_no_head():
    clf = AttnKNNClassifier(8, attention="distance", random_state=0).fit(*blobs(60))
    held_out = np.arange(60) < 2
    trained = train_value_head(clf.model_, held_out)
    assert trained.head is None
    assert trained.words == "none, fewer than 4 held-out rows are left for validation"
    assert trained.held_out is held_out


@pytest.mark.usefixtures("short")
def test_the_number_of_rows_is_bounded(monkeypatch):
    monkeypatch.setattr(value_heads, "MAX_ROWS", 50)
    clf = with_head(*slope(150))
    assert (~clf.held_out_).sum() == 50
    monkeypatch.setattr(value_heads, "MAX_COMPARISONS", 150 * 40)
    assert (~with_head(*slope(150)).held_out_).sum() == 40


@pytest.mark.usefixtures("short")
def test_without_calibration_no_temperature_is_fitted():
    X, y = slope(150)
    assert with_head(X, y, calibration=None).value_head_.temperature == 1.0
    assert with_head(X, y).value_head_.temperature != 1.0


def test_a_stop_by_hand_keeps_the_best_so_far_and_says_so(monkeypatch):
    from attnknn.training import loop

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(loop, "_step", interrupted)
    with pytest.warns(UserWarning, match="interrupted; the best state so far was kept"):
        clf = with_head(*slope(60))
    assert "interrupted" in clf.fit_report_.value_head
    assert np.isfinite(clf.predict_proba(slope(60)[0])).all()
