"""Vectors that are not in this process: everything else works without reading all of them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from sklearn.datasets import load_wine

from attnknn import AttnKNNClassifier
from attnknn.attention import LearnedAttention
from attnknn.insight import DriftMonitor, audit, keep_newest, what_if
from attnknn.memory import EntryVectors, NumpyMemory, make_entries
from attnknn.memory.vectors import ArrayVectors
from attnknn.testing import check_memory
from attnknn.training import TrainConfig

X, Y = load_wine(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
TRAIN, TEST = np.arange(0, 178, 2), np.arange(1, 178, 2)
QUICK = TrainConfig(epochs=3)


class FarVectors(EntryVectors):
    """Vectors that only the room of memories may read as a whole."""

    def __init__(self, array):
        self.array, self.width = array, array.shape[1]
        self.n_read = 0

    def __len__(self):
        return len(self.array)

    def __getitem__(self, positions):
        found = self.array[positions].copy()
        self.n_read += found.size // max(1, self.width)
        return found

    def all(self):
        caller = sys._getframe(1).f_globals["__name__"]
        assert caller.startswith(("attnknn.memory", "attnknn.testing")), (
            f"{caller} reads all vectors"
        )
        return self.array


class FarMemory(NumpyMemory):
    """A memory whose vectors are somewhere else."""

    def replace_entries(self, entries):
        super().replace_entries(entries)
        self.vectors = FarVectors(self.vectors.all())


def fitted(memory, attention="distance", **settings):
    clf = AttnKNNClassifier(9, attention=attention, memory=memory, random_state=0, **settings)
    return clf.fit(X[TRAIN], Y[TRAIN], groups=TRAIN // 6)


def test_a_memory_elsewhere_keeps_the_contract():
    check_memory(FarMemory())


def test_arrays_are_given_without_a_copy():
    array = np.ones((3, 2), dtype=np.float32)
    vectors = ArrayVectors(array)
    assert vectors.all() is array
    assert vectors.gather(np.array([2, 2]))[0] is array


def test_gathered_vectors_are_those_of_the_positions():
    far = FarVectors(np.arange(12.0, dtype=np.float32).reshape(6, 2))
    positions = np.array([[5, 1], [1, 4]])
    vectors, places = far.gather(positions)
    np.testing.assert_array_equal(vectors[places], far.array[positions])
    assert far.n_read == 3


@pytest.mark.parametrize(
    ("attention", "settings"),
    [
        ("distance", {}),
        ("power", {}),
        ("class-scores", {"encoder": "identity"}),
        (LearnedAttention(training=QUICK), {}),
        ("distance", {"value_head": True}),
    ],
    ids=["distance", "power", "class-scores", "learned", "value head"],
)
def test_a_model_elsewhere_answers_as_one_in_this_process(attention, settings):
    near, far = (
        fitted(NumpyMemory(), attention, **settings),
        fitted(FarMemory(), attention, **settings),
    )
    for clf in (near, far):
        clf.add(X[TEST[:9]], Y[TEST[:9]])
        clf.relabel(clf.memory_.entries.ids[:2], 2)
        clf.forget(clf.memory_.entries.ids[20:24])
    rest = X[TEST[9:]]
    np.testing.assert_allclose(far.predict_proba(rest), near.predict_proba(rest), atol=1e-6)
    np.testing.assert_allclose(far.leave_one_out_proba(), near.leave_one_out_proba(), atol=1e-6)
    for one, other in zip(far.explain(rest[:5]), near.explain(rest[:5]), strict=True):
        np.testing.assert_allclose(one.weights, other.weights, atol=1e-6)
        assert one.ids.tolist() == other.ids.tolist()


def test_sets_audit_drift_and_policies_agree_with_those_of_this_process():
    near, far = fitted(NumpyMemory()), fitted(FarMemory())
    sets = [clf.predict_set(X[TEST]).members for clf in (near, far)]
    np.testing.assert_array_equal(*sets)
    audits = [audit(clf).to_frame() for clf in (near, far)]
    assert audits[0].equals(audits[1])
    decided = [
        clf.decide(X[TEST], max_risk=0.1, novelty_level=0).is_answered for clf in (near, far)
    ]
    np.testing.assert_array_equal(*decided)
    tried = [what_if(clf, X[TEST[:4]], forget=[0, 2, 4]).after for clf in (near, far)]
    np.testing.assert_allclose(*tried, atol=1e-12)
    watched = [DriftMonitor(clf, random_state=0).watch(X[TEST]) for clf in (near, far)]
    assert str(watched[0]) == str(watched[1])
    dropped = [keep_newest(clf, 60).dropped.tolist() for clf in (near, far)]
    assert dropped[0] == dropped[1]


def test_one_answer_reads_few_vectors():
    far = fitted(FarMemory(), LearnedAttention(training=QUICK))
    far.predict(X[TEST[:1]])  # once, the trust of the entries is computed
    far.memory_.vectors.n_read = 0
    far.predict(X[TEST[:1]])
    assert 0 < far.memory_.vectors.n_read <= 9


def test_columns_have_no_vectors():
    memory = NumpyMemory().remember(make_entries([[0.0], [1.0]], [0, 1]))
    assert not hasattr(memory.entries, "embeddings")
    assert memory.read(np.array([True, False])).embeddings.tolist() == [[-0.5]]


def test_vectors_stay_the_same_object_until_entries_change():
    memory = NumpyMemory().remember(make_entries([[0.0], [1.0]], [0, 1]))
    before = memory.vectors
    memory.relabel([0], [1])
    memory.set_decay(np.ones(2))
    assert memory.vectors is before
    memory.forget([0])
    assert memory.vectors is not before
