"""The records between the stages."""

from __future__ import annotations

import json

import numpy as np
import pytest
from strategies import batch, blobs

from attnknn import AttnKNNClassifier
from attnknn.records import Neighbors


def evidence():
    X, y = blobs(30)
    names = np.array(["ape", "bee", "cat"])[y]
    clf = AttnKNNClassifier(8, attention="distance").fit(X, names, payloads=[f"p{i}" for i in y])
    return clf.explain(X[:1])[0]


def test_neighbors_are_cut_to_the_nearest():
    found = batch(k=6).neighbors
    cut = found.nearest(2)
    assert cut.distances.tolist() == found.distances[:, :2].tolist()
    assert found.nearest(99) is found
    assert len(found.rows(slice(0, 3))) == 3


def test_records_cannot_be_changed():
    found = Neighbors(*(np.zeros((1, 1)),) * 4)
    with pytest.raises(AttributeError):
        found.labels = np.ones((1, 1))


def test_evidence_prints_the_answer_its_voters_and_the_prior():
    text = str(evidence())
    assert text.startswith(f"{evidence().label}  (probabilities: ")
    assert "3 more neighbors" in text
    assert "the prior (class frequencies)" in text
    assert text.count("#") == 5


def test_what_the_table_shows_is_all_of_the_say():
    shown = evidence().table(n_neighbors=100).splitlines()[2:]
    assert sum(float(line.split()[0]) for line in shown) == pytest.approx(1, abs=0.005)


def test_voters_come_with_the_most_say_first():
    assert (np.diff(evidence().weights) <= 0).all()


def test_evidence_becomes_json_and_says_the_same():
    record = json.loads(json.dumps(evidence().to_dict()))
    assert record["label"] == str(evidence().label)
    assert sum(record["weights"]) + record["prior_weight"] == pytest.approx(1)
    assert record["probabilities"][record["label"]] == pytest.approx(evidence().probability)
    assert len(record["payloads"]) == len(record["ids"]) == 8
