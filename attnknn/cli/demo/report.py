"""The demo's report: Markdown, HTML and JSON, with the figures where they can be drawn."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

from attnknn import __version__
from attnknn.cli.demo.comparison import cells_of
from attnknn.cli.demo.story import Story
from attnknn.errors import InvalidInputError, MissingExtraError
from attnknn.research.evaluation.table import Table

MARK = "attnknn demo"
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1b1f24}table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .8rem;"
    "text-align:right;border-bottom:1px solid #d5d9de}"
    "td:first-child,th:first-child{text-align:left}"
    "pre{background:#f4f5f7;padding:1rem;overflow-x:auto;font-size:13px;line-height:1.4}"
    "img{max-width:100%}figure{margin:1rem 0}figcaption{color:#57606a}"
)


def check_free(folder: Path) -> None:
    """An error where `folder` holds something that an earlier demo did not leave."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        is_ours = json.loads((folder / "report.json").read_text())["made_by"] == MARK
    except (OSError, ValueError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        raise InvalidInputError(
            f"{folder} holds something that is not from an earlier demo, and is left as it is. "
            "Name another folder with --out."
        )


def write_report(folder: Path, tables: list[Table], story: Story, seconds: float) -> str:
    """Write everything to `folder`; returns a note where figures are missing, else ""."""
    folder.mkdir(parents=True, exist_ok=True)
    note, figures = "", {}
    try:
        from attnknn.cli.demo.figures import draw_all

        figures = draw_all(folder, tables, story)
    except MissingExtraError as error:
        note = f"The report has no figures. {error}"
    intro = (
        f"attnknn {__version__}, data that come with scikit-learn, {seconds:.0f} seconds on this "
        "machine. Every number here was computed by the run that wrote it."
    )
    record = {
        "made_by": MARK,
        "version": __version__,
        "seconds": round(seconds, 1),
        "versions": tables[0].versions,
        "story": story.numbers,
        "tables": {t.dataset: {r.method: r.scores.to_dict() for r in t.runs} for t in tables},
    }
    (folder / "report.json").write_text(json.dumps(record, indent=1) + "\n")
    (folder / "report.md").write_text(_markdown(intro, tables, story, figures, note))
    (folder / "report.html").write_text(_html(intro, tables, story, figures, note))
    return note


def _markdown(
    intro: str, tables: list[Table], story: Story, figures: dict[str, str], note: str
) -> str:
    parts = ["# AttnKNN: a demonstration", intro, "## 1. Four ways to classify, on the same rows"]
    for table in tables:
        head, *lines = cells_of(table)
        rule = ["---", *["--:"] * (len(head) - 1)]
        parts.append("\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *lines]))
    for chapter in story.chapters:
        words, _, block = chapter.text.partition("\n\n")
        parts += [f"## {chapter.title}", words, *([f"```\n{block}\n```"] if block else [])]
    parts += [f"![{caption}]({name})\n\n*{caption}*" for name, caption in figures.items()]
    return "\n\n".join([*parts, *([note] if note else [])]) + "\n"


def _html(intro: str, tables: list[Table], story: Story, figures: dict[str, str], note: str) -> str:
    parts = [f"<h1>AttnKNN: a demonstration</h1><p>{_safe(intro)}</p>"]
    parts.append("<h2>1. Four ways to classify, on the same rows</h2>")
    parts += [_html_table(cells_of(table)) for table in tables]
    parts += [_html_figure(name, figures) for name in ("comparison.png", "reliability.png")]
    for chapter in story.chapters:
        words, _, block = chapter.text.partition("\n\n")
        parts.append(f"<h2>{_safe(chapter.title)}</h2><p>{_safe(words)}</p>")
        parts += [f"<pre>{_safe(block)}</pre>"] if block else []
        if chapter is story.chapters[0]:
            parts.append(_html_figure("evidence.png", figures))
    body = "\n".join([*parts, f"<p>{_safe(note)}</p>" if note else ""])
    head = f'<meta charset="utf-8"><title>AttnKNN demo</title><style>{STYLE}</style>'
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _html_table(lines: list[list[str]]) -> str:
    rows = []
    for place, cells in enumerate(lines):
        tag = "td" if place else "th"
        rows.append("<tr>" + "".join(f"<{tag}>{_safe(cell)}</{tag}>" for cell in cells) + "</tr>")
    return f"<table>{''.join(rows)}</table>"


def _html_figure(name: str, figures: dict[str, str]) -> str:
    if name not in figures:
        return ""
    caption = _safe(figures[name])
    return f'<figure><img src="{name}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'


def _safe(text: Any) -> str:
    return html.escape(str(text))
