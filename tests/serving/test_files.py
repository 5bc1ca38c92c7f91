"""Uploaded files: parsed strictly, bounded, scored, and never written where a client says."""

from __future__ import annotations

import gzip
import io

import numpy as np
import pytest

from attnknn import AttnKNNClassifier
from attnknn.serving.errors import Refusal
from attnknn.serving.state import State
from attnknn.serving.uploads import MAX_FILES, Uploads

from .samples import client_of, flowers, table
from .test_labeling import send


def labeled(n=150, step=1):
    X, y = table()
    return X.assign(kind=y).iloc[:n:step].to_csv(index=False).encode()


def test_a_file_is_shown_as_the_model_reads_it(client):
    file = send(client, labeled(), label_column="kind")
    assert (file["n_rows"], file["has_labels"]) == (150, True)
    assert file["preview"][0] == {"sepal": 5.1, "petal": 1.4}
    rows = client.get(f"/api/files/{file['id']}/rows?offset=149&limit=10").json()
    assert (rows["total"], rows["labels"]) == (150, ["virginica"])
    assert [one["id"] for one in client.get("/api/files").json()["files"]] == [file["id"]]
    assert client.delete(f"/api/files/{file['id']}").json()["files"] == []
    assert client.get(f"/api/files/{file['id']}/rows").status_code == 404


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "jsonl", "parquet"])
def test_all_formats_of_the_command_line_are_read(client, ending):
    X, _ = table()
    if ending == "parquet":
        file = io.BytesIO()
        X.to_parquet(file)
        content = file.getvalue()
    elif ending == "jsonl":
        content = X.to_json(orient="records", lines=True).encode()
    else:
        content = X.to_csv(index=False).encode()
        content = gzip.compress(content) if ending.endswith("gz") else content
    file = send(client, content, f"My Rows.{ending.upper()}")
    assert file["n_rows"] == 150
    body = {"file": file["id"]}
    found = client.post("/api/predict", json=body).json()["predictions"]
    assert [one["label"] for one in found] == flowers().predict(X).tolist()
    body["rows_of_file"] = [0, 149]
    assert len(client.post("/api/explain", json=body).json()["evidence"]) == 2
    assert client.post("/api/predict", json={**body, "rows_of_file": [150]}).status_code == 400


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("rows.exe", b"x", "must end with"),
        ("rows.csv", b"", "empty"),
        ("rows.csv", b"sepal\n1\n", "missing: 'petal'"),
        ("rows.csv", b"sepal,petal\n1,2,3\n", "line 2 has 3"),
        ("rows.csv", b"sepal,petal\n1,wide\n", "line 2 has 'wide'"),
        ("rows.csv", b"\xff\xfe\x00", "UTF-8"),
        ("rows.csv.gz", b"no gzip", "rows.csv.gz is not a valid .gz file"),
        ("rows.parquet", b"no parquet", "rows.parquet is not a valid Parquet file"),
        ("rows.npz", b"no zip", "rows.npz"),
        ("../../etc/rows.csv", b"sepal\n1\n", "../../etc/rows.csv must have"),
    ],
)
def test_files_that_cannot_be_read_are_explained(client, name, content, words, tmp_path):
    answer = client.post("/api/files", params={"name": name}, content=content)
    assert answer.status_code == 400
    message = answer.json()["error"]["message"]
    assert words in message
    assert "/tmp/" not in message


def test_pickled_objects_are_not_loaded(rng):
    clf = AttnKNNClassifier(attention="distance").fit(rng.normal(size=(20, 3)), [0, 1] * 10)
    file = io.BytesIO()
    np.savez(file, X=np.array([[1, "a", None]], dtype=object))
    with client_of(clf) as client:
        answer = client.post("/api/files?name=x.npz", content=file.getvalue())
        assert answer.status_code == 400
        file = io.BytesIO()
        np.savez(file, X=np.zeros((4, 3)), y=np.zeros(4, int))
        found = send(client, file.getvalue(), "x.npz")
        assert found["preview"][0] == [0.0, 0.0, 0.0]


def test_a_bomb_is_refused(client, monkeypatch):
    monkeypatch.setattr("attnknn.serving.uploads.MAX_ROWS", 100)
    answer = client.post("/api/files?name=x.csv", content=labeled())
    assert answer.status_code == 400
    assert "at most 100 rows" in answer.text
    with client_of(flowers(), max_upload=1000) as small:
        rows = b"sepal,petal\n" + b"1.0,2.0\n" * 200_000
        answer = small.post("/api/files?name=x.csv.gz", content=gzip.compress(rows)[:1000])
        assert answer.status_code in (400, 413)


def test_a_file_is_scored_with_intervals(client, fitted):
    X, y = table()
    file = send(client, labeled(), label_column="kind")
    found = client.post("/api/evaluate", json={"file": file["id"]}).json()
    right = (fitted.predict(X) == y).mean()
    score = found["scores"]["accuracy"]
    assert score["value"] == pytest.approx(right)
    assert score["low"] <= score["value"] <= score["high"]
    assert set(found["scores"]) == {"accuracy", "macro_f1", "log_loss", "brier", "ece"}
    assert np.sum(found["confusion"]) == 150
    assert sum(one["count"] for one in found["reliability"]) == 150
    assert found["risk_coverage"][-1]["coverage"] == 1
    body = {"file": file["id"], "true": "virginica", "predicted": "versicolor"}
    cell = client.post("/api/evaluate/rows", json=body).json()
    assert cell["total"] == found["confusion"][2][1]
    assert all(row["label"] == "virginica" for row in cell["rows"])
    sure = client.post(
        "/api/evaluate/rows", json={"file": file["id"], "min_confidence": 0.9}
    ).json()
    assert all(row["confidence"] >= 0.9 for row in sure["rows"])


def test_a_file_without_labels_has_no_scores(client):
    file = send(client, table()[0].to_csv(index=False).encode())
    answer = client.post("/api/evaluate", json={"file": file["id"]})
    assert answer.status_code == 400
    assert "must have labels" in answer.text


def test_a_stream_is_watched_in_parts(client):
    file = send(client, labeled())
    body = {"file": file["id"], "rows_of_file": [0, 60, 120]}
    first = client.post("/api/monitor", json=body).json()
    assert (first["n_rows"], first["alarm"], len(first["track"])) == (3, False, 3)
    far = [{"sepal": 50.0 + n, "petal": 50.0} for n in range(100)]
    alarmed = client.post("/api/monitor", json={"rows": far, "labels": ["setosa"] * 100}).json()
    assert (alarmed["alarm"], alarmed["n_rows"], alarmed["n_labels"]) == (True, 103, 100)
    assert client.get("/api/monitor").json()["alarm"] is True
    assert client.post("/api/monitor/restart").json()["n_rows"] == 0
    assert client.post("/api/monitor", json={"rows": far, "labels": ["a"]}).status_code == 400


def test_old_files_make_room(fitted, monkeypatch):
    uploads, state = Uploads(10_000_000), State.of(fitted, 0, "", {})
    names = [uploads.add(state, "x.csv", labeled(6), None).id for _ in range(MAX_FILES + 1)]
    assert len(uploads.list()) == MAX_FILES
    with pytest.raises(Refusal):
        uploads.find(names[0])
    monkeypatch.setattr("attnknn.serving.uploads.MAX_AGE", -1.0)
    uploads.forget_old()
    assert uploads.list() == []


def test_texts_are_uploaded_line_by_line():
    texts = ["pay my bill", "send the bill", "lost my card", "card was stolen"] * 3
    clf = AttnKNNClassifier(encoder="tfidf", attention="distance")
    clf.fit(texts, ["bill", "bill", "card", "card"] * 3)
    with client_of(clf) as client:
        file = send(client, b"where is my card?\nthe bill\n", "questions.txt")
        assert file["preview"] == ["where is my card?", "the bill"]
        found = client.post("/api/predict", json={"file": file["id"]}).json()["predictions"]
        assert [one["label"] for one in found] == ["card", "bill"]
