"""The report of the demo: Markdown, HTML and JSON, with figures if matplotlib is installed."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import numpy as np

from attnknn import __version__
from attnknn._optional import require
from attnknn._output_files import refuse_model_folder, replace_file, write_file
from attnknn.cli.demo.story import METRICS, OURS, Story, cells_of, choice_of
from attnknn.errors import InvalidInputError, MissingExtraError
from attnknn.metrics import ReliabilityBins
from attnknn.metrics.calibration import bins_of_confidence
from attnknn.research.evaluation.table import Table

MARK = "attnknn demo"
HEADING = "1. Four classifiers on the same rows"
BLUE, GRAY, RED = "#1f5fa8", "#b4b9c0", "#b3402a"
N_BINS = 10
STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color:#1b1f24}table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .8rem;"
    "text-align:right;border-bottom:1px solid #d5d9de}"
    "td:first-child,th:first-child{text-align:left}"
    "pre{background:#f4f5f7;padding:1rem;overflow-x:auto;font-size:13px;line-height:1.4}"
    "img{max-width:100%}figure{margin:1rem 0}figcaption{color:#57606a}"
)


def check_free(folder: Path, *, force: bool) -> None:
    """Raise an error unless `folder` is empty, or with `force` holds an earlier report."""
    refuse_model_folder(folder)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    try:
        is_ours = json.loads((folder / "report.json").read_text())["made_by"] == MARK
    except (OSError, ValueError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        raise InvalidInputError(
            f"{folder} has files that are not from an earlier demo; nothing was changed. Choose "
            "another folder with --out."
        )
    if not force:
        raise InvalidInputError(
            f"{folder} has the report of an earlier demo. Give --force to replace it."
        )


def write_report(folder: Path, tables: list[Table], story: Story, seconds: float) -> str:
    """Write everything to `folder`; returns a note if figures are missing, else ""."""
    folder.mkdir(parents=True, exist_ok=True)
    note, figures = "", {}
    try:
        figures = draw_all(folder, tables, story)
    except MissingExtraError as error:
        note = f"The report has no figures. {error}"
    intro = (
        f"attnknn {__version__}, data sets of scikit-learn, {seconds:.0f} seconds on this machine. "
        "Every number here was computed by this run."
    )
    record = {
        "made_by": MARK,
        "version": __version__,
        "seconds": round(seconds, 1),
        "versions": tables[0].versions,
        "story": story.numbers,
        "tables": {t.dataset: {r.method: r.scores.to_dict() for r in t.runs} for t in tables},
    }
    files = {
        "report.json": json.dumps(record, indent=1) + "\n",
        "report.md": _markdown(intro, tables, story, figures, note),
        "report.html": _html(intro, tables, story, figures, note),
    }
    for name, content in files.items():
        write_file(folder / name, content, force=True)
    return note


def _markdown(
    intro: str, tables: list[Table], story: Story, figures: dict[str, str], note: str
) -> str:
    parts = ["# AttnKNN: a demonstration", intro, f"## {HEADING}"]
    for table in tables:
        head, *lines = cells_of(table)
        rule = ["---", *["--:"] * (len(head) - 1)]
        parts.append("\n".join(f"| {' | '.join(cells)} |" for cells in [head, rule, *lines]))
        parts.append(choice_of(table))
    for chapter in story.chapters:
        words, _, block = chapter.text.partition("\n\n")
        parts += [f"## {chapter.title}", words, *([f"```\n{block}\n```"] if block else [])]
    parts += [f"![{caption}]({name})\n\n*{caption}*" for name, caption in figures.items()]
    return "\n\n".join([*parts, *([note] if note else [])]) + "\n"


def _html(intro: str, tables: list[Table], story: Story, figures: dict[str, str], note: str) -> str:
    parts = [f"<h1>AttnKNN: a demonstration</h1><p>{_safe(intro)}</p>"]
    parts.append(f"<h2>{HEADING}</h2>")
    for table in tables:
        parts.append(f"{_html_table(cells_of(table))}<p>{_safe(choice_of(table))}</p>")
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


def draw_all(folder: Path, tables: list[Table], story: Story) -> dict[str, str]:
    """Draw all figures; returns captions by file name."""
    figures = {
        "comparison.png": ("Four classifiers on the same rows.", _comparison(tables)),
        "reliability.png": (
            f"Reliability diagram of {OURS}: {sum(t.n_test for t in tables)} test rows of "
            f"{' and '.join(t.dataset for t in tables)}.",
            _reliability(tables),
        ),
        "evidence.png": (
            "A test row and the neighbors with the highest weights; one has the wrong label. The "
            f"prior has the weight {story.evidence.prior_weight:.3f}.",
            _evidence(story),
        ),
    }
    for name, (_, figure) in figures.items():
        with replace_file(folder / name, force=True) as temporary:
            figure.savefig(temporary, dpi=120)
    return {name: caption for name, (caption, _) in figures.items()}


def _new_figure(width: float, height: float) -> Any:
    needs = {"extra": "plots", "needed_by": "The figures of the demo"}
    require("matplotlib", **needs)
    return require("matplotlib.figure", **needs).Figure(
        figsize=(width, height), layout="constrained"
    )


def _comparison(tables: list[Table]) -> Any:
    figure = _new_figure(9.5, 2.6 * len(tables))
    panels = figure.subplots(len(tables), len(METRICS), squeeze=False)
    for line, table in zip(panels, tables, strict=True):
        for panel, (metric, words) in zip(line, METRICS.items(), strict=True):
            _bars(panel, table, metric)
            words = "share of errors" if metric == "accuracy" else words
            panel.set_title(f"{table.dataset}: {words} (lower is better)", fontsize=9)
            if panel is not line[0]:
                panel.set_yticklabels([])
    return figure


def _bars(panel: Any, table: Table, metric: str) -> None:
    methods = table.methods[::-1]
    values = [table.mean(metric, method) for method in methods]
    if metric == "accuracy":
        values = [1 - value for value in values]  # error rates differ more visibly than accuracies
    colors = [BLUE if method == OURS else GRAY for method in methods]
    bars = panel.barh(methods, values, color=colors)
    panel.bar_label(bars, fmt="%.3f", padding=3, fontsize=8)
    panel.set_xlim(0.0, 1.25 * max(values) or 1.0)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def bins_of(tables: list[Table], method: str) -> ReliabilityBins:
    """Reliability bins of a method over the test rows of all tables.

    Reports store the confidence of each row, not all its probabilities.
    """
    runs = [table.of(method)[0] for table in tables]
    confidence = np.concatenate([run.row_confidence for run in runs])
    is_right = np.concatenate([run.row_correct for run in runs])
    return bins_of_confidence(confidence, is_right, N_BINS).nonempty()


def _reliability(tables: list[Table]) -> Any:
    found = bins_of(tables, OURS)
    figure = _new_figure(5.6, 5.8)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    upper.plot([0, 1], [0, 1], color=GRAY, linestyle="--", label="perfect calibration")
    low = np.clip(found.confidence - 2 * found.noise, 0, 1)
    high = np.clip(found.confidence + 2 * found.noise, 0, 1)
    upper.vlines(
        found.confidence, low, high, color=GRAY, linewidth=6, alpha=0.6, label="chance (2 σ)"
    )
    upper.plot(found.confidence, found.accuracy, "o", color=BLUE, label="observed")
    upper.set(ylabel="accuracy", xlim=(0, 1.03), ylim=(-0.04, 1.04))
    figure.legend(loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    middles = (found.lower + found.upper) / 2
    bars = lower.bar(middles, found.counts, width=0.8 * (found.upper - found.lower), color=GRAY)
    lower.bar_label(bars, fontsize=8, padding=2)
    lower.set(xlabel="confidence", ylabel="rows", yscale="log")
    lower.set_ylim(0.7, 6 * found.counts.max())
    for panel in (upper, lower):
        panel.spines[["top", "right"]].set_visible(False)
    return figure


def _evidence(story: Story) -> Any:
    figure = _new_figure(9.0, 1.95)
    panels = figure.subplots(1, 1 + len(story.neighbors))
    answer = f"prediction {story.evidence.label}\n(p = {story.evidence.probability:.3f})"
    _image(panels[0], story.query, f"test row:\n{answer}")
    for neighbor, panel in zip(story.neighbors, panels[1:], strict=True):
        is_correct = neighbor.label == story.numbers["truth"]
        _image(panel, neighbor.row, neighbor.caption, BLUE if is_correct else RED)
    return figure


def _image(panel: Any, pixels: Any, text: str, color: str = "black") -> None:
    panel.imshow(np.asarray(pixels).reshape(8, 8), cmap="gray_r")
    panel.set_title(text, fontsize=9, color=color)
    panel.set_xticks([])
    panel.set_yticks([])
