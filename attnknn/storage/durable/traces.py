"""What an erasure might have left of a person, and where it is looked for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection

from attnknn.storage.store import erasing, names
from attnknn.storage.store.erasing import Others, Owned

MOST_SEARCHED = 1000  # entries whose contents are looked for
PIECE = 24  # bytes
SHORTEST = 8  # bytes or letters; shorter ones are found in files by chance
DIVERSE = 5  # different bytes, or a piece says nothing
WORD = re.compile(r"[^\s,;:=|\"'()\[\]{}<>]+")


@dataclass(frozen=True)
class Traces:
    """What is looked for.

    Parameters
    ----------
    pieces : bytes, in all files of a folder
    words : in the names of classes and what the encoder has learned; those that are not only
        letters also in what people have written, where ordinary words tell nothing
    name : of the person, in the same places; empty if others hold it too
    """

    pieces: list[bytes]
    words: set[str]
    name: str

    def __len__(self) -> int:
        return len(self.pieces) + len(self.words) + bool(self.name)

    def found(self, folder: Path, database: Connection) -> list[str]:
        """The files that hold any of it, and the places within the store."""
        codes = {word for word in self.words if not word.isalpha()}
        written = {at for at, text in names.written_in(database) if self._is_in(text, codes)}
        learned = {at for at, text in names.learned_in(database) if self._is_in(text, self.words)}
        return [*erasing.files_that_hold(folder, self.pieces), *sorted(written | learned)]

    def _is_in(self, text: str, words: set[str]) -> bool:
        is_named = bool(self.name) and names.without_name(text, self.name) != text
        return is_named or not words.isdisjoint(words_of([text]))


def traces_of(subject: str, gone: list[Owned], others: Others) -> Traces:
    """What only the entries of a subject hold, of at most a thousand entries.

    SQLite splits long rows over pages, so what is looked for in files are short pieces.
    """
    chosen = gone[:: max(1, -(-len(gone) // MOST_SEARCHED))]
    vectors, stored = b"".join(others.embeddings), "\n".join(others.texts).encode()
    pieces = {piece for entry in chosen for piece in _pieces(entry.embedding, vectors)}
    pieces |= {piece for entry in chosen for piece in _pieces(entry.payload.encode(), stored)}
    read = "\n".join(map(names.plain, others.texts))
    words = words_of(names.plain(entry.payload) for entry in chosen) - words_of([read])
    name = subject if names.without_name(read, subject) == read else ""
    pieces |= {form for form in _forms(name) if form not in stored}
    return Traces(sorted(piece for piece in pieces if len(piece) >= SHORTEST), words, name)


def words_of(texts: Iterable[str]) -> set[str]:
    """The words of texts that tell anything, in lower case; numbers only if they are long.

    >>> sorted(words_of(["age=39, city=Oslo", "Oslo 12345678."]))
    ['12345678', 'age', 'city', 'oslo']
    """
    found = {word.strip(".!?").casefold() for text in texts for word in WORD.findall(text)}
    return {word for word in found if len(word) >= SHORTEST or re.search(r"[^\W\d_]", word)}


def _pieces(content: bytes, others: bytes) -> list[bytes]:
    """The beginning, the middle and the end; no zeros, which are everywhere."""
    middle = len(content) // 2 - PIECE // 2
    parts = (content[at : at + PIECE] for at in (0, max(0, middle), max(0, len(content) - PIECE)))
    return [part for part in parts if len(set(part)) > DIVERSE and part not in others]


def _forms(name: str) -> set[bytes]:
    """A name as it stands in a column, and as it stands in JSON."""
    return {name.encode("utf-8", "surrogatepass"), names.in_json(name)}
