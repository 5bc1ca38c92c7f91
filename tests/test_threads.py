"""Readers beside writers: every answer is that of one whole state."""

from __future__ import annotations

import pickle
import subprocess
import sys
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


READS = {
    "explain": explained,
    "predict_proba": lambda clf: clf.predict_proba(QUERIES),
    "kneighbors": lambda clf: clf.kneighbors(QUERIES)[1],
    "leave_one_out_proba": lambda clf: clf.leave_one_out_proba(),
    "predict_set": lambda clf: clf.predict_set(QUERIES, 0.8).members,
    "decide": lambda clf: clf.decide(QUERIES, novelty_level=0.05).confidence,
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
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


EDITS = (
    lambda model: model.forget(np.arange(40)),
    lambda model: model.relabel([50, 60, 70], NAMES[(Y[[50, 60, 70]] + 1) % 3]),
    lambda model: model.add(X[:40], NAMES[Y[:40]], ids=np.arange(40)),
    lambda model: model.relabel([50, 60, 70], NAMES[Y[[50, 60, 70]]]),
    lambda model: model.forget([100]),
    lambda model: model.add(X[100:101], NAMES[Y[100:101]], ids=[100]),
)


def readings(clf: AttnKNNClassifier) -> dict[str, bytes]:
    """What every kind of reader sees in the current state."""
    reads = {**READS, "explain": lambda clf: [str(e) for e in clf.explain(QUERIES)]}
    return {name: np.asarray(read(clf)).tobytes() for name, read in reads.items()}


@pytest.mark.slow
@pytest.mark.parametrize("is_stored", [False, True], ids=["in memory", "stored"])
def test_half_a_minute_of_all_readers_beside_all_edits_mixes_no_states(tmp_path, is_stored):
    """The edits are a cycle of six states: every answer must be that of one of them."""
    clf = fitted()
    stored = None
    if is_stored:
        clf.save(tmp_path / "model")
        stored = open_for_editing(tmp_path / "model")
    editor = stored or clf
    known = {name: set() for name in READS}

    def current() -> AttnKNNClassifier:
        return stored.classifier if stored else clf

    for version in range(3 * len(EDITS)):  # the order of entries repeats after the first cycle
        EDITS[version % len(EDITS)](editor)
        for name, seen in readings(current()).items():
            known[name].add(seen)

    def check():
        for name, seen in readings(current()).items():
            assert seen in known[name], f"{name} shows no whole state"

    n_read = beside(check, lambda version: EDITS[(version - 1) % len(EDITS)](editor), seconds=30)
    if stored:
        stored.close()
    assert n_read > 50


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


def test_a_pickle_leaves_the_lock_of_writers_where_it_is():
    clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    clf.add([[3.0]], [1])
    before = set(vars(clf))
    pickle.dumps(clf)
    assert set(vars(clf)) == before


IMPORTING = """
import sys, threading
from attnknn.memory import TorchMemory, make_entries
from attnknn.training.threads import n_threads
import numpy as np

memory = TorchMemory().remember(make_entries(np.eye(3), np.arange(3)), "euclidean")
importing = threading.Thread(target=lambda: __import__("torch"))
importing.start()
while "torch" not in sys.modules:
    pass
assert memory.error_bounds.precision == "highest"
assert n_threads() >= 1
importing.join()
"""


@pytest.mark.slow
def test_questions_wait_while_another_thread_imports_torch() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
