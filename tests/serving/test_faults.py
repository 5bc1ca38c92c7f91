"""Servers that are killed, crowded, cut off or out of disk lose no acknowledged edit."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from attnknn import AttnKNNClassifier
from attnknn.storage.editor import list_edits
from attnknn.storage.verification import verify

from .forking import Forks
from .samples import ROW, flowers

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="forks")]
CHAOS = float(os.environ.get("ATTNKNN_CHAOS", "1"))
LABELS = ("setosa", "versicolor", "virginica")


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    forks = Forks()
    yield forks
    forks.close()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    flowers().save(tmp_path / "model")
    return tmp_path / "model"


OPENED: list[Any] = []


@pytest.fixture(autouse=True)
def close_all() -> Iterator[None]:
    """Close what a test opened."""
    yield
    while OPENED:
        OPENED.pop().close()


class Client:
    """A client with one connection."""

    def __init__(self, port: int, timeout: float = 60.0) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        OPENED.append(self._connection)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        content = None if body is None else json.dumps(body)
        self._connection.request(method, path, content, {"content-type": "application/json"})
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def relabel(self, ids: list[int], label: str, by: str) -> tuple[int, Any]:
        entries = [{"id": name, "label": label} for name in ids]
        return self.ask("POST", "/api/edits/relabel", {"entries": entries, "by": by})


def labels_of(path: Path, ids: list[int]) -> list[str]:
    stored = AttnKNNClassifier.load(path)
    entries = stored.memory_.entries
    labels = stored.classes_[entries.labels[stored.memory_.positions_of(ids)]]
    return [str(label) for label in labels]


def edit_until_the_end(port: int, pair: list[int], first: int, done: list[Any]) -> None:
    """Give both entries of a pair the same label, again and again; notes what is acknowledged."""
    try:
        client = Client(port)
        for turn in range(first, sys.maxsize):
            name, label = f"{pair[0]} {turn}", LABELS[turn % 3]
            done.append((None, name, label))
            status, answer = client.relabel(pair, label, name)
            if status == 200:
                done[-1] = (answer["edit"], name, label)
            elif status != 503:
                done.append(("error", status, answer))
                return
    except (OSError, http.client.HTTPException):
        return  # the server was killed


def test_killed_servers_lose_no_acknowledged_edit(
    forks: Forks, model: Path, record_property: Any
) -> None:
    rng = random.Random(0)
    pairs = [[2 * n, 2 * n + 1] for n in range(3)]
    acknowledged: dict[int, str] = {}
    last: dict[int, list[str]] = {}
    n_kills = round(10 * CHAOS)
    for life in range(n_kills):
        port, process = forks.start(model)
        done: list[list[Any]] = [[] for _ in pairs]
        threads = [
            threading.Thread(target=edit_until_the_end, args=(port, pair, 1000 * life, mine))
            for pair, mine in zip(pairs, done, strict=True)
        ]
        assert Client(port).ask("GET", "/api/version")[0] == 200
        for thread in threads:
            thread.start()
        time.sleep(rng.uniform(0.02, 1.5))
        os.kill(process, signal.SIGKILL)
        for thread in threads:
            thread.join()
        for pair, mine in zip(pairs, done, strict=True):
            assert not [one for one in mine if one[0] == "error"], mine[-1]
            known = [one for one in mine if one[0] is not None]
            acknowledged |= {edit: name for edit, name, _ in known}
            unknown = [label for edit, _, label in mine[-1:] if edit is None]
            before = [label for _, _, label in known[-1:]] or last.get(pair[0], [])
            last[pair[0]] = before + unknown
    assert len(acknowledged) > n_kills / 4
    log = {line.edit: line.by for line in list_edits(model)}
    lost = {edit: name for edit, name in acknowledged.items() if log.get(edit) != name}
    assert not lost
    for pair in pairs:
        first, second = labels_of(model, pair)
        assert first == second  # no half edit
        assert not last[pair[0]] or first in last[pair[0]]
    assert verify(model)
    record_property(
        "chaos", {"test": "killed servers", "kills": n_kills, "edits": len(acknowledged)}
    )


def test_two_servers_of_one_model_take_turns(forks: Forks, model: Path) -> None:
    ports = [forks.start(model)[0] for _ in range(2)]
    clients = [Client(port) for port in ports]
    edits = []
    for turn in range(4):
        for one, client in enumerate(clients):
            for _ in range(20):
                status, answer = client.relabel([10 + one], LABELS[turn % 3], f"{one} {turn}")
                if status == 200:
                    break
                assert status == 503, answer
                assert "edited by another process" in answer["error"]["message"]
            else:
                raise AssertionError("A server never got its turn.")
            if answer["edit"] is not None:
                edits.append(answer["edit"])
    assert edits == sorted(set(edits))
    time.sleep(3)
    versions = [client.ask("GET", "/api/version")[1]["version"] for client in clients]
    assert versions == [edits[-1]] * 2


def test_a_full_disk_is_said_and_loses_nothing(forks: Forks, model: Path) -> None:
    port, process = forks.start(model)
    status, _ = Client(port).relabel([0], "virginica", "first")
    assert status == 200
    os.kill(process, signal.SIGTERM)
    time.sleep(1.5)
    size = max(path.stat().st_size for path in model.iterdir())
    port, _ = forks.start(model, max_file=size + 20_000)
    client, acknowledged, failures = Client(port), [], 0
    for turn in range(40):
        status, answer = client.relabel([1], LABELS[turn % 3], f"full {turn}")
        if status == 200 and answer["edit"] is not None:
            acknowledged.append((answer["edit"], f"full {turn}"))
        elif status != 200:
            failures += 1
            assert status == 503, answer
            assert "Traceback" not in answer["error"]["message"]
        assert client.ask("POST", "/api/predict", {"rows": [ROW]})[0] == 200
    assert failures
    log = {line.edit: line.by for line in list_edits(model)}
    assert all(log[edit] == name for edit, name in acknowledged)
    assert client.ask("GET", "/api/version")[1]["version"] == max(log)
    port, _ = forks.start(model)  # there is space again
    assert Client(port).relabel([2], "virginica", "after")[0] == 200


def test_slow_and_vanishing_clients_hold_nobody_up(forks: Forks, model: Path) -> None:
    port, process = forks.start(model, settings={"body_timeout": 0.5}, head=1.0)
    slow_head, slow_body, deaf = (socket.create_connection(("127.0.0.1", port)) for _ in range(3))
    OPENED.extend([slow_head, slow_body, deaf])
    slow_head.sendall(b"POST /api/predict HTTP/1.1\r\nhost: local")
    slow_body.sendall(
        b"POST /api/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99\r\n\r\n{"
    )
    body = json.dumps({"rows": [ROW]}).encode()
    head = f"POST /api/predict HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
    for cut in range(0, len(body), 3):
        with socket.create_connection(("127.0.0.1", port)) as gone:
            gone.sendall(head.encode() + body[:cut])
    for _ in range(50):  # gone before the answer
        with socket.create_connection(("127.0.0.1", port)) as gone:
            gone.sendall(head.encode() + body)
    deaf.sendall(b"GET /docs HTTP/1.1\r\nhost: localhost\r\n\r\n" * 200)  # and never reads
    started = time.monotonic()
    assert Client(port).ask("POST", "/api/predict", {"rows": [ROW]})[0] == 200
    assert time.monotonic() - started < 5
    slow_body.settimeout(30)
    assert slow_body.recv(1000).startswith(b"HTTP/1.1 408")
    slow_head.settimeout(30)
    assert slow_head.recv(1000) == b""  # closed
    assert Path(f"/proc/{process}").exists() or sys.platform != "linux"


def test_a_server_ends_in_good_order(model: Path) -> None:
    command = [sys.executable, "-m", "attnknn", "serve", str(model), "--port", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        port = int(process.stdout.readline().rpartition(":")[2].split("/")[0])
        assert Client(port).relabel([0], "virginica", "ann")[0] == 200
        done: list[Any] = []
        refit = threading.Thread(
            target=lambda: done.append(Client(port).ask("POST", "/api/edits/refit", {}))
        )
        refit.start()
        time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        refit.join()
        assert process.wait(60) == 0
        lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    assert lines[-1]["event"] == "stop"
    if done[0][0] == 200:  # it was running when the signal came
        assert list_edits(model)[-1].message == "Refitted"
    assert list_edits(model)[1].by == "ann"
