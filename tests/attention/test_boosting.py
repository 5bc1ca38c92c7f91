"""Votes in the space of boosted scores: equal to scikit-learn's, held out, exact under edits."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.datasets import load_wine
from sklearn.ensemble import HistGradientBoostingClassifier

from attnknn import AttnKNNClassifier
from attnknn.attention import BoostingAttention
from attnknn.attention.boosting import LOWER, BoostedMaps, centered, cross_fit
from attnknn.attention.space import folds_of
from attnknn.attention.trees import LEAF, Trees
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.memory import make_entries

X, Y = load_wine(return_X_y=True)
TRAIN, LABELS, TEST = X[::2], Y[::2], X[1::2]
SMALL = BoostingAttention(n_folds=3, max_iterations=4, min_samples_leaf=5)
SETTINGS = {
    "learning_rate": 0.2,
    "max_leaf_nodes": 7,
    "min_samples_leaf": 4,
    "max_features": 1.0,
    "random_state": 3,
}


@cache
def fitted() -> AttnKNNClassifier:
    """Not to be edited."""
    return AttnKNNClassifier(attention=SMALL, encoder="identity", random_state=0).fit(TRAIN, LABELS)


def boosted(labels, weights=None, folds=None, n_iterations=6):
    """Maps of two folds, their iterations, and the entries and folds they were grown on."""
    entries = make_entries(TRAIN.astype(np.float32), labels, sample_weight=weights)
    folds = folds_of(entries, 2) if folds is None else folds
    return *cross_fit(entries, folds, 2, n_iterations, SETTINGS), entries, folds


def by_scikit_learn(labels, weights, folds, fold, n_iterations):
    """A classifier that is fitted without one of the folds."""
    kept = folds != fold
    model = HistGradientBoostingClassifier(max_iter=n_iterations, early_stopping=False, **SETTINGS)
    weights = None if weights is None else weights[kept]
    return model.fit(TRAIN[kept].astype(np.float32), labels[kept], weights)


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("labels", [(LABELS > 0).astype(int), LABELS], ids=["two", "three"])
def test_scores_are_those_of_scikit_learn(labels, is_weighted):
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(labels)) if is_weighted else None
    maps, n_iterations, entries, folds = boosted(labels, weights)
    queries, of_entries = TEST.astype(np.float32), maps.of_entries(entries)
    of_folds = []
    for fold in (0, 1):
        model = by_scikit_learn(labels, weights, folds, fold, n_iterations)
        out = folds == fold
        expected = model.decision_function(entries.embeddings[out]).reshape(out.sum(), -1)
        np.testing.assert_allclose(of_entries[out], centered(expected), rtol=0, atol=1e-5)
        of_folds.append(model.decision_function(queries).reshape(len(queries), -1))
    expected = centered(np.mean(of_folds, axis=0))
    np.testing.assert_allclose(maps.of_queries(queries), expected, rtol=0, atol=1e-5)


def test_the_number_of_iterations_has_the_lowest_log_loss_of_the_folds_left_out():
    labels = np.where(np.random.default_rng(0).random(len(LABELS)) < 0.3, 0, LABELS)  # overfits
    _, best, entries, folds = boosted(labels, n_iterations=60)
    losses = np.zeros(60)
    for fold in (0, 1):
        out = folds == fold
        model = by_scikit_learn(labels, None, folds, fold, 60)
        for place, scores in enumerate(model.staged_decision_function(entries.embeddings[out])):
            own = scores[np.arange(out.sum()), labels[out]]
            losses[place] += (logsumexp(scores, axis=1) - own).sum()
    assert best == 1 + np.argmin(losses) < 60


@pytest.mark.parametrize("n_left", [1, 2, 3])
def test_a_class_without_rows_outside_a_fold_has_the_lowest_score(n_left):
    folds = folds_of(make_entries(TRAIN, LABELS), 2)
    labels = np.where((folds == 1) & (n_left - 1 < LABELS), 0, LABELS)
    labels = np.where(LABELS == 2, 3 * (folds == 0), labels) if n_left < 3 else 2 * labels
    if n_left == 3:  # three classes in fold 1, which the trees of fold 0 are grown on
        labels = np.where((folds == 0) & (LABELS == 1), 3, labels)
    maps, n_iterations, entries, _ = boosted(labels)
    classes, own = np.unique(labels), np.unique(labels[folds == 1])
    assert len(own) == n_left < len(classes)
    scores, has_rows = maps.of_entries(entries)[folds == 0], np.isin(classes, own)
    assert np.isfinite(scores).all()
    if n_left == 1:
        assert not scores.any()
        return
    lowest = maps.offset[0][has_rows].min() - LOWER
    np.testing.assert_allclose(maps.offset[0][~has_rows], lowest, rtol=0, atol=1e-5)
    model = by_scikit_learn(labels, None, folds, 0, n_iterations)
    expected = model.decision_function(entries.embeddings[folds == 0])
    if n_left == 2:
        expected = np.stack([-expected, expected], axis=1) / 2
    found = centered(scores[:, has_rows])
    np.testing.assert_allclose(found, centered(expected), rtol=0, atol=1e-5)


def test_a_class_of_one_row_and_a_new_class_can_be_predicted():
    labels = LABELS.copy()
    labels[3] = 7
    clf = AttnKNNClassifier(attention=SMALL, random_state=0).fit(TRAIN, labels)
    assert np.isfinite(clf.predict_proba(TEST)).all()
    clf.add(TEST[:2] * 3, [9, 9])
    found = clf.predict_proba(TEST)
    assert found.shape == (len(TEST), 5)
    np.testing.assert_allclose(found.sum(axis=1), 1)


@pytest.mark.parametrize("n_groups", [1, 2])
def test_folds_without_rows_are_no_obstacle(n_groups):
    groups = np.arange(len(TRAIN)) % n_groups
    clf = AttnKNNClassifier(attention=SMALL, random_state=0).fit(TRAIN, LABELS, groups=groups)
    np.testing.assert_allclose(clf.predict_proba(TEST).sum(axis=1), 1)
    assert (clf.predict(TEST) == Y[1::2]).mean() > 0.3


def test_few_rows_and_one_class_are_no_obstacle():
    for n_rows in (2, 5):
        clf = AttnKNNClassifier(attention=SMALL, random_state=0).fit(
            TRAIN[:n_rows], np.arange(n_rows) % 2
        )
        assert np.isfinite(clf.predict_proba(TEST)).all()
    clf = AttnKNNClassifier(attention=SMALL, random_state=0).fit(TRAIN[:9], np.zeros(9, int))
    assert (clf.predict_proba(TEST) == 1).all()


def test_rows_of_a_group_share_a_fold_and_do_not_vote_for_each_other():
    groups = np.arange(len(TRAIN)) // 4
    clf = AttnKNNClassifier(attention=SMALL, random_state=0).fit(TRAIN, LABELS, groups=groups)
    folds = folds_of(clf.memory_.entries, 3)
    assert all(len(set(folds[groups == group])) == 1 for group in range(groups.max() + 1))
    voters = clf.attention_.left_out_voters(clf.model_, np.arange(len(TRAIN)))
    own = groups[voters.neighbors.positions] == groups[:, None]
    assert not (own & voters.neighbors.mask).any()


def test_the_label_of_an_entry_does_not_move_its_own_scores():
    changed = LABELS.copy()
    changed[7] = 2 - changed[7] if changed[7] != 1 else 0
    # As many iterations for both: their number is chosen by all labels together.
    (one, _, entries, folds), (other, *_) = (boosted(y, n_iterations=1) for y in (LABELS, changed))
    is_same = (one.of_entries(entries) == other.of_entries(entries)).all(axis=1)
    assert is_same[folds == folds[7]].all()
    assert not is_same[folds != folds[7]].any()


def test_random_labels_are_predicted_near_their_frequencies():
    losses, distances = [], []
    for seed in range(3):
        generator = np.random.default_rng(seed)
        rows, labels = generator.normal(size=(300, 6)), generator.integers(2, size=300)
        attention = BoostingAttention(max_iterations=5)
        clf = AttnKNNClassifier(attention=attention, random_state=0).fit(rows, labels)
        losses.append(clf.fit_report_.log_loss)
        found = clf.predict_proba(generator.normal(size=(200, 6)))
        distances.append(np.abs(found[:, 1] - labels.mean()).mean())
    # The number of neighbors is chosen by the same log-loss, which is a little optimistic.
    assert np.mean(losses) > np.log(2) - 0.01
    assert np.mean(distances) < 0.1


def test_random_state_decides_which_columns_are_candidates():
    attention = BoostingAttention(3, 4, min_samples_leaf=5, max_features=0.3)
    first, again, other = (
        AttnKNNClassifier(attention=attention, random_state=seed)
        .fit(TRAIN, LABELS)
        .predict_proba(TEST)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_folds", 1),
        ("max_iterations", 0),
        ("learning_rate", 0.0),
        ("max_leaf_nodes", 1),
        ("min_samples_leaf", 0),
        ("max_features", 0.0),
        ("max_features", 1.5),
    ],
)
def test_settings_out_of_range_are_named(name, value):
    attention = BoostingAttention(**{name: value})
    with pytest.raises(InvalidSettingError, match=f"`{name}` must be"):
        AttnKNNClassifier(attention=attention).fit(TRAIN[:9], LABELS[:9])


DAMAGES = {
    "values": lambda a: a["values"][:-1],
    "values_dtype": lambda a: a["values"].astype(np.float64),
    "nan": lambda a: np.full_like(a["values"], np.nan),
    "offset": lambda a: a["offset"][:-1],
    "offset_shape": lambda a: a["offset"].ravel(),
    "infinite": lambda a: np.full_like(a["offset"], np.inf),
    "no_scores": lambda a: a["offset"][:, :0],
    "feature": lambda a: np.full_like(a["feature"], TRAIN.shape[1]),
    "child": lambda a: np.zeros_like(a["child"]),
    "child_dtype": lambda a: a["child"].astype(np.int64),
    "roots": lambda a: a["roots"][:-1],
    "threshold": lambda a: a["threshold"][:, None],
}
ARRAYS = {"nan": "values", "infinite": "offset", "no_scores": "offset"}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_arrays_are_refused(damage):
    values, arrays = fitted().attention_.state()
    name = ARRAYS.get(damage, damage.partition("_")[0])
    arrays[name] = DAMAGES[damage](arrays)
    with pytest.raises(ModelFolderError, match="trees"):
        BoostingAttention(n_folds=3).restore(values, arrays, TRAIN.shape[1], 3)


@pytest.mark.parametrize(
    "change",
    [{"n_iterations": 5}, {"n_neighbors": 0}, {"temperature": 0}, {"inner_prior_score": "1"}],
)
def test_damaged_values_are_refused(change):
    values, arrays = fitted().attention_.state()
    with pytest.raises(ModelFolderError):
        BoostingAttention(n_folds=3).restore({**values, **change}, arrays, TRAIN.shape[1], 3)


def test_scores_for_more_classes_than_there_are_are_refused():
    values, arrays = fitted().attention_.state()
    with pytest.raises(ModelFolderError, match="boosted trees"):
        BoostingAttention(n_folds=3).restore(values, arrays, TRAIN.shape[1], 2)
    with pytest.raises(ModelFolderError, match="boosted trees"):
        BoostingAttention(n_folds=4).restore(values, arrays, TRAIN.shape[1], 3)


# ---- the arrays of trees


def two_trees() -> Trees:
    """x0 <= 1, and a single leaf."""
    split = np.array([0, LEAF, LEAF], np.int32), np.array([1, 0, 0], np.float32)
    leaf = np.array([LEAF], np.int32), np.zeros(1, np.float32), np.zeros(1, np.int32)
    return Trees.of_nodes([(*split, np.array([1, 0, 0], np.int32)), leaf])


def test_trees_of_nodes_are_numbered_together():
    trees = two_trees()
    assert (len(trees), trees.n_leaves) == (2, 3)
    rows = np.array([[1.0], [1.5]], dtype=np.float32)
    assert trees.leaves(rows).tolist() == [[0, 2], [1, 2]]
    assert trees.leaves(rows[:0]).shape == (0, 2)


def test_a_part_of_the_trees_keeps_the_numbers_of_their_leaves():
    trees = fitted().attention_.map_.trees
    rows = fitted().memory_.vectors.all()
    np.testing.assert_array_equal(trees.part(2, 7).leaves(rows), trees.leaves(rows)[:, 2:7])
    np.testing.assert_array_equal(two_trees().part(1, 2).leaves(rows[:2, :1]), [[2], [2]])


def test_blocks_of_leaves_are_the_leaves(monkeypatch):
    trees, rows = fitted().attention_.map_.trees, TEST.astype(np.float32)
    whole = trees.leaves(rows)
    monkeypatch.setattr("attnknn.attention.trees.PAIRS_AT_ONCE", 7 * len(trees))
    blocks = list(trees.blocks_of_leaves(rows))
    assert [len(leaf) for _, leaf in blocks[:-1]] == [7] * (len(blocks) - 1)
    for block, leaf in blocks:
        np.testing.assert_array_equal(leaf, whole[block])
    np.testing.assert_array_equal(trees.leaves(rows), whole)


def test_trees_from_stored_arrays_are_the_same_trees():
    trees = fitted().attention_.map_.trees
    arrays = trees.arrays()
    again = Trees.from_arrays(arrays, TRAIN.shape[1])
    for name, array in trees.arrays().items():
        np.testing.assert_array_equal(getattr(again, name), array)
    del arrays["roots"]
    with pytest.raises(ModelFolderError, match="four arrays"):
        Trees.from_arrays(arrays, TRAIN.shape[1])


def test_no_rows_have_no_scores():
    maps: BoostedMaps = fitted().attention_.map_
    assert maps.of_queries(TEST[:0].astype(np.float32)).shape == (0, 3)
    assert maps.of_entries(fitted().memory_.read(np.arange(0))).shape == (0, 3)
