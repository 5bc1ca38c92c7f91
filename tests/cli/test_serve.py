"""`attnknn serve`, up to the moment in which it listens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .samples import refused, run


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The servers that would have run."""
    pytest.importorskip("fastapi")
    from attnknn.serving.server import Server

    servers: list[Any] = []

    def note(server: Any, on_start: Any) -> None:
        on_start()
        servers.append(server)
        server.stop()

    monkeypatch.setattr(Server, "run", note)
    monkeypatch.setattr("attnknn.serving.log.log_to", lambda **_: None)
    return servers


def test_a_model_is_served_on_the_own_machine(model: Path, started: list[Any]) -> None:
    result = run("serve", model, "--port", 0, "--by", "ann", "--read-only")
    assert result.exit_code == 0, result.output
    assert f"Serving {model} at http://127.0.0.1:" in result.stdout
    settings = started[0].app.service.settings
    assert (settings.author, settings.is_read_only, settings.tokens) == ("ann", True, None)


def test_beyond_the_machine_tokens_are_required(model: Path, started: list[Any]) -> None:
    assert "--token-file" in refused("serve", model, "--host", "0.0.0.0", "--port", 0)
    assert started == []


def test_a_missing_token_file_is_created(model: Path, started: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "tokens.txt"
    result = run("serve", model, "--host", "0.0.0.0", "--port", 0, "--token-file", path)
    assert result.exit_code == 0, result.output
    assert "Created" in result.stdout
    token = path.read_text().splitlines()[-1].split()[2]
    assert token not in result.output
    settings = started[0].app.service.settings
    assert settings.tokens.find(token).role == "admin"


def test_a_port_in_use_is_named(model: Path, started: list[Any]) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert "--port" in refused("serve", model, "--port", port)


def test_a_folder_without_a_model_is_refused(tmp_path: Path, started: list[Any]) -> None:
    assert "no model" in refused("serve", tmp_path / "nothing", "--port", 0)
