"""The name of a person in what people have written: the log, and the names of snapshots."""

from __future__ import annotations

import re
import sqlite3

ERASED = "(erased)"  # where a name was
COUNTED = r"(?i:added|relabeled|forgot|changed the say of) [\d,]+ (?:entry|entries)"
# What we say ourselves holds no name, only numbers; it comes before what people have written.
OURS = re.compile(
    r"(?:Took back edit \d+: )?"
    r"(?:Rolled back to snapshot |(?:"
    rf"Rolled back to edit \d+|Fitted anew|Changed nothing|{COUNTED}(?: and {COUNTED})*|"
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
