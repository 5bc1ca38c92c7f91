"""Votes in the space of networks' scores: trained without the fold of an entry, reproducible."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.datasets import load_digits, load_wine, make_moons

from attnknn import AttnKNNClassifier, MLPAttention
from attnknn.attention.mlp import LARGE, MIN_VALUES, ROOT, Inputs, MLPMaps, compressed
from attnknn.attention.space import folds_of
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.training.mlp import FoldMLPs, MLPSettings, train_fold_mlps

X, Y = load_wine(return_X_y=True)
TRAIN, LABELS, TEST = X[::2].astype(np.float32), Y[::2], X[1::2].astype(np.float32)
SMALL = MLPAttention(n_folds=3, hidden_size=8, max_epochs=4, learning_rate=0.03)
SETTINGS = MLPSettings(hidden_size=8, max_epochs=4, learning_rate=0.03)


@cache
def fitted() -> AttnKNNClassifier:
    """Not to be edited."""
    return AttnKNNClassifier(attention=SMALL, encoder="identity", random_state=0).fit(TRAIN, LABELS)


def trained(labels, folds, weights=None, settings=SETTINGS, n_folds=2):
    inputs, n_periodic = Inputs.fitted(TRAIN)
    weights = np.ones(len(labels)) if weights is None else weights
    rows = inputs(TRAIN).astype(np.float32)
    arguments = rows, n_periodic, labels, weights, folds, n_folds, settings
    return MLPMaps(inputs, train_fold_mlps(*arguments, random_state=5)), n_periodic


def by_torch(maps, X):
    """Scores (F, B, C) of rows by all networks, computed by torch."""
    n_folds, n_periodic, *_ = maps.arrays["column"].shape
    hidden_size = maps.arrays["biases.0"].shape[-1]
    n_classes = maps.arrays["biases.2"].shape[-1]
    networks = FoldMLPs(n_folds, n_periodic, X.shape[1], n_classes, hidden_size)
    networks.load_state_dict({name: torch.from_numpy(a) for name, a in maps.arrays.items()})
    with torch.no_grad():
        rows = torch.from_numpy(maps.inputs(X)).float()
        return networks(rows.expand(n_folds, -1, -1)).numpy()


def test_numpy_and_torch_compute_the_same_scores():
    maps, entries = fitted().attention_.map_, fitted().memory_.read()
    of_folds = by_torch(maps, TEST)
    np.testing.assert_allclose(
        maps.of_queries(TEST), compressed(of_folds.mean(axis=0)), rtol=0, atol=1e-5
    )
    folds, of_entries = folds_of(entries, 3), by_torch(maps, entries.embeddings)
    expected = of_entries[folds, np.arange(len(entries))]
    np.testing.assert_allclose(maps.of_entries(entries), compressed(expected), rtol=0, atol=1e-5)


def test_compressed_scores_are_roots_of_probabilities():
    scores = np.random.default_rng(0).normal(0, 20, (50, 4)).astype(np.float32)
    expected = softmax(scores.astype(np.float64), axis=1) ** ROOT
    np.testing.assert_allclose(compressed(scores), expected, rtol=1e-4, atol=1e-7)


def test_inputs_are_standardized_and_bounded_and_columns_of_many_values_come_first():
    generator = np.random.default_rng(0)
    many, few = generator.normal(7, 3, (90, 2)), generator.integers(0, 2, (90, 2))
    X = np.column_stack([few[:, 0], many[:, 0], np.ones(90), few[:, 1], many[:, 1]])
    X = X.astype(np.float32)
    inputs, n_periodic = Inputs.fitted(X)
    assert inputs.order.tolist() == [1, 4, 0, 2, 3]
    assert n_periodic == 2
    found = inputs(X)
    scaled = (many[:, 0] - many[:, 0].mean()) / many[:, 0].std()
    expected = scaled / np.sqrt(1 + (scaled / LARGE) ** 2)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-5)
    assert not found[:, 3].any()  # a constant column
    assert np.abs(inputs(1e6 * X)).max() <= LARGE + 1e-3
    digits = np.arange(MIN_VALUES * 4) % MIN_VALUES
    columns = np.column_stack([digits, np.minimum(digits, MIN_VALUES - 2)]).astype(np.float32)
    assert Inputs.fitted(columns)[1] == 1


def test_networks_learn_a_curved_boundary_that_a_projection_cannot_have():
    X, y = make_moons(400, noise=0.2, random_state=0)
    losses = {
        name: AttnKNNClassifier(attention=attention, random_state=0).fit(X, y).fit_report_.log_loss
        for name, attention in {"mlp": MLPAttention(), "projection": "projection"}.items()
    }
    assert losses["mlp"] < 0.6 * losses["projection"]


def test_the_labels_of_a_fold_do_not_move_its_own_network():
    folds = np.arange(len(TRAIN)) % 2
    changed = LABELS.copy()  # class frequencies, which all networks start from, stay the same
    changed[folds == 0] = np.random.default_rng(0).permutation(LABELS[folds == 0])
    # One epoch: which one is kept is chosen by all labels together.
    settings = MLPSettings(hidden_size=8, max_epochs=1)
    one, other = (
        trained(labels, folds, settings=settings)[0].arrays["weights.2"]
        for labels in (LABELS, changed)
    )
    np.testing.assert_array_equal(one[0], other[0])
    assert not np.array_equal(one[1], other[1])


def test_the_epoch_with_the_lowest_log_loss_of_the_rows_left_out_is_kept():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, len(TRAIN))  # nothing can be learned
    folds = np.arange(len(TRAIN)) % 2

    def loss(n_epochs):
        settings = MLPSettings(hidden_size=64, max_epochs=n_epochs, learning_rate=0.05)
        maps, _ = trained(labels, folds, settings=settings)
        scores = by_torch(maps, TRAIN)[folds, np.arange(len(TRAIN))]
        probabilities = softmax(scores.astype(np.float64), axis=1)
        return -np.log(probabilities[np.arange(len(TRAIN)), labels]).mean()

    assert loss(60) < 1.0  # the last epoch is far worse, since the networks overfit


def test_rows_without_sample_weight_do_not_train():
    folds = np.arange(len(TRAIN)) % 2
    ignored = np.arange(len(TRAIN)) % 5 == 0
    weights = np.where(ignored, 1e-12, 1.0)
    changed = np.where(ignored, (LABELS + 1) % 3, LABELS)
    one, other = (trained(labels, folds, weights)[0] for labels in (LABELS, changed))
    np.testing.assert_allclose(one.of_queries(TEST), other.of_queries(TEST), atol=1e-4)


def test_a_seed_fixes_the_training():
    first, again, other = (
        AttnKNNClassifier(attention=SMALL, random_state=seed).fit(TRAIN, LABELS).predict_proba(TEST)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("attention", [MLPAttention(max_epochs=1), "projection"], ids=str)
def test_an_entry_has_the_same_vector_among_few_and_among_many(attention):
    X, y = load_digits(return_X_y=True)
    clf = AttnKNNClassifier(attention=attention, random_state=0).fit(X[:900], y[:900])
    maps, entries = clf.attention_.map_, clf.memory_.read()
    vectors = maps.of_entries(entries)
    for kept in (np.arange(899), np.arange(0, 900, 7), np.array([5])):
        found = maps.of_entries(entries.take(kept))
        np.testing.assert_array_equal(found, vectors[kept])
    queries = maps.of_queries(entries.embeddings)
    np.testing.assert_array_equal(maps.of_queries(entries.embeddings[3:4]), queries[3:4])


@pytest.mark.parametrize("n_groups", [1, 2])
def test_folds_without_rows_are_no_obstacle(n_groups):
    groups = np.arange(len(TRAIN)) % n_groups
    clf = AttnKNNClassifier(attention=SMALL, random_state=0).fit(TRAIN, LABELS, groups=groups)
    np.testing.assert_allclose(clf.predict_proba(TEST).sum(axis=1), 1)


def test_few_rows_and_one_class_are_no_obstacle():
    for n_rows in (2, 5):
        clf = AttnKNNClassifier(attention=SMALL, random_state=0).fit(
            TRAIN[:n_rows], np.arange(n_rows) % 2
        )
        assert np.isfinite(clf.predict_proba(TEST)).all()
    clf = AttnKNNClassifier(attention=SMALL, random_state=0).fit(TRAIN[:9], np.zeros(9, int))
    assert (clf.predict_proba(TEST) == 1).all()


def test_a_new_class_can_be_predicted():
    clf = AttnKNNClassifier(attention=SMALL, random_state=0).fit(TRAIN, LABELS)
    clf.add(TEST[:2] * 3, [9, 9])
    found = clf.predict_proba(TEST)
    assert found.shape == (len(TEST), 4)
    np.testing.assert_allclose(found.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_folds", 1), ("hidden_size", 0), ("max_epochs", 0), ("learning_rate", 0), ("dropout", 1.0)],
)
def test_settings_out_of_range_are_named(name, value):
    with pytest.raises(InvalidSettingError, match=f"`{name}` must be"):
        AttnKNNClassifier(attention=MLPAttention(**{name: value})).fit(TRAIN[:9], LABELS[:9])


DAMAGES = {
    "order": lambda a: a["order"][:-1],
    "order_repeated": lambda a: np.zeros_like(a["order"]),
    "order_dtype": lambda a: a["order"].astype(np.int64),
    "scale": lambda a: np.zeros_like(a["scale"]),
    "center": lambda a: np.full_like(a["center"], np.nan),
    "phase": lambda a: a["phase"][:, :-1],
    "column": lambda a: a["column"][0],
    "weights.0": lambda a: a["weights.0"][:, :-1],
    "weights.1": lambda a: np.full_like(a["weights.1"], np.inf),
    "biases.2": lambda a: a["biases.2"].astype(np.float64),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_arrays_are_refused(damage):
    values, arrays = fitted().attention_.state()
    arrays[damage.partition("_")[0]] = DAMAGES[damage](arrays)
    with pytest.raises(ModelFolderError, match="stored"):
        MLPAttention(n_folds=3, hidden_size=8).restore(values, arrays, TRAIN.shape[1], 3)


def test_networks_of_another_size_are_refused():
    values, arrays = fitted().attention_.state()
    for attention, n_classes in ((MLPAttention(3, 9), 3), (MLPAttention(4, 8), 3), (SMALL, 2)):
        with pytest.raises(ModelFolderError, match="networks"):
            attention.restore(values, dict(arrays), TRAIN.shape[1], n_classes)
