"""A report as a folder: the page as HTML and PDF, figures as PNG and PDF, tables as text."""

from __future__ import annotations

import itertools
import re
import shutil
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnknn._optional import require
from attnknn.reports.figures import as_bytes, new_figure
from attnknn.reports.page import Grid, Section, html_page

PAGE, BOOK = "index.html", "report.pdf"
SHEET = (8.27, 11.69)  # inches: A4
LINE, WIDTH = 0.019, 96  # height of a line as a share of the sheet, and its characters
ACROSS = 103  # characters of a table, all of one width
Line = tuple[str, dict[str, Any]]  # what it says, and how it looks
LATEX = {
    **{sign: f"\\{sign}" for sign in "&%_#${}"},
    **{"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"},
    **{"−": "$-$", "±": r"$\pm$", "×": r"$\times$", "√": r"$\surd$", "·": r"$\cdot$"},
    **{"≤": r"$\leq$", "≥": r"$\geq$", "≈": r"$\approx$", "→": r"$\to$", "σ": r"$\sigma$"},
    **{"…": r"\dots{}", "–": "--", "—": "---", "“": "``", "”": "''"},
}


def write_report(
    folder: str | Path, title: str, sections: Sequence[Section], about: Sequence[str] = ()
) -> Path:
    """Write everything or nothing; gives the path of the page."""
    folder = Path(folder)
    with _whole(folder) as place:
        for section in sections:
            _write_section(place, section)
        _write_book(place / BOOK, title, sections, about)
        (place / PAGE).write_text(html_page(title, sections, about), encoding="utf-8")
    return folder / PAGE


@contextmanager
def _whole(folder: Path) -> Iterator[Path]:
    """A place for files that move into `folder` when all of them are written, the page last."""
    is_new = not folder.exists()
    place = folder / ".unfinished"
    place.mkdir(parents=True, exist_ok=True)
    try:
        yield place
        found = sorted(path for path in place.rglob("*") if path.is_file())
        for path in sorted(found, key=lambda path: path.name == PAGE):
            target = folder / path.relative_to(place)
            target.parent.mkdir(exist_ok=True)
            path.replace(target)
    except BaseException:
        if is_new:
            shutil.rmtree(folder)
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _write_section(folder: Path, section: Section) -> None:
    for name in ("figures", "tables"):
        (folder / name).mkdir(exist_ok=True)
    for drawing in section.drawings:
        (folder / "figures" / f"{drawing.name}.png").write_bytes(drawing.png)
        (folder / "figures" / f"{drawing.name}.pdf").write_bytes(as_bytes(drawing.figure, "pdf"))
    for table in section.tables:
        for ending, text in (("md", markdown(table)), ("tex", latex(table))):
            path = folder / "tables" / f"{table.name}.{ending}"
            path.write_text(text, encoding="utf-8")


def markdown(table: Grid) -> str:
    """A table for text files.

    >>> print(markdown(Grid("t", ["method", "nll"], [["ours", "0.1"]])), end="")
    | method | nll |
    | --- | --: |
    | ours | 0.1 |
    """
    marks = ["--:" if is_number else "---" for is_number in table.are_numbers()]
    lines = [table.head, marks, *table.rows]
    body = "\n".join(
        f"| {' | '.join(_one_line(cell).replace('|', '/') for cell in line)} |" for line in lines
    )
    return f"{body}\n\n{table.note}\n" if table.note else f"{body}\n"


def latex(table: Grid) -> str:
    """A table for papers, with the package booktabs.

    >>> print(latex(Grid("t", ["method", "share"], [["ours", "5 %"]])), end="")
    \\begin{tabular}{lr}
    \\toprule
    method & share \\\\
    \\midrule
    ours & 5 \\% \\\\
    \\bottomrule
    \\end{tabular}
    """
    columns = "".join("r" if is_number else "l" for is_number in table.are_numbers())
    rows = [" & ".join(_in_latex(cell) for cell in row) + r" \\" for row in table.rows]
    head = " & ".join(_in_latex(cell) for cell in table.head) + r" \\"
    body = "\n".join([r"\toprule", head, r"\midrule", *rows, r"\bottomrule"])
    note = f"% {_one_line(table.note)}\n" if table.note else ""
    return f"{note}\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}\n"


def _in_latex(cell: str) -> str:
    """A cell whose signs are printed, not obeyed.

    >>> print(_in_latex("a^b {50 %} √n"))
    a\\textasciicircum{}b \\{50 \\%\\} $\\surd$n
    """
    return "".join(LATEX.get(sign, sign) for sign in _one_line(cell))


def _one_line(text: str) -> str:
    return re.sub(r"[\r\n\v\f\u2028\u2029]+", " ", text)


def _write_book(path: Path, title: str, sections: Sequence[Section], about: Sequence[str]) -> None:
    """The page on sheets of paper: its text first, then a sheet for each figure."""
    backend = require("matplotlib.backends.backend_pdf", extra="plots", needed_by="A report")
    with backend.PdfPages(path, metadata={"Title": title, "CreationDate": None}) as book:
        for sheet in _sheets(_text(title, sections, about)):
            book.savefig(sheet)
        for section in sections:
            for drawing in section.drawings:
                book.savefig(drawing.figure)


def _text(title: str, sections: Sequence[Section], about: Sequence[str]) -> list[list[Line]]:
    """Lines, in blocks that should stay together."""
    blank: Line = ("", {})
    bold, small = {"weight": "bold"}, {"size": 8, "family": "monospace"}
    blocks: list[list[Line]] = [[*_wrapped(title, {"size": 15, **bold}, WIDTH // 2), blank]]
    for section in sections:
        words = [blank, *_wrapped(section.title, {"size": 12, **bold}, WIDTH // 2)]
        for sentence in section.sentences:
            words += _wrapped(sentence, {"size": 9})
        blocks.append(words)
        for table in section.tables:
            rows = [(row, small) for row in _columns(table)]
            blocks.append([blank, *rows, blank, *_wrapped(table.note, {"size": 8})])
    return [*blocks, [blank, *(part for line in about for part in _wrapped(line, {"size": 8}))]]


def _wrapped(text: str, look: dict[str, Any], width: int = WIDTH) -> list[Line]:
    return [(part, look) for part in textwrap.wrap(text, width)]


def _columns(table: Grid) -> list[str]:
    """The lines of a table, its columns below each other; wide cells take several lines."""
    rows = [list(table.head), *map(list, table.rows)]
    widths = [max(1, *(len(row[place]) for row in rows)) for place in range(len(table.head))]
    while sum(widths) + 2 * (len(widths) - 1) > ACROSS and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    looks = list(zip(widths, table.are_numbers(), strict=True))
    lines = []
    for row in rows:
        cells = [textwrap.wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            placed = (
                part.rjust(width) if is_number else part.ljust(width)
                for part, (width, is_number) in zip(parts, looks, strict=True)
            )
            lines.append("  ".join(placed).rstrip())
    return lines


def _paged(blocks: Sequence[list[Line]], per_sheet: int) -> list[list[Line]]:
    """The lines of each sheet; a block that would be cut begins the next one, if it fits there."""
    sheets: list[list[Line]] = [[]]
    for block in blocks:
        if len(block) <= per_sheet < len(sheets[-1]) + len(block):
            sheets.append([])
        for line in block:
            if len(sheets[-1]) == per_sheet:
                sheets.append([])
            sheets[-1].append(line)
    return sheets


def _sheets(blocks: Sequence[list[Line]]) -> list[Any]:
    sheets = []
    for lines in _paged(blocks, int(0.9 / LINE)):
        sheet = new_figure(*SHEET)
        for place, (line, look) in enumerate(lines):
            sheet.text(0.08, 0.95 - LINE * place, line, va="top", parse_math=False, **look)
        sheets.append(sheet)
    return sheets
