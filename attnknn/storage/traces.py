"""Traces that an erasure might have left of a person, and the search for them in files.

`python traces.py FOLDER` with needles as hex lines on the standard input prints the files that hold
any of them. It is a program of its own because POSIX drops all locks of a process on a file as soon
as the process closes any handle to it: a search beside an open connection would take the locks from
SQLite. So this module needs only the standard library, and starts quickly.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnknn.storage.store.erasing import OtherEntries, SubjectEntry

ERASED = "(erased)"  # replaces a name
MAX_ENTRIES = 1000  # whose contents are searched for
PIECE_BYTES = 24
MIN_LENGTH = 8  # bytes or letters; shorter ones occur in files by chance
MIN_DISTINCT = 6  # different bytes; others are not specific
MAX_NEEDLES_ONE_BY_ONE = 100  # more are found faster together
WORD = re.compile(r"[^\s,;:=|\"'()\[\]{}<>]+")
Located = Iterable[tuple[str, str]]  # texts, each after the place where it is stored


@dataclass(frozen=True)
class Traces:
    """What to search for after an erasure.

    Parameters
    ----------
    pieces : bytes, searched for in all files of a folder
    words : searched for in the names of classes and what the encoder learned; words that are not
        only letters also in texts that people wrote, where ordinary words prove nothing
    name : of the person, searched for in the same texts; empty if other entries contain it
    """

    pieces: list[bytes]
    words: set[str]
    name: str

    def __len__(self) -> int:
        return len(self.pieces) + len(self.words) + bool(self.name)

    def find(self, folder: Path, written: Located, learned: Located) -> list[str]:
        """The files of a folder that hold any trace, and the places of texts that do.

        Parameters
        ----------
        written : what people wrote
        learned : the names of classes and what the encoder learned
        """
        codes = {word for word in self.words if not word.isalpha()}
        found = {place for place, text in written if self._is_in(text, codes)}
        found |= {place for place, text in learned if self._is_in(text, self.words)}
        return [*find_files(folder, self.pieces), *sorted(found)]

    def _is_in(self, text: str, words: set[str]) -> bool:
        is_named = bool(self.name) and without_name(text, self.name) != text
        return is_named or not words.isdisjoint(distinctive_words([text]))


def collect_traces(subject: str, entries: list[SubjectEntry], others: OtherEntries) -> Traces:
    """What only the entries of a subject hold, of at most a thousand entries.

    SQLite splits long rows over pages, so files are searched for short pieces.
    """
    chosen = entries[:: max(1, -(-len(entries) // MAX_ENTRIES))]
    vectors, stored = b"".join(others.embeddings), "\n".join(others.texts).encode()
    pieces = {piece for entry in chosen for piece in _pieces(entry.embedding, vectors)}
    pieces |= {piece for entry in chosen for piece in _pieces(entry.payload.encode(), stored)}
    text = "\n".join(map(plain_text, others.texts))
    words = distinctive_words(plain_text(entry.payload) for entry in chosen)
    name = subject if without_name(text, subject) == text else ""
    in_column, in_json = name.encode("utf-8", "surrogatepass"), json.dumps(name)[1:-1].encode()
    pieces |= {form for form in (in_column, in_json) if form not in stored}
    long_enough = sorted(piece for piece in pieces if len(piece) >= MIN_LENGTH)
    return Traces(long_enough, words - distinctive_words([text]), name)


def _pieces(content: bytes, others: bytes) -> list[bytes]:
    """The beginning, middle and end, except zeros, which are everywhere."""
    middle, end = len(content) // 2 - PIECE_BYTES // 2, len(content) - PIECE_BYTES
    pieces = (content[at : at + PIECE_BYTES] for at in (0, max(0, middle), max(0, end)))
    return [piece for piece in pieces if len(set(piece)) >= MIN_DISTINCT and piece not in others]


def distinctive_words(texts: Iterable[str]) -> set[str]:
    """The words of texts in lower case, without short numbers.

    >>> sorted(distinctive_words(["age=39, city=Oslo", "Oslo 12345678."]))
    ['12345678', 'age', 'city', 'oslo']
    """
    found = {word.strip(".!?").casefold() for text in texts for word in WORD.findall(text)}
    return {word for word in found if len(word) >= MIN_LENGTH or re.search(r"[^\W\d_]", word)}


def without_name(text: str, name: str) -> str:
    """A text with a name replaced where it occurs as words, in upper or lower case.

    >>> without_name("asked by ANN", "Ann"), without_name("annual", "Ann")
    ('asked by (erased)', 'annual')
    """
    if text.casefold() == name.casefold():
        return ERASED
    return re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", ERASED, text, flags=re.IGNORECASE)


def plain_text(payload: str) -> str:
    """The values of a JSON payload, one per line; other texts unchanged.

    >>> plain_text('{"city": "Z\\\\u00fcrich", "age": 39}')
    'Zürich\\n39'
    """
    try:
        return "\n".join(json_leaves(json.loads(payload)))
    except (ValueError, RecursionError):
        return payload


def json_leaves(value: Any) -> Iterator[str]:
    """The values inside lists and dicts, as texts."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from json_leaves(part)
    elif value is not None:
        yield str(value)


def find_files(folder: Path, needles: list[bytes]) -> list[str]:
    """The names of the files that hold any of these bytes, found by another process."""
    command = [sys.executable, "-I", "-S", __file__, str(folder)]
    lines = "\n".join(needle.hex() for needle in needles)
    try:
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        from attnknn.errors import ModelFolderError

        raise ModelFolderError(
            f"The entries are deleted, but the files of {folder} could not be searched ({error})."
        ) from error
    return list(json.loads(done.stdout))


def _holds(content: bytes, needles: list[bytes]) -> bool:
    if len(needles) <= MAX_NEEDLES_ONE_BY_ONE:
        return any(needle in content for needle in needles)
    heads, whole = {needle[:MIN_LENGTH] for needle in needles}, tuple(needles)
    return any(
        content[at : at + MIN_LENGTH] in heads and content.startswith(whole, at)
        for at in range(len(content) - MIN_LENGTH + 1)
    )


def _main() -> None:
    needles = [bytes.fromhex(line) for line in sys.stdin.read().split()]
    files = sorted(path for path in Path(sys.argv[1]).iterdir() if path.is_file())
    found = [path.name for path in files if _holds(path.read_bytes(), needles)]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    _main()
