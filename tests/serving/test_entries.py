"""Entries over HTTP: lists, leave-one-out evidence, and pictures from allowed folders only."""

from __future__ import annotations

import base64
import io
from urllib.parse import quote

import numpy as np
import pytest

from attnknn import AttnKNNClassifier
from attnknn.errors import InvalidInputError
from attnknn.serving.rows import open_image

from .samples import client_of

Pillow = pytest.importorskip("PIL.Image")


def test_the_model_describes_itself(client, fitted):
    found = client.get("/api/model").json()
    assert found["kind"] == "table"
    assert [one["name"] for one in found["columns"]] == ["sepal", "petal"]
    sepal = found["columns"][0]
    assert sepal["low"] < sepal["median"] < sepal["high"]
    assert sepal["median"] == pytest.approx(5.8, abs=0.01)
    assert sum(one["count"] for one in found["classes"]) == 150
    assert (found["is_editable"], found["is_durable"], found["role"]) == (True, False, "admin")
    assert str(fitted.fit_report_) == found["fit_report"]


def test_columns_of_mixed_tables_are_described():
    import pandas as pd

    rng = np.random.default_rng(0)
    jobs = ["cook", "nurse", "clerk"] * 20
    X = pd.DataFrame({"age": rng.normal(40, 9, 60), "job": jobs})
    clf = AttnKNNClassifier(encoder="tabular", attention="distance").fit(X, X["age"] > 40)
    with client_of(clf) as client:
        age, job = client.get("/api/model").json()["columns"]
        assert (age["kind"], job["kind"]) == ("number", "category")
        assert sorted(job["values"]) == ["clerk", "cook", "nurse"]
        row = {"age": "44", "job": "pilot"}
        assert client.post("/api/predict", json={"rows": [row]}).status_code == 200


def test_entries_are_listed_by_label_and_text(client):
    page = client.get("/api/entries?offset=1&limit=2").json()
    assert (page["total"], [one["id"] for one in page["entries"]]) == (150, [1, 2])
    assert client.get("/api/entries?label=setosa").json()["total"] == 49
    found = client.get("/api/entries", params={"query": "FLOWER 14"}).json()
    assert found["total"] == 11
    assert client.get("/api/entries?label=nothing").json()["total"] == 0
    assert client.get("/api/entries?limit=0").status_code == 422


def test_an_entry_is_explained_without_itself(client, fitted):
    found = client.get("/api/entries/3/evidence?n_neighbors=5").json()
    assert found["entry"]["label"] == "virginica"
    assert found["evidence"]["label"] == "setosa"
    assert 3 not in [one["id"] for one in found["evidence"]["neighbors"]]
    expected = fitted.leave_one_out_proba()[3]
    assert np.allclose(found["evidence"]["probabilities"], expected, atol=1e-9)
    for name in ("999", "x", "-1"):
        assert client.get(f"/api/entries/{name}/evidence").status_code == 404


def test_pictures_come_from_allowed_folders_only(rng, tmp_path):
    allowed = tmp_path / "pictures"
    (allowed / "cat").mkdir(parents=True)
    Pillow.new("RGB", (4, 4), "red").save(allowed / "cat" / "1.png")
    Pillow.new("RGB", (4, 4), "red").save(tmp_path / "secret.png")
    (allowed / "text.png").write_text("<script>alert(1)</script>")
    (allowed / "link.png").symlink_to(tmp_path / "secret.png")
    payloads = ["cat/1.png", "../secret.png", str(tmp_path / "secret.png"), "text.png"]
    payloads += ["link.png", "cat", "a\0.png", "x" * 5000 + ".png", None, {"file": "cat/1.png"}]
    clf = AttnKNNClassifier(attention="distance").fit(
        rng.normal(size=(10, 2)), [0, 1] * 5, payloads=payloads
    )
    with client_of(clf, image_folders=(allowed,)) as client:
        shown = client.get("/api/entries").json()["entries"]
        assert [one["image"] for one in shown] == [True, False, False, True] + [False] * 6
        answer = client.get("/api/entries/0/image")
        assert answer.headers["content-type"] == "image/png"
        assert answer.content.startswith(b"\x89PNG")
        for name in range(1, 10):
            assert client.get(f"/api/entries/{name}/image").status_code == 404
    with client_of(clf) as client:
        assert client.get("/api/entries/0/image").status_code == 404


def test_images_in_requests_are_png_or_jpeg():
    def encoded(content):
        return base64.b64encode(content).decode()

    file = io.BytesIO()
    Pillow.new("RGBA", (8, 6), "white").save(file, format="PNG")
    image = open_image(encoded(file.getvalue()), 0)
    assert (image.size, image.mode) == ((8, 6), "RGB")
    assert open_image("data:image/png;base64," + encoded(file.getvalue()), 0).size == (8, 6)
    for text in ("no base64!", encoded(b"GIF89a..."), "data:,", encoded(file.getvalue()[:40])):
        with pytest.raises(InvalidInputError, match="row 3 is not"):
            open_image(text, 3)
    huge = file.getvalue()[:16] + b"\x00\x00\xff\xff" * 2 + file.getvalue()[24:]
    with pytest.raises(InvalidInputError):
        open_image(encoded(huge), 0)


def test_ids_may_hold_anything(rng):
    ids = ["a/b", "</title>", "=1+1", "../..", "ü ?#%", "evidence"]
    clf = AttnKNNClassifier(attention="distance").fit(rng.normal(size=(6, 2)), [0, 1] * 3, ids=ids)
    with client_of(clf) as client:
        for name in ids:
            answer = client.get(f"/api/entries/{quote(name, safe='')}/evidence")
            assert answer.status_code == 200, name
            assert answer.json()["entry"]["id"] == name
