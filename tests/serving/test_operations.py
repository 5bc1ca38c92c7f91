"""Health, metrics, the page of routes, static files, notebooks, and edits by others."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import pytest

from attnknn import AttnKNNClassifier, open_for_editing
from attnknn.errors import InvalidInputError, InvalidSettingError, NotFittedYetError
from attnknn.serving import app
from attnknn.serving.routes import operations

from .samples import ROW, client_of, flowers


def wait_for(client, is_there):
    for _ in range(100):
        found = client.get("/api/version").json()
        if is_there(found):
            return found
        time.sleep(0.1)
    raise AssertionError(f"It was not noticed: {found}")


def test_edits_of_other_processes_are_noticed(durable, folder):
    before = durable.get("/api/version").json()
    with open_for_editing(folder, by="cli") as model:
        model.forget([0, 1])
    found = wait_for(durable, lambda version: version["version"] == 1)
    assert found["n_entries"] == 148
    assert durable.get("/api/log").json()["edits"][0]["by"] == "cli"
    AttnKNNClassifier(attention="distance").fit([[0.0, 1.0], [4.0, 5.0]], [0, 1]).save(
        folder, discard_history=True
    )
    replaced = wait_for(durable, lambda version: version["n_entries"] == 2)
    assert replaced["model"] != before["model"]
    assert replaced["version"] == 0
    assert (
        durable.post("/api/edits/relabel", json={"entries": [{"id": 0, "label": 1}]}).json()[
            "version"
        ]
        == 1
    )


def test_a_model_that_vanishes_is_still_answered_from(durable, folder):
    folder.rename(folder.with_name("elsewhere"))
    assert durable.post("/api/predict", json={"rows": [ROW]}).status_code == 200
    answer = durable.post("/api/edits/forget", json={"ids": [1]})
    assert answer.status_code == 503
    folder.with_name("elsewhere").rename(folder)
    assert durable.post("/api/edits/forget", json={"ids": [1]}).status_code == 200


def test_health_and_metrics(client):
    assert client.get("/healthz").json()["status"] == "ok"
    assert client.get("/readyz").status_code == 200
    client.post("/api/predict", json={"rows": [ROW]})
    client.post("/api/edits/forget", json={"ids": [1]})
    client.get("/api/version", headers={"host": "evil.example"})
    text = client.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines["attnknn_entries"] == "149"
    assert lines["attnknn_version"] == "1"
    assert lines['attnknn_edits_total{kind="forget",outcome="done"}'] == "1"
    assert lines['attnknn_refused_total{reason="HostError"}'] == "1"
    assert lines["attnknn_batch_rows_count"] == "1"
    route = 'route="/api/predict",method="POST",status="200"'
    assert lines[f"attnknn_requests_total{{{route}}}"] == "1"


def test_every_route_is_described_without_scripts(client):
    schema = client.get("/api/openapi.json").json()
    page = client.get("/docs").text
    for path in schema["paths"]:
        assert path in page
    assert "<script" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert client.get("/docs.css").headers["content-type"].startswith("text/css")


def test_files_of_the_page_are_served_and_nothing_else(client, monkeypatch, tmp_path):
    page = tmp_path / "page"
    (page / "assets").mkdir(parents=True)
    (page / "index.html").write_text("<!doctype html>page")
    (page / "assets" / "explorer.js").write_text("export {}")
    (tmp_path / "secret.txt").write_text("secret")
    monkeypatch.setattr(operations, "PAGE", page)
    assert client.get("/").text == "<!doctype html>page"
    script = client.get("/assets/explorer.js")
    assert script.headers["content-type"].startswith("text/javascript")
    etag = script.headers["etag"]
    assert client.get("/assets/explorer.js", headers={"if-none-match": etag}).status_code == 304
    for path in ("/../secret.txt", "/%2e%2e/secret.txt", "/assets/../../secret.txt", "/none.js"):
        answer = client.get(path)
        assert answer.status_code == 404, path
        assert "secret" not in answer.text


def test_a_server_without_a_page_says_so(client, monkeypatch, tmp_path):
    monkeypatch.setattr(operations, "PAGE", tmp_path)
    assert "no explorer page" in client.get("/").text


def test_a_notebook_shows_the_page_of_its_classifier():
    clf = flowers()
    with clf.explore(by="ann", height=500) as page:
        html = page._repr_html_()
        assert f'src="{page.url}"' in html
        assert 'height="500"' in html
        with urllib.request.urlopen(page.url) as answer:
            policy = answer.headers["content-security-policy"]
        assert "frame-ancestors 'self' http://localhost:* http://127.0.0.1:*" in policy
        with urllib.request.urlopen(page.url + "api/version") as answer:
            assert answer.status == 200
    page.close()  # twice is allowed
    with pytest.raises(NotFittedYetError):
        AttnKNNClassifier().explore()


def test_settings_are_checked(fitted, tmp_path):
    for settings in ({"by": " "}, {"rate": 0}, {"max_body": 0}, {"image_folders": (Path("no"),)}):
        with pytest.raises(InvalidSettingError):
            app(fitted, **settings)
    with pytest.raises(InvalidInputError, match="must be a model folder or a classifier"):
        app(3)
    with pytest.raises(NotFittedYetError):
        app(AttnKNNClassifier())


def test_a_full_queue_says_when_to_come_back(fitted):
    with client_of(fitted) as client:
        service = client.app.service
        service._n_asked = 64
        answer = client.post("/api/explain", json={"rows": [ROW]})
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        service._n_asked = 0
        service._n_edits = 64
        assert client.post("/api/edits/undo", json={}).status_code == 503
