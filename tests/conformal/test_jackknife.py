"""Jackknife+ equals what one gets by forgetting each entry in turn."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from strategies import ATTENTIONS, blobs, swap

from attnknn import AttnKNNClassifier
from attnknn.conformal import Aps, Lac, Raps
from attnknn.conformal.jackknife import Jackknife
from attnknn.leave_one_out import Trust


def by_forgetting(clf, queries, score, coverage, by_class):
    """The definition, slowly: every entry is forgotten, and everything answered again."""
    own = clf.memory_.entries.labels
    before = score.of_all(clf.leave_one_out_proba())[np.arange(len(own)), own]
    wins = np.zeros((len(queries), len(clf.classes_)))
    counts = np.bincount(own, minlength=len(clf.classes_)) if by_class else len(own)
    for place, name in enumerate(clf.memory_.entries.ids):
        without = pickle.loads(pickle.dumps(clf)).forget([name])
        won = before[place] < score.of_all(without.predict_proba(queries)) - 1e-9
        wins += won & (np.arange(len(clf.classes_)) == own[place]) if by_class else won
    return wins < coverage * (counts + 1) - 1e-9


@pytest.mark.parametrize("attention", ["uniform", "distance", "k-ensemble", "adaptive"])
@pytest.mark.parametrize("by_class", [False, True])
@pytest.mark.parametrize("score", [Lac(), Raps()])
def test_sets_are_those_that_forgetting_every_entry_gives(attention, by_class, score):
    X, y = blobs(42, spread=1.2)
    queries, _ = blobs(6, spread=1.2, seed=1)
    clf = AttnKNNClassifier(5, attention=ATTENTIONS[attention], random_state=0).fit(X, y)
    found = clf.predict_set(queries, 0.8, by_class, method="jackknife+", score=score)
    assert (found.members == by_forgetting(clf, queries, score, 0.8, by_class)).all()
    assert found.thresholds is None


@pytest.mark.parametrize("metric", ["cosine", "inner_product"])
def test_other_distances_and_sample_weight_are_followed(metric):
    X, y = blobs(40, spread=1.2)
    sample_weight = np.random.default_rng(0).uniform(0.5, 2.0, 40)
    clf = AttnKNNClassifier(5, attention="distance", metric=metric, random_state=0)
    clf.fit(X, y, sample_weight=sample_weight)
    found = clf.predict_set(X[:5] + 0.1, 0.7, method="jackknife+", score=Aps())
    assert (found.members == by_forgetting(clf, X[:5] + 0.1, Aps(), 0.7, False)).all()


def wins_by_forgetting(clf, queries, score):
    """How many entries win (B, C), each forgotten with its group, and everything answered again."""
    entries = clf.memory_.entries
    own, groups = entries.labels, entries.groups
    before = score.of_all(clf.leave_one_out_proba())[np.arange(len(own)), own]
    wins = np.zeros((len(queries), len(clf.classes_)))
    for place in range(len(own)):
        is_gone = (groups == groups[place]) & (groups != -1)
        is_gone[place] = True
        without = pickle.loads(pickle.dumps(clf)).forget(entries.ids[is_gone])
        wins += before[place] < score.of_all(without.predict_proba(queries)) - 1e-9
    return wins


@pytest.mark.parametrize("has_groups", [False, True])
def test_trust_and_groups_are_followed_but_for_a_few_entries(has_groups, monkeypatch):
    """At most 2 of 60 entries win otherwise: lists of those who vouch are not filled up."""
    X, y = blobs(60, spread=1.2)
    queries, _ = blobs(30, spread=1.2, seed=1)
    groups = np.where(np.arange(60) < 20, np.arange(60) // 4, -1) if has_groups else None
    clf = AttnKNNClassifier(6, attention=ATTENTIONS["learned"], random_state=0)
    clf.fit(X, y, groups=groups)
    torch.nn.init.constant_(clf.attention_.module_.trust_slope, 6.0)  # so that trust has a say
    clf.memory_.entries = replace(clf.memory_.entries, held_out=np.ones(60, dtype=bool))
    swap(clf)
    left_out, trust = clf.model_.held_out_predictions(), clf.model_.trust()
    own_scores = Lac().of_all(left_out.probabilities)[np.arange(60), left_out.own]
    jackknife = Jackknife(clf.model_, left_out, own_scores, Lac(), trust)
    expected = wins_by_forgetting(clf, queries, Lac())

    def errors():
        return np.abs(jackknife.wins(clf.memory_.prepare(queries)) - expected)

    followed = errors()
    assert followed.max() <= 2
    with monkeypatch.context() as patch:
        patch.setattr(Trust, "without", lambda self, _, near: self.of_entries[near.positions])
        assert errors().sum() > followed.sum()
    with monkeypatch.context() as patch:
        patch.setattr(Jackknife, "_without", lambda self, _, found, __: found.nearest(6))
        assert errors().sum() > 1.5 * followed.sum()


def test_a_memory_smaller_than_the_neighbors_asked_for_gives_sets():
    X, y = blobs(12)
    clf = AttnKNNClassifier(64, attention="distance", random_state=0).fit(X, y)
    found = clf.predict_set(X[:3], 0.6, method="jackknife+")
    assert (found.members == by_forgetting(clf, X[:3], Lac(), 0.6, False)).all()


def test_coverage_is_well_above_the_guarantee(rng):
    """Entries and query from one distribution, parts fixed beforehand: at least 1 − 2·0.2."""
    X, y = blobs(30, spread=1.5, seed=7)
    clf = AttnKNNClassifier(5, attention="distance", random_state=0).fit(X, y)
    hits = []
    for seed in range(40):
        rows, own = blobs(60, spread=1.5, seed=seed + 10)
        order = rng.permutation(60)
        rows, own = rows[order], own[order]
        again = pickle.loads(pickle.dumps(clf))
        again.add(rows[:40], own[:40]).forget(np.arange(30))
        inside = again.predict_set(rows[40:], 0.8, method="jackknife+").members
        hits += inside[np.arange(20), own[40:]].tolist()
    assert 0.74 < np.mean(hits) < 0.88  # the guarantee is 0.6
