"""Start servers again and again: a process that has imported everything, and forks.

Reads one JSON object per line: `model`, a folder; `settings` of the server; `max_file`, the largest
size of a file that the server may write. Prints the port and the process id of each server.

Starting Python again for each of hundreds of servers would take a quarter of an hour.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from typing import Any

import attnknn.serving.server as serving
from attnknn.serving.server import Server


def serve(order: dict[str, Any]) -> None:
    """Serve until the process is killed."""
    if "max_file" in order:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["max_file"], limit))
    serving.HEAD = order.get("head", serving.HEAD)
    server = Server(order["model"], port=0, by="server", **order.get("settings", {}))
    port = server.url.rstrip("/").rpartition(":")[2]
    server.run(lambda: announce(port))


def announce(port: str) -> None:
    """Write the port and the process id to standard output."""
    sys.stdout.write(f"{port} {os.getpid()}\n")
    sys.stdout.flush()


class Forks:
    """Servers that are forked from one process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def start(self, model: Any, **order: Any) -> tuple[int, int]:
        """The port and the process id of a new server."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"model": str(model), **order}) + "\n")
        self._process.stdin.flush()
        port, process = self._process.stdout.readline().split()
        return int(port), int(process)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


def main() -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that are killed
    children = []
    for line in sys.stdin:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            serve(json.loads(line))
            os._exit(0)
        children.append(child)
    for child in children:
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            continue


if __name__ == "__main__":
    main()
