"""Votes in other spaces: exact evidence, the same bytes after storage, and exact under edits."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sklearn.datasets import load_wine

from attnknn import AttnKNNClassifier, open_for_editing
from attnknn.attention import (
    BlockAttention,
    BoostingAttention,
    ForestAttention,
    LearnedAttention,
    MixtureAttention,
    MLPAttention,
    ProjectionAttention,
)
from attnknn.attention.space import folds_of
from attnknn.memory import make_entries
from attnknn.testing.attention import check_attention
from attnknn.training import TrainConfig

X, Y = load_wine(return_X_y=True)
TRAIN, LABELS, TEST = X[::2], Y[::2], X[1::2]
BOOSTING = BoostingAttention(n_folds=3, max_iterations=3, min_samples_leaf=5)
MLP = MLPAttention(n_folds=3, hidden_size=8, max_epochs=2)
PROJECTION = ProjectionAttention(n_folds=3)
LEARNED = LearnedAttention(training=TrainConfig(epochs=1))
PARTS = {
    "boosting": BOOSTING,
    "projection": PROJECTION,
    "mlp": MLP,
    "distance in a block": BlockAttention(),
    "class scores in a block": BlockAttention(attention="class-scores"),
    "projection in a block": BlockAttention(attention=PROJECTION),
    "boosting in a block": BlockAttention(attention=BOOSTING),
    "forest in a block": BlockAttention(attention=ForestAttention(6)),
    "learned in a block": BlockAttention(attention=LEARNED),
    "mixture in a block": BlockAttention(attention=MixtureAttention(("distance", PROJECTION))),
}
ALL = MixtureAttention(("distance", "power", LEARNED, ForestAttention(6), *PARTS.values()))


class Equal(MixtureAttention):
    """All heads have the same weight, so that none is dropped."""

    def fit_entries(self, problem):
        heads = self._unfitted_heads()
        n_neighbors = [problem.fit_head(head) for head in heads]
        self.set_heads(heads, n_neighbors, np.full(len(heads), 1.0 / len(heads)))


@cache
def stored(name: str) -> bytes:
    """A fitted classifier as a pickle, so that tests may edit it."""
    attention = Equal(ALL.heads) if name == "all" else PARTS[name]
    clf = AttnKNNClassifier(16, encoder="scaled", attention=attention, random_state=0)
    ids = np.arange(len(TRAIN)) * 3
    return pickle.dumps(clf.fit(TRAIN, LABELS, ids=ids, groups=np.arange(len(TRAIN)) // 2 - 1))


def fitted(name: str) -> AttnKNNClassifier:
    return pickle.loads(stored(name))


@pytest.mark.parametrize("attention", [*PARTS.values(), ALL], ids=[*PARTS, "all"])
def test_attentions_in_other_spaces_keep_the_contract(attention):
    check_attention(attention)


@pytest.mark.parametrize("name", [*PARTS, "all"])
def test_evidence_adds_up_to_the_prediction(name):
    clf = fitted(name)
    for evidence, expected in zip(
        clf.explain(TEST[::5]), clf.predict_proba(TEST[::5]), strict=True
    ):
        by_label = [evidence.weights[evidence.labels == c].sum() for c in evidence.classes]
        shares = np.array(by_label) + evidence.prior_weight * evidence.prior
        np.testing.assert_allclose(shares, evidence.shares, rtol=0, atol=1e-9)
        powers = evidence.shares**evidence.exponent
        np.testing.assert_allclose(powers / powers.sum(), expected, rtol=0, atol=1e-9)


def test_evidence_shows_the_distances_of_the_embeddings():
    clf = fitted("projection")
    evidence = clf.explain(TEST[:1])[0]
    entries, query = clf.memory_.read(), clf.model_.queries(TEST[:1])
    places = [entries.ids.tolist().index(name) for name in evidence.ids.tolist()]
    expected = np.linalg.norm(entries.embeddings[places] - query, axis=1)
    np.testing.assert_allclose(evidence.distances, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", PARTS)
def test_an_entry_does_not_influence_its_own_leave_one_out_vote(name):
    clf = fitted(name)
    row = np.array([8])

    def votes():
        voters = clf.model_.direct_attention.left_out_voters(clf.model_, row)
        return voters.neighbors.positions, voters.weights.neighbors

    before = votes()
    clf.relabel(clf.memory_.entries.ids[row], (LABELS[row[0]] + 1) % 3)
    for found, expected in zip(votes(), before, strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", [*PARTS, "all"])
def test_a_stored_model_and_durable_edits_give_the_same_bytes(name, tmp_path):
    clf = fitted(name)
    if name == "all":
        clf.attention_.__class__ = MixtureAttention  # a class that is not registered is not stored
        clf.set_params(attention="mixture")
    path = tmp_path / "model"
    clf.save(path)
    loaded = AttnKNNClassifier.load(path)
    assert loaded.predict_proba(TEST).tobytes() == clf.predict_proba(TEST).tobytes()
    assert loaded.leave_one_out_proba().tobytes() == clf.leave_one_out_proba().tobytes()
    with open_for_editing(path) as model:
        model.forget([0, 15])
        model.relabel([21], 2)
        model.add(TEST[:2], [1, 7], ids=[1000, 1001])
        model.forget([30])
        model.undo()
    clf.forget([0, 15]).relabel([21], 2).add(TEST[:2], [1, 7], ids=[1000, 1001])
    loaded = AttnKNNClassifier.load(path)
    np.testing.assert_allclose(loaded.predict_proba(TEST), clf.predict_proba(TEST), atol=1e-12)
    one, other = loaded.leave_one_out_proba(), clf.leave_one_out_proba()
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)


EDITED = ["boosting", "projection", "boosting in a block", "learned in a block", "all"]


class Edits(RuleBasedStateMachine):
    """Any sequence of edits gives what the same maps, applied to all entries, would give."""

    @initialize(name=st.sampled_from(EDITED))
    def start(self, name: str) -> None:
        self.clf, self.next = fitted(name), 1000
        # Matrix products of another number of rows are rounded differently.
        self.rounding = 0.0 if name in ("boosting", "boosting in a block") else 1e-6
        self.clf.forget(self.clf.memory_.entries.ids[20:])
        self.clf.predict_proba(TEST[:2])  # entries are mapped, and must follow the edits
        self.clf.leave_one_out_proba()

    @rule(row=st.integers(0, len(X) - 1), label=st.integers(-1, 4), weight=st.floats(0.5, 3))
    def add(self, row: int, label: int, weight: float) -> None:
        self.clf.add(X[row : row + 1], [label], ids=[self.next], sample_weight=[weight])
        self.next += 1

    @rule(place=st.integers(0, 10_000))
    def forget(self, place: int) -> None:
        if len(self.clf.memory_) > 1:
            ids = self.clf.memory_.entries.ids
            self.clf.forget([ids[place % len(ids)]])

    @rule(place=st.integers(0, 10_000), label=st.integers(-1, 4))
    def relabel(self, place: int, label: int) -> None:
        ids = self.clf.memory_.entries.ids
        self.clf.relabel([ids[place % len(ids)]], label)

    @invariant()
    def equals_the_same_maps_applied_from_scratch(self) -> None:
        model = self.clf.model_
        again = replace(model)  # without caches
        queries, rows = model.queries(TEST[:4]), np.arange(len(model.memory))
        one, other = (m.predict_proba(queries) for m in (model, again))
        np.testing.assert_allclose(one, other, rtol=0, atol=self.rounding)
        one, other = (
            m.predict_left_out(m.leave_one_out(rows)).probabilities for m in (model, again)
        )
        np.testing.assert_allclose(one, other, rtol=0, atol=self.rounding)


Edits.TestCase.settings = settings(max_examples=20, stateful_step_count=6, deadline=None)
TestEdits = Edits.TestCase


def test_only_new_entries_are_mapped_after_an_edit():
    clf = fitted("boosting")
    clf.predict_proba(TEST[:1])
    seen, maps = [], type(clf.attention_.map_)
    of_entries = maps.of_entries

    def watched(self, entries):
        seen.append(entries.ids.tolist())
        return of_entries(self, entries)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maps, "of_entries", watched)
        clf.add(TEST[:2], [0, 1], ids=[1000, 1001]).relabel([3], 2).forget([6])
        clf.predict_proba(TEST)
    assert seen == [[1000, 1001]]


def test_a_fold_depends_on_the_id_or_the_group_alone():
    entries = make_entries(TRAIN, LABELS, groups=np.arange(len(TRAIN)) // 2)
    folds = folds_of(entries, 5)
    assert set(folds.tolist()) == set(range(5))
    some = np.array([7, 3, 50])
    np.testing.assert_array_equal(folds_of(entries.take(some), 5), folds[some])
    np.testing.assert_array_equal(folds[::2][:-1], folds[1::2])
