"""A page as one HTML file, with its figures and without scripts."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from typing import Any

from attnknn.research.reports.figures import as_bytes

STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2024; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.25rem; margin-top: 2.5rem; }
h1, h2, p, figcaption { overflow-wrap: anywhere; }
table { border-collapse: collapse; font-size: 0.9rem; margin: 1rem 0; }
th, td { padding: 0.25rem 0.7rem; border-bottom: 1px solid #d9dde2; text-align: right;
  white-space: nowrap; vertical-align: top; }
.description { text-align: left; white-space: normal; } .long { min-width: 13rem; }
.wide { overflow-x: auto; }
figure { margin: 1.5rem 0; } img { max-width: 100%; height: auto; }
figcaption, .note { color: #5a626c; font-size: 0.9rem; }
@page { margin: 15mm; }
@media print { body { margin: 0; padding: 0; max-width: none; } h2 { break-after: avoid; }
  figure, tr { break-inside: avoid; } .wide { overflow: visible; } table { font-size: 0.75rem; }
  th, td { white-space: normal; overflow-wrap: anywhere; padding: 0.2rem 0.3rem; }
  .long { min-width: 0; } }
"""
LONG = 24  # characters of a cell that would stand in slivers on a phone
PER_INCH = 96  # pixels of a browser: figures have the size they were drawn in


@dataclass(frozen=True)
class Drawing:
    """A figure with its file name (without ending) and caption."""

    name: str
    figure: Any
    caption: str

    @cached_property
    def png(self) -> bytes:
        """The figure as PNG, rendered once."""
        return as_bytes(self.figure, "png")


@dataclass(frozen=True)
class Grid:
    """A table with its file name (without ending), header, rows and note."""

    name: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    best: Collection[tuple[int, int]] = ()  # rows and columns of the cells in bold

    @property
    def caption(self) -> str:
        """The note, and what bold cells mean if there are any."""
        return f"{self.note} Best values in bold.".lstrip() if self.best else self.note

    def marked(self, bold: Callable[[str], str], escaped: Callable[[str], str]) -> list[list[str]]:
        """The escaped cells, with those of the best values in bold.

        >>> grid = Grid("t", ["method", "nll"], [["a", "0.1"], ["b", "0.2"]], best=[(0, 1)])
        >>> grid.marked("*{}*".format, str)
        [['a', '*0.1*'], ['b', '0.2']]
        """
        return [
            [
                bold(escaped(cell)) if (at, place) in self.best else escaped(cell)
                for place, cell in enumerate(row)
            ]
            for at, row in enumerate(self.rows)
        ]

    def are_numbers(self) -> list[bool]:
        """Whether each column holds numbers: no cell has a letter, and it is not the first.

        >>> Grid("t", ["row", "score", "why"], [["7", "0.5 [0.4, 0.6]", "near"]]).are_numbers()
        [False, True, False]
        """
        columns = [[row[place] for row in self.rows] for place in range(len(self.head))]
        is_plain = [not any(c.isalpha() for cell in column for c in cell) for column in columns]
        return [place > 0 and plain for place, plain in enumerate(is_plain)]


@dataclass(frozen=True)
class Section:
    """A section of a page."""

    title: str
    sentences: Sequence[str] = ()
    tables: Sequence[Grid] = ()
    drawings: Sequence[Drawing] = field(default_factory=list)


GENERATOR = '<meta name="generator" content="attnknn">'


def html_page(title: str, sections: Sequence[Section], about: Sequence[str] = ()) -> str:
    """The page as HTML; `about` is a footer."""
    body = "\n".join(_section(section) for section in sections)
    notes = "".join(f'<p class="note">{escape(line)}</p>\n' for line in about)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{GENERATOR}\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n{notes}</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    parts = [f"<section>\n<h2>{escape(section.title)}</h2>"]
    parts += [f"<p>{escape(sentence)}</p>" for sentence in section.sentences]
    parts += [_table(table) for table in section.tables]
    parts += [_drawing(drawing) for drawing in section.drawings]
    return "\n".join([*parts, "</section>"])


def _table(table: Grid) -> str:
    looks = _looks(table)
    head = _cells("th", [escape(cell) for cell in table.head], looks)
    cells = table.marked("<b>{}</b>".format, escape)
    rows = "\n".join(f"<tr>{_cells('td', row, looks)}</tr>" for row in cells)
    note = f'\n<p class="note">{escape(table.caption)}</p>' if table.caption else ""
    return (
        f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{rows}\n</tbody>\n</table></div>{note}"
    )


def _cells(tag: str, cells: Sequence[str], looks: Sequence[str]) -> str:
    return "".join(f"<{tag}{look}>{cell}</{tag}>" for cell, look in zip(cells, looks, strict=True))


def _looks(table: Grid) -> list[str]:
    """The CSS class of each column, as an attribute; numbers have no class."""
    longest = [max((len(row[p]) for row in table.rows), default=0) for p in range(len(table.head))]
    return [
        "" if is_number else ' class="words long"' if length > LONG else ' class="words"'
        for is_number, length in zip(table.are_numbers(), longest, strict=True)
    ]


def _drawing(drawing: Drawing) -> str:
    content = base64.b64encode(drawing.png).decode()
    caption = escape(drawing.caption)
    width = round(PER_INCH * drawing.figure.get_size_inches()[0])
    return (
        f'<figure id="{escape(drawing.name)}"><img alt="{caption}" width="{width}" '
        f'src="data:image/png;base64,{content}"><figcaption>{caption}</figcaption></figure>'
    )
