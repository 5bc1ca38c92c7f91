"""A value head in use: what it looks at, edits, new classes, evidence."""

from __future__ import annotations

import json
import pickle
from copy import copy, deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from strategies import batch, blobs, swap

from attnknn import AttnKNNClassifier
from attnknn.attention.base import NeighborBatch, Weights
from attnknn.errors import InvalidSettingError
from attnknn.model import average_answers
from attnknn.value_head import head as heads
from attnknn.value_head.head import ValueHead, head_input, known_classes, redistribute
from attnknn.value_head.network import ValueNet, ValueShape
from attnknn.vote import vote

X, Y = blobs(150, spread=1.0)
NAMES = np.array(["bee", "cow", "dog"])
QUERIES = blobs(20, spread=1.0, seed=1)[0]


@pytest.fixture(scope="module")
def fitted() -> AttnKNNClassifier:
    classifier = AttnKNNClassifier(8, attention="distance", value_head=True, random_state=0)
    return classifier.fit(X, NAMES[Y])


@pytest.fixture
def classifier(fitted: AttnKNNClassifier) -> AttnKNNClassifier:
    return deepcopy(fitted)


def by_vote(classifier: AttnKNNClassifier) -> AttnKNNClassifier:
    """The same classifier without its head."""
    plain = copy(classifier)
    return swap(plain, value_head=None)


# ---- off by default


def test_by_default_there_is_no_head_and_the_evidence_is_exact():
    plain = AttnKNNClassifier(8, attention="distance").fit(X, Y)
    assert plain.value_head_ is None
    assert plain.fit_report_.value_head == ""
    assert "value head" not in str(plain.fit_report_)
    evidence = plain.explain(QUERIES[:1])[0]
    assert evidence.is_exact
    assert evidence.remark == ""
    assert evidence.to_dict()["is_exact"] is True


def test_a_head_leaves_vote_and_calibration_as_they_would_be_without(classifier):
    plain = AttnKNNClassifier(8, attention="distance", random_state=0).fit(X, NAMES[Y])
    expected = plain.predict_proba(QUERIES)
    assert by_vote(classifier).predict_proba(QUERIES).tobytes() == expected.tobytes()
    assert not np.allclose(classifier.predict_proba(QUERIES), expected, atol=0.01)


def test_the_setting_is_true_or_false():
    with pytest.raises(InvalidSettingError, match="`value_head` must be True or False, got 'yes'"):
        AttnKNNClassifier(value_head="yes").fit(X, Y)


# ---- evidence


def test_evidence_says_that_it_is_not_exact(classifier):
    evidence = classifier.explain(QUERIES[:1])[0]
    assert not evidence.is_exact
    assert evidence.probabilities.tolist() == classifier.predict_proba(QUERIES[:1])[0].tolist()
    label = by_vote(classifier).predict(QUERIES[:1])[0]
    chance = by_vote(classifier).predict_proba(QUERIES[:1]).max()
    expected = f"from the neighbors below. The vote alone predicts {label} ({chance:.3f})."
    assert expected in str(evidence)
    record = json.loads(json.dumps(evidence.to_dict()))
    assert record["is_exact"] is False
    assert expected in record["remark"]


def test_shares_and_weights_stay_those_of_the_vote(classifier):
    for ours, plain in zip(
        classifier.explain(QUERIES), by_vote(classifier).explain(QUERIES), strict=True
    ):
        assert ours.shares.tobytes() == plain.shares.tobytes()
        assert ours.weights.tobytes() == plain.weights.tobytes()
        assert ours.ids.tolist() == plain.ids.tolist()


# ---- edits


def test_labels_of_the_neighbors_move_the_answer_at_once(classifier):
    before = classifier.predict_proba(QUERIES[:1])[0]
    places = classifier.kneighbors(QUERIES[:1])[1][0]
    classifier.relabel(places, "dog" if before.argmax() != 2 else "bee")
    after = classifier.predict_proba(QUERIES[:1])[0]
    assert after.argmax() != before.argmax()


def test_the_network_itself_reads_the_labels(classifier):
    """Its correction of the vote moves with the labels, not only the vote that it corrects."""
    queries = classifier.memory_.prepare(QUERIES)
    neighbors = classifier.memory_.search_prepared(queries, 8)
    head, vectors = classifier.value_head_, classifier.memory_.vectors
    weights = Weights(np.full((20, 8), 1 / 8), np.zeros(20))

    def correction(labels):
        shares = vote(labels, weights, np.full(3, 1 / 3))
        seen = head_input(
            _neighbor_batch(queries, neighbors, labels, vectors), weights, shares, flat, places
        )
        return head.logs(seen, vectors.all())

    flat, places = np.full((20, 3), 1 / 3), head.places
    assert np.abs(correction(neighbors.labels) - correction(neighbors.labels * 0)).max() > 0.02


def _neighbor_batch(queries, neighbors, labels, vectors):
    squared = neighbors.distances**2
    changed = replace(neighbors, labels=labels)
    return NeighborBatch(queries, changed, squared, np.ones_like(squared), vectors)


def test_added_and_forgotten_rows_count_at_once(classifier):
    before = classifier.predict_proba(QUERIES[:1])
    classifier.add(np.repeat(QUERIES[:1], 4, axis=0), ["cow"] * 4, ids=[900, 901, 902, 903])
    after = classifier.predict_proba(QUERIES[:1])
    assert after[0, 1] > before[0, 1]
    classifier.forget([900, 901, 902, 903])
    assert np.allclose(classifier.predict_proba(QUERIES[:1]), before, atol=1e-6)


def test_a_new_class_has_what_the_vote_gives_it_and_the_others_share_the_rest(
    classifier, monkeypatch
):
    corner = X.min(axis=0) - 4.0
    rows = corner + 0.1 * np.random.default_rng(0).normal(size=(12, 4))
    before = classifier.predict_proba(QUERIES)
    classifier.add(rows, ["ape"] * 12)
    assert classifier.classes_.tolist() == ["ape", "bee", "cow", "dog"]
    assert classifier.value_head_.places.tolist() == [-1, 0, 1, 2]
    found = classifier.predict_proba(QUERIES)
    expected = by_vote(classifier).predict_proba(QUERIES)
    assert found[:, 0].tolist() == expected[:, 0].tolist()
    assert found.sum(axis=1) == pytest.approx(1)
    others = found[:, 1:] / found[:, 1:].sum(axis=1, keepdims=True)
    assert np.allclose(others, before, atol=0.05)  # the prior has moved a little
    assert classifier.predict(corner[None]).tolist() == ["ape"]
    monkeypatch.setattr("attnknn.fitting.value_heads.EPOCHS", (1, 1))
    classifier.refit()
    assert classifier.value_head_.places.tolist() == [0, 1, 2, 3]


def test_neighbors_of_a_new_class_are_not_looked_at(classifier):
    head = classifier.value_head_.with_classes(4)
    seen = batch(k=6, n_classes=4, width=4)
    rng = np.random.default_rng(0)
    raw = rng.random((7, 7))
    raw /= raw.sum(axis=1, keepdims=True)
    weights = Weights(raw[:, :-1], raw[:, -1])
    shares = vote(seen.neighbors.labels, weights, np.full(4, 0.25))
    looked = head_input(seen, weights, shares, shares, head.places)
    is_new = seen.neighbors.labels == 3
    assert is_new.any()
    assert (looked.near.numpy()[is_new] == 0).all()
    assert looked.rest.shape == (7, 3)
    total = looked.near.sum(1) + looked.rest.sum(1)
    assert total.numpy() == pytest.approx(1 - shares[:, 3], abs=1e-6)


def test_queries_far_from_everything_get_probabilities(classifier):
    far = np.array([[1e30] * 4, [-1e30] * 4, [0.0, 1e30, 0.0, 0.0]])
    found = classifier.predict_proba(far)
    assert np.isfinite(found).all()
    assert found.sum(axis=1) == pytest.approx(1)


def test_a_pickle_answers_the_same_bytes_and_holds_no_caches(classifier):
    held_out = classifier.model_.value_head.__getstate__()
    assert set(held_out) == {"net", "temperature", "places"}
    expected = classifier.predict_proba(QUERIES)
    loaded = pickle.loads(pickle.dumps(classifier))
    assert loaded.predict_proba(QUERIES).tobytes() == expected.tobytes()


def test_the_answers_about_several_views_are_averaged_and_not_exact(classifier):
    parts = classifier.model_
    views = [classifier.memory_.prepare(QUERIES + shift) for shift in (0.0, 0.3)]
    answers = [parts.answer(view) for view in views]
    both = average_answers(answers, classifier.calibration_)
    expected = (answers[0].probabilities + answers[1].probabilities) / 2
    assert np.allclose(both.probabilities, expected, atol=1e-12)
    assert not both.is_exact
    plain = [by_vote(classifier).model_.answer(view) for view in views]
    assert average_answers(plain, classifier.calibration_).is_exact


def test_leave_one_out_is_answered_by_the_head_too(classifier):
    ours, plain = classifier.leave_one_out_proba(), by_vote(classifier).leave_one_out_proba()
    assert ours.shape == plain.shape
    assert not np.allclose(ours, plain, atol=0.01)


# ---- what the parts mean


def test_a_new_network_answers_as_the_vote_does(classifier):
    net = ValueNet(ValueShape(4, 3, 16, 8), torch.Generator().manual_seed(0))
    swap(classifier, value_head=ValueHead(net, 1.0, np.arange(3)))
    expected = by_vote(classifier).predict_proba(QUERIES)
    assert np.allclose(classifier.predict_proba(QUERIES), expected, atol=1e-5)


def test_every_parameter_of_the_network_moves_the_answer():
    generator = torch.Generator().manual_seed(0)
    net = ValueNet(ValueShape(3, 3, 16, 8), generator)
    seen = batch(k=6)
    weights = Weights(np.full((7, 6), 0.15), np.full(7, 0.1))
    shares = vote(seen.neighbors.labels, weights, np.full(3, 1 / 3))
    head = ValueHead(net, 1.0, np.arange(3))
    net.exit.weight.data.normal_(generator=generator)

    def answer():
        head.__dict__.pop("_projection", None)
        return head.probabilities(seen, weights, shares, shares)

    before = answer()
    for name, tensor in net.state_dict().items():
        kept = tensor.clone()
        tensor.add_(0.3 * torch.rand(tensor.shape, generator=generator))
        assert np.abs(answer() - before).max() > 1e-4, name
        tensor.copy_(kept)


def test_beyond_the_nearest_only_the_votes_are_looked_at(monkeypatch):
    seen, places = batch(k=6), np.arange(3)
    weights = Weights(np.tile([0.3, 0.2, 0.2, 0.1, 0.05, 0.05], (7, 1)), np.full(7, 0.1))
    shares = vote(seen.neighbors.labels, weights, np.full(3, 1 / 3))
    monkeypatch.setattr(heads, "MAX_NEIGHBORS", 2)
    looked = head_input(seen, weights, shares, shares, places)
    assert looked.near.shape == (7, 2)
    assert looked.reach.numpy() == pytest.approx(0.9 / 0.5)
    again = looked.rest.scatter_add(1, looked.labels, looked.near)
    assert again.numpy() == pytest.approx(shares, abs=1e-6)


def test_classes_in_another_order_give_the_same_answers(classifier):
    head, order = classifier.value_head_, np.array([2, 0, 1])
    moved = head.with_order(order)
    assert known_classes(moved.places).tolist() == [1, 2, 0]
    logs, chances = np.log([[0.5, 0.3, 0.2]]), np.full((1, 3), 1 / 3)
    plain = redistribute(logs, chances, known_classes(head.places))
    assert (
        redistribute(logs, chances, known_classes(moved.places)).tolist()
        == plain[:, order].tolist()
    )
