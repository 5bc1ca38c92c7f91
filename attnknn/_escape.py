"""Texts from data, made safe for a terminal, a spreadsheet or a Markdown page.

Labels, ids, payloads, column names and file names may hold anything: escape sequences that move the
cursor or change the title of a terminal, characters that reverse the direction of text, formulas.
"""

from __future__ import annotations

import re
import unicodedata

CONTROLS = {
    "Cc",
    "Cf",
    "Cs",
    "Zl",
    "Zp",
}  # controls, formats, surrogates, separators of lines
SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}
FORMULA = re.compile(r"'*[=+\-@\t\r\n＝＋－＠]")  # what spreadsheets evaluate, after apostrophes
MARKDOWN = re.compile(r"([\\`*\[\]<>|&])")


def visible(text: object) -> str:
    r"""The text on one line, with control characters as escapes such as \x1b and \u202e.

    >>> print(visible("cat\x1b[31m\n"), visible("caf\u00e9 \u202egpj.exe"))
    cat\x1b[31m\n café \u202egpj.exe
    """
    shown = str(text)
    if shown.isprintable():
        return shown
    return "".join(map(_visible_character, shown))


def visible_lines(text: object) -> str:
    """The same for a text of several lines, whose line breaks stay."""
    return "\n".join(map(visible, str(text).split("\n")))


def _visible_character(character: str) -> str:
    if unicodedata.category(character) not in CONTROLS:
        return character
    code = ord(character)
    width = f"x{code:02x}" if code < 0x100 else f"u{code:04x}" if code < 0x10000 else f"U{code:08x}"
    return SHORT.get(character, f"\\{width}")


def without_passwords(text: str) -> str:
    """The text with the passwords of addresses replaced by ***.

    A `Path` shows the two slashes of an address as one.

    >>> without_passwords("postgres://ann:secret@host/db?sslpassword=hidden&model=a")
    'postgres://ann:***@host/db?sslpassword=***&model=a'
    >>> without_passwords("saved to postgres:/ann:secret@host/db")
    'saved to postgres:/ann:***@host/db'
    """
    if ":/" not in text:
        return text
    text = re.sub(r"(\w:/{1,2}[^:/?#\s@]*):[^\s'\"/]*@", r"\1:***@", text)
    return re.sub(r"(?i)([?&;](?:ssl)?password=)[^&\s'\"]*", r"\1***", text)


def guard_formula(text: str) -> str:
    """A cell of a CSV file that spreadsheets show as text instead of evaluating it.

    An apostrophe is put before a text that begins like a formula, also behind apostrophes of its
    own, so that `unguard_formula` restores every text exactly.

    >>> guard_formula("=1+1"), guard_formula("'=1"), guard_formula("'tis"), guard_formula("cat")
    ("'=1+1", "''=1", "'tis", 'cat')
    """
    return f"'{text}" if FORMULA.match(text) else text


def unguard_formula(cell: str) -> str:
    """The text of a cell that `guard_formula` made.

    >>> unguard_formula("'=1+1"), unguard_formula("''=1"), unguard_formula("'tis")
    ('=1+1', "'=1", "'tis")
    """
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def markdown_text(text: object) -> str:
    r"""The text on one line for Markdown, without markup, links or HTML.

    >>> print(markdown_text("<script>[a](b)"))
    \<script\>\[a\](b)
    """
    return MARKDOWN.sub(r"\\\1", visible(" ".join(str(text).split())))
