"""A report as a folder: the page as HTML and PDF, figures as PNG and PDF, tables as text."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnknn._optional import require
from attnknn.reports.figures import as_bytes, new_figure
from attnknn.reports.page import Grid, Section, html_page

PAGE, BOOK = "index.html", "report.pdf"
SHEET = (8.27, 11.69)  # inches: A4
LINE, WIDTH = 0.019, 96  # height of a line as a share of the sheet, and its characters
LATEX = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$", "−": "$-$", "±": r"$\pm$"}


def write_report(
    folder: str | Path, title: str, sections: Sequence[Section], about: Sequence[str] = ()
) -> Path:
    """Write everything; gives the path of the page."""
    folder = Path(folder)
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    (folder / "tables").mkdir(exist_ok=True)
    for section in sections:
        for drawing in section.drawings:
            for ending in ("png", "pdf"):
                path = folder / "figures" / f"{drawing.name}.{ending}"
                path.write_bytes(as_bytes(drawing.figure, ending))
        for table in section.tables:
            (folder / "tables" / f"{table.name}.md").write_text(markdown(table))
            (folder / "tables" / f"{table.name}.tex").write_text(latex(table))
    _write_book(folder / BOOK, title, sections, about)
    page = folder / PAGE
    page.write_text(html_page(title, sections, about), encoding="utf-8")
    return page


def markdown(table: Grid) -> str:
    """A table for text files.

    >>> print(markdown(Grid("t", ["method", "nll"], [["ours", "0.1"]])), end="")
    | method | nll |
    | --- | --: |
    | ours | 0.1 |
    """
    marks = ["--:" if is_number else "---" for is_number in table.are_numbers()]
    lines = [table.head, marks, *table.rows]
    body = "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
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
    note = f"% {table.note}\n" if table.note else ""
    return f"{note}\\begin{{tabular}}{{{columns}}}\n{body}\n\\end{{tabular}}\n"


def _in_latex(cell: str) -> str:
    return re.sub("[&%_#$−±]", lambda found: LATEX[found[0]], cell)


def _write_book(path: Path, title: str, sections: Sequence[Section], about: Sequence[str]) -> None:
    """The page on sheets of paper: its text first, then a sheet for each figure."""
    backend = require("matplotlib.backends.backend_pdf", extra="plots", needed_by="A report")
    with backend.PdfPages(path, metadata={"Title": title, "CreationDate": None}) as book:
        for sheet in _sheets(_text(title, sections, about)):
            book.savefig(sheet)
        for section in sections:
            for drawing in section.drawings:
                book.savefig(drawing.figure)


def _text(
    title: str, sections: Sequence[Section], about: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """Lines and how they look."""
    lines: list[tuple[str, dict[str, Any]]] = [(title, {"size": 15, "weight": "bold"}), ("", {})]
    small = {"size": 8, "family": "monospace"}
    for section in sections:
        lines += [("", {}), (section.title, {"size": 12, "weight": "bold"})]
        for sentence in section.sentences:
            lines += [(part, {"size": 9}) for part in textwrap.wrap(sentence, WIDTH)]
        for table in section.tables:
            lines += [("", {}), *((row, small) for row in _columns(table)), ("", {})]
            lines += [(part, {"size": 8}) for part in textwrap.wrap(table.note, WIDTH)]
    lines.append(("", {}))
    for line in about:
        lines += [(part, {"size": 8}) for part in textwrap.wrap(line, WIDTH)]
    return lines


def _columns(table: Grid) -> list[str]:
    """The lines of a table, its columns below each other."""
    rows = [list(table.head), *map(list, table.rows)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(table.head))]
    looks = list(zip(widths, table.are_numbers(), strict=True))
    return [
        "  ".join(
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, (width, is_number) in zip(row, looks, strict=True)
        )
        for row in rows
    ]


def _sheets(lines: list[tuple[str, dict[str, Any]]]) -> list[Any]:
    per_sheet = int(0.9 / LINE)
    sheets = []
    for start in range(0, len(lines), per_sheet):
        sheet = new_figure(*SHEET)
        for place, (line, look) in enumerate(lines[start : start + per_sheet]):
            sheet.text(0.08, 0.95 - LINE * place, line, va="top", **look)
        sheets.append(sheet)
    return sheets
