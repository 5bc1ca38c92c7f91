"""The server under load, beside a bare FastAPI route: `python -m benchmarks.serving`.

64 clients ask for one row of banking77 at a time, over connections that stay open. The bare route
parses the same body, and returns the same JSON every time. Both servers are processes of their own
and take turns, so that other programs slow down both. Meanwhile another client edits the model
every second; at the end every acknowledged edit must be in its log, and no answer may mix states.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from attnknn import AttnKNNClassifier

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "serving.json"
START = 120.0  # seconds until a server answers
BARE = """
import sys, json, socket
from pathlib import Path
import uvicorn
from fastapi import FastAPI
from attnknn.serving.schemas import Predict, Predictions

app, answer = FastAPI(), json.loads(Path(sys.argv[1]).read_text())

@app.post("/api/predict")
async def predict(question: Predict) -> Predictions:
    return answer

uvicorn.run(app, port=int(sys.argv[2]), log_config=None, access_log=False)
"""


@dataclass
class Load:
    """What the clients of one round saw."""

    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)
    n_mixed: int = 0

    def summary(self) -> dict[str, float]:
        """Requests per second, and percentiles of the latency in milliseconds."""
        p50, p99 = np.percentile(self.latencies, [50, 99]) * 1000
        return {
            "requests_per_second": len(self.latencies) / self.seconds,
            "p50_ms": float(p50),
            "p99_ms": float(p99),
            "max_ms": float(max(self.latencies) * 1000),
        }

    def add(self, other: Load) -> None:
        """Join another round."""
        self.seconds += other.seconds
        self.latencies += other.latencies
        self.versions += other.versions
        self.n_mixed += other.n_mixed
        for status, n in other.statuses.items():
            self.statuses[status] = self.statuses.get(status, 0) + n


class Connection:
    """An HTTP connection that stays open."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> Connection:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer."""
        head = (
            f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        status = int(answer[9:12])
        length = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return status, await self._reader.readexactly(length)

    def close(self) -> None:
        self._writer.close()


async def ask(port: int, bodies: list[bytes], first: int, until: float, load: Load) -> None:
    """One client: a question after the other."""
    connection = await Connection(port).open()
    last = -1
    try:
        for turn in range(sys.maxsize):
            if time.perf_counter() > until:
                return
            started = time.perf_counter()
            status, content = await connection.post(
                "/api/predict", bodies[(first + 97 * turn) % len(bodies)]
            )
            load.latencies.append(time.perf_counter() - started)
            load.statuses[status] = load.statuses.get(status, 0) + 1
            if status == 200:
                version = int(content[content.index(b":") + 1 : content.index(b",")])
                load.n_mixed += version < last  # a state from before one that was seen
                last = version
                load.versions.append(version)
    finally:
        connection.close()


async def edit(port: int, until: float, done: list[int], changes: list[dict[str, Any]]) -> None:
    """A client that changes the label of an entry every second."""
    connection = await Connection(port).open()
    while time.perf_counter() < until:
        turn = len(done)
        body = json.dumps({"entries": [changes[turn]], "by": f"edit {turn}"}).encode()
        status, content = await connection.post("/api/edits/relabel", body)
        if status != 200:
            raise RuntimeError(f"An edit failed: {content.decode()}")
        done.append(json.loads(content)["version"])
        await asyncio.sleep(1.0)
    connection.close()


async def drive(port: int, bodies: list[bytes], args: Any, *others: Any) -> Load:
    """All clients for some seconds."""
    load, started = Load(), time.perf_counter()
    until = started + args.seconds
    clients = (ask(port, bodies, first, until, load) for first in range(args.clients))
    await asyncio.gather(*clients, *(other(until) for other in others))
    load.seconds = time.perf_counter() - started
    return load


@contextmanager
def server(command: list[str], port: int) -> Iterator[int]:
    """A server process; yields its process id."""
    process = subprocess.Popen([sys.executable, *command], stderr=subprocess.DEVNULL)
    try:
        wait_for(port, process)
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a port answers."""
    import socket

    deadline = time.monotonic() + START
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("The server did not start.") from None
            time.sleep(0.1)


def resident(process: int) -> float:
    """Memory of a process in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def texts_and_labels() -> tuple[list[str], list[str]]:
    """Questions of banking77 with their intents, or made-up ones where the data are missing."""
    from attnknn.errors import MissingDataError
    from attnknn.research import datasets

    try:
        data = datasets.load("banking77-texts")
        names = data.classes
        return [str(text) for text in data.X_train], [str(names[code]) for code in data.y_train]
    except MissingDataError:
        rng = np.random.default_rng(0)
        codes = rng.integers(0, 77, 10_000)
        words = [
            [f"word{code}x{n}" if n < 20 else f"word{n}" for n in rng.integers(0, 300, 9)]
            for code in codes
        ]
        return [" ".join(row) for row in words], [f"intent{code}" for code in codes]


def fit_model(path: Path, encoder: str) -> None:
    """Fit a model of banking77."""
    texts, labels = texts_and_labels()
    clf = AttnKNNClassifier(encoder=encoder, random_state=0)
    clf.fit(texts, labels, payloads=texts).save(path)


def measure(model: Path, args: Any) -> dict[str, Any]:
    """Both servers in turns."""
    texts, _ = texts_and_labels()
    bodies = [json.dumps({"rows": [text]}).encode() for text in texts[:5000]]
    clf = AttnKNNClassifier.load(model)
    entries, classes = clf.memory_.entries, np.roll(clf.classes_, -1)  # another label for each
    changes = [
        {"id": one, "label": label}
        for one, label in zip(entries.ids.tolist(), classes[entries.labels].tolist(), strict=True)
    ]
    edits: list[int] = []
    ours, bare = Load(), Load()
    serve = ["-m", "attnknn", "serve", str(model), "--port", str(args.port)]
    with server(serve, args.port) as process, tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")

        async def first() -> None:
            connection = await Connection(args.port).open()
            answer.write_bytes((await connection.post("/api/predict", bodies[0]))[1])

        asyncio.run(first())
        memory = [resident(process)]
        with server(["-c", BARE, str(answer), str(args.port + 1)], args.port + 1):
            for _ in range(args.rounds):
                bare.add(asyncio.run(drive(args.port + 1, bodies, args)))
                editor = lambda until: edit(args.port, until, edits, changes)  # noqa: E731
                ours.add(asyncio.run(drive(args.port, bodies, args, editor)))
                memory.append(resident(process))
                print(f"{len(memory) - 1}: {memory[-1]:.0f} MB", file=sys.stderr)
    return report(model, ours, bare, edits, memory)


def report(
    model: Path, ours: Load, bare: Load, edits: list[int], memory: list[float]
) -> dict[str, Any]:
    """All numbers, with ratios and what was lost."""
    from attnknn.storage.editor import list_edits

    authors = {line.edit: line.by for line in list_edits(model)}
    lost = [n for turn, n in enumerate(edits) if authors.get(n) != f"edit {turn}"]
    mine, its = ours.summary(), bare.summary()
    return {
        "server": mine,
        "bare": its,
        "throughput_ratio": mine["requests_per_second"] / its["requests_per_second"],
        "p99_ratio": mine["p99_ms"] / its["p99_ms"],
        "statuses": {str(status): n for status, n in ours.statuses.items()},
        "edits": len(edits),
        "lost_edits": len(lost),
        "answers_from_older_states": ours.n_mixed,
        "versions_seen": len(set(ours.versions)),
        "memory_mb": [round(one, 1) for one in memory],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--model", type=Path, help="a fitted model of banking77")
    parser.add_argument("--encoder", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model")
        if args.model is None:
            fit_model(model, args.encoder)
        else:
            shutil.copytree(args.model, model)
        found = measure(model, args)
    print(json.dumps(found, indent=1))
    args.out.parent.mkdir(exist_ok=True)
    args.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
