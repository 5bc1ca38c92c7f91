"""Readers beside writers: every answer is that of one whole state."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from strategies import blobs

from attnknn import AttnKNNClassifier, FittedModel, LearnedAttention, TrainConfig, open_for_editing

X, Y = blobs(120, spread=1.0)
NAMES = np.array(["ant", "bee", "cow"])
QUERIES = blobs(6, spread=1.0, seed=1)[0]
SECONDS = 2.0


def fitted(attention="distance", **settings) -> AttnKNNClassifier:
    clf = AttnKNNClassifier(8, attention=attention, random_state=0, **settings)
    return clf.fit(X, NAMES[Y], ids=np.arange(120))


def label_of(name: int, version: int) -> str:
    """The label that entry `name` has in state `version` of the edits below."""
    return NAMES[(Y[name] + version) % 3]


def beside(read, edit, seconds: float = SECONDS) -> int:
    """Call `read` in two threads while `edit` runs in this one; how often `read` was called."""
    is_done, errors, counts = threading.Event(), [], [0, 0]

    def reader(place: int) -> None:
        try:
            while not is_done.is_set():
                read()
                counts[place] += 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=reader, args=(place,)) for place in range(2)]
    for thread in threads:
        thread.start()
    until, version = time.monotonic() + seconds, 0
    try:
        while time.monotonic() < until and not errors:
            version += 1
            edit(version)
    finally:
        is_done.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
    return sum(counts)


@pytest.mark.parametrize(
    "settings",
    [
        {"attention": "distance"},
        {"attention": LearnedAttention(training=TrainConfig(epochs=1)), "value_head": True},
    ],
    ids=["distance", "learned with a value head"],
)
def test_evidence_beside_edits_shows_the_labels_of_one_state(settings):
    """All entries are relabeled at once: in each state, labels follow from the ids."""
    clf = fitted(**settings)

    def read():
        for evidence in clf.explain(QUERIES):
            versions = {
                next(v for v in range(3) if label_of(name, v) == label)
                for name, label in zip(evidence.ids.tolist(), evidence.labels, strict=True)
            }
            assert len(versions) == 1
            shares = [evidence.weights[evidence.labels == c].sum() for c in evidence.classes]
            assert evidence.shares == pytest.approx(shares + evidence.prior_weight * evidence.prior)

    everyone = np.arange(120)

    def edit(version):
        clf.relabel(everyone, [label_of(name, version) for name in everyone])

    assert beside(read, edit) > 10


def explained(clf: AttnKNNClassifier) -> np.ndarray:
    """Ids, labels and weights of the evidence, each label checked to be that of its entry."""
    found = clf.explain(QUERIES)
    for evidence in found:
        assert (evidence.labels == NAMES[Y[evidence.ids.astype(int)]]).all()
    return np.concatenate([np.r_[evidence.ids, evidence.weights] for evidence in found])


@pytest.mark.parametrize(
    "read",
    [
        explained,
        lambda clf: clf.predict_proba(QUERIES),
        lambda clf: clf.kneighbors(QUERIES)[1],
        lambda clf: clf.leave_one_out_proba(),
        lambda clf: clf.predict_set(QUERIES, 0.8).members,
        lambda clf: clf.decide(QUERIES, novelty_level=0.05).confidence,
    ],
    ids=["explain", "predict_proba", "kneighbors", "leave_one_out_proba", "predict_set", "decide"],
)
def test_answers_beside_edits_are_those_of_a_whole_state(read):
    """Forgetting the first entries moves the positions of all others."""
    clf, first = fitted(), np.arange(40)

    def edit(version):
        if version % 2:
            clf.forget(first)
        else:
            clf.add(X[:40], NAMES[Y[:40]], ids=first)

    known = {read(clf).tobytes()}
    for version in (1, 2):
        edit(version)
        known.add(read(clf).tobytes())

    def check():
        assert read(clf).tobytes() in known

    assert beside(check, edit) > 10


def test_no_edit_of_several_writers_is_lost():
    clf = fitted()

    def add(first: int) -> None:
        for name in range(first, first + 40):
            clf.add(X[:1], NAMES[Y[:1]], ids=[name])

    threads = [threading.Thread(target=add, args=(1000 * n,)) for n in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(clf.memory_) == 120 + 3 * 40


def test_readers_of_a_stored_model_see_whole_states_too(tmp_path):
    fitted().save(tmp_path / "model")
    everyone = np.arange(120)
    with open_for_editing(tmp_path / "model") as stored:

        def read():
            found = stored.classifier.explain(QUERIES[:2])
            for evidence in found:
                pairs = zip(evidence.ids.tolist(), evidence.labels, strict=True)
                assert len({(int(np.flatnonzero(c == NAMES)[0]) - Y[n]) % 3 for n, c in pairs}) == 1

        def edit(version):
            stored.relabel(everyone, [label_of(name, version) for name in everyone])

        assert beside(read, edit) > 10


def test_a_fitted_model_refuses_assignment():
    model = fitted().model_
    assert isinstance(model, FittedModel)
    with pytest.raises(AttributeError, match="cannot assign"):
        model.n_neighbors = 3


def test_an_edit_leaves_the_model_before_it_as_it_was():
    clf = fitted()
    before = clf.model_
    expected = before.predict_proba(before.queries(QUERIES))
    clf.add(X[:5], ["dog"] * 5).relabel([3], ["ant"]).forget([7, 8])
    assert before is not clf.model_
    np.testing.assert_array_equal(before.predict_proba(before.queries(QUERIES)), expected)
    assert before.classes.tolist() == ["ant", "bee", "cow"]
