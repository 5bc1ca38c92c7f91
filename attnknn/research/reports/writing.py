"""Writes a page as HTML and PDF, its figures as PNG and PDF, its tables as Markdown and LaTeX."""

from __future__ import annotations

import itertools
import re
import shutil
import tempfile
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attnknn._escape import markdown_text
from attnknn._optional import require
from attnknn._output_files import check_output, publish, refuse_model_folder
from attnknn.research.evaluation.report import check_folder
from attnknn.research.reports.figures import as_bytes, new_figure
from attnknn.research.reports.page import GENERATOR, Drawing, Grid, Section, html_page

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
    **{"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"},
    **{"…": r"\dots{}", "–": "--", "—": "---", "“": "``", "”": "''"},
}


def write_report(
    folder: str | Path,
    title: str,
    sections: Sequence[Section],
    about: Sequence[str] = (),
    *,
    force: bool = False,
) -> Path:
    """Write a page with its figures and tables, or nothing; return its path.

    Existing files are replaced only with `force`.
    """
    folder = Path(folder)
    refuse_model_folder(folder)
    with _whole(folder, force) as place:
        for section in sections:
            _write_section(place, section)
        _write_book(place / BOOK, title, sections, about)
        (place / PAGE).write_text(html_page(title, sections, about), encoding="utf-8")
    return folder / PAGE


@contextmanager
def _whole(folder: Path, force: bool) -> Iterator[Path]:
    """A temporary folder whose files move to `folder` once all are written, the page last."""
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=".attnknn-", dir=folder))
    try:
        yield place
        found = sorted(path for path in place.rglob("*") if path.is_file())
        targets = {path: folder / path.relative_to(place) for path in found}
        for target in targets.values():
            target.parent.mkdir(exist_ok=True)
            check_output(target, force=force)
        if _is_ours(folder / PAGE):
            _remove_old(folder, {path.relative_to(place) for path in found})
        for path in sorted(found, key=lambda path: path.name == PAGE):
            publish(path, targets[path])
    except BaseException:
        if is_new:
            shutil.rmtree(folder)
        raise
    finally:
        shutil.rmtree(place, ignore_errors=True)


def check_page(folder: Path, *, force: bool) -> None:
    """Raise an error unless a page can be written to `folder`; over another only with `force`."""
    check_folder(folder)
    for name in (PAGE, BOOK):
        if folder.is_dir():
            check_output(folder / name, force=force)


def _is_ours(page: Path) -> bool:
    return page.is_file() and GENERATOR in page.read_text(encoding="utf-8", errors="replace")


def _remove_old(folder: Path, new: set[Path]) -> None:
    """Remove figures and tables of an earlier page that the new one does not have."""
    for room, endings in {"figures": {".png", ".pdf"}, "tables": {".md", ".tex"}}.items():
        for path in folder.glob(f"{room}/*"):
            if path.suffix in endings and path.relative_to(folder) not in new:
                path.unlink()


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
    """A table as Markdown.

    >>> print(markdown(Grid("t", ["method", "nll"], [["ours", "0.1"]])), end="")
    | method | nll |
    | --- | --: |
    | ours | 0.1 |
    """
    marks = ["--:" if is_number else "---" for is_number in table.are_numbers()]
    lines = [map(markdown_text, table.head), marks, *table.marked("**{}**".format, markdown_text)]
    body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{body}\n\n{markdown_text(table.caption)}\n" if table.caption else f"{body}\n"


def latex(table: Grid) -> str:
    """A table as a LaTeX float with caption and label, for the package booktabs.

    >>> best = [(0, 1)]
    >>> print(latex(Grid("t", ["method", "share"], [["ours", "5 %"]], "Shares.", best)), end="")
    \\begin{table}
    \\centering
    \\caption{Shares. Best values in bold.}
    \\label{tab:t}
    \\begin{tabular}{lr}
    \\toprule
    method & share \\\\
    \\midrule
    ours & \\textbf{5 \\%} \\\\
    \\bottomrule
    \\end{tabular}
    \\end{table}
    """
    columns = "".join("r" if is_number else "l" for is_number in table.are_numbers())
    cells = [[_in_latex(cell) for cell in table.head], *table.marked(_bold_in_latex, _in_latex)]
    head, *rows = map(_row_in_latex, cells)
    lines = [r"\begin{table}", r"\centering"]
    lines += [rf"\caption{{{_in_latex(table.caption)}}}"] if table.caption else []
    lines += [rf"\label{{tab:{_as_label(table.name)}}}", rf"\begin{{tabular}}{{{columns}}}"]
    lines += [r"\toprule", head, r"\midrule", *rows, r"\bottomrule"]
    return "\n".join([*lines, r"\end{tabular}", r"\end{table}", ""])


def _row_in_latex(cells: Sequence[str]) -> str:
    """A row; a leading [ or * would be read as an argument of the line above."""
    text = " & ".join(cells) + r" \\"
    return "{}" + text if text[0] in "[*" else text


def _bold_in_latex(cell: str) -> str:
    return rf"\textbf{{{cell}}}"


def _as_label(name: str) -> str:
    """A name without the signs that labels must not contain.

    >>> _as_label("main-a_b, {50 %}")
    'main-a-b-50'
    """
    return re.sub(r"[^A-Za-z0-9.:-]+", "-", name).strip("-")


def _in_latex(cell: str) -> str:
    """Escape a cell for LaTeX.

    >>> print(_in_latex("a^b {50 %} √n"))
    a\\textasciicircum{}b \\{50 \\%\\} $\\surd$n
    """
    return "".join(LATEX.get(sign, sign) for sign in _one_line(cell))


def _one_line(text: str) -> str:
    return re.sub(r"[\r\n\v\f\u2028\u2029]+", " ", text)


def _write_book(path: Path, title: str, sections: Sequence[Section], about: Sequence[str]) -> None:
    """Write the page as PDF: text first, then one sheet per figure."""
    backend = require("matplotlib.backends.backend_pdf", extra="plots", needed_by="A report")
    with backend.PdfPages(path, metadata={"Title": title, "CreationDate": None}) as book:
        for sheet in _sheets(_text(title, sections, about)):
            book.savefig(sheet)
        for section in sections:
            for drawing in section.drawings:
                _save_figure(book, section.title, drawing)


def _save_figure(book: Any, title: str, drawing: Drawing) -> None:
    """Save a figure with its title and caption on a sheet of its own."""
    figure = drawing.figure
    width, height = figure.get_size_inches()
    below = textwrap.wrap(drawing.caption, int(13 * width))
    above, foot = 0.4, 0.2 + 0.16 * len(below)  # inches
    whole = above + height + foot
    look = {"ha": "left", "va": "top", "parse_math": False}
    figure.set_size_inches(width, whole)
    figure.set_layout_engine("constrained", rect=(0, foot / whole, 1, height / whole))
    added = [
        figure.text(0.02, 1 - 0.1 / whole, title, weight="bold", **look),
        figure.text(0.02, (foot - 0.1) / whole, "\n".join(below), size=8, **look),
    ]
    book.savefig(figure)
    for text in added:
        text.remove()
    figure.set_size_inches(width, height)
    figure.set_layout_engine("constrained")


def _text(title: str, sections: Sequence[Section], about: Sequence[str]) -> list[list[Line]]:
    """The text in blocks of lines that should not be split."""
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
    """The lines of a table; columns beyond the width of a sheet come below."""
    rows = [list(table.head), *map(list, table.rows)]
    places = range(len(table.head))
    least = [_longest(word for row in rows for word in row[place].split()) for place in places]
    widths = [_longest(row[place] for row in rows) for place in places]
    while _across(widths) > ACROSS and widths != least:
        widest = max(places, key=lambda place: (widths[place] > least[place], widths[place]))
        widths[widest] -= 1
    looks = list(zip(widths, table.are_numbers(), strict=True))
    lines: list[str] = []
    for part in _parts(widths):
        chosen = [[row[place] for place in part] for row in rows]
        lines += [""] * bool(lines) + _lines(chosen, [looks[place] for place in part])
    return lines


def _longest(texts: Iterable[str]) -> int:
    return min(ACROSS // 2, max(map(len, texts), default=1)) or 1


def _across(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * (len(widths) - 1)


def _parts(widths: Sequence[int]) -> list[list[int]]:
    """Columns that fit side by side; each part begins with the first column.

    >>> _parts([10, 60, 60, 20])
    [[0, 1], [0, 2, 3]]
    """
    parts = [[0]]
    for place in range(1, len(widths)):
        if len(parts[-1]) > 1 and _across([widths[p] for p in [*parts[-1], place]]) > ACROSS:
            parts.append([0])
        parts[-1].append(place)
    return parts


def _lines(rows: Sequence[Sequence[str]], looks: Sequence[tuple[int, bool]]) -> list[str]:
    """The lines of rows; wide cells take several lines."""
    widths = [width for width, _ in looks]
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
    """The lines of each sheet; a block that would be split begins the next sheet if it fits."""
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
