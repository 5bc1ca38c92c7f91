"""Traces that an erasure might have left of a person, and the search for them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import normalize

from attnknn.storage.byte_search import MIN_BYTES, FolderSearch, needles_in, search_folder
from attnknn.storage.names import Names

if TYPE_CHECKING:
    from attnknn.storage.store.erasing import OtherEntries, SubjectEntry

MAX_ENTRIES = 1000  # whose contents are searched for
PIECE_BYTES = 24
MIN_DISTINCT = 6  # different bytes; others are not specific
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
    names : of the person and of text ids, searched for in the same texts and in names of files;
        without those that other entries contain
    """

    pieces: set[bytes]
    words: set[str]
    names: Names

    def __len__(self) -> int:
        return len(self.pieces) + len(self.words) + len(self.names)

    def find(self, folder: Path, written: Located, learned: Located) -> FolderSearch:
        """Search the files of a folder, and texts, whose places are among `found` then.

        Parameters
        ----------
        written : what people wrote
        learned : the names of classes and what the encoder learned
        """
        codes = {word for word in self.words if not word.isalpha()}
        places = {place for place, text in written if self._is_in(text, codes)}
        places |= {place for place, text in learned if self._is_in(text, self.words)}
        files = search_folder(folder, self.pieces)
        named = {path for path in files.searched + files.skipped if self.names.are_in(path)}
        found = sorted(named.union(files.found)) + sorted(places)
        return FolderSearch(files.searched, files.skipped, found)

    def _is_in(self, text: str, words: set[str]) -> bool:
        return self.names.are_in(text) or not words.isdisjoint(distinctive_words([text]))


def collect_traces(subject: str, entries: list[SubjectEntry], others: OtherEntries) -> Traces:
    """What only the entries of a subject hold, of at most a thousand entries.

    SQLite splits long rows over pages, so files are searched for short pieces.
    """
    chosen = entries[:: max(1, -(-len(entries) // MAX_ENTRIES))]
    text = "\n".join([*others.texts, plain_texts(others.payloads)])
    names = _own_names(subject, [entry.id for entry in chosen if isinstance(entry.id, str)], text)
    contents = [entry.embedding for entry in chosen]
    contents += [entry.payload.encode("utf-8", "surrogatepass") for entry in chosen]
    pieces = {piece for content in contents for piece in _pieces(content)}
    pieces |= {piece for name in names for form in _forms(name) for piece in _cut(form)}
    stored = "\n".join([*others.texts, *others.payloads]).encode("utf-8", "surrogatepass")
    pieces -= needles_in(b"".join(others.embeddings), pieces)
    pieces -= needles_in(stored, pieces)
    words = distinctive_words([plain_texts([entry.payload for entry in chosen if entry.payload])])
    return Traces(pieces, words - distinctive_words([text]), Names(names))


def _own_names(subject: str, ids: list[str], text: str) -> list[str]:
    """The name, and ids that are long enough to be specific, without those in the text."""
    folded = normalize("NFC", text).casefold()
    key = max(normalize("NFC", subject).casefold().split(), key=len, default="")
    subjects = Names([subject])
    is_shared = any(subjects.are_in(line) for line in folded.split("\n") if key in line)
    keys = {
        name: normalize("NFC", name).casefold().encode("utf-8", "surrogatepass") for name in ids
    }
    keys = {name: key for name, key in keys.items() if len(key) >= MIN_BYTES}
    shared = needles_in(folded.encode("utf-8", "surrogatepass"), keys.values())
    return [*([] if is_shared else [subject]), *(n for n, key in keys.items() if key not in shared)]


def _pieces(content: bytes) -> list[bytes]:
    """The beginning, middle and end, except zeros, which are everywhere."""
    return [piece for piece in _cut(content) if len(set(piece)) >= MIN_DISTINCT]


def _cut(content: bytes) -> list[bytes]:
    middle, end = len(content) // 2 - PIECE_BYTES // 2, len(content) - PIECE_BYTES
    pieces = (content[at : at + PIECE_BYTES] for at in (0, max(0, middle), max(0, end)))
    return [piece for piece in pieces if len(piece) >= MIN_BYTES]


def _forms(name: str) -> set[bytes]:
    """The bytes of a name in files, in the spellings that people use most, also within JSON."""
    forms = {normalize(form, name) for form in ("NFC", "NFD")} | {name}
    forms |= {f(form) for form in forms for f in (str.lower, str.upper, str.title)}
    in_json = {json.dumps(form)[1:-1].encode() for form in forms}
    return in_json | {form.encode("utf-8", "surrogatepass") for form in forms}


def distinctive_words(texts: Iterable[str]) -> set[str]:
    """The words of texts in lower case, without short numbers.

    >>> sorted(distinctive_words(["age=39, city=Oslo", "Oslo 12345678."]))
    ['12345678', 'age', 'city', 'oslo']
    """
    words = {word for text in texts for word in WORD.findall(text)}
    found = {word.strip(".!?").casefold() for word in words}
    return {word for word in found if len(word) >= MIN_BYTES or re.search(r"[^\W\d_]", word)}


def plain_texts(payloads: Sequence[str]) -> str:
    """The values of JSON payloads, one per line; other texts unchanged.

    >>> print(plain_texts(['{"city": "Z\\u00fcrich", "age": 39}', "no JSON"]))
    Zürich
    39
    no JSON
    """
    try:
        return "\n".join(json_leaves(json.loads(f"[{','.join(payloads)}]")))
    except (ValueError, RecursionError):
        n = len(payloads)
        if n > 1:  # find the one that is not JSON
            return "\n".join(map(plain_texts, (payloads[: n // 2], payloads[n // 2 :])))
        return payloads[0]


def json_leaves(value: Any) -> list[str]:
    """The values inside lists and dicts, as texts.

    >>> json_leaves({"city": "Oslo", "ages": [39, None]})
    ['Oslo', '39']
    """
    if not isinstance(value, dict | list):
        return [] if value is None else [str(value)]
    parts = value.values() if isinstance(value, dict) else value
    return [leaf for p in parts for leaf in ((p,) if type(p) is str else json_leaves(p))]
