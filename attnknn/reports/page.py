"""One HTML page with everything in it: no script, no network, figures inside."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from attnknn.reports.figures import as_bytes

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2024; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
table { border-collapse: collapse; font-size: 0.9rem; margin: 1rem 0; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid #d9dde2; text-align: right; }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; }
figcaption, .note { color: #5a626c; font-size: 0.9rem; }
@media print { body { margin: 0; } figure, table { break-inside: avoid; } }
"""


@dataclass(frozen=True)
class Drawing:
    """A figure, the name of its file without ending, and what it shows."""

    name: str
    figure: Any
    caption: str


@dataclass(frozen=True)
class Grid:
    """A table: the name of its file without ending, its head, its rows, and a note below it."""

    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True)
class Section:
    """A part of a page."""

    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Grid] = ()
    drawings: Sequence[Drawing] = field(default_factory=list)


def html_page(title: str, sections: Sequence[Section], about: Sequence[str] = ()) -> str:
    """The page; `about` says below it where its numbers come from."""
    body = "\n".join(_section(section) for section in sections)
    notes = "".join(f'<p class="note">{escape(line)}</p>\n' for line in about)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n{notes}</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    parts = [f"<section>\n<h2>{escape(section.title)}</h2>"]
    parts += [f"<p>{escape(sentence)}</p>" for sentence in section.sentences]
    parts += [_table(table) for table in section.tables]
    parts += [_drawing(drawing) for drawing in section.drawings]
    return "\n".join([*parts, "</section>"])


def _table(table: Grid) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.head)
    rows = "\n".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows
    )
    note = f'\n<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>{note}"
    )


def _drawing(drawing: Drawing) -> str:
    content = base64.b64encode(as_bytes(drawing.figure, "png")).decode()
    caption = escape(drawing.caption)
    return (
        f'<figure id="{escape(drawing.name)}"><img alt="{caption}" '
        f'src="data:image/png;base64,{content}"><figcaption>{caption}</figcaption></figure>'
    )
