"""Answers over HTTP are those of the classifier."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from attnknn import AttnKNNClassifier
from attnknn.insight import what_if

from .samples import FAR, ROW, client_of, flowers, table


def test_predictions_are_those_of_the_classifier(client, fitted):
    X, _ = table()
    answer = client.post("/api/predict", json={"rows": X.head(80).to_dict("records")}).json()
    assert answer["version"] == 0
    assert answer["classes"] == fitted.classes_.tolist()
    found = [row["probabilities"] for row in answer["predictions"]]
    assert np.allclose(found, fitted.predict_proba(X.head(80)), atol=1e-8)
    labels = [row["label"] for row in answer["predictions"]]
    assert labels == fitted.predict(X.head(80)).tolist()


def test_probabilities_are_left_out_if_nobody_wants_them(client):
    body = {"rows": [ROW], "probabilities": False}
    (found,) = client.post("/api/predict", json=body).json()["predictions"]
    assert found["label"] == "setosa"
    assert found["probabilities"] is None


def test_evidence_adds_up_to_the_answer(client):
    body = {"rows": [ROW, FAR], "n_neighbors": 4}
    for found in client.post("/api/explain", json=body).json()["evidence"]:
        assert len(found["neighbors"]) == 4
        weight = sum(one["weight"] for one in found["neighbors"])
        total = weight + found["others"]["weight"] + found["prior"]["weight"]
        assert total == pytest.approx(1, abs=1e-9)
        assert found["neighbors"][0]["payload"].startswith("flower ")


def test_sets_and_decisions_are_those_of_the_classifier(client, fitted):
    X, _ = table()
    rows = X.iloc[[0, 77]].to_dict("records")
    sets = client.post("/api/sets", json={"rows": rows, "coverage": 0.95}).json()["sets"]
    assert sets == fitted.predict_set(X.iloc[[0, 77]], 0.95).labels()
    body = {"rows": [*rows, {"sepal": 50.0, "petal": 60.0}], "novelty_level": 0.05}
    found = client.post("/api/decide", json=body).json()["decisions"]
    assert [one["is_answered"] for one in found] == [True, True, False]
    assert found[-1]["label"] is None
    assert found[-1]["reason"]


def test_one_question_asks_everything_from_one_state(client):
    (found,) = client.post("/api/ask", json={"rows": [ROW]}).json()["answers"]
    assert found["evidence"]["label"] == "setosa"
    assert "setosa" in found["set"]
    assert found["decision"]["label"] == "setosa"


def test_what_if_is_the_edit_that_is_made_later(client, fitted):
    X, _ = table()
    rows = X.iloc[::10].to_dict("records")
    body = {"rows": rows, "forget": [5, 6], "relabel": [{"id": 3, "label": "setosa"}]}
    tried = client.post("/api/what-if", json=body).json()
    expected = what_if(fitted, X.iloc[::10], forget=[5, 6], relabel={3: "setosa"})
    assert tried["sentence"] == expected.sentence()
    client.post(
        "/api/edits/batch", json={"forget": body["forget"], "relabel": body["relabel"]}
    ).raise_for_status()
    after = client.post("/api/predict", json={"rows": rows}).json()
    assert after["version"] == 1
    for one in tried["rows"]:
        then = after["predictions"][one["row"]]["probabilities"]
        assert np.allclose(one["after"]["probabilities"], then, atol=1e-8)


def test_what_if_tries_rows_of_a_new_class(client):
    body = {"rows": [FAR], "add": [{"row": FAR, "label": "giant"}]}
    tried = client.post("/api/what-if", json=body).json()
    assert "giant" in tried["classes"]
    assert client.get("/api/version").json()["version"] == 0


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], "at least one row"),
        (["a text"], "must be an object of columns and values, row 0 is a string"),
        ([{"sepal": 1.0}], "missing: 'petal'"),
        ([ROW, {"sepal": "wide", "petal": 1}], "row 1 has 'wide'"),
        ([{"sepal": None, "petal": 1.0}], "sepal"),
    ],
)
def test_rows_that_cannot_be_used_are_named(client, rows, words):
    answer = client.post("/api/predict", json={"rows": rows})
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]
    assert client.post("/api/explain", json={"rows": rows}).status_code == 400


def test_requests_of_another_form_are_refused(client):
    for body in ({}, {"rows": [ROW], "file": "x"}, {"rows": [ROW], "other": 1}, [], {"rows": 1}):
        answer = client.post("/api/predict", json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["error"]["type"] == "InvalidRequestError"
    assert client.post("/api/predict", content=b'{"rows": [[1e999]]}').status_code == 422
    assert client.post("/api/sets", json={"rows": [ROW], "coverage": 1.5}).status_code == 422


def test_texts_and_vectors_are_rows_too(rng):
    texts = ["pay my bill", "send the bill", "lost my card", "card was stolen"] * 3
    labels = ["bill", "bill", "card", "card"] * 3
    clf = AttnKNNClassifier(encoder="tfidf", attention="distance").fit(texts, labels)
    with client_of(clf) as client:
        answer = client.post("/api/predict", json={"rows": ["where is the bill"]}).json()
        assert answer["predictions"][0]["label"] == "bill"
        assert client.post("/api/predict", json={"rows": [" "]}).status_code == 400
        assert client.get("/api/model").json()["kind"] == "texts"
    X = rng.normal(size=(30, 3))
    clf = AttnKNNClassifier(attention="distance").fit(X, X[:, 0] > 0)
    with client_of(clf) as client:
        answer = client.post("/api/predict", json={"rows": X[:2].tolist()}).json()
        assert [one["label"] for one in answer["predictions"]] == clf.predict(X[:2]).tolist()
        refused = client.post("/api/predict", json={"rows": [[1.0, 2.0]]})
        assert "must have 3 numbers, row 0 has 2" in refused.text


def test_questions_asked_at_once_get_their_own_answers():
    X, _ = table()
    rows = X.to_dict("records")
    expected = flowers().predict(X).tolist()
    with client_of(flowers()) as client:
        found: dict[int, str] = {}

        def ask(first: int) -> None:
            for row in range(first, len(rows), 8):
                answer = client.post("/api/predict", json={"rows": [rows[row]]}).json()
                found[row] = answer["predictions"][0]["label"]

        threads = [threading.Thread(target=ask, args=(first,)) for first in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [found[row] for row in range(len(rows))] == expected
