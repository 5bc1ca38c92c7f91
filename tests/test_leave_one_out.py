"""Each entry judged by the others: never itself, never its group, and trust without the judged."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import blobs

from attnknn import AttnKNNClassifier
from attnknn.attention import DistanceAttention
from attnknn.calibration import Calibration
from attnknn.encoders import IdentityEncoder
from attnknn.leave_one_out import Trust, leave_one_out_batch
from attnknn.memory import NumpyMemory, make_entries
from attnknn.model import FittedModel


def remembered(n=14, groups=None, seed=0):
    X, y = blobs(n, 3, seed=seed, spread=1.5)
    sample_weight = np.random.default_rng(seed).uniform(0.5, 2, n)
    entries = make_entries(X, y, groups=groups, sample_weight=sample_weight)
    return NumpyMemory().remember(entries), np.bincount(y)


def first_look(prior_score=-1.0):
    attention = DistanceAttention()
    attention.temperature_, attention.prior_score_ = 3.0, prior_score
    return attention


def model_of(memory, attention, k=13):
    classes = np.arange(3)
    return FittedModel(IdentityEncoder(), memory, attention, Calibration(), k, classes)


def without(memory, gone):
    """The same memory with some entries really removed, in the same coordinates."""
    smaller = NumpyMemory().restore(memory.read(), memory.metric_, memory.center_)
    smaller.forget(memory.entries.ids[gone])
    return smaller, np.bincount(smaller.entries.labels, minlength=3)


def test_an_entry_is_predicted_as_if_it_had_never_been_added():
    memory, counts = remembered()
    attention = first_look()
    left_out = leave_one_out_batch(memory, counts, 13)
    answers = model_of(memory, attention).answer_left_out(left_out).probabilities
    for row in range(14):
        model = model_of(without(memory, [row])[0], attention)
        alone = model.answer(memory.vectors[[row]]).probabilities
        assert np.allclose(answers[row], alone[0], atol=1e-12)


def test_neighbors_that_are_not_allowed_are_as_if_never_added():
    memory, counts = remembered()
    attention = first_look()
    may_judge = np.arange(14) % 3 > 0
    asked = leave_one_out_batch(memory, counts, 13).restricted(may_judge)
    weights = attention.weigh(asked.batch)
    found = asked.batch.neighbors
    assert (found.mask.dtype, found.positions.dtype) == (bool, np.int64)
    assert (np.diff(found.mask.astype(int)) <= 0).all()  # the empty come last
    assert np.isinf(found.distances[~found.mask]).all()
    for row in range(14):
        smaller, _ = without(memory, sorted({row, *np.flatnonzero(~may_judge)}))
        alone = model_of(smaller, attention).answer(memory.vectors[[row]])
        n_found = alone.neighbors.mask.sum()
        assert found.mask[row].sum() == n_found
        assert np.allclose(weights.neighbors[row, :n_found], alone.weights.neighbors, atol=1e-12)
        assert weights.prior[row] == pytest.approx(alone.weights.prior[0])


def test_no_entry_is_its_own_neighbor_even_among_copies():
    X = np.zeros((6, 2))
    memory = NumpyMemory().remember(make_entries(X, np.zeros(6)))
    found = leave_one_out_batch(memory, np.array([6]), 5).batch.neighbors
    assert not (found.positions == np.arange(6)[:, None]).any()
    assert found.mask.all()


@pytest.mark.parametrize("label", ["its own", "another"])
def test_trust_without_a_row_is_trust_after_the_row_is_gone(label):
    memory, counts = remembered()
    row = 4
    if label == "another":
        memory.relabel([row], [(memory.entries.labels[row] + 1) % 3])
        counts = np.bincount(memory.entries.labels)
    everyone = leave_one_out_batch(memory, counts, 99)  # all others: no neighbor can move up
    trust = Trust(everyone, first_look())
    part = everyone.part(np.array([row]))
    seen = trust.without(part.rows, part.batch.neighbors)[0]
    smaller, fewer = without(memory, [row])
    really = Trust(leave_one_out_batch(smaller, fewer, 99), first_look()).of_entries
    judges = part.batch.neighbors.positions[0]
    assert np.allclose(seen, really[judges - (judges > row)], atol=1e-12)


def test_trust_is_the_leave_one_out_share_of_the_own_label():
    memory, counts = remembered()
    everyone = leave_one_out_batch(memory, counts, 99)
    shares = model_of(memory, first_look(), 99).answer_left_out(everyone).shares
    expected = shares[np.arange(14), everyone.own]
    assert np.allclose(Trust(everyone, first_look()).of_entries, expected, atol=1e-12)


def test_a_group_does_not_raise_the_trust_of_its_neighbors():
    groups = np.r_[[7, 7, 7], np.full(11, -1)]
    memory, counts = remembered(groups=groups)
    everyone = leave_one_out_batch(memory, counts, 99)
    part = everyone.part(np.array([0]))
    no_prior = first_look(prior_score=-60.0)  # class frequencies do move with a label
    seen = Trust(everyone, no_prior).without(part.rows, part.batch.neighbors)[0]
    found = part.batch.neighbors
    assert set(found.positions[0][found.mask[0]]) == set(range(3, 14))
    # Whatever the labels of the group are, the judges' trust stays the same.
    memory.relabel([1, 2], (memory.entries.labels[[1, 2]] + 1) % 3)
    counts = np.bincount(memory.entries.labels)
    other = leave_one_out_batch(memory, counts, 99).part(np.array([0]))
    again = Trust(leave_one_out_batch(memory, counts, 99), no_prior)
    moved = again.without(other.rows, other.batch.neighbors)[0]
    assert np.allclose(seen[found.mask[0]], moved[found.mask[0]], atol=1e-9)


def test_an_entry_that_its_surroundings_contradict_has_little_trust():
    X, y = blobs(60, spread=0.2)
    y = y.copy()
    y[0] = (y[0] + 1) % 3
    memory = NumpyMemory().remember(make_entries(X, y))
    trust = Trust(leave_one_out_batch(memory, np.bincount(y), 10), first_look()).of_entries
    assert trust[0] < 0.2
    assert np.median(trust) > 0.6


def test_trust_is_the_same_in_small_blocks(monkeypatch):
    memory, counts = remembered(40)
    everyone = leave_one_out_batch(memory, counts, 10)
    trust = Trust(everyone, first_look())
    whole = trust.without(everyone.rows, everyone.batch.neighbors)
    monkeypatch.setattr("attnknn.leave_one_out.BLOCK", 1)
    assert np.array_equal(trust.without(everyone.rows, everyone.batch.neighbors), whole)


def test_an_entry_with_nobody_to_ask_gets_the_prior():
    X, y = blobs(6)
    clf = AttnKNNClassifier(5, attention="distance").fit(X, y, groups=np.zeros(6, dtype=int))
    left_out = clf.model_.leave_one_out()
    assert not left_out.batch.neighbors.mask.any()
    assert np.allclose(clf.model_.answer_left_out(left_out).shares, left_out.prior)


def test_parts_of_a_batch_stay_aligned():
    memory, counts = remembered(groups=np.arange(14) // 2)
    everyone = leave_one_out_batch(memory, counts, 5)
    part = everyone.part(np.array([3, 1]))
    assert part.own.tolist() == everyone.own[[3, 1]].tolist()
    assert part.groups.tolist() == [1, 0]
    assert part.nearest(2).batch.squared.shape == (2, 2)


@pytest.mark.parametrize("has_groups", [False, True])
def test_what_a_row_vouches_for_is_what_plain_loops_find(has_groups):
    X, y = blobs(40)
    groups = np.arange(40) // 3 if has_groups else None
    memory = NumpyMemory().remember(make_entries(X, y, groups=groups))
    everyone = leave_one_out_batch(memory, np.bincount(y), 8)
    trust, judges = Trust(everyone, first_look()), everyone.batch.neighbors.positions
    weight, agreeing = trust._weight_of(everyone.rows, judges)
    assert weight.any()
    for row, place in np.ndindex(judges.shape):
        who, expected = judges[row, place], [0.0, 0.0]
        for at, other in enumerate(trust.table.positions[who]):
            is_left_out = other == row or (has_groups and other // 3 == row // 3)
            if is_left_out and trust.table.mask[who, at]:
                expected[0] += trust.weights[who, at]
                expected[1] += trust.weights[who, at] * (y[other] == y[who])
        assert [weight[row, place], agreeing[row, place]] == pytest.approx(expected)
