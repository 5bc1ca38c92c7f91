"""Edits over HTTP: one at a time, durable where there is a folder, named, undone."""

from __future__ import annotations

import threading

import pytest

from attnknn import AttnKNNClassifier, open_for_editing
from attnknn.storage.editor import list_edits

from .samples import FAR, ROW, client_of, flowers


@pytest.fixture(params=["memory", "folder"])
def either(request, folder):
    with client_of(flowers() if request.param == "memory" else folder) as client:
        yield client


def label_of(client, name):
    (entry,) = client.post("/api/entries/lookup", json={"ids": [name]}).json()["entries"]
    return entry["label"]


def edit(client, what, **body):
    answer = client.post(f"/api/edits/{what}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_edit_is_made_logged_and_undone(either):
    done = edit(either, "relabel", entries=[{"id": 3, "label": "setosa"}], by="ann")
    assert (done["version"], done["is_changed"]) == (1, True)
    assert label_of(either, 3) == "setosa"
    line = either.get("/api/log").json()["edits"][0]
    assert (line["by"], line["kind"], line["can_undo"]) == ("ann", "edit", True)
    (change,) = either.get("/api/log/1").json()["changes"]
    assert (change["before"]["label"], change["after"]["label"]) == ("virginica", "setosa")
    assert change["payload"] == "flower 3"
    assert edit(either, "undo")["version"] == 2
    assert label_of(either, 3) == "virginica"
    assert either.post("/api/edits/undo", json={}).status_code == 409


def test_an_edit_of_nothing_is_no_edit(either):
    done = edit(either, "relabel", entries=[{"id": 0, "label": "setosa"}])
    assert (done["version"], done["is_changed"]) == (0, False)


def test_several_edits_are_one(either):
    body = {"relabel": [{"id": 3, "label": "setosa"}], "forget": [1, 2], "message": "Cleaned"}
    done = edit(either, "batch", **body)
    assert (done["version"], done["n_entries"], done["message"]) == (1, 148, "Cleaned")
    edit(either, "undo")
    assert either.get("/api/version").json()["n_entries"] == 150


def test_half_of_an_edit_is_never_made(either):
    body = {"relabel": [{"id": 3, "label": "setosa"}], "forget": [99999]}
    assert either.post("/api/edits/batch", json=body).status_code == 404
    assert label_of(either, 3) == "virginica"
    assert either.get("/api/version").json()["version"] == 0


@pytest.mark.parametrize(
    ("what", "body", "status", "words"),
    [
        ("relabel", {"entries": [{"id": 3, "label": "setoza"}]}, 400, "Did you mean 'setosa'"),
        ("relabel", {"entries": [{"id": 3, "label": 7}], "new_classes": True}, 400, "texts"),
        ("relabel", {"entries": [{"id": "x", "label": "setosa"}]}, 404, "'x'"),
        ("relabel", {"entries": []}, 422, "entries"),
        ("forget", {"ids": list(range(150))}, 400, "at least one entry"),
        ("batch", {}, 400, "no edit to make"),
        ("batch", {"forget": [1], "relabel": [{"id": 1, "label": "setosa"}]}, 400, "in both"),
        ("rollback", {"to": 7}, 400, "no edit 7"),
        ("add", {"rows": [ROW]}, 400, "Give `labels`"),
        ("add", {"rows": [ROW], "labels": ["setosa", "setosa"]}, 400, "one label a row"),
        ("add", {"rows": [ROW], "labels": ["setosa"], "ids": [3]}, 400, "3 is in the memory"),
        ("relabel", {"entries": [{"id": 3, "label": "setosa"}], "by": " "}, 400, "must be a name"),
        ("relabel", {"entries": [{"id": 2**70, "label": "setosa"}]}, 422, "entries"),
    ],
)
def test_edits_that_cannot_be_made_are_explained(client, what, body, status, words):
    answer = client.post(f"/api/edits/{what}", json=body)
    assert answer.status_code == status, answer.text
    assert words in answer.json()["error"]["message"]
    assert client.get("/api/version").json()["version"] == 0


def test_added_rows_vote_at_once_and_may_bring_a_class(either):
    body = {"rows": [FAR], "labels": ["giant"], "payloads": ["big one"]}
    done = edit(either, "add", **body)
    assert done["ids"] == [150]
    assert "giant" in [one["label"] for one in either.get("/api/model").json()["classes"]]
    found = either.post("/api/explain", json={"rows": [FAR], "n_neighbors": 3}).json()
    assert found["version"] == 1
    assert found["evidence"][0]["neighbors"][0]["payload"] == "big one"


def test_snapshots_are_states_to_return_to(either):
    edit(either, "relabel", entries=[{"id": 3, "label": "setosa"}])
    taken = either.post("/api/snapshots", json={"name": "clean"}).json()
    assert (taken["name"], taken["edit"], taken["by"]) == ("clean", 1, "tester")
    assert either.post("/api/snapshots", json={"name": "clean"}).status_code == 400
    edit(either, "forget", ids=[0, 1])
    edit(either, "rollback", to="clean", by="bob")
    assert either.get("/api/version").json()["n_entries"] == 150
    assert label_of(either, 3) == "setosa"
    assert [one["name"] for one in either.get("/api/snapshots").json()["snapshots"]] == ["clean"]
    edit(either, "undo")
    assert either.get("/api/version").json()["n_entries"] == 148


def test_an_erasure_gives_a_receipt_and_cannot_be_undone(either):
    answer = either.post("/api/erase", json={"subject": "ann"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["n_entries"] == 147
    assert either.post("/api/edits/undo", json={}).status_code == 409
    found = either.post("/api/entries/lookup", json={"ids": [0, 50, 100]}).json()
    assert found["entries"] == []
    if answer.json()["receipt"]:
        assert answer.json()["receipt"]["subject"] == "ann"
    assert either.post("/api/erase", json={"subject": "nobody at all"}).status_code == 404


def test_refit_keeps_the_entries(either):
    assert edit(either, "refit")["message"].startswith("Refitted")
    assert either.get("/api/version").json()["n_entries"] == 150


def test_an_edit_of_what_changed_meanwhile_is_refused(either):
    edit(either, "relabel", entries=[{"id": 3, "label": "setosa"}], by="ann")
    late = {"entries": [{"id": 3, "label": "versicolor"}], "expected_version": 0}
    refused = either.post("/api/edits/relabel", json=late)
    assert refused.status_code == 409
    assert "changed by edit 1" in refused.json()["error"]["message"]
    edit(either, "relabel", entries=[{"id": 4, "label": "versicolor"}], expected_version=0)
    stale = either.post("/api/edits/undo", json={"expected_version": 1})
    assert stale.status_code == 409


def test_edits_are_on_the_disk_when_they_are_acknowledged(durable, folder):
    edit(durable, "relabel", entries=[{"id": 3, "label": "setosa"}], by="ann")
    stored = AttnKNNClassifier.load(folder)
    position = stored.memory_.positions_of([3])
    assert stored.classes_[stored.memory_.entries.labels[position]].tolist() == ["setosa"]
    assert [line.by for line in list_edits(folder)] == ["tester", "ann"]


def test_many_edits_at_once_are_all_made(either):
    def relabel(first):
        for name in range(first, 40, 4):
            edit(either, "relabel", entries=[{"id": name, "label": "virginica"}], by=f"t{first}")

    threads = [threading.Thread(target=relabel, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log = either.get("/api/log?limit=100").json()
    assert log["version"] == 39  # entry 3 had the label
    assert {line["by"] for line in log["edits"]} == {"tester", "t0", "t1", "t2", "t3"}


def test_a_read_only_server_edits_nothing(folder):
    with client_of(folder, is_read_only=True) as client:
        assert client.get("/api/model").json()["is_editable"] is False
        answer = client.post("/api/edits/forget", json={"ids": [1]})
        assert answer.status_code == 403


def test_edits_in_python_are_noticed():
    clf = flowers()
    with client_of(clf) as client:
        edit(client, "relabel", entries=[{"id": 3, "label": "setosa"}])
        clf.forget([0])
        edit(client, "forget", ids=[1])
        messages = [line["message"] for line in client.get("/api/log").json()["edits"]]
        assert len(clf.memory_) == 148
        assert messages[:2] == ["Removed 1 entry", "Edited in Python"]


def test_the_folder_is_free_for_others_after_a_pause(durable, folder):
    edit(durable, "forget", ids=[1])
    with open_for_editing(folder, by="cli", wait=10.0) as model:
        model.forget([2])
    done = edit(durable, "forget", ids=[3])
    assert (done["version"], done["n_entries"]) == (3, 147)


def test_entries_name_the_edit_that_added_them(either):
    edit(either, "forget", ids=[1])
    edit(either, "add", rows=[ROW], labels=["setosa"])
    found = either.post("/api/entries/lookup", json={"ids": [0, 150]}).json()["entries"]
    assert [entry["added_by_edit"] for entry in found] == [0, 2]
