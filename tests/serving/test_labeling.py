"""The audit as a queue, kept labels, rows to label next, and the map."""

from __future__ import annotations

import csv
import io
import json
import time

import numpy as np
import pytest

from attnknn.insight import audit
from attnknn.serving.kept_labels import NOTE, keep

from .samples import ROW, client_of, flowers, table
from .test_edits import edit, either  # noqa: F401  (a fixture)


def send(client, content, name="rows.csv", **options):
    options = {"name": name, **options}
    answer = client.post("/api/files", params=options, content=content)
    assert answer.status_code == 200, answer.text
    return answer.json()


def mapped(client, **options):
    for _ in range(600):
        answer = client.get("/api/map", params=options)
        if answer.status_code == 200:
            return answer.json()
        assert answer.status_code == 202
        assert 0 <= answer.json()["progress"] <= 1
        time.sleep(0.02)
    raise AssertionError("The map was not computed.")


def test_the_audit_is_that_of_the_library(client, fitted):
    found, expected = client.get("/api/audit?limit=1000").json(), audit(fitted)
    assert [one["id"] for one in found["entries"]] == expected.ranking.tolist()
    assert found["expected_wrong"] == pytest.approx(expected.expected_wrong)
    worst = found["entries"][0]
    assert (worst["id"], worst["suggested"]) == (3, "setosa")
    assert worst["p_wrong"] > 0.5
    neighbors = client.post("/api/explain", json={"rows": [ROW]}).json()["evidence"][0]["neighbors"]
    assert all(one["p_wrong"] is not None for one in neighbors)


def test_a_kept_label_leaves_the_audit_until_it_changes(either):  # noqa: F811
    before = either.get("/api/audit").json()
    done = edit(either, "keep", ids=[3], by="ann")
    assert (done["edit"], done["message"]) == (1, "Kept the label of 1 entry")
    after = either.get("/api/audit").json()
    assert after["entries"][0]["id"] != 3
    assert after["expected_wrong"] < before["expected_wrong"]
    assert after["n_kept"] == 1
    assert either.get("/api/audit?kept=true").json()["entries"][0]["kept"] is True
    edit(either, "undo")
    assert either.get("/api/audit").json()["entries"][0]["id"] == 3
    edit(either, "batch", keep=[3], forget=[5])
    edit(either, "relabel", entries=[{"id": 3, "label": "versicolor"}])
    assert either.get("/api/audit").json()["n_kept"] == 0
    assert either.post("/api/edits/keep", json={"ids": [99999]}).status_code == 404


def test_kept_labels_are_stored_without_names(fitted):
    notes: dict[str, str] = {}
    keep(notes, fitted, [3, 4])
    assert len(json.loads(notes[NOTE])) == 2
    keep(notes, fitted, [4])
    assert len(json.loads(notes[NOTE])) == 2
    assert "virginica" not in notes[NOTE]


def test_the_audit_is_exported_for_reviewers(client):
    answer = client.get("/api/audit/export")
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert (rows[0]["id"], rows[0]["decision"]) == ("3", "")
    tasks = client.get("/api/audit/export?format=label-studio").json()
    assert len(tasks) == 150
    assert tasks[0]["predictions"]


def test_formulas_in_labels_are_texts_in_a_spreadsheet():
    clf = flowers()
    clf.relabel([7], "=1+1")
    with client_of(clf) as client:
        assert "'=1+1" in client.get("/api/audit/export").text


def test_rows_are_suggested_and_leave_the_pool_when_labeled(client):
    X, _ = table()
    file = send(client, X.iloc[::3].to_csv(index=False).encode())
    body = {"file": file["id"], "n": 3}
    found = client.post("/api/suggest", json=body).json()
    assert len(found["suggestions"]) == 3
    first = found["suggestions"][0]
    assert set(first["content"]) == {"sepal", "petal"}
    assert first["reasons"]["text"]
    assert max(first["prediction"]["probabilities"]) == first["prediction"]["confidence"]
    assert 0 <= found["expected_accuracy"] <= 1
    again = client.post("/api/suggest", json={**body, "labeled": [first["row"]]}).json()
    assert first["row"] not in [one["row"] for one in again["suggestions"]]
    for strategy in ("uncertainty", "diversity", "random"):
        assert client.post("/api/suggest", json={**body, "strategy": strategy}).status_code == 200
    assert client.post("/api/suggest", json={**body, "labeled": [50]}).status_code == 400
    everything = {**body, "labeled": list(range(50))}
    assert client.post("/api/suggest", json=everything).status_code == 400


def test_labels_of_a_file_are_added_row_by_row(client):
    X, _ = table()
    file = send(client, X.iloc[::3].to_csv(index=False).encode())
    body = {"file": file["id"], "rows_of_file": [4], "labels": ["setosa"]}
    done = client.post("/api/edits/add", json=body).json()
    assert done["ids"] == [150]
    (entry,) = client.post("/api/entries/lookup", json={"ids": [150]}).json()["entries"]
    assert "petal=" in entry["payload"]


def test_the_map_shows_every_entry_and_places_new_rows(client):
    found = mapped(client)
    assert found["n"] == len(found["ids"]) == len(found["x"]) == 150
    assert np.abs([*found["x"], *found["y"]]).max() <= 1
    assert found["color"]["classes"] == ["setosa", "versicolor", "virginica"]
    for color in ("error", "novelty", "age"):
        colored = mapped(client, color=color)["color"]
        assert colored["kind"] == "number"
        assert len(colored["values"]) == 150
    (place,) = client.post("/api/map/place", json={"rows": [ROW]}).json()["positions"]
    (answer,) = client.post("/api/ask", json={"rows": [ROW]}).json()["answers"]
    assert answer["position"] == place


def test_the_map_stays_when_labels_change_and_grows_with_new_rows(client):
    before = mapped(client)
    edit(client, "relabel", entries=[{"id": 3, "label": "setosa"}])
    edit(client, "forget", ids=[0])
    answer = client.get("/api/map")
    assert answer.status_code == 200
    assert answer.json()["version"] == 2
    assert answer.json()["x"] == before["x"][1:]
    edit(client, "add", rows=[ROW], labels=["setosa"])
    assert client.get("/api/map").status_code == 202
    assert mapped(client)["n"] == 150
