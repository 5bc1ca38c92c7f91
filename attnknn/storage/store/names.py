"""The name of a person in the texts of a store: taken out of what people wrote, and looked for."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from typing import Any

from attnknn.storage.contents import SETTINGS
from attnknn.storage.folder import STORE

ERASED = "(erased)"  # where a name was
COUNTED = r"(?i:added|relabeled|forgot|changed the say of) [\d,]+ (?:entry|entries)"
# What we say ourselves holds no name, only numbers; it comes before what people have written.
OURS = re.compile(
    r"(?:Took back edit \d+: )?"
    r"(?:Rolled back to snapshot |(?:"
    rf"Rolled back to edit \d+|Fitted again|Changed nothing|{COUNTED}(?: and {COUNTED})*|"
    r"Opened for editing with [\d,]+ entries|Erased [\d,]+ (?:entry|entries) of a subject"
    r")$)?"
)


def take_out_name(database: sqlite3.Connection, name: str) -> None:
    """Take the name of a person out of all that people have written."""
    for edit, by, words in database.execute("select edit, by, words from log").fetchall():
        cleared = without_name(by, name), _words_without(words, name)
        if cleared != (by, words):
            query = "update log set by = ?, words = ? where edit = ?"
            database.execute(query, (*cleared, edit))
    _take_out_of_snapshots(database, name)


def without_name(text: str, name: str) -> str:
    """A text with a name replaced, where it stands as words, in upper or lower case.

    >>> without_name("asked by ANN", "Ann"), without_name("annual", "Ann")
    ('asked by (erased)', 'annual')
    """
    if text.casefold() == name.casefold():
        return ERASED
    return re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", ERASED, text, flags=re.IGNORECASE)


def written_by_people(words: str) -> str:
    """A line of the log without what we say in every such line.

    >>> written_by_people("Took back edit 3: Forgot 3 entries and relabeled 1 entry")
    ''
    >>> written_by_people("Rolled back to snapshot before 3 asked")
    'before 3 asked'
    """
    found = OURS.match(words)
    return words[found.end() :] if found else words


def written_in(database: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """What people have written, each text after the place where it stands."""
    for by, words in database.execute("select by, words from log"):
        yield f"{STORE} (log)", f"{by}\n{written_by_people(words)}"
    for name, by in database.execute("select name, by from snapshots"):
        yield f"{STORE} (snapshots)", f"{name}\n{by}"


def learned_in(database: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """The names of classes and what the encoder has learned, of all states, likewise."""
    for (content,) in database.execute("select content from parts where name = ?", (SETTINGS,)):
        settings = json.loads(content)
        for text in _leaves([settings["classes"]["values"], settings["encoder"]]):
            yield f"{STORE} ({SETTINGS})", text


def plain(payload: str) -> str:
    """The texts of a payload, one per line, without the signs of JSON; others as they are.

    >>> plain('{"city": "Z\\\\u00fcrich", "age": 39}')
    'Zürich\\n39'
    """
    try:
        return "\n".join(_leaves(json.loads(payload)))
    except (ValueError, RecursionError):
        return payload


def in_json(text: str) -> bytes:
    """A text as it stands within JSON."""
    return json.dumps(text)[1:-1].encode()


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    elif value is not None:
        yield str(value)


def _words_without(words: str, name: str) -> str:
    theirs = written_by_people(words)
    return words.removesuffix(theirs) + without_name(theirs, name) if theirs else words


def _take_out_of_snapshots(database: sqlite3.Connection, name: str) -> None:
    found = database.execute("select name, edit, by from snapshots order by edit, name").fetchall()
    taken = {known for known, _, _ in found}
    for known, edit, by in found:
        new = known
        if without_name(known, name) != known:
            new = _free_name(f"{ERASED} {edit}", taken)
            taken.add(new)
        query = "update snapshots set name = ?, by = ? where name = ?"
        database.execute(query, (new, without_name(by, name), known))


def _free_name(wanted: str, taken: set[str]) -> str:
    """A name that no other snapshot has."""
    free, n = wanted, 1
    while free in taken:
        n += 1
        free = f"{wanted} ({n})"
    return free
