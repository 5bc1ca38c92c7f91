"""The model of the tutorial, and servers of it: what the tests of the page work on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
TUTORIAL = ROOT / "docs" / "a-day-in-the-browser.md"
START_SECONDS = 60


def write_files(folder: Path) -> None:
    """Write `desk.csv`, `unlabeled.csv` and `checked.csv` as the tutorial does."""
    code = re.search(r"```python\n(.*?)```", TUTORIAL.read_text(), re.DOTALL)
    assert code is not None
    subprocess.run([sys.executable, "-c", code[1]], cwd=folder, check=True)


def attnknn(*arguments: Any, cwd: Path | None = None) -> None:
    command = [sys.executable, "-m", "attnknn", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def fit_desk(folder: Path) -> Path:
    """Fit the model of the tutorial on `desk.csv`."""
    columns = ("--text", "message", "--target", "intent", "--subject-column", "customer")
    parts = ("--encoder", "tfidf", "--attention", "distance")
    attnknn("fit", "desk.csv", *columns, *parts, "-o", "desk", cwd=folder)
    return folder / "desk"


@dataclass(frozen=True)
class Serving:
    """A running server."""

    url: str
    process: subprocess.Popen[str]

    def get(self, path: str, token: str = "") -> Any:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"{self.url}api/{path}", headers=headers)
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def delete(self, path: str) -> None:
        request = urllib.request.Request(f"{self.url}api/{path}", method="DELETE")
        urllib.request.urlopen(request).close()

    def post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(
            f"{self.url}api/{path}",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


@contextmanager
def serve(model: Path, *options: Any) -> Iterator[Serving]:
    """Run `attnknn serve` on a free port of this machine; its log is beside the model."""
    command = [sys.executable, "-m", "attnknn", "serve", str(model), "--port", "0"]
    with model.with_suffix(".log").open("w") as log:
        process = subprocess.Popen(
            [*command, *map(str, options)], stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        for line in process.stdout:
            found = re.search(r"at (http://\S+)", line)
            if found:
                yield Serving(found[1], process)
                return
        raise AssertionError("The server did not start.")
    finally:
        process.terminate()
        process.wait(START_SECONDS)
        process.stdout.close() if process.stdout else None
