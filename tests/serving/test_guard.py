"""Who is answered: hosts, origins, tokens, roles, sizes and rates."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from attnknn.errors import InvalidSettingError
from attnknn.serving import app
from attnknn.serving.access import Tokens, create_token_file
from attnknn.serving.server import Server

from .samples import ROW, client_of

KEYS = {role: f"{role}-0123456789abcdef01234567" for role in ("reader", "editor", "admin")}
TOKENS = Tokens([f"{role} {role}-name {key}" for role, key in KEYS.items()])


@pytest.fixture(scope="module")
def guarded():
    from .samples import flowers

    with client_of(flowers(), tokens=TOKENS) as client:
        yield client


def bearer(role):
    return {"authorization": f"Bearer {KEYS[role]}"}


def test_every_answer_forbids_foreign_content(client):
    for path in ("/", "/api/model", "/docs", "/api/nothing", "/healthz"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'self'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in headers
        assert "access-control-allow-origin" not in headers


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "localhost.evil.io", "", "["]
)
def test_a_foreign_name_of_this_machine_is_refused(client, host):
    answer = client.get("/api/version", headers={"host": host})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:9", "[::1]:9", "10.1.2.3"]
)
def test_own_names_and_addresses_are_answered(client, host):
    assert client.get("/api/version", headers={"host": host}).status_code == 200


def test_the_operator_allows_names():
    from .samples import flowers

    with client_of(flowers(), hosts=("models.example",)) as client:
        assert client.get("/api/version", headers={"host": "Models.Example"}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://localhost.evil.io"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_pages_of_other_sites_may_not_ask(client, headers):
    for ask in (
        lambda **k: client.get("/api/version", **k),
        lambda **k: client.post("/api/edits/undo", json={}, **k),
    ):
        assert ask(headers=headers).status_code == 403
    assert client.get("/", headers={"sec-fetch-site": "cross-site"}).status_code == 200  # a link


def test_the_own_page_may_ask(client):
    headers = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert client.post("/api/predict", json={"rows": [ROW]}, headers=headers).status_code == 200


def test_without_a_token_nothing_of_the_model_is_readable(guarded):
    schema = guarded.get("/api/openapi.json").json()
    checked = 0
    for path, operations in schema["paths"].items():
        for method in operations:
            if path in ("/healthz", "/readyz"):
                continue
            address = path.replace("{entry_id}", "3").replace("{file_id}", "x")
            address = address.replace("{edit}", "1")
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": "Basic x"}):
                answer = guarded.request(method, address, headers=headers)
                assert answer.status_code == 401, (method, path)
                assert "flower" not in answer.text
            checked += 1
    assert checked > 30


def test_each_role_has_its_rights(guarded):
    entry = {"ids": [0]}
    for role, has_subject in (("reader", False), ("editor", False), ("admin", True)):
        (found,) = guarded.post("/api/entries/lookup", json=entry, headers=bearer(role)).json()[
            "entries"
        ]
        assert (found["subject"] is not None) == has_subject
        model = guarded.get("/api/model", headers=bearer(role)).json()
        assert (model["role"], model["by"]) == (role, f"{role}-name")
    relabel = {"entries": [{"id": 3, "label": "setosa"}], "by": "someone else"}
    assert (
        guarded.post("/api/edits/relabel", json=relabel, headers=bearer("reader")).status_code
        == 403
    )
    assert (
        guarded.post("/api/edits/relabel", json=relabel, headers=bearer("editor")).status_code
        == 200
    )
    log = guarded.get("/api/log", headers=bearer("reader")).json()["edits"]
    assert log[0]["by"] == "editor-name"  # a token names its author
    for path in ("/api/erase", "/api/edits/refit"):
        body = {"subject": "ann"} if path == "/api/erase" else {}
        assert guarded.post(path, json=body, headers=bearer("editor")).status_code == 403


def test_without_tokens_only_the_own_machine_is_answered(fitted):
    served = app(fitted)

    async def ask(address, headers=()):
        scope = {
            "type": "http", "method": "GET", "path": "/api/version", "query_string": b"",
            "headers": [(b"host", b"10.0.0.1"), *headers], "client": (address, 5), "root_path": "",
            "http_version": "1.1", "scheme": "http", "raw_path": b"/api/version",
        }  # fmt: skip
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            return {"type": "http.request", "body": b""}

        await served(scope, receive, send)
        return sent[0]["status"]

    async def ask_all():
        assert await ask("127.0.0.1") == 200
        assert await ask("::1") == 200
        assert await ask("10.0.0.7") == 403
        assert await ask("127.0.0.1", [(b"x-forwarded-for", b"8.8.8.8")]) == 403
        await served.service.stop()

    asyncio.run(ask_all())


def test_a_mounted_app_is_guarded_like_any_other(fitted):
    from starlette.applications import Starlette
    from starlette.routing import Mount
    from starlette.testclient import TestClient

    outer = Starlette(routes=[Mount("/below", app=app(fitted, tokens=TOKENS))])
    client = TestClient(outer, base_url="http://localhost")
    assert client.get("/below/api/version").status_code == 401
    assert client.get("/below/api/version", headers=bearer("reader")).status_code == 200
    assert client.get("/below/healthz").status_code == 200


def test_listening_beyond_the_machine_requires_tokens(fitted):
    with pytest.raises(InvalidSettingError, match="--token-file"):
        Server(fitted, host="0.0.0.0", port=0)


def test_too_many_requests_of_a_client_are_refused(fitted):
    with client_of(fitted, rate=1.0) as client:
        found = [client.get("/api/version").status_code for _ in range(5)]
        assert found[0] == 200
        assert found[-1] == 429
        answer = client.get("/api/version")
        assert int(answer.headers["retry-after"]) >= 1


def test_guesses_of_tokens_are_limited(fitted):
    with client_of(fitted, tokens=TOKENS, rate=2.0) as client:
        found = [client.get("/api/version").status_code for _ in range(10)]
        assert 429 in found


def test_large_requests_are_refused(fitted):
    with client_of(fitted, max_body=1000, max_upload=2000) as client:
        assert client.post("/api/predict", content=b" " * 1001).status_code == 413
        assert client.post("/api/predict", content=iter([b" " * 600] * 2)).status_code == 413
        assert client.post("/api/files?name=a.csv", content=b"x" * 1500).status_code == 400
        assert client.post("/api/files?name=a.csv", content=b"x" * 2001).status_code == 413


def test_a_request_that_never_ends_is_given_up(fitted):
    served = app(fitted, body_timeout=0.05)

    async def ask():
        scope = {
            "type": "http", "method": "POST", "path": "/api/predict", "query_string": b"",
            "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 5), "root_path": "",
            "http_version": "1.1", "scheme": "http", "raw_path": b"/api/predict",
        }  # fmt: skip
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            await asyncio.sleep(10)

        await served(scope, receive, send)
        await served.service.stop()
        return sent[0]["status"]

    assert asyncio.run(ask()) == 408


def test_tokens_are_never_logged_or_shown(guarded, caplog):
    with caplog.at_level(logging.DEBUG):
        good = guarded.get("/api/model", headers=bearer("admin"))
        bad = guarded.get("/api/model", headers={"authorization": f"Bearer {KEYS['admin']}x"})
        metrics = guarded.get("/metrics", headers=bearer("reader"))
    shown = good.text + bad.text + metrics.text + caplog.text
    assert not any(key in shown for key in KEYS.values())


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "at least one token"),
        (["# only a comment"], "at least one token"),
        (["king ann 0123456789abcdef01234567"], "one of reader, editor, admin"),
        (["reader 0123456789abcdef01234567"], "ROLE NAME TOKEN"),
        (["reader ann short"], "from 24 to 500"),
        (["reader a 0123456789abcdef01234567", "admin b 0123456789abcdef01234567"], "twice"),
    ],
)
def test_bad_token_files_are_explained_without_the_token(lines, words):
    with pytest.raises(InvalidSettingError, match=words) as caught:
        Tokens(lines)
    assert "0123456789abcdef" not in str(caught.value)


def test_a_created_token_file_is_secret_and_usable(tmp_path):
    path = tmp_path / "tokens"
    create_token_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    words = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    tokens = Tokens.read(path)
    assert [tokens.find(line[2]).role for line in words] == ["reader", "editor", "admin"]
    path.chmod(0o644)
    with pytest.warns(UserWarning, match="chmod 600"):
        Tokens.read(path)


def test_log_lines_hold_no_questions(fitted, capsys):
    import io

    from attnknn.serving.log import LOG, log_to

    stream, before = io.StringIO(), (LOG.handlers, LOG.propagate, LOG.level)
    uvicorn = logging.getLogger("uvicorn")
    kept = (uvicorn.handlers, uvicorn.propagate, uvicorn.level)
    log_to(stream, is_verbose=True)
    try:
        with client_of(fitted) as client:
            client.post("/api/predict?secret=1", json={"rows": [{"sepal": 5.123, "petal": 1}]})
    finally:
        LOG.handlers, LOG.propagate, LOG.level = before
        uvicorn.handlers, uvicorn.propagate, uvicorn.level = kept
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert lines[-1]["route"] == "/api/predict"
    assert lines[-1]["status"] == 200
    assert "5.123" not in stream.getvalue()
    assert "secret" not in stream.getvalue()
