"""A head that takes the training of a vote answers as one that was fitted by itself."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import blobs

from attnknn import AttnKNNClassifier
from attnknn.fitting import encoders
from experiments import same_training
from experiments.same_training import HeadOfLearned, VoteOfLearned

SETTINGS = {"n_neighbors": 8, "encoder": "learned-tabular", "random_state": 0}


@pytest.fixture(autouse=True)
def forget_the_last():
    yield
    same_training._last.clear()


def fitted_vote(X, y):
    return VoteOfLearned(**SETTINGS).fit(X, y)


def test_a_head_on_the_last_vote_answers_as_one_fitted_by_itself(monkeypatch):
    X, y = blobs(120, 3, spread=1.5)
    alone = AttnKNNClassifier(**SETTINGS, value_head=True).fit(X, y)
    vote = fitted_vote(X, y)
    by_vote = vote.predict_proba(X)
    monkeypatch.setattr(encoders, "train_encoder", None)  # nothing may be trained again
    head = HeadOfLearned(**SETTINGS, value_head=True).fit(X, y)
    np.testing.assert_array_equal(head.predict_proba(X), alone.predict_proba(X))
    np.testing.assert_array_equal(vote.predict_proba(X), by_vote)
    assert head.value_head_ is not None
    assert vote.value_head_ is None


def trainings_of(monkeypatch, fit):
    """How often an encoder is trained while `fit` runs."""
    found = []
    train_encoder = encoders.train_encoder

    def spied(*given, **named):
        found.append(given)
        return train_encoder(*given, **named)

    monkeypatch.setattr(encoders, "train_encoder", spied)
    fit()
    return len(found)


@pytest.mark.parametrize("what", ["rows", "labels", "seed", "setting"])
def test_a_head_of_anything_else_is_fitted_by_itself(what, monkeypatch):
    X, y = blobs(60, 3)
    fitted_vote(X, y)
    settings = {**SETTINGS, "value_head": True}
    settings |= {"seed": {"random_state": 1}, "setting": {"calibration": "scores"}}.get(what, {})
    other_X = X.copy() if what == "rows" else X
    other_y = y[::-1].copy() if what == "labels" else y
    head = HeadOfLearned(**settings)
    assert trainings_of(monkeypatch, lambda: head.fit(other_X, other_y)) == 1
    assert head.memory_.entries.labels.tolist() == other_y.tolist()


def test_without_a_vote_a_head_is_fitted_by_itself(monkeypatch):
    head = HeadOfLearned(**SETTINGS, value_head=True)
    assert trainings_of(monkeypatch, lambda: head.fit(*blobs(60, 3))) == 1
    assert head.value_head_ is not None
