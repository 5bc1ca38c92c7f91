"""Baselines: scikit-learn's conventions, and method_settings made on training rows only."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier, NearestNeighbors
from sklearn.utils.estimator_checks import parametrize_with_checks

from attnknn.encoders import LearnedTableEncoder
from attnknn.encoders.learned_table import TableLayers
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.research.evaluation import baselines
from attnknn.research.evaluation.baselines import (
    AsCategories,
    LinearProbe,
    TableMLP,
    UniformKNN,
    _nearest_others,
)
from attnknn.training import TrainConfig


@parametrize_with_checks([UniformKNN(), LinearProbe(Cs=(1.0,))])
def test_baselines_pass_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def data(n=150, seed=0):
    return make_classification(n, 8, n_informative=4, n_classes=3, random_state=seed, class_sep=0.8)


def test_uniform_knn_takes_the_k_that_leave_one_out_finds_best():
    X, y = data(30)
    scores = [
        cross_val_score(KNeighborsClassifier(k), X, y, cv=LeaveOneOut()).mean() for k in range(1, 5)
    ]
    model = UniformKNN(max_neighbors=4).fit(X, y)
    assert model.n_neighbors_ == int(np.argmax(scores)) + 1
    expected = KNeighborsClassifier(model.n_neighbors_).fit(X, y).predict_proba(X)
    assert np.array_equal(model.predict_proba(X), expected)


def test_uniform_knn_does_not_count_a_row_as_its_own_neighbor():
    """DESIGN.md section 7: with random labels leave-one-out is chance, so K = 1 is not perfect."""
    rng = np.random.default_rng(0)
    model = UniformKNN().fit(rng.normal(size=(400, 2)), rng.integers(0, 2, 400))
    assert model.n_neighbors_ > 1


def test_uniform_knn_may_choose_k_by_held_out_rows_alone():
    X, y = data(60)
    held_out = np.arange(60) % 3 == 0
    rows = np.flatnonzero(held_out)
    right = [
        [
            KNeighborsClassifier(k)
            .fit(np.delete(X, row, 0), np.delete(y, row))
            .predict(X[[row]])[0]
            == y[row]
            for row in rows
        ]
        for k in range(1, 9)
    ]
    model = UniformKNN(max_neighbors=8).fit(X, y, held_out=held_out)
    assert model.n_neighbors_ == int(np.argmax(np.mean(right, axis=1))) + 1
    expected = KNeighborsClassifier(model.n_neighbors_).fit(X, y).predict_proba(X)
    assert np.array_equal(model.predict_proba(X), expected)  # all rows vote


def test_rows_that_crowd_since_they_were_trained_on_do_not_choose_k():
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    trained = np.arange(200) < 150
    crowded = np.where(
        trained, 1e-4 * rng.normal(size=200) + np.arange(200) // 2, rng.normal(size=200)
    )
    crowded[1:150:2], y[1:150:2] = crowded[:149:2] + 1e-6, y[:149:2]  # pairs of one label
    X = crowded[:, None]
    assert UniformKNN().fit(X, y).n_neighbors_ == 1
    assert UniformKNN().fit(X, y, held_out=~trained).n_neighbors_ > 1


def test_a_row_among_many_copies_is_not_its_own_neighbor():
    X = np.zeros((8, 1))
    found = _nearest_others(NearestNeighbors().fit(X), X, np.arange(8), 3)
    assert found.shape == (8, 3)
    assert not (found == np.arange(8)[:, None]).any()


@pytest.mark.parametrize("held_out", [[False, False], [True], [0, 1]])
def test_held_out_needs_a_flag_for_every_row(held_out):
    with pytest.raises(InvalidInputError, match="true or false for each of 2 rows"):
        UniformKNN().fit([[0.0], [1.0]], [0, 1], held_out=held_out)


def test_linear_probe_chooses_c_on_training_rows_by_log_loss():
    X, y = data(300)
    model = LinearProbe(Cs=(1e-6, 1.0), random_state=0).fit(X, y)
    assert model.C_ == 1.0
    assert model.is_converged_
    assert LinearProbe(Cs=(1e-6, 1.0), random_state=0).fit(X, y).C_ == model.C_


def test_linear_probe_scales_columns_but_not_unit_vectors():
    X, y = data()
    assert LinearProbe().fit(X, y).scaler_ is not None
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    assert LinearProbe().fit(unit, y).scaler_ is None
    assert LinearProbe(scaling="none").fit(X, y).scaler_ is None


def test_linear_probe_is_the_logistic_regression_of_scikit_learn():
    X, y = data()
    model = LinearProbe(Cs=(1.0,), scaling="none").fit(X, y)
    expected = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(X, y).predict_proba(X)
    assert np.allclose(model.predict_proba(X), expected, atol=1e-3)


def test_linear_probe_says_when_it_did_not_converge():
    X, y = data()
    assert not LinearProbe(max_iter=1).fit(X, y).is_converged_


def test_baselines_keep_any_labels():
    X, y = data()
    names = np.array(["b", "c", "a"])[y]
    for model in (UniformKNN(), LinearProbe(random_state=0)):
        assert model.fit(X, names).classes_.tolist() == ["a", "b", "c"]
        assert set(model.predict(X)) <= set(names)
        assert model.score(X, names) > 0.5


def test_unusable_settings_and_labels_are_refused():
    with pytest.raises(InvalidSettingError, match="`max_neighbors`"):
        UniformKNN(max_neighbors=0).fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(InvalidInputError, match="at least two classes"):
        LinearProbe().fit([[0.0], [1.0]], [0, 0])
    with pytest.raises(InvalidSettingError, match="No scaling is called 'standrad'"):
        LinearProbe(scaling="standrad").fit([[0.0], [1.0]], [0, 1])
    with pytest.raises(InvalidSettingError, match="`Cs` must hold"):
        LinearProbe(Cs=()).fit([[0.0], [1.0]], [0, 1])


@pytest.fixture
def rows() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {"place": generator.uniform(-2, 2, 300), "kind": generator.choice(["a", "b"], 300)}
    )


@pytest.fixture
def labels(rows):
    is_up = (rows["place"] > 0) ^ (rows["kind"] == "a")
    return np.where(is_up, "up", "down")


def small(network="auto") -> LearnedTableEncoder:
    return LearnedTableEncoder(
        8,
        network=network,
        width=32,
        layers=TableLayers(n_blocks=1),
        training=TrainConfig(batch_size=32),
    )


def test_the_network_with_a_head_learns_what_no_line_can(rows, labels):
    model = TableMLP(small("deep"), random_state=0).fit(rows, labels)
    assert model.score(rows, labels) > 0.9
    probabilities = model.predict_proba(rows)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert model.classes_.tolist() == ["down", "up"]


def test_it_is_the_same_for_a_seed(rows, labels, monkeypatch):
    monkeypatch.setattr(baselines, "EPOCHS", 3)
    first, second = (TableMLP(small(), random_state=3).fit(rows, labels) for _ in range(2))
    assert np.array_equal(first.predict_proba(rows), second.predict_proba(rows))


def test_its_temperature_is_fitted_on_rows_it_was_not_trained_on(rows):
    labels = np.random.default_rng(1).choice(["up", "down"], 300)
    model = TableMLP(small("deep"), random_state=0).fit(rows, labels)
    probabilities = model.predict_proba(rows)
    assert probabilities.max(axis=1).mean() < 0.75  # nothing can be known, and it knows


def test_unseen_categories_are_missing_values(rows):
    encoder = AsCategories().fit(rows)
    unseen = encoder.transform(pd.DataFrame({"place": [0.0], "kind": ["c"]}))
    assert unseen["kind"].isna().all()
    assert unseen["kind"].cat.categories.tolist() == rows["kind"].unique().tolist()
