"""Attention in two levels: exact evidence, honest leave-one-out, and exact under edits."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from sklearn.datasets import load_wine
from strategies import blobs

from attnknn import AttnKNNClassifier, MixtureAttention, open_for_editing
from attnknn.attention import HierarchicalAttention
from attnknn.attention.cells import Centers, cluster_centers
from attnknn.attention.hierarchical import CENTERS, Levels
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.memory import NumpyMemory, make_entries
from attnknn.testing.attention import check_attention

X, Y = load_wine(return_X_y=True)
TRAIN, LABELS, TEST = X[::2], Y[::2], X[1::2]
PARTS = {
    "clusters": HierarchicalAttention(n_clusters=9, n_visited=3, detail=0.5),
    "classes": HierarchicalAttention("classes", n_visited=2, detail=0.5),
    "centers only": HierarchicalAttention(n_clusters=9, n_visited=2, detail=0.0),
    "entries only": HierarchicalAttention(n_clusters=9, n_visited=4, detail=1.0),
    "fitted": HierarchicalAttention(),
}


@cache
def stored(name: str) -> bytes:
    """A fitted classifier as a pickle, so that tests may edit it."""
    clf = AttnKNNClassifier(16, encoder="scaled", attention=PARTS[name], random_state=0)
    groups = np.arange(len(TRAIN)) // 2 - 1
    weights = 1.0 + np.arange(len(TRAIN)) % 3
    ids = np.arange(len(TRAIN)) * 3
    return pickle.dumps(clf.fit(TRAIN, LABELS, ids=ids, groups=groups, sample_weight=weights))


def fitted(name: str) -> AttnKNNClassifier:
    return pickle.loads(stored(name))


def by_hand(clf: AttnKNNClassifier, query: np.ndarray, left_out: int | None = None) -> np.ndarray:
    """Weights (N,) of all entries by the definition, one query at a time."""
    entries, attention = clf.memory_.entries, clf.attention_
    votes = np.ones(len(entries), dtype=bool)
    if left_out is not None:
        groups = entries.groups
        votes = (np.arange(len(entries)) != left_out) & (
            (groups != groups[left_out]) | (groups == -1)
        )
    centers = attention.centers_.of_clusters
    vectors, weight = clf.memory_.vectors.all().astype(float), entries.effective_weight
    if centers is None:
        cell = entries.labels
        known = np.unique(cell[votes])
        means = {
            c: np.average(vectors[votes & (cell == c)], 0, weight[votes & (cell == c)])
            for c in known
        }
    else:
        centers = centers.astype(float)
        cell = ((vectors[:, None] - centers) ** 2).sum(-1).argmin(1)
        means = {c: centers[c] for c in np.unique(cell[votes])}
    near = sorted(means, key=lambda c: ((query - means[c]) ** 2).sum())[: attention.n_visited_]
    levels = attention.levels_
    mass = weight * votes * np.exp(-((vectors - query) ** 2).sum(1) / levels.entry_temperature)
    found, total = np.zeros(len(entries)), np.exp(levels.prior)
    for c in near:
        inside = (cell == c) & votes
        by_center = np.exp(-((query - means[c]) ** 2).sum() / levels.cell_temperature)
        of_cell = mass[inside].sum() ** levels.detail
        of_cell *= (weight[inside].sum() * by_center) ** (1 - levels.detail)
        found[inside] = of_cell * mass[inside] / mass[inside].sum()
        total += of_cell
    return found / total * (1 - attention.prior_weight)


@pytest.mark.parametrize("attention", PARTS.values(), ids=PARTS)
def test_hierarchical_attention_keeps_the_contract(attention):
    check_attention(attention)


@pytest.mark.parametrize("name", PARTS)
def test_weights_are_those_of_the_definition(name):
    clf = fitted(name)
    queries = clf.model_.queries(TEST[:6])
    for query, evidence in zip(queries, clf.explain(TEST[:6]), strict=True):
        expected = by_hand(clf, query.astype(float))
        found = np.zeros(len(TRAIN))
        found[clf.memory_.positions_of(evidence.ids)] = evidence.weights
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("name", PARTS)
def test_leave_one_out_weights_are_those_without_the_entry_and_its_group(name):
    clf = fitted(name)
    rows = np.arange(0, len(TRAIN), 9)
    voters = clf.model_.left_out_voters(rows)
    for place, row in enumerate(rows.tolist()):
        expected = by_hand(clf, clf.memory_.vectors[np.array([row])][0].astype(float), row)
        found, mask = np.zeros(len(TRAIN)), voters.neighbors.mask[place]
        found[voters.neighbors.positions[place, mask]] = voters.weights.neighbors[place, mask]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", PARTS)
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


@pytest.mark.parametrize("name", ["clusters", "classes"])
def test_an_entry_does_not_influence_its_own_leave_one_out_vote(name):
    clf = fitted(name)
    clf.forget(clf.memory_.entries.ids[:8])
    row = np.array([8])

    def votes():
        voters = clf.model_.left_out_voters(row)
        return voters.neighbors.positions, voters.weights.neighbors

    before = votes()
    clf.relabel(clf.memory_.entries.ids[row], (clf.memory_.entries.labels[8] + 1) % 3)
    for found, expected in zip(votes(), before, strict=True):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["clusters", "classes"])
def test_leave_one_out_is_forgetting_the_entry(name):
    clf = fitted(name)
    ids = clf.memory_.entries.ids
    clf.relabel(ids[5], 7)  # the only entry of its class
    for row in (5, 20):
        group = np.flatnonzero(clf.memory_.entries.groups == clf.memory_.entries.groups[row])
        voters = clf.model_.left_out_voters(np.array([row]))
        weights = voters.weights.neighbors[0][voters.neighbors.mask[0]]
        rest = pickle.loads(pickle.dumps(clf)).forget(ids[group])
        again = rest.model_.voters(clf.memory_.vectors[np.array([row])])
        np.testing.assert_allclose(weights, again.weights.neighbors[0], rtol=1e-9)


@pytest.mark.parametrize("name", ["clusters", "classes"])
def test_a_stored_model_and_durable_edits_give_the_same(name, tmp_path):
    clf, path = fitted(name), tmp_path / "model"
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


class Edits(RuleBasedStateMachine):
    """Any sequence of edits gives what the same centers, applied to all entries, would give."""

    @initialize(name=st.sampled_from(["clusters", "classes"]))
    def start(self, name: str) -> None:
        self.clf, self.next = fitted(name), 1000
        self.clf.forget(self.clf.memory_.entries.ids[20:])
        self.clf.predict_proba(TEST[:2])  # cells are made, and must follow the edits

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
    def equals_a_memory_filled_from_scratch(self) -> None:
        model = self.clf.model_
        entries = model.memory.entries
        backward = np.arange(len(entries))[::-1]
        scratch = type(model.memory)().restore(
            model.memory.read(backward), model.memory.metric_, model.memory.center_
        )
        again = replace(model, memory=scratch)
        queries, rows = model.queries(TEST[:4]), np.arange(len(entries))
        one, other = model.predict_proba(queries), again.predict_proba(queries)
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)
        one = model.left_out_vote_shares(rows)
        other = again.left_out_vote_shares(rows)[backward]
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-9)


Edits.TestCase.settings = settings(max_examples=20, stateful_step_count=6, deadline=None)
TestEdits = Edits.TestCase


def test_fitted_levels_are_as_good_as_one_level():
    X, y = blobs(400, 5, 4, seed=0)
    new, truth = blobs(400, 5, 4, seed=1)
    losses = {}
    for attention in ("distance", "hierarchical", HierarchicalAttention("classes")):
        clf = AttnKNNClassifier(attention=attention, encoder="identity", random_state=0).fit(X, y)
        found = clf.predict_proba(new)[np.arange(len(truth)), truth]
        losses[str(attention)] = -np.log(found).mean()
    flat = losses.pop("distance")
    assert max(losses.values()) < flat + 0.02


def test_more_cells_are_visited_where_it_helps():
    """Classes alternate along a line: the nearest of two clusters does not know the other side."""
    rows = np.linspace(0, 40, 400)[:, None]
    labels = (rows[:, 0] // 2 % 2).astype(int)
    fit = AttnKNNClassifier(attention=HierarchicalAttention(n_clusters=20), random_state=0).fit
    clf = fit(rows, labels)
    assert 1 <= clf.attention_.n_visited_ <= 4
    assert clf.fit_report_.log_loss < 0.15


def test_only_the_visited_cells_are_compared_with_a_query():
    clf = fitted("clusters")
    evidence = clf.explain(TEST[:1])[0]
    cells = clf.model_.known(clf.attention_.centers_)
    visited = np.unique(cells.cell[clf.memory_.positions_of(evidence.ids)])
    assert len(visited) <= 3
    assert 0 < len(evidence.ids) < len(TRAIN)


def test_a_distant_query_is_answered_by_the_prior():
    clf = fitted("entries only")
    evidence = clf.explain(TEST[:1] + 1e6)[0]
    assert evidence.prior_weight == pytest.approx(1.0)


def test_given_settings_are_kept():
    attention = HierarchicalAttention(
        n_clusters=5, n_visited=2, cell_temperature=3.0, entry_temperature=0.5, detail=0.25
    )
    clf = AttnKNNClassifier(attention=attention, random_state=0).fit(TRAIN, LABELS)
    levels = clf.attention_.levels_
    assert (levels.cell_temperature, levels.entry_temperature, levels.detail) == (3.0, 0.5, 0.25)
    assert clf.attention_.n_visited_ == 2
    assert len(clf.attention_.centers_.of_clusters) <= 5


def test_groups_and_held_out_rows_are_left_out_of_the_fit():
    rows = np.repeat(np.random.default_rng(0).normal(size=(60, 3)), 5, axis=0)
    labels = np.repeat(np.random.default_rng(1).integers(2, size=60), 5)
    clf = AttnKNNClassifier(attention="hierarchical", random_state=0)
    clf.fit(rows, labels, groups=np.repeat(np.arange(60), 5))
    accuracy = (clf.leave_one_out_proba().argmax(axis=1) == labels).mean()
    assert accuracy < 0.65  # copies of a row know its label, and do not vote


def test_a_mixture_may_have_a_hierarchical_head(tmp_path):
    heads = ("distance", HierarchicalAttention(n_clusters=9))
    clf = AttnKNNClassifier(attention=MixtureAttention(heads), encoder="scaled", random_state=0)
    clf.fit(TRAIN, LABELS).save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert loaded.predict_proba(TEST).tobytes() == clf.predict_proba(TEST).tobytes()


def test_one_row_and_one_class_and_equal_rows_are_answered():
    for rows, labels in (([[1.0]], [0]), ([[1.0]] * 9, [0] * 9), ([[2.0]] * 9, [0, 1, 2] * 3)):
        with warnings.catch_warnings(category=UserWarning, action="ignore"):
            clf = AttnKNNClassifier(attention="hierarchical", random_state=0).fit(rows, labels)
        assert np.isfinite(clf.predict_proba(rows)).all()
        assert np.isfinite(clf.leave_one_out_proba()).all()


def test_no_center_is_a_copy_of_a_row():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(60, 3)).astype(np.float32)
    centers = cluster_centers(rows, 40, generator).of_clusters
    assert not (centers[:, None] == rows).all(axis=2).any()


def remembered(rows, labels, **columns) -> NumpyMemory:
    """A memory whose origin is where the rows have theirs."""
    entries = make_entries(rows, labels, **columns)
    return NumpyMemory().restore(entries, "euclidean", np.zeros(1))


def test_equally_near_centers_are_ordered_by_number():
    rows = np.array([[-1.0], [-1.0], [1.0], [1.0]], dtype=np.float32)
    cells = Centers(rows[::2]).cells(remembered(rows, [0, 0, 1, 1]), 2)
    visits = cells.visit(np.zeros((1, 1), dtype=np.float32), 1)
    assert visits.positions.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cells": "trees"}, "Known: classes, clusters"),
        ({"n_visited": 0}, "n_visited"),
        ({"detail": 1.5}, "detail"),
        ({"entry_temperature": 0.0}, "entry_temperature"),
    ],
)
def test_impossible_settings_are_refused(settings, message):
    with pytest.raises(InvalidSettingError, match=message):
        AttnKNNClassifier(attention=HierarchicalAttention(**settings)).fit(TRAIN, LABELS)


@pytest.mark.parametrize(
    "change",
    [
        lambda values, arrays: arrays.update({CENTERS: arrays[CENTERS][:, :2]}),
        lambda values, arrays: arrays.update({CENTERS: arrays[CENTERS] * np.nan}),
        lambda values, arrays: values.update(n_visited=0),
        lambda values, arrays: values["levels"].update(entry_temperature=0.0),
        lambda values, arrays: values["levels"].update(detail=2.0),
        lambda values, arrays: values.pop("levels"),
    ],
)
def test_stored_numbers_that_cannot_be_are_refused(change):
    values, arrays = fitted("clusters").attention_.state()
    change(values, arrays)
    with pytest.raises(ModelFolderError):
        HierarchicalAttention().restore(values, arrays, TRAIN.shape[1], 3)


def test_centers_none_is_the_means_of_classes():
    rows = np.array([[0.0], [2.0], [9.0]], dtype=np.float32)
    memory = remembered(rows, [0, 0, 1], sample_weight=[1.0, 3.0, 1.0])
    assert Centers(None).cells(memory, 2).vectors.ravel().tolist() == [1.5, 9.0]


def test_levels_weigh_cells_then_entries():
    memory = remembered(np.array([[0.0], [1.0], [4.0]], dtype=np.float32), [0, 0, 1])
    visits = Centers(None).cells(memory, 2).visit(np.array([[0.5]], dtype=np.float32), 2)
    weights = Levels(1.0, 1.0, 0.0, -np.inf).weights(visits, np.zeros(3))
    ratio = np.exp(-12.25) / 2.0  # the second class has half the mass
    np.testing.assert_allclose(weights, np.array([0.5, 0.5, ratio]) / (1 + ratio))
