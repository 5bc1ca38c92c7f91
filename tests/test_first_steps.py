"""What people try first: each works, or says in words what to do."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from strategies import blobs

from attnknn import AttnKNNClassifier, PredictionSets, open_for_editing
from attnknn.errors import InvalidInputError

TEXTS = ["my card is lost", "what is the fee", "lost it", "which fees"] * 3


# ---- texts


@pytest.mark.parametrize("column", [list, np.array, pd.Series, lambda t: np.array(t, dtype=object)])
def test_a_column_of_texts_names_the_encoders_of_texts(column):
    y = [0, 1, 0, 1] * 3
    with pytest.raises(InvalidInputError, match=r"'my card is lost'.*encoder='tfidf'.*'text'"):
        AttnKNNClassifier().fit(column(TEXTS), y)
    assert AttnKNNClassifier(encoder="tfidf").fit(column(TEXTS), y).predict(TEXTS[:1]) == [0]


def test_a_table_with_a_column_of_texts_names_it_and_the_encoder_of_tables():
    y = [0, 1, 0, 1] * 3
    table = pd.DataFrame({"amount": range(12), "question": TEXTS})
    with pytest.raises(
        InvalidInputError, match=r"Column 'question' .*encoder='tabular'"
    ) as refused:
        AttnKNNClassifier().fit(table, y)
    assert "tfidf" not in str(refused.value)
    with pytest.raises(InvalidInputError, match=r"Column 'question' .*'tabular'.*'tfidf'"):
        AttnKNNClassifier().fit(table[["question"]], y)


# ---- one class, log probabilities


def test_one_class_is_named_in_a_warning():
    X, _ = blobs(20)
    with pytest.warns(UserWarning, match="one class only, 'only'") as caught:
        clf = AttnKNNClassifier(4, attention="distance").fit(X, np.full(20, "only"))
    assert caught[0].filename == __file__
    assert clf.add(X[:4] + 50, ["other"] * 4).predict(X[:1] + 50).tolist() == ["other"]


def test_log_probabilities_are_the_logarithms_and_never_warn():
    X, y = blobs(60)
    clf = AttnKNNClassifier(4, attention="uniform").fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = clf.predict_log_proba(X)
    assert np.isneginf(found).any()  # a class without a vote, as in scikit-learn's classifiers
    assert np.allclose(np.exp(found), clf.predict_proba(X), atol=0, rtol=1e-12)


# ---- empty sets


@pytest.fixture
def with_empty_sets():
    X, y = blobs(200, spread=0.3)
    clf = AttnKNNClassifier(8, attention="distance", random_state=0).fit(X, y)
    between = np.linspace(X[y == 0].mean(axis=0), X[y == 1].mean(axis=0), 21)
    assert (clf.predict_set(between, 0.5).sizes == 0).any()
    return clf, between


@pytest.mark.parametrize("method", ["leave_one_out", "jackknife+"])
def test_empty_sets_can_be_given_the_most_probable_class(with_empty_sets, method):
    clf, X = with_empty_sets
    plain = clf.predict_set(X, 0.5, method=method)
    full = clf.predict_set(X, 0.5, method=method, allow_empty=False)
    empty = plain.sizes == 0
    assert empty.any()
    assert (full.members[~empty] == plain.members[~empty]).all()
    assert [[label] for label in clf.predict(X[empty])] == np.array(full.labels())[empty].tolist()


def test_empty_sets_are_explained_where_they_are_shown(with_empty_sets):
    clf, X = with_empty_sets
    sets = clf.predict_set(X, 0.5)
    for shown in (str(sets), sets._repr_html_()):
        assert f"Empty sets: {(sets.sizes == 0).sum()}." in shown
        assert "allow_empty=False" in shown
    assert "Empty" not in str(PredictionSets(np.ones((2, 2), bool), np.arange(2), 0.9))


# ---- a second time


def test_relabeling_to_the_same_labels_changes_nothing():
    X, y = blobs(60)
    clf = AttnKNNClassifier(8, attention="distance").fit(X, y)
    model = clf.relabel([3, 4], [2, 0]).model_
    assert clf.relabel([4, 3], [0, 2]).model_ is model


def test_relabeling_a_stored_model_to_the_same_labels_makes_no_log_entry(tmp_path):
    X, y = blobs(60)
    AttnKNNClassifier(8, attention="distance").fit(X, y).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        model.relabel([3], (y[3] + 1) % 3)
        log = model.log()
        model.relabel([3], (y[3] + 1) % 3)
        assert model.log() == log
    with open_for_editing(tmp_path / "model") as model:
        model.relabel([3, 4], [(y[3] + 1) % 3, y[4]])
        assert model.log() == log
