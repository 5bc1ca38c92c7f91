"""Search a folder for bytes, in another process.

POSIX drops all locks of a process on a file as soon as the process closes any handle to it: a
search beside an open connection would take the locks from SQLite. So `search_folder` starts
`python byte_search.py FOLDER NUMPY`, with needles as hex lines on the standard input. This module
imports only NumPy and the standard library, so that the process starts quickly.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

if __name__ == "__main__":
    sys.path.append(sys.argv[2])

import numpy as np

MIN_BYTES = 8  # of a needle
CHUNK_BYTES = 1 << 20  # what was found in a chunk is not searched for in the next one
READ_BYTES = 1 << 26
HASH_BITS = 20
ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)  # multipliers


@dataclass(frozen=True)
class FolderSearch:
    """The outcome of a search, as paths relative to the folder, with "/" between names.

    Parameters
    ----------
    searched : files that were read
    skipped : what was not read: links, pipes, and whatever the user may not read
    found : files that hold any of the needles
    """

    searched: list[str]
    skipped: list[str]
    found: list[str]


def search_folder(folder: Path, needles: Collection[bytes]) -> FolderSearch:
    """Search all files below a folder for any of these bytes."""
    numpy_path = str(Path(np.__file__).parents[1])
    command = [sys.executable, "-I", "-S", __file__, str(folder), numpy_path]
    lines = "\n".join(needle.hex() for needle in needles)
    try:
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        from attnknn.errors import ModelFolderError

        raise ModelFolderError(
            f"The entries are deleted, but the files of {folder} could not be searched ({error}). "
            "Forget the subject again for the receipt."
        ) from error
    return FolderSearch(**json.loads(done.stdout))


def needles_in(content: bytes, needles: Collection[bytes]) -> set[bytes]:
    """Those of the needles, each of at least 8 bytes, that occur in the content.

    >>> needles_in(b"a needle in the hay", [b"needle in", b"needle on"])
    {b'needle in'}
    """
    left, overlap = set(needles), max(map(len, needles), default=0)
    for start in range(0, len(content), CHUNK_BYTES):
        if not left:
            break
        left -= _found_in_chunk(content[start : start + CHUNK_BYTES + overlap], left)
    return set(needles) - left


def _found_in_chunk(content: bytes, needles: Collection[bytes]) -> set[bytes]:
    found = set()
    for n_words in (1, 2, 3):
        sizes = range(8 * n_words, 8 * n_words + 8 if n_words < 3 else sys.maxsize)
        some = {needle for needle in needles if len(needle) in sizes}
        lengths = sorted({len(needle) for needle in some})
        for at in _starts(content, some, n_words) if some else ():
            found |= {piece for n in lengths if (piece := content[at : at + n]) in some}
    return found


def _starts(content: bytes, needles: Collection[bytes], n_words: int) -> Iterator[int]:
    """Where the first words, of 8 bytes each, may be those of a needle; hashes decide."""
    heads = b"".join(needle[: 8 * n_words] for needle in needles)
    is_head = np.zeros(1 << HASH_BITS, dtype=bool)
    is_head[_hashes(np.frombuffer(heads, dtype="<u8"), n_words)[::n_words]] = True
    for shift in range(min(8, len(content) - 8 * n_words + 1)):
        n = (len(content) - shift) // 8
        words = np.frombuffer(content, dtype="<u8", count=n, offset=shift)
        yield from (8 * np.flatnonzero(is_head[_hashes(words, n_words)]) + shift).tolist()


def _hashes(words: np.ndarray, n_words: int) -> np.ndarray:
    """A hash of each sequence of `n_words` words."""
    n = len(words) - n_words + 1
    mixed = words[:n] * np.uint64(ODD[0])
    for i in range(1, n_words):
        mixed += words[i : i + n] * np.uint64(ODD[i])
    return mixed >> np.uint64(64 - HASH_BITS)


def _files_below(folder: Path) -> tuple[list[Path], list[Path]]:
    """The regular files below a folder, and what is neither a file nor a readable folder."""
    files, others = [], []

    def note(error: OSError) -> None:
        others.append(Path(error.filename))

    for place, folders, names in os.walk(folder, onerror=note):
        paths = [Path(place, name) for name in names + folders]
        others += [path for path in paths if path.is_symlink()]
        found = [Path(place, name) for name in names if not Path(place, name).is_symlink()]
        files += [path for path in found if path.is_file()]
        others += [path for path in found if not path.is_file()]
    return sorted(files), sorted(others)


def _holds(path: Path, needles: Collection[bytes]) -> bool:
    rest = max(map(len, needles), default=1) - 1
    with path.open("rb") as file:
        end = b""
        while chunk := file.read(READ_BYTES):
            if needles_in(end + chunk, needles):
                return True
            end = (end + chunk)[-rest:]
    return False


def _main(folder: Path) -> None:
    needles = {bytes.fromhex(line) for line in sys.stdin.read().split()}
    files, skipped = _files_below(folder)
    searched, found = [], []
    for path in files:
        try:
            if _holds(path, needles):
                found.append(path)
            searched.append(path)
        except OSError:
            skipped.append(path)
    lists = {"searched": searched, "skipped": sorted(skipped), "found": found}
    names = {key: [p.relative_to(folder).as_posix() for p in some] for key, some in lists.items()}
    sys.stdout.write(json.dumps(names))


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
