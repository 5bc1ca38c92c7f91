"""Looks for bytes in the files of a folder: `python searching.py FOLDER`, needles as hex lines.

A program of its own: POSIX drops all locks that a process has on a file as soon as the process
closes any handle to it, so whoever reads a store beside an open connection takes the locks from
SQLite. It needs nothing but Python, so that it starts at once.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

HEAD = 8  # bytes; no needle is shorter
FEW = 100  # needles that are found faster one by one


def names_of_files_that_hold(folder: Path, needles: list[bytes]) -> list[str]:
    """The names of the files in which any of these bytes are found."""
    files = sorted(path for path in folder.iterdir() if path.is_file())
    return [path.name for path in files if _holds(path.read_bytes(), needles)]


def _holds(content: bytes, needles: list[bytes]) -> bool:
    if len(needles) <= FEW:
        return any(needle in content for needle in needles)
    heads, whole = {needle[:HEAD] for needle in needles}, tuple(needles)
    places = range(len(content) - HEAD + 1)
    return any(content[at : at + HEAD] in heads and content.startswith(whole, at) for at in places)


if __name__ == "__main__":
    wanted = [bytes.fromhex(line) for line in sys.stdin.read().split()]
    sys.stdout.write(json.dumps(names_of_files_that_hold(Path(sys.argv[1]), wanted)))
