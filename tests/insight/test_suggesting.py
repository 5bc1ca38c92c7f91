"""Suggestions: which rows of a pool to label next, batch by batch."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from strategies import blobs

from attnknn import AttnKNNClassifier, ForestAttention, MixtureAttention
from attnknn.errors import InvalidInputError, InvalidSettingError, NotFittedYetError
from attnknn.insight import Pool, Suggestions, suggest
from attnknn.insight.suggesting import STRATEGIES

QUICK = {
    "forest": ForestAttention(n_trees=20),
    "mixture": MixtureAttention(["distance", ForestAttention(n_trees=20)]),
}


def started(n=240, spread=1.0, attention="distance", per_class=2):
    """A pool of blobs, a classifier of the first rows of each class, and those rows."""
    X, y = blobs(n, spread=spread)
    rows = np.concatenate([np.flatnonzero(y == label)[:per_class] for label in np.unique(y)])
    clf = AttnKNNClassifier(attention=QUICK.get(attention, attention), random_state=0).fit(
        X[rows], y[rows]
    )
    return clf, X, y, rows


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_suggests_distinct_rows_that_are_not_skipped(strategy):
    clf, X, _, labeled = started()
    found = suggest(clf, X, 30, strategy=strategy, skip=labeled)
    assert len(found) == len(set(found.rows.tolist())) == 30
    assert not np.isin(found.rows, labeled).any()
    assert found.strategy == strategy
    assert found.n_left == len(X) - len(labeled)
    if strategy != "default":  # later ones of a batch may not score higher, but the first is best
        assert (np.diff(found.scores) <= 0).all()
    assert found.scores[0] == found.scores.max()


def test_predictions_are_those_of_the_classifier():
    clf, X, _, _ = started()
    found = suggest(clf, X, 20)
    proba = clf.predict_proba(X[found.rows])
    ordered = np.sort(proba, axis=1)
    assert np.allclose(found.confidence, ordered[:, -1])
    assert np.allclose(found.runner_up_confidence, ordered[:, -2])
    assert (found.predicted == clf.classes_[proba.argmax(axis=1)]).all()
    assert (found.predicted != found.runner_up).all()


@pytest.mark.parametrize(
    ("strategy", "score"),
    [
        ("margin", lambda p: 1 - (np.sort(p, axis=1)[:, -1] - np.sort(p, axis=1)[:, -2])),
        ("entropy", lambda p: -(p * np.log(p)).sum(axis=1)),
        ("least_confident", lambda p: 1 - p.max(axis=1)),
    ],
)
def test_simple_strategies_rank_by_their_formula(strategy, score):
    clf, X, _, _ = started()
    scores = score(clf.predict_proba(X))
    found = suggest(clf, X, 10, strategy=strategy)
    assert np.allclose(found.scores, np.sort(scores)[::-1][:10])
    assert np.allclose(found.scores, scores[found.rows])


def test_novelty_ranks_by_the_distance_to_the_nearest_entry():
    clf, X, _, _ = started()
    distances = clf.kneighbors(X, 1)[0][:, 0]
    found = suggest(clf, X, 5, strategy="novelty")
    assert np.allclose(found.scores, np.sort(distances)[::-1][:5])


def test_a_batch_does_not_ask_the_same_question_twice():
    clf, X, _, _ = started()
    hardest = suggest(clf, X, 1, strategy="margin").rows
    repeated = np.concatenate([X, np.repeat(X[hardest], 10, axis=0)])
    alone = suggest(clf, repeated, 10, strategy="margin").rows
    together = suggest(clf, repeated, 10).rows
    n_copies = [len(rows) - len(np.unique(repeated[rows], axis=0)) for rows in (alone, together)]
    assert n_copies[0] >= 5
    assert n_copies[1] <= 1


def test_a_row_that_stands_for_many_is_preferred_to_a_stray_one_of_equal_margin():
    X = np.concatenate([[[-4.0, 0.0], [4.0, 0.0]], [[0.0, 30.0]], np.zeros((40, 2))])
    X[3:] += np.random.default_rng(0).normal(scale=0.05, size=(40, 2)) * [0, 1]
    clf = AttnKNNClassifier(attention="distance").fit(X[:2], ["a", "b"])
    assert suggest(clf, X, 1, skip=[0, 1]).rows[0] > 2


def test_all_that_is_left_is_suggested_if_more_is_asked():
    clf, X, _, _ = started()
    found = suggest(clf, X[:7], 20, skip=[3])
    assert sorted(found.rows.tolist()) == [0, 1, 2, 4, 5, 6]
    assert np.isnan(found.expected_accuracy)
    assert found.sentence() == "6 of 6 unlabeled rows to label next."


def test_a_pool_of_one_row_and_a_model_of_one_class_work():
    clf, X, _, _ = started()
    assert suggest(clf, X[:1]).rows.tolist() == [0]
    with pytest.warns(UserWarning, match="only one class"):
        alone = AttnKNNClassifier(attention="distance").fit(X[:3], ["a"] * 3)
    found = suggest(alone, X[3:8], 2)
    assert found.predicted.tolist() == ["a", "a"]
    assert "unsure between" not in " ".join(found.reasons)


@pytest.mark.parametrize("attention", ["distance", "forest", "mixture"])
def test_a_pool_gives_the_same_as_the_rows_at_first_and_after_a_refit(attention):
    clf, X, y, labeled = started(n=120, attention=attention, per_class=6)
    pool = Pool(X)
    for _ in range(2):
        assert (suggest(clf, pool, 8).rows == suggest(clf, X, 8).rows).all()
        some = np.setdiff1d(np.arange(len(X)), labeled)[:8]
        clf.add(X[some], y[some])
        suggest(clf, pool, 1)
        clf.refit()


def test_a_pool_predicts_the_neighborhood_of_new_entries_again():
    clf, X, y, _ = started(n=600)
    pool = Pool(X)
    row = suggest(clf, pool, 1).rows
    before = pool.probabilities(clf)
    clf.add(X[row], y[row])
    after, exact = pool.probabilities(clf), clf.predict_proba(X)
    near = np.linalg.norm(X - X[row], axis=1).argsort()
    assert np.allclose(after[near[:128]], exact[near[:128]])
    assert (after[near[128:]] == before[near[128:]]).all()
    assert pool.probabilities(clf) is after  # nothing changed, so nothing is computed


def test_a_pool_follows_relabeled_and_forgotten_entries_and_new_classes():
    clf, X, _, _ = started(n=120)
    pool = Pool(X)
    for edit in (
        lambda: clf.relabel([0], [clf.classes_[1]]),
        lambda: clf.forget([2]),
        lambda: clf.add(X[:1], [9]),
        lambda: clf.add(X[10:110], np.zeros(100, dtype=int)),
    ):
        pool.probabilities(clf)
        edit()
        assert np.allclose(pool.probabilities(clf), clf.predict_proba(X))


def test_a_pool_follows_another_fit():
    clf, X, y, _ = started()
    pool = Pool(X)
    first = suggest(clf, pool, 5)
    clf.fit(X[::3] * 1.0, y[::3])
    assert np.allclose(pool.probabilities(clf), clf.predict_proba(X))
    assert suggest(clf, pool, 5).n_left == first.n_left


def test_a_large_pool_is_sampled():
    clf, X, _, _ = started()
    pool = Pool(X, max_rows=50, random_state=3)
    assert len(pool) == 50
    found = suggest(clf, pool, 10)
    assert np.isin(found.rows, pool.rows).all()
    assert np.allclose(found.confidence, clf.predict_proba(X[found.rows]).max(axis=1))


def test_suggested_labels_beat_random_ones():
    X, y = load_digits(return_X_y=True)
    labeled = {"default": [], "random": []}
    accuracy = {}
    for strategy, rows in labeled.items():
        rows += [int(np.flatnonzero(y == label)[0]) for label in np.unique(y)]
        clf = AttnKNNClassifier(attention="distance").fit(X[rows], y[rows])
        pool = Pool(X)
        for _ in range(3):
            some = suggest(clf, pool, 20, strategy=strategy, skip=rows, random_state=len(rows)).rows
            clf.add(X[some], y[some])
            rows += some.tolist()
        rest = np.setdiff1d(np.arange(len(X)), rows)
        accuracy[strategy] = (clf.refit().predict(X[rest]) == y[rest]).mean()
    assert accuracy["default"] > accuracy["random"] + 0.03


def test_texts_can_be_a_pool():
    texts = ["red apple", "green apple", "red pear", "fast car", "slow car", "fast bus"] * 3
    labels = ["fruit", "fruit", "fruit", "vehicle", "vehicle", "vehicle"] * 3
    clf = AttnKNNClassifier(attention="distance").fit(texts, labels)
    found = suggest(clf, ["red bus", "green apple", "slow bus"], 2)
    assert len(found) == 2


def test_a_stray_row_is_called_novel():
    clf, X, _, _ = started(per_class=20)
    found = suggest(clf, np.concatenate([X[:30], [[1e3] * X.shape[1]]]), 1, strategy="novelty")
    assert found.rows.tolist() == [30]
    assert "unlike anything remembered" in found.reasons[0]


def test_results_are_shown_as_text_table_frame_and_plot():
    pytest.importorskip("matplotlib").use("Agg")
    clf, X, _, _ = started()
    found = suggest(clf, X, 3)
    assert str(found).splitlines()[0].startswith("3 of 240 unlabeled rows to label next; expected")
    assert len(found.to_frame()) == 3
    assert found.to_frame()["row"].tolist() == found.rows.tolist()
    assert "expected accuracy" in found._repr_html_()
    assert len(found.plot().collections) == 1


def test_hostile_labels_are_shown_as_text():
    X = np.array([[0.0], [1.0], [0.5]])
    clf = AttnKNNClassifier(attention="distance").fit(X[:2], ["<script>\x1b[2J", "b"])
    found = suggest(clf, X[2:], 1)
    assert "\x1b" not in str(found)
    assert "<script>" not in found._repr_html_()
    assert isinstance(found, Suggestions)


def test_error_messages_name_the_setting_and_the_value():
    clf, X, _, _ = started()
    with pytest.raises(InvalidSettingError, match="`n` must be an integer of at least 1, got 0"):
        suggest(clf, X, 0)
    with pytest.raises(InvalidSettingError, match="margin"):
        suggest(clf, X, strategy="margins")
    with pytest.raises(InvalidInputError, match="No row of `pool` is left"):
        suggest(clf, X[:2], skip=[0, 1])
    with pytest.raises(InvalidInputError, match="positions from 0 to 239, got 240"):
        suggest(clf, X, skip=[240])
    with pytest.raises(InvalidInputError, match=r"integers\), got 0.5"):
        suggest(clf, X, skip=[0.5])
    with pytest.raises(InvalidInputError, match="at least one row"):
        suggest(clf, X[:0])
    with pytest.raises(NotFittedYetError, match="suggest"):
        suggest(AttnKNNClassifier(), X)


def test_the_expected_accuracy_is_right_where_entries_were_chosen_because_they_are_hard():
    X, y = load_digits(return_X_y=True)
    labeled = [int(row) for label in range(10) for row in np.flatnonzero(y == label)[:2]]
    clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X[labeled], y[labeled])
    pool = Pool(X)
    for _ in range(6):
        found = suggest(clf, pool, 20, skip=labeled)
        labeled += found.rows.tolist()
        clf.add(X[found.rows], y[found.rows])
    found = suggest(clf, pool, 20, skip=labeled)
    rest = np.setdiff1d(np.arange(len(X)), [*labeled, *found.rows])
    true = (clf.predict(X[rest]) == y[rest]).mean()
    own = clf.memory_.entries.labels
    leave_one_out = (clf.leave_one_out_proba().argmax(axis=1) == own).mean()
    assert abs(found.expected_accuracy - true) < 0.04
    assert abs(leave_one_out - true) > 0.1


def test_the_expected_accuracy_of_random_entries_is_that_of_the_probabilities():
    X, y = blobs(1200)
    clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X[:600], y[:600])
    pool, everything = Pool(X[600:]), np.ones(600, dtype=bool)
    mean = clf.predict_proba(X[600:]).max(axis=1).mean()
    assert pool.expected_accuracy(clf, everything) == pytest.approx(mean, abs=0.03)
    clf.forget(np.arange(590))
    assert pool.expected_accuracy(clf, everything) < 1  # too few entries for a correction
    assert np.isnan(pool.expected_accuracy(clf, ~everything))


def test_an_edit_of_another_thread_does_not_mix_two_models():
    clf, X, _, _ = started()
    pool = Pool(X)

    class Edited(Pool):
        def probabilities(self, frozen):
            clf.add(X[:1], [-7])  # a new class, before all others
            return super().probabilities(frozen)

    expected, found = suggest(clf, pool, 5), suggest(clf, Edited(X), 5)
    assert (found.predicted == expected.predicted).all()
    assert (found.rows == expected.rows).all()
    assert -7 in suggest(clf, pool, 5).predicted.tolist() + clf.classes_.tolist()
