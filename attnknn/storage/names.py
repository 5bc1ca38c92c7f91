"""The name and the ids of a person, as people write them in texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from unicodedata import category, normalize

ERASED = "(erased)"  # replaces a name
RUN = re.compile(r"[^\W_]+")  # of letters and digits
NUMBER = re.compile(r"-?\d+")


def spelling(name: str) -> str:
    """A name without its differences in Unicode form, upper and lower case, and spaces.

    >>> spelling(" Zoe\\u0308  ASH") == spelling("Zo\\u00eb Ash")
    True
    """
    folded = normalize("NFKC", name).casefold()
    return " ".join(normalize("NFKC", folded).split())


def other_spellings(names: Iterable[str], subject: str) -> list[str]:
    """The names that differ from a subject only in their spelling.

    >>> other_spellings(["ann ash", "Ann Ash", "Bob"], "Ann Ash")
    ['ann ash']
    """
    known = spelling(subject)
    return sorted(name for name in names if name and name != subject and spelling(name) == known)


class Names:
    """Names to find in texts, in any spelling, where they stand as whole words.

    Parameters
    ----------
    names : names of a person, or ids; numbers are found only where they stand alone
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._spellings: set[str] = set()
        self._by_first: dict[str, list[str]] = {}  # all of the names with this first word
        for name in {normalize("NFC", name).strip() for name in names} - {""}:
            self._spellings.add(spelling(name))
            self._by_first.setdefault(_first_word(name), []).append(name)

    def __len__(self) -> int:
        return len(self._spellings)

    def erase(self, text: str) -> str:
        """The text with every name replaced.

        >>> Names(["Ann", "row-7"]).erase("ANN asked for row-7, see annual_ann and row-71")
        '(erased) asked for (erased), see annual_(erased) and row-71'
        """
        if spelling(text) in self._spellings:
            return ERASED
        plain = normalize("NFC", text)
        words = {word.casefold() for word in RUN.findall(plain)} | {""}
        erased = plain
        for name in sorted(
            (name for word in words for name in self._by_first.get(word, [])), key=len, reverse=True
        ):
            erased = _pattern(name).sub(ERASED, erased)
        return text if erased == plain else erased

    def are_in(self, text: str) -> bool:
        """Whether any of the names occurs in a text."""
        return self.erase(text) != text


def _first_word(name: str) -> str:
    """A word of every text with the name; empty if the name may be a part of a word."""
    found = RUN.search(name)
    is_bounded = found is not None and _ends_word(name[0]) and _ends_word(name[-1])
    return found[0].casefold() if found is not None and is_bounded else ""


def _ends_word(letter: str) -> bool:
    """Whether no letter may follow; scripts with letters of one case join words to names."""
    return category(letter) != "Lo"


def _pattern(name: str) -> re.Pattern[str]:
    if NUMBER.fullmatch(name):  # not part of a date, of another number, or of a code
        before, after = r"(?<![\w.,/-])(?<!\d:)", r"(?!\w)(?![-.,:/]\w)"
    else:
        before = r"(?<![^\W_])" if name[0].isalnum() and _ends_word(name[0]) else ""
        after = r"(?![^\W_])" if name[-1].isalnum() and _ends_word(name[-1]) else ""
    spaced = r"\s+".join(map(re.escape, name.split()))
    return re.compile(f"{before}{spaced}{after}", re.IGNORECASE)
