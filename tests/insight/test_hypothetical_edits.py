"""What-if answers are those of a classifier that was really edited."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import ATTENTIONS, blobs

from attnknn import AttnKNNClassifier, LearnedAttention
from attnknn.editing import next_id as next_id_of
from attnknn.errors import InvalidInputError, UnknownEntryError
from attnknn.insight import AddedRows, what_if
from attnknn.training import TrainConfig

KINDS = {
    "distance": {"attention": ATTENTIONS["distance"]},
    "by class": {"attention": ATTENTIONS["distance"], "label_noise": "by_class"},
    "learned": {
        "attention": LearnedAttention(trust=True, training=TrainConfig(epochs=1, batch_size=64))
    },
    "prototypes": {"attention": LearnedAttention(training=TrainConfig(epochs=1, batch_size=64))},
    "value head": {"attention": ATTENTIONS["distance"], "value_head": True},
    "adaptive": {"attention": ATTENTIONS["adaptive"]},
}
QUERIES = blobs(15, seed=3)[0]


@pytest.fixture(scope="module")
def known():
    """One fitted classifier of each kind; what-if must not change them."""
    X, y = blobs(60)
    return {
        kind: AttnKNNClassifier(8, random_state=0, **chosen).fit(X, y)
        for kind, chosen in KINDS.items()
    }


def really(clf, forget, relabel, add):
    edited = deepcopy(clf)
    if relabel:
        edited.relabel(list(relabel), list(relabel.values()))
    if forget:
        edited.forget(forget)
    if add is not None:
        edited.add(*add)
    return edited


edits = st.fixed_dictionaries(
    {
        "forget": st.lists(st.integers(0, 29), unique=True, max_size=29),
        "relabel": st.dictionaries(st.integers(30, 59), st.sampled_from([0, 1, 2, 7]), max_size=9),
        "add": st.none()
        | st.lists(st.sampled_from([0, 1, 2, 5]), min_size=1, max_size=4).map(
            lambda labels: (blobs(len(labels), seed=8)[0], labels)
        ),
    }
).filter(lambda edit: edit["forget"] or edit["relabel"] or edit["add"])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None)
@given(edit=edits)
def test_what_if_equals_the_edit_and_changes_nothing(known, kind, edit):
    clf = known[kind]
    before, next_id = clf.predict_proba(QUERIES), next_id_of(clf.model_)
    found = what_if(clf, QUERIES, **edit)
    edited = really(clf, **edit)
    assert found.classes.tolist() == edited.classes_.tolist()
    assert found.after.tobytes() == edited.predict_proba(QUERIES).tobytes()
    columns = np.isin(found.classes, clf.classes_)
    assert found.before[:, columns].tobytes() == before.tobytes()
    assert not found.before[:, ~columns].any()
    assert clf.predict_proba(QUERIES).tobytes() == before.tobytes()
    assert (len(clf.memory_), clf.classes_.tolist(), next_id_of(clf.model_)) == (
        60,
        [0, 1, 2],
        next_id,
    )


def test_changed_rows_are_those_whose_label_changes(known):
    found = what_if(known["distance"], QUERIES, relabel=dict.fromkeys(range(60), 1))
    expected = np.flatnonzero(known["distance"].predict(QUERIES) != 1)
    assert found.changed.tolist() == expected.tolist()
    assert f"{len(expected)} of 15 rows would change the label" in str(found)
    row = int(found.shift.argmax())
    assert found.shift[row] == pytest.approx(np.abs(found.after - found.before)[row].sum() / 2)
    assert "→ 1" in found.line(row)


def test_an_edit_far_away_changes_nothing():
    clf = AttnKNNClassifier(2, attention="uniform").fit([[0.0], [1.0], [9.0]], [0, 0, 1])
    found = what_if(clf, [[0.1]], forget=[2])
    assert found.sentence() == "Nothing would change for 1 row."
    assert not len(found.changed)


def test_rows_can_be_added_where_ids_are_texts():
    clf = AttnKNNClassifier(2, attention="distance").fit([[0.0], [1.0]], ["a", "b"], ids=["x", "y"])
    found = what_if(clf, [[5.0]], add=([[5.0], [5.1]], ["c", "c"]))
    assert found.classes.tolist() == ["a", "b", "c"]
    assert found.after.argmax(axis=1).tolist() == [2]
    assert clf.memory_.entries.ids.tolist() == ["x", "y"]


def test_errors_name_what_cannot_be_tried(known):
    clf = known["distance"]
    with pytest.raises(InvalidInputError, match="there is no edit to try"):
        what_if(clf, QUERIES)
    with pytest.raises(InvalidInputError, match="3 is in both"):
        what_if(clf, QUERIES, forget=[2, 3], relabel={3: 1})
    with pytest.raises(UnknownEntryError, match="No entry has the id 99"):
        what_if(clf, QUERIES, forget=[99])
    with pytest.raises(InvalidInputError, match=r"`add` must be a pair \(X, y\)"):
        what_if(clf, QUERIES, add=[[1.0, 2.0]])
    with pytest.raises(InvalidInputError, match="every entry was forgotten"):
        what_if(clf, QUERIES, forget=np.arange(60))


def test_an_array_in_place_of_a_pair_is_refused_in_words():
    X, y = blobs(30)
    clf = AttnKNNClassifier(5, attention="distance").fit(X, y)
    with pytest.raises(InvalidInputError, match=r"`add` must be a pair \(X, y\).*ndarray of 2"):
        what_if(clf, X, add=X[:2])


def test_added_rows_may_have_all_metadata_of_add():
    X, y = blobs(30)
    clf = AttnKNNClassifier(5, attention="distance").fit(X, y, ids=np.arange(100, 130))
    metadata = {"ids": [1, 2], "sample_weight": [3.0, 0.5], "subjects": ["ann", "ann"]}
    tried = what_if(clf, X, add=AddedRows(X[:2], y[1:3], **metadata))
    assert tried.after.tobytes() == clf.add(X[:2], y[1:3], **metadata).predict_proba(X).tobytes()
