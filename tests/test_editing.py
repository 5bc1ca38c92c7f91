"""Edits: whole or not at all, and the next answer knows of them."""

from __future__ import annotations

from copy import copy

import numpy as np
import pytest
from strategies import ATTENTIONS, blobs, swap

from attnknn import (
    AttnKNNClassifier,
    LearnedAttention,
    open_for_editing,
)
from attnknn.editing import set_decay
from attnknn.encoders import LearnedTableEncoder
from attnknn.errors import (
    InvalidInputError,
    InvalidSettingError,
    UnknownEntryError,
)
from attnknn.training import TrainConfig


def everything(clf, X):
    """All that an edit may move, as bytes."""
    entries = clf.memory_.entries
    return (
        clf.predict_proba(X).tobytes(),
        clf.leave_one_out_proba().tobytes(),
        entries.ids.tolist(),
        entries.labels.tolist(),
        clf.classes_.tolist(),
    )


FAILING_EDITS = {
    "an unknown id": (UnknownEntryError, lambda clf, X, y: clf.forget([0, 999])),
    "an id of another kind": (UnknownEntryError, lambda clf, X, y: clf.forget(["0"])),
    "an unknown id to relabel": (
        UnknownEntryError,
        lambda clf, X, y: clf.relabel([0, 999], [1, 1]),
    ),
    "an unknown id and a new class": (
        UnknownEntryError,
        lambda clf, X, y: clf.relabel([0, 999], [7, 8]),
    ),
    "too few labels": (InvalidInputError, lambda clf, X, y: clf.relabel([0, 1, 2], [7, 8])),
    "one id with two labels": (InvalidInputError, lambda clf, X, y: clf.relabel([0, 0], [7, 8])),
    "another width": (ValueError, lambda clf, X, y: clf.add(X[:2, :2], y[:2])),
    "more rows than labels": (InvalidInputError, lambda clf, X, y: clf.add(X[:3], y[:2])),
    "an id that is known": (
        InvalidInputError,
        lambda clf, X, y: clf.add(X[:2], [7, 8], ids=[0, 99]),
    ),
    "an id twice": (InvalidInputError, lambda clf, X, y: clf.add(X[:2], [7, 8], ids=[99, 99])),
    "ids of another kind": (
        InvalidInputError,
        lambda clf, X, y: clf.add(X[:2], y[:2], ids=["a", "b"]),
    ),
    "too few ids": (InvalidInputError, lambda clf, X, y: clf.add(X[:2], [7, 8], ids=[99])),
    "labels of another kind": (InvalidInputError, lambda clf, X, y: clf.add(X[:1], ["text"])),
    "a missing label": (InvalidInputError, lambda clf, X, y: clf.add(X[:1], [None])),
    "a missing number": (ValueError, lambda clf, X, y: clf.add([[np.nan] * 4], [7])),
    "a number beyond float32": (InvalidInputError, lambda clf, X, y: clf.add([[1e300] * 4], [7])),
    "no sample weight": (
        InvalidInputError,
        lambda clf, X, y: clf.add(X[:1], [7], sample_weight=[0.0]),
    ),
    "groups of text": (InvalidInputError, lambda clf, X, y: clf.add(X[:1], [7], groups=["a"])),
    "too few payloads": (InvalidInputError, lambda clf, X, y: clf.add(X[:2], [7, 7], payloads=[1])),
    "a fit of rows without labels": (ValueError, lambda clf, X, y: clf.fit(X[:5, :2], y[:4])),
    "a fit with an unknown metric": (
        InvalidSettingError,
        lambda clf, X, y: clf.set_params(metric="taxi").fit(X[:5], y[:5]),
    ),
    "a fit with settings out of range": (
        InvalidSettingError,
        lambda clf, X, y: clf.set_params(attention=LearnedAttention(holdout=2.0)).refit(),
    ),
}


@pytest.mark.parametrize("attention", ["distance", "learned"])
@pytest.mark.parametrize("case", FAILING_EDITS)
def test_an_edit_that_fails_leaves_everything_as_it_was(case, attention):
    X, y = blobs(40)
    clf = AttnKNNClassifier(6, attention=ATTENTIONS[attention], random_state=0).fit(X, y)
    before = everything(clf, X)
    error, edit = FAILING_EDITS[case]
    with pytest.raises(error):
        edit(clf, X, y)
    assert everything(clf, X) == before


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_add_then_forget_is_as_never(attention):
    X, y = blobs(60)
    more, labels = blobs(9, seed=1)
    clf = AttnKNNClassifier(8, attention=ATTENTIONS[attention], random_state=0).fit(X, y)
    before = everything(clf, X)
    clf.add(more, labels)
    assert everything(clf, X) != before
    clf.forget(np.arange(60, 69))
    assert everything(clf, X) == before


def test_relabeling_back_and_forth_is_as_never():
    X, y = blobs(60)
    clf = AttnKNNClassifier(8, attention=ATTENTIONS["learned"], random_state=0).fit(X, y)
    before = everything(clf, X)
    clf.relabel([0, 1], [1, 0])
    assert everything(clf, X) != before
    clf.relabel([0, 1], y[:2])
    assert everything(clf, X) == before


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_relabel_everything_to_one_class_and_that_class_wins(attention):
    X, y = blobs(60)
    clf = AttnKNNClassifier(8, attention=ATTENTIONS[attention], random_state=0).fit(X, y)
    clf.relabel(np.arange(60), 2)
    assert (clf.predict(X) == 2).all()


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_forgotten_entries_never_vote(attention):
    X, y = blobs(60)
    clf = AttnKNNClassifier(60, attention=ATTENTIONS[attention], random_state=0).fit(X, y)
    clf.forget(np.flatnonzero(y == 0))
    assert all(set(e.labels.tolist()) <= {1, 2} for e in clf.explain(X))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_when_all_is_forgotten_it_says_so_and_can_begin_again(attention):
    X, y = blobs(30)
    clf = AttnKNNClassifier(8, attention=ATTENTIONS[attention], random_state=0).fit(X, y)
    expected = clf.predict_proba(X)
    clf.forget(np.arange(30))
    for ask in (clf.predict, clf.predict_proba, clf.explain, clf.kneighbors):
        with pytest.raises(InvalidInputError, match="every entry was forgotten"):
            ask(X)
    for ask in (clf.leave_one_out_proba, clf.refit):
        with pytest.raises(InvalidInputError, match="every entry was forgotten"):
            ask()
    clf.add(X, y)
    assert np.allclose(clf.predict_proba(X), expected, atol=1e-6)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("label_noise", ["auto", "by_class"])
@pytest.mark.parametrize("way", ["add", "relabel"])
def test_a_new_class_answers_at_once(attention, label_noise, way):
    X, y = blobs(60)
    clf = AttnKNNClassifier(
        8, attention=ATTENTIONS[attention], label_noise=label_noise, random_state=0
    ).fit(X, y)
    far = np.full((12, 4), 9.0) + 0.01 * np.arange(12)[:, None]
    if way == "add":
        clf.add(far, np.full(12, 7))
    else:
        clf.add(far, np.full(12, 1)).relabel(np.arange(60, 72), 7)
    assert clf.classes_.tolist() == [0, 1, 2, 7]
    assert clf.predict(far[:2]).tolist() == [7, 7]
    assert clf.predict_proba(X).shape == (60, 4)
    assert clf.predict(X[:6]).tolist() != [7] * 6


@pytest.mark.parametrize("way", ["add", "relabel"])
def test_the_prototype_of_a_new_class_is_the_direction_of_its_entries(way):
    X, y = blobs(60)
    X += 50.0  # far from the origin: what the module sees is centered
    attention = LearnedAttention(training=TrainConfig(epochs=1))
    clf = AttnKNNClassifier(8, attention=attention, random_state=0).fit(X, y)
    if way == "add":
        clf.add(X[:2], [7, 7])
        rows = [60, 61]
    else:
        clf.relabel([3, 4], 7)
        rows = [3, 4]
    expected = clf.memory_.vectors[clf.memory_.positions_of(rows)].mean(axis=0)
    found = clf.attention_.module_.prototypes[-1].detach().numpy()
    assert np.allclose(
        found / np.linalg.norm(found), expected / np.linalg.norm(expected), atol=1e-5
    )


def test_new_rows_get_the_next_free_ids():
    clf = AttnKNNClassifier(2, attention="uniform").fit([[0.0], [1.0]], [0, 1], ids=[10, 20])
    clf.add([[2.0]], [1])
    assert clf.memory_.entries.ids.tolist() == [10, 20, 21]


def test_rows_of_text_ids_need_their_ids():
    clf = AttnKNNClassifier(2, attention="uniform").fit([[0.0], [1.0]], [0, 1], ids=["a", "b"])
    with pytest.raises(InvalidInputError, match="give `ids`"):
        clf.add([[2.0]], [1])


def test_partial_fit_is_fit_and_then_add():
    X, y = blobs(60)
    clf = AttnKNNClassifier(8, attention="uniform")
    clf.partial_fit(X[:30], y[:30], classes=[0, 1, 2, 3]).partial_fit(X[30:], y[30:])
    whole = AttnKNNClassifier(8, attention="uniform").fit(X, y)
    assert clf.classes_.tolist() == [0, 1, 2, 3]
    assert np.allclose(clf.predict_proba(X)[:, :3], whole.predict_proba(X))


def test_refit_fits_what_is_remembered_now():
    X, y = blobs(60)
    more, labels = blobs(60, seed=1)
    grown = AttnKNNClassifier(8, attention="distance", random_state=0).fit(X, y)
    grown.add(more, labels)
    temperature = grown.attention_.temperature_
    whole = AttnKNNClassifier(8, attention="distance", random_state=0)
    whole.fit(np.vstack([X, more]), np.concatenate([y, labels]))
    grown.refit()
    assert grown.attention_.temperature_ != temperature
    assert grown.attention_.temperature_ == pytest.approx(whole.attention_.temperature_, rel=0.05)


def trained(n=60, **settings):
    """A classifier whose encoder was trained on most of its rows."""
    encoder = LearnedTableEncoder(
        embed_dim=8, width=16, network="waves", training=TrainConfig(epochs=2)
    )
    settings = {"n_neighbors": 8, "attention": "distance"} | settings
    return AttnKNNClassifier(encoder=encoder, random_state=0, **settings).fit(*blobs(n))


def test_refit_makes_no_row_held_out_that_the_encoder_was_trained_on():
    clf = trained()
    clf.forget(clf.memory_.entries.ids[clf.held_out_])
    with pytest.warns(UserWarning, match="trained on all entries but 0"):
        clf.refit()
    assert not clf.held_out_.any()
    with pytest.raises(InvalidInputError, match="held-out"):
        clf.predict_set(blobs(5)[0])


@pytest.mark.parametrize(
    "attention", ["distance", LearnedAttention(holdout=0.2, training=TrainConfig(epochs=1))]
)
def test_refit_when_none_is_left_that_the_encoder_was_trained_on(attention):
    clf = trained(attention=attention)
    first = clf.memory_.entries.ids
    clf.add(*blobs(60, seed=1)).forget(first)
    assert clf.held_out_.all()
    clf.refit()
    assert clf.held_out_.sum() == (60 if attention == "distance" else 12)


def test_edits_of_an_emptied_memory_keep_its_origin():
    X, y = blobs(60)
    attention = LearnedAttention(training=TrainConfig(epochs=1))
    clf = AttnKNNClassifier(8, attention=attention, random_state=0).fit(X, y)
    more, ids = X[:9] + 2.0, np.arange(100, 109)
    grown = copy(clf).add(more, y[:9], ids=ids).forget(np.arange(60))
    emptied = copy(clf).forget(np.arange(60)).add(more, y[:9], ids=ids)
    assert np.allclose(emptied.predict_proba(X), grown.predict_proba(X), atol=1e-6)


def test_entries_added_later_are_held_out():
    X, y = blobs(60)
    clf = AttnKNNClassifier(8, attention=ATTENTIONS["learned"], random_state=0).fit(X, y)
    clf.add(X[:3], y[:3])
    assert clf.held_out_[60:].all()
    assert not clf.held_out_[:60].all()


class TestKeptLists:
    """The lists of nearest others follow edits, and everything judged by them with them."""

    def edited(self, attention):
        X, y = blobs(60, spread=1.0)
        clf = AttnKNNClassifier(8, attention=attention, random_state=0).fit(X, y)
        clf.leave_one_out_proba()
        lists = clf.model_.neighbor_graph
        clf.add(X[:3] + 0.01, [0, 1, 2])
        clf.forget([5, 17, 40])
        clf.relabel([7], [2])
        return clf, lists

    @pytest.mark.parametrize("attention", ["distance", "uniform"])
    def test_answers_of_entries_are_those_of_a_new_search(self, attention):
        clf, lists = self.edited(attention)
        kept = clf.leave_one_out_proba()
        assert clf.model_.neighbor_graph is lists
        swap(clf)
        np.testing.assert_array_equal(clf.leave_one_out_proba(), kept)

    def test_an_edit_that_fails_leaves_them_behind_unused(self, monkeypatch):
        clf, lists = self.edited("distance")
        before = clf.leave_one_out_proba()

        def fail(*_):
            raise MemoryError

        monkeypatch.setattr(type(lists), "_insert", fail)
        with pytest.raises(MemoryError):
            clf.add([[0.0] * 4], [1])
        monkeypatch.undo()
        np.testing.assert_array_equal(clf.leave_one_out_proba(), before)

    def test_copies_do_not_share_them(self):
        clf, _ = self.edited("distance")
        other = copy(clf)
        other.forget([8])
        kept = clf.leave_one_out_proba()
        swap(clf)
        np.testing.assert_array_equal(clf.leave_one_out_proba(), kept)

    def test_all_may_be_forgotten(self):
        clf, _ = self.edited("distance")
        clf.forget(clf.memory_.entries.ids)
        clf.add([[0.0] * 4, [1.0] * 4], [0, 1])
        assert clf.leave_one_out_proba().shape == (2, 3)


def test_a_few_rows_of_many_classes_are_no_reason_to_warn():
    X, y = blobs(60)
    clf = AttnKNNClassifier(5, attention="distance", random_state=0).fit(X, y)
    clf.add(X[:30], np.arange(30)).relabel(np.arange(30), np.arange(30))
    assert clf.classes_.tolist() == list(range(30))


@pytest.mark.parametrize("way", ["add", "partial_fit", "relabel"])
def test_a_new_class_is_of_the_kind_of_the_others(way, tmp_path):
    X, y = blobs(60)
    clf = AttnKNNClassifier(8, attention="distance", random_state=0).fit(X, y)
    clf.save(tmp_path / "model")

    def edit(model, label):
        if way == "relabel":
            model.relabel([0, 1], [label, label])
        else:
            getattr(model, way)(X[:2], np.array([label, label]))

    with pytest.raises(InvalidInputError, match=r"must be integers.*got 2\.5"):
        edit(clf, 2.5)
    edit(clf, 3.0)
    assert clf.classes_.dtype == y.dtype
    assert clf.classes_.tolist() == [0, 1, 2, 3]
    if way != "partial_fit":
        with open_for_editing(tmp_path / "model") as stored:
            edit(stored, 3.0)
    else:
        clf.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert loaded.predict_proba(X).tobytes() == clf.predict_proba(X).tobytes()


@pytest.mark.parametrize(
    ("dtype", "label", "wide"),
    [("int8", 300, "int64"), ("uint64", -1, "int64"), ("float32", 2**24 + 1, "float64")],
)
def test_a_type_that_is_too_narrow_for_a_new_class_becomes_wider(dtype, label, wide):
    X, y = blobs(60)
    clf = AttnKNNClassifier(8, attention="distance").fit(X, y.astype(dtype))

    clf.add(X[:2], [label, label])

    assert clf.classes_.dtype == wide
    assert sorted(clf.classes_.tolist()) == sorted([0, 1, 2, label])


def test_a_new_class_beyond_64_bits_is_refused():
    X, y = blobs(60)
    clf = AttnKNNClassifier(8, attention="distance").fit(X, y)
    with pytest.raises(InvalidInputError, match="at most 64 bits"):
        clf.add(X[:1], np.array([2**64 - 1], dtype=np.uint64))


def test_a_second_class_may_join_the_only_one():
    clf = AttnKNNClassifier(2, attention="distance").fit([[0.0], [1.0]], ["a", "a"])
    clf.add([[9.0], [9.5]], ["b", "b"])
    assert clf.predict([[0.5], [9.2]]).tolist() == ["a", "b"]


def test_decay_changes_the_weights_of_the_next_model_only():
    X, y = blobs(60, spread=1.5)
    model = AttnKNNClassifier(8, attention="uniform").fit(X, y).model_
    before = model.predict_proba(model.queries(X))
    decay = np.where(np.arange(60) < 30, 1e-6, 1.0)
    later = set_decay(model, decay)
    kept = AttnKNNClassifier(8, attention="uniform").fit(X, y, sample_weight=decay)
    assert later.predict_proba(later.queries(X)) == pytest.approx(kept.predict_proba(X))
    assert (model.predict_proba(model.queries(X)) == before).all()
    assert not np.allclose(later.predict_proba(later.queries(X)), before)
