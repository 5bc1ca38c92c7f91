"""Votes of forests: equal to scikit-learn's, exact under edits, honest out of the bag."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from sklearn.datasets import load_wine
from sklearn.ensemble import RandomForestClassifier
from strategies import blobs

from attnknn import AttnKNNClassifier, open_for_editing
from attnknn.attention import ForestAttention, MixtureAttention
from attnknn.attention.trees import Trees, bootstrap_counts, entry_keys, grow_trees
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.memory.entries import NO_GROUP
from attnknn.vote import class_prior

X, Y = load_wine(return_X_y=True)
TRAIN, TEST = X[::2], X[1::2]
SMALL = ForestAttention(25)


def fitted(attention=SMALL, **settings) -> AttnKNNClassifier:
    return AttnKNNClassifier(attention=attention, random_state=0, **settings).fit(TRAIN, Y[::2])


def grown(kind: str, n_trees: int = 20):
    rows, labels = TRAIN.astype(np.float32), Y[::2]
    counts = bootstrap_counts(keys(len(rows)), n_trees, seed=3)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, len(rows))
    features = "sqrt" if kind == "random_forest" else None
    options = {"kind": kind, "max_features": features, "min_samples_leaf": 1, "random_state": 7}
    return grow_trees(rows, labels, counts, weights, **options)


def keys(n: int) -> np.ndarray:
    return entry_keys(np.arange(n), np.full(n, NO_GROUP), NO_GROUP)


@pytest.mark.parametrize("kind", ["random_forest", "extra_trees"])
def test_rows_reach_the_leaves_that_scikit_learn_sends_them_to(kind):
    found = grown(kind)
    trees = Trees.joined(found)
    rows = TEST.astype(np.float32)
    for tree, leaf in zip(found, trees.leaves(rows).T, strict=True):
        pairs = set(zip(tree.apply(rows).tolist(), leaf.tolist(), strict=True))
        assert len(pairs) == len({left for left, _ in pairs}) == len({right for _, right in pairs})
    assert trees.n_leaves == sum(tree.get_n_leaves() for tree in found)


def test_values_next_to_a_threshold_go_to_the_same_side_as_in_scikit_learn():
    step = np.finfo(np.float32).eps
    rows = (1.0 + step * np.arange(4)[:, None]).astype(np.float32)
    options = {"max_features": None, "min_samples_leaf": 1, "random_state": 0}
    ends, counts = rows[[0, 3]], np.ones((2, 1), dtype=np.uint8)  # the threshold is in the middle
    found = grow_trees(ends, np.array([0, 1]), counts, np.ones(2), kind="random_forest", **options)
    assert found[0].predict(rows).tolist() == [0, 0, 1, 1]
    assert Trees.joined(found).leaves(rows).ravel().tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("kind", ["random_forest", "extra_trees"])
def test_the_vote_is_the_probability_that_scikit_learns_forest_predicts(kind, monkeypatch):
    kept = []
    grow = grow_trees

    def keep(*args, **options):
        kept.extend(grow(*args, **options))
        return kept

    monkeypatch.setattr("attnknn.attention.forest.grow_trees", keep)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(TRAIN))
    attention = ForestAttention(30, kind=kind, prior_score=-700.0)
    clf = AttnKNNClassifier(attention=attention, calibration="scores", label_noise=None)
    clf.set_params(random_state=0).fit(TRAIN, Y[::2], sample_weight=weights)
    forest = RandomForestClassifier(len(kept))
    forest.estimators_, forest.n_outputs_, forest.n_classes_ = kept, 1, 3
    forest.classes_, forest.n_features_in_ = np.arange(3), TRAIN.shape[1]
    expected = forest.predict_proba(clf.model_.queries(TEST))
    np.testing.assert_allclose(clf.predict_proba(TEST), expected, rtol=0, atol=1e-12)


def test_counts_are_poisson_and_depend_on_the_entry_alone():
    counts = bootstrap_counts(keys(4000), 50, seed=1)
    shares = np.bincount(counts.ravel(), minlength=5)[:4] / counts.size
    np.testing.assert_allclose(shares, np.exp(-1.0) / np.array([1, 1, 2, 6]), atol=0.005)
    assert np.array_equal(bootstrap_counts(keys(4000)[[7, 3]], 50, seed=1), counts[[7, 3]])
    assert abs(np.corrcoef(counts[:, 0], counts[:, 1])[0, 1]) < 0.05
    assert not np.array_equal(bootstrap_counts(keys(4000), 50, seed=2), counts)


def test_rows_of_a_group_and_texts_have_keys_of_their_own():
    groups = np.array([5, 5, NO_GROUP, NO_GROUP])
    found = entry_keys(np.arange(4), groups, NO_GROUP)
    assert found[0] == found[1]
    assert len(set(found.tolist())) == 3
    names = np.array(["a", "b"], dtype=object)
    assert len(set(entry_keys(names, np.full(2, NO_GROUP), NO_GROUP).tolist())) == 2


@pytest.mark.parametrize("attention", [SMALL, MixtureAttention(("distance", SMALL))], ids=str)
def test_evidence_adds_up_to_the_prediction(attention):
    clf = fitted(attention)
    for evidence, expected in zip(clf.explain(TEST), clf.predict_proba(TEST), strict=True):
        by_label = [evidence.weights[evidence.labels == c].sum() for c in evidence.classes]
        shares = np.array(by_label) + evidence.prior_weight * evidence.prior
        np.testing.assert_allclose(shares, evidence.shares, rtol=0, atol=1e-9)
        powers = evidence.shares**evidence.exponent
        np.testing.assert_allclose(powers / powers.sum(), expected, rtol=0, atol=1e-9)
        assert (np.diff(evidence.weights) <= 1e-12).all()


def left_out_shares(clf: AttnKNNClassifier, row: int) -> np.ndarray:
    """The vote of the other entries for one entry, without the part of the prior."""
    attention = clf.model_.direct_attention
    voters = attention.left_out_voters(clf.model_, np.array([row]))
    return np.bincount(voters.neighbors.labels[0], voters.weights.neighbors[0], 3)


def test_an_entry_does_not_influence_its_own_leave_one_out_prediction():
    clf = fitted()
    before = left_out_shares(clf, 4)
    clf.relabel([4], (Y[::2][4] + 1) % 3)
    np.testing.assert_array_equal(left_out_shares(clf, 4), before)


def test_rows_of_a_group_do_not_vote_for_each_other():
    groups = np.arange(len(TRAIN)) // 3
    clf = AttnKNNClassifier(attention=SMALL, random_state=0).fit(TRAIN, Y[::2], groups=groups)
    voters = clf.attention_.left_out_voters(clf.model_, np.arange(len(TRAIN)))
    own = groups[voters.neighbors.positions] == groups[:, None]
    assert not (own & voters.neighbors.mask).any()


def test_random_labels_are_predicted_at_chance():
    rows, _ = blobs(300)
    labels = np.random.default_rng(0).integers(2, size=300)
    for attention in (ForestAttention(50), MixtureAttention(("distance", ForestAttention(50)))):
        clf = AttnKNNClassifier(attention=attention, random_state=0).fit(rows, labels)
        accuracy = (clf.leave_one_out_proba().argmax(axis=1) == labels).mean()
        assert accuracy < 0.58


def test_a_leaf_that_becomes_empty_gives_its_vote_to_the_prior():
    clf = fitted(ForestAttention(25, prior_score=-30.0))
    rows = np.flatnonzero(Y[::2] == 0)
    before = clf.explain(TEST[:1])[0]
    clf.forget(rows[1:])
    after = clf.explain(TEST[:1])[0]
    assert before.prior_weight < 1e-9 < 0.3 < after.prior_weight
    assert after.weights.sum() + after.prior_weight == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("kind", ["random_forest", "extra_trees"])
def test_one_row_is_answered_as_many_are(kind):
    clf = fitted(ForestAttention(25, kind=kind)).forget(range(0, 60, 2))  # some leaves are empty
    one_by_one = [clf.predict_proba(TEST[[row]]) for row in range(len(TEST))]
    assert np.concatenate(one_by_one).tobytes() == clf.predict_proba(TEST).tobytes()


def test_what_a_walk_prepares_is_not_pickled():
    trees = fitted().attention_.trees_
    trees.leaves(TEST.astype(np.float32))
    assert set(vars(pickle.loads(pickle.dumps(trees)))) == set(trees.arrays())


def test_an_added_class_votes_at_once():
    clf = fitted()
    clf.add(TEST[:6] + 300, [9] * 6)
    assert clf.classes_.tolist() == [0, 1, 2, 9]
    evidence = clf.explain(TEST[:1] + 300)[0]
    assert evidence.shares[3] > 0.2


class Edits(RuleBasedStateMachine):
    """Any sequence of edits gives what the same trees, filled from scratch, would give."""

    def __init__(self) -> None:
        super().__init__()
        self.clf = AttnKNNClassifier(
            attention=MixtureAttention((ForestAttention(5), ForestAttention(4, "extra_trees"))),
            random_state=0,
        ).fit(X[::9], Y[::9], ids=np.arange(0, 180, 9)[: len(X[::9])])
        self.clf.predict_proba(TEST[:2])  # leaves are computed, and must follow the edits
        self.next = 1000

    @rule(row=st.integers(0, len(X) - 1), label=st.integers(0, 4), weight=st.floats(0.5, 3))
    def add(self, row: int, label: int, weight: float) -> None:
        self.clf.add(X[row : row + 1], [label], ids=[self.next], sample_weight=[weight])
        self.next += 1

    @rule(place=st.integers(0, 10_000))
    def forget(self, place: int) -> None:
        if len(self.clf.memory_) > 1:
            ids = self.clf.memory_.entries.ids
            self.clf.forget([ids[place % len(ids)]])

    @rule(place=st.integers(0, 10_000), label=st.integers(0, 4))
    def relabel(self, place: int, label: int) -> None:
        ids = self.clf.memory_.entries.ids
        self.clf.relabel([ids[place % len(ids)]], label)

    @invariant()
    def equals_the_same_trees_filled_from_scratch(self) -> None:
        model = self.clf.model_
        again = replace(model)  # without caches
        queries = model.queries(TEST[:5])
        np.testing.assert_array_equal(model.predict_proba(queries), again.predict_proba(queries))
        rows = np.arange(len(model.memory))
        one, other = (
            m.predict_left_out(m.leave_one_out(rows)).probabilities for m in (model, again)
        )
        np.testing.assert_array_equal(one, other)


Edits.TestCase.settings = settings(max_examples=12, stateful_step_count=8, deadline=None)
TestEdits = Edits.TestCase


@pytest.mark.parametrize(
    "attention",
    [SMALL, MixtureAttention(("power", SMALL, ForestAttention(9, kind="extra_trees")))],
    ids=str,
)
def test_a_stored_forest_predicts_the_same_bytes_and_can_be_edited(tmp_path, attention):
    clf = fitted(attention)
    clf.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert loaded.predict_proba(TEST).tobytes() == clf.predict_proba(TEST).tobytes()
    assert loaded.leave_one_out_proba().tobytes() == clf.leave_one_out_proba().tobytes()
    with open_for_editing(tmp_path / "model") as stored:
        stored.forget([0, 5])
        stored.relabel([7], 2)
        stored.add(TEST[:1], [1])
    clf.forget([0, 5]).relabel([7], 2).add(TEST[:1], [1])
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert loaded.predict_proba(TEST).tobytes() == clf.predict_proba(TEST).tobytes()


@pytest.mark.parametrize("damage", ["cycle", "feature", "child", "roots", "threshold"])
def test_stored_arrays_that_form_no_trees_are_refused(damage):
    trees = fitted().attention_.trees_
    parts = {name: np.array(array) for name, array in trees.arrays().items()}
    inner = int(np.flatnonzero(parts["feature"] >= 0)[3])
    if damage == "cycle":
        parts["child"][inner] = inner
    elif damage == "feature":
        parts["feature"][inner] = TRAIN.shape[1]
    elif damage == "child":
        parts["child"][inner] = len(parts["child"])
    elif damage == "roots":
        parts["roots"][1] = 0
    else:
        parts["threshold"][inner] = np.nan
    with pytest.raises(ModelFolderError, match="trees"):
        Trees.checked(**parts, dim=TRAIN.shape[1])


def test_a_value_head_and_jackknife_need_an_attention_that_searches():
    with pytest.raises(InvalidSettingError, match="value_head"):
        fitted(value_head=True)
    with pytest.raises(InvalidSettingError, match="jackknife"):
        fitted().predict_set(TEST[:1], method="jackknife+")


def test_novelty_is_measured_by_the_nearest_entry_not_by_the_heaviest():
    clf = fitted(encoder="tabular")
    decided = clf.decide(np.concatenate([TEST[:3], TEST[:1] * 40]), novelty_level=0.05)
    assert decided.novelty_p_values[-1] < 0.05 < decided.novelty_p_values[:3].min()


def test_a_mixture_gives_its_weight_to_the_better_attention():
    rows, labels = blobs(200, spread=0.6)
    noisy = np.concatenate([rows, np.random.default_rng(0).normal(0, 40, (200, 12))], axis=1)
    heads = ("uniform", ForestAttention(40))
    clf = AttnKNNClassifier(
        encoder="identity", attention=MixtureAttention(heads), random_state=0
    ).fit(noisy, labels)
    assert clf.attention_.mixing_[-1] > 0.8
    assert clf.attention_.mixing_.sum() == pytest.approx(1)


def test_heads_of_a_mixture_share_one_search(monkeypatch):
    clf = fitted(MixtureAttention(("distance", "uniform", SMALL)), memory="numpy")
    head = clf.attention_
    head.mixing_, head.n_neighbors_ = np.full(len(head.heads_), 1 / len(head.heads_)), [9, 4, 1]
    queries, searches = clf.memory_.prepare(TEST), []
    alone = [part.vote_shares(queries) for part in head._parts(clf.model_)]
    search = type(clf.memory_).search_prepared

    def counted(memory, queries, k, **options):
        searches.append(k)
        return search(memory, queries, k, **options)

    monkeypatch.setattr(type(clf.memory_), "search_prepared", counted)
    found = head.shares(clf.model_, queries)
    expected = head.with_prior(np.mean(alone, axis=0), clf.model_.class_prior)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    assert searches == [9]


def test_a_mixture_is_calibrated_on_rows_that_no_head_was_trained_on():
    clf = fitted(MixtureAttention(("learned", SMALL)))
    assert 0 < clf.held_out_.sum() < len(TRAIN)
    assert clf.fit_report_.n_rows == clf.held_out_.sum()


def test_heads_that_are_no_attentions_are_named():
    with pytest.raises(InvalidSettingError, match="forrest"):
        fitted(MixtureAttention(("forrest",)))
    with pytest.raises(InvalidSettingError, match="heads"):
        fitted(MixtureAttention(()))


def test_prior_of_left_out_entries_leaves_them_out():
    clf = fitted(ForestAttention(25, prior_score=700.0))
    rows = np.arange(5)
    shares = clf.attention_.left_out_shares(clf.model_, rows)
    expected = class_prior(clf.model_.counts, clf.memory_.entries.labels[rows])
    np.testing.assert_allclose(shares, expected, rtol=0, atol=1e-12)
