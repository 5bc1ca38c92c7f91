"""Policies of forgetting: the right entries go, the loss is the true one, edits are whole."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ATTENTIONS, blobs, swap

from attnknn import AttnKNNClassifier, DistanceAttention, LearnedAttention
from attnknn.errors import InvalidInputError, InvalidSettingError, NotFittedYetError
from attnknn.insight import (
    audit,
    drop_least_valuable,
    entry_values,
    keep_newest,
    weigh_by_age,
    what_if,
)
from attnknn.insight.forgetting import answer_forgotten
from attnknn.research.evaluation.corruption import symmetric_noise
from attnknn.training import TrainConfig

QUERIES = blobs(15, seed=3)[0]


def fitted(n: int = 45, attention="distance", **more) -> AttnKNNClassifier:
    X, y = blobs(n)
    y = symmetric_noise(y, 0.1, random_state=0)
    chosen = ATTENTIONS[attention] if isinstance(attention, str) else attention
    return AttnKNNClassifier(8, attention=chosen, random_state=0).fit(X, y, **more)


def ids_of(clf) -> list[int]:
    return clf.memory_.entries.ids.tolist()


def plain_change(clf, dropped) -> tuple[float, float]:
    """Accuracy and log-loss of every held-out entry, each and its group really forgotten first."""
    entries, X = clf.memory_.entries, blobs(len(clf.memory_))[0]
    right, losses = [], []
    for row in np.flatnonzero(entries.held_out):
        group = entries.groups[row]
        kin = entries.groups == group if group >= 0 else np.arange(len(entries)) == row
        without = deepcopy(clf).forget(sorted({*dropped, *entries.ids[kin].tolist()}))
        p = without.predict_proba(X[[row]])[0]
        observed = clf.calibration_.observed(p[None])[0]
        right.append(p.argmax() == entries.labels[row])
        losses.append(-np.log(observed[entries.labels[row]]))
    return float(np.mean(right)), float(np.mean(losses))


def test_the_newest_are_kept_in_the_order_they_came():
    clf = fitted(30)
    clf.add(*blobs(5, seed=1))
    assert keep_newest(clf, 9).dropped.tolist() == list(range(26))
    assert ids_of(clf) == list(range(26, 35))


def test_times_decide_which_entries_are_newest_and_ties_keep_the_later_one():
    clf = fitted(12)
    times = np.array([9, 0, 9, 9, 0, 0, 0, 0, 0, 0, 0, 9.0])
    keep_newest(clf, 6, times=times, may_empty_classes=True)
    assert ids_of(clf) == [0, 2, 3, 9, 10, 11]


@given(st.integers(1, 20), st.integers(0, 1000))
def test_no_class_is_emptied_unless_asked_and_the_budget_is_kept(n, seed):
    generator = np.random.default_rng(seed)
    y = generator.choice(3, 20, p=[0.8, 0.1, 0.1])
    X = generator.normal(size=(20, 2))
    clf = AttnKNNClassifier(5, attention="distance", calibration=None, random_state=0).fit(X, y)
    for policy in (keep_newest, drop_least_valuable):
        kept = deepcopy(clf)
        if n < len(set(y)):
            with pytest.raises(InvalidInputError, match="to keep an entry of each class"):
                policy(kept, n)
            policy(kept, n, may_empty_classes=True)
        else:
            policy(kept, n)
            assert set(kept.memory_.entries.labels) == set(clf.memory_.entries.labels)
        assert len(kept.memory_) == n


def test_classes_may_be_emptied_if_asked():
    X, y = np.arange(12.0)[:, None], np.repeat(["old", "new"], 6)
    clf = AttnKNNClassifier(3, attention="distance", calibration=None).fit(X, y)
    assert keep_newest(deepcopy(clf), 4).dropped.tolist() == [0, 1, 2, 3, 4, 6, 7, 8]
    keep_newest(clf, 4, may_empty_classes=True)
    assert ids_of(clf) == [8, 9, 10, 11]


def test_values_one_by_one_are_those_of_a_plain_loop():
    clf = fitted(24)
    plain = deepcopy(clf)
    expected = []
    while len(plain.memory_) > 9:
        found = audit(plain)
        values = found.value + plain_values(clf, plain, expected)
        for row in np.argsort(values, kind="stable"):
            if (found.labels == found.labels[row]).sum() > 1:
                break
        expected.append(int(found.ids[row]))
        plain.forget([expected[-1]])
    assert drop_least_valuable(clf, 9, rounds=15).dropped.tolist() == expected
    assert ids_of(clf) == ids_of(plain)


def plain_values(whole, left, gone) -> np.ndarray:
    """What the votes of those that are left are worth to the rows that are gone, one by one."""
    values = dict.fromkeys(ids_of(left), 0.0)
    X, own = blobs(len(whole.memory_))[0], whole.classes_[whole.memory_.entries.labels]
    for row in gone:
        evidence = left.explain(X[[row]])[0]
        own_code = evidence.classes.tolist().index(own[row])

        def loss(shares, own_code=own_code):
            powers = shares**evidence.exponent  # noqa: B023
            observed = left.calibration_.observed((powers / powers.sum())[None])[0]
            return -np.log(observed[own_code])

        for name, label, weight in zip(
            evidence.ids, evidence.labels, evidence.weights, strict=True
        ):
            without = evidence.shares - weight * (evidence.classes == label)
            values[name] += loss(without / (1 - weight)) - loss(evidence.shares)
    return np.array(list(values.values()))


def test_the_least_valuable_go_but_none_with_its_nearest_and_harmful_ones_first():
    clf = fitted(45)
    values = entry_values(clf)
    near = [set(row[1:4]) for row in clf.kneighbors(blobs(45)[0], 4)[1].tolist()]
    expected, stays = [], set()
    for row in np.argsort(values).tolist():
        if len(expected) < 5 and row not in stays:
            expected.append(row)
            stays |= near[row]
    assert expected != np.argsort(values)[:5].tolist()
    gone = drop_least_valuable(clf, 40, rounds=1).dropped
    assert gone.tolist() == expected
    wrong = np.flatnonzero(symmetric_noise(blobs(45)[1], 0.1, random_state=0) != blobs(45)[1])
    assert set(wrong) & set(gone.tolist())


def test_entries_of_the_same_group_do_not_vote_for_a_forgotten_one():
    X, y = blobs(40)
    groups = np.arange(40) // 4
    clf = AttnKNNClassifier(8, attention="distance", metric="inner_product", random_state=0)
    clf.fit(X, y, groups=groups)
    left = deepcopy(clf).forget([0])
    ((_, answer),) = answer_forgotten(clf, left, np.array([0]))
    alone = deepcopy(clf).forget(np.flatnonzero(groups == 0))
    expected = alone.model_.answer(clf.memory_.vectors[:1])
    assert np.allclose(answer.weights.neighbors, expected.weights.neighbors, atol=1e-12)
    assert np.allclose(answer.weights.prior, expected.weights.prior, atol=1e-12)


@pytest.mark.parametrize("groups", [None, np.arange(30) // 2])
@pytest.mark.parametrize("policy", [keep_newest, drop_least_valuable])
def test_the_loss_is_that_of_entries_really_left_out(policy, groups):
    no_prior = DistanceAttention(prior_score=-80.0)  # else it would count the group, too
    rel = 1e-9 if groups is None else 1e-3
    clf = fitted(30, "distance" if groups is None else no_prior, groups=groups)
    before, start = deepcopy(clf), plain_change(clf, [])
    done = policy(clf, 17)
    assert len(done.dropped) == 13
    assert done.held_out.n_rows == 30
    assert (done.held_out.accuracy_before, done.held_out.log_loss_before) == pytest.approx(
        start, rel=rel
    )
    end = plain_change(before, done.dropped.tolist())
    assert (done.held_out.accuracy_after, done.held_out.log_loss_after) == pytest.approx(
        end, rel=rel
    )
    assert done.held_out.accuracy_lost == pytest.approx(start[0] - end[0], rel=rel)
    assert done.held_out.log_loss_added == pytest.approx(end[1] - start[1], abs=10 * rel)


def test_validation_rows_are_asked_before_and_after():
    X, y = blobs(40, seed=5)
    clf = fitted(60)
    before = clf.predict_proba(X)
    done = keep_newest(clf, 10, validation=(X, y))
    after = clf.predict_proba(X)
    assert done.validation.n_rows == 40
    assert done.validation.accuracy_before == (before.argmax(axis=1) == y).mean()
    assert done.validation.accuracy_after == (after.argmax(axis=1) == y).mean()
    observed = clf.calibration_.observed(after)[np.arange(40), y]
    assert done.validation.log_loss_after == pytest.approx(-np.log(observed).mean())
    assert "40 validation rows: accuracy 0." in str(done)


def test_the_weight_of_an_entry_halves_with_every_half_life():
    clf = fitted(20, sample_weight=np.linspace(1, 2, 20))
    done = weigh_by_age(clf, 5)
    entries = clf.memory_.entries
    assert done.decay[-1] == 1.0
    assert done.decay[-6] == pytest.approx(0.5)
    assert done.decay[-11] == pytest.approx(0.25)
    assert np.array_equal(entries.effective_weight, np.linspace(1, 2, 20) * done.decay)
    assert len(done.dropped) == 0


def test_decayed_entries_vote_as_entries_of_that_sample_weight():
    X, y = blobs(30)
    clf = AttnKNNClassifier(8, attention="distance", calibration=None, random_state=0).fit(X, y)
    weigh_by_age(clf, 4.0)
    decay = 0.5 ** (np.arange(29, -1, -1) / 4.0)
    other = AttnKNNClassifier(8, attention="distance", calibration=None, random_state=0)
    other.fit(X, y, sample_weight=decay)
    swap(other, attention=clf.attention_)
    assert np.allclose(clf.predict_proba(QUERIES), other.predict_proba(QUERIES), atol=1e-12)
    assert np.allclose(clf.leave_one_out_proba(), other.leave_one_out_proba(), atol=1e-12)
    evidence = clf.explain(QUERIES[:1])[0]
    assert evidence.weights.sum() + evidence.prior_weight == pytest.approx(1.0)


def test_times_are_ages_in_their_own_unit():
    clf = fitted(12)
    times = np.full(12, 2020.0)
    times[3] = 2010.0
    decay = weigh_by_age(clf, 10, times=times).decay
    assert decay.tolist() == [1.0] * 3 + [0.5] + [1.0] * 8


def test_weighing_again_starts_from_the_sample_weight_that_was_given():
    clf, once = fitted(20), fitted(20)
    answers = clf.predict_proba(QUERIES)
    weigh_by_age(clf, 2)
    assert np.abs(clf.predict_proba(QUERIES) - answers).max() > 0.01
    weigh_by_age(clf, 7)
    weigh_by_age(once, 7)
    assert np.array_equal(clf.predict_proba(QUERIES), once.predict_proba(QUERIES))
    assert weigh_by_age(clf, None).decay is None
    assert np.array_equal(clf.predict_proba(QUERIES), answers)


def test_very_old_entries_keep_a_trace():
    clf = fitted(20)
    assert (weigh_by_age(clf, 1e-3).decay > 0).all()
    assert np.isfinite(clf.predict_proba(QUERIES)).all()


def test_decay_stays_with_its_entries_through_edits():
    clf = fitted(20)
    decay = weigh_by_age(clf, 3).decay
    clf.forget([0, 5]).add(*blobs(4, seed=2)).relabel([7], 1)
    expected = np.append(np.delete(decay, [0, 5]), np.ones(4))
    assert np.array_equal(clf.memory_.entries.decay, expected)
    assert clf.refit().memory_.entries.decay is clf.memory_.entries.decay


def test_decay_survives_a_model_folder(tmp_path):
    clf = fitted(20)
    weigh_by_age(clf, 3)
    clf.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert np.array_equal(loaded.memory_.entries.decay, clf.memory_.entries.decay)
    assert loaded.predict_proba(QUERIES).tobytes() == clf.predict_proba(QUERIES).tobytes()


def test_what_if_is_right_with_decay():
    clf = fitted(30)
    weigh_by_age(clf, 6)
    edits = {"forget": [1, 28], "relabel": {29: 0}, "add": blobs(3, seed=9)}
    tried = what_if(clf, QUERIES, **edits)
    clf.relabel([29], [0]).forget([1, 28]).add(*blobs(3, seed=9))
    assert np.array_equal(tried.after, clf.predict_proba(QUERIES))


def test_what_if_is_right_about_what_a_policy_drops():
    clf = fitted(30)
    gone = drop_least_valuable(deepcopy(clf), 12).dropped
    tried = what_if(clf, QUERIES, forget=gone)
    drop_least_valuable(clf, 12)
    assert np.array_equal(tried.after, clf.predict_proba(QUERIES))


@pytest.mark.parametrize(
    "policy",
    [
        lambda clf, **more: keep_newest(clf, 10, **more),
        lambda clf, **more: drop_least_valuable(clf, 10, **more),
        lambda clf, **more: weigh_by_age(clf, 10, **more),
    ],
)
def test_a_policy_that_fails_changes_nothing(policy):
    clf = fitted(30)
    answers, loo = clf.predict_proba(QUERIES), clf.leave_one_out_proba()
    for wrong in ((QUERIES, [7] * 15), (QUERIES, [0]), (QUERIES[:, :2], [0] * 15)):
        with pytest.raises(ValueError, match=r"validation|features|columns"):
            policy(clf, validation=wrong)
    assert len(clf.memory_) == 30
    assert clf.memory_.entries.decay is None
    assert np.array_equal(clf.predict_proba(QUERIES), answers)
    assert np.array_equal(clf.leave_one_out_proba(), loo)


@pytest.mark.parametrize("policy", [keep_newest, drop_least_valuable])
def test_a_budget_that_is_kept_already_changes_nothing(policy):
    clf = fitted(12)
    memory = clf.memory_
    done = policy(clf, 12)
    assert clf.memory_ is memory
    assert done.dropped.tolist() == []
    assert done.held_out.log_loss_added == 0
    assert str(done).startswith("Forgot nothing: there are only 12 entries.")


@pytest.mark.parametrize("policy", [keep_newest, drop_least_valuable])
def test_learned_attention_and_one_entry_for_each_class_work_too(policy):
    clf = fitted(60, LearnedAttention(trust=True, training=TrainConfig(epochs=1, batch_size=64)))
    n_held_out = clf.held_out_.sum()
    assert 0 < n_held_out < 60
    assert policy(clf, 3).held_out.n_rows == n_held_out
    assert sorted(clf.memory_.entries.labels) == [0, 1, 2]
    assert np.isfinite(clf.predict_proba(QUERIES)).all()


def test_the_record_says_it_in_words():
    text = str(keep_newest(fitted(30), 20))
    assert text.startswith(
        "Forgot 10 of 30 entries, the oldest.\nLeave-one-out, 30 held-out entries:"
    )
    assert " points), log-loss " in text
    trained = fitted(30, "learned")
    trained.forget(trained.memory_.entries.ids[trained.held_out_])
    cost = "No entries are held out, so the leave-one-out cost is unknown."
    assert keep_newest(trained, 10).sentences()[1:] == [cost]
    text = str(weigh_by_age(fitted(30), 2.5))
    assert text.startswith("Halved the sample weight of entries with every 2.5 of age.")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda clf: keep_newest(clf, 0), "`n` must be an integer of at least 1, got 0"),
        (lambda clf: drop_least_valuable(clf, 2.5), "`n` must be an integer"),
        (lambda clf: drop_least_valuable(clf, 5, rounds=0), "`rounds` must be an integer"),
        (lambda clf: keep_newest(clf, 5, may_empty_classes="no"), "`may_empty_classes`"),
        (lambda clf: weigh_by_age(clf, 0), "`half_life` must be"),
        (lambda clf: weigh_by_age(clf, np.inf), "`half_life` must be"),
        (lambda clf: weigh_by_age(clf, 3, times=[1.0]), "`times` must hold a finite number for"),
        (lambda clf: keep_newest(clf, 3, times=["may"] * 12), r"`times` must .*, got \['may'\]"),
        (lambda clf: keep_newest(clf, 3, times=[np.nan] * 12), "`times` must hold a finite number"),
    ],
)
def test_what_cannot_be_done_is_refused(call, message):
    clf = fitted(12)
    with pytest.raises((InvalidInputError, InvalidSettingError), match=message):
        call(clf)
    assert len(clf.memory_) == 12


def test_an_unfitted_classifier_is_refused():
    with pytest.raises(NotFittedYetError, match="before `keep_newest`"):
        keep_newest(AttnKNNClassifier(), 3)
