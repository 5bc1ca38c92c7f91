"""The demo's figures: comparison, reliability, evidence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from attnknn._optional import require
from attnknn.cli.demo.comparison import METRICS, OURS
from attnknn.cli.demo.story import Story
from attnknn.metrics import ReliabilityBins
from attnknn.metrics.calibration import bins_of_confidence
from attnknn.research.evaluation.table import Table

BLUE, GRAY, RED = "#1f5fa8", "#b4b9c0", "#b3402a"
N_BINS = 10


def draw_all(folder: Path, tables: list[Table], story: Story) -> dict[str, str]:
    """Draw every figure; file name by caption."""
    figures = {
        "comparison.png": ("The same rows, four methods.", _comparison(tables)),
        "reliability.png": (
            f"How often {OURS} is right when it says so: {sum(t.n_test for t in tables)} test rows "
            f"of {' and '.join(t.dataset for t in tables)}.",
            _reliability(tables),
        ),
        "evidence.png": (
            "A test row, the examples with the most say, and the one that is labeled wrongly.",
            _evidence(story),
        ),
    }
    for name, (_, figure) in figures.items():
        figure.savefig(folder / name, dpi=120)
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
        values = [1 - value for value in values]  # bars of accuracy would all look alike from zero
    colors = [BLUE if method == OURS else GRAY for method in methods]
    bars = panel.barh(methods, values, color=colors)
    panel.bar_label(bars, fmt="%.3f", padding=3, fontsize=8)
    panel.set_xlim(0.0, 1.25 * max(values) or 1.0)
    panel.tick_params(labelsize=8)
    panel.spines[["top", "right"]].set_visible(False)


def bins_of(tables: list[Table], method: str) -> ReliabilityBins:
    """Confidence against accuracy of a method, over the test rows of all tables.

    Reports keep the confidence of a row, not all its probabilities.
    """
    runs = [table.of(method)[0] for table in tables]
    confidence = np.concatenate([run.row_confidence for run in runs])
    is_right = np.concatenate([run.row_correct for run in runs])
    return bins_of_confidence(confidence, is_right, N_BINS).nonempty()


def _reliability(tables: list[Table]) -> Any:
    found = bins_of(tables, OURS)
    figure = _new_figure(5.6, 5.8)
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    upper.plot([0, 1], [0, 1], color=GRAY, linestyle="--", label="as often right as it says")
    low = np.clip(found.confidence - 2 * found.noise, 0, 1)
    high = np.clip(found.confidence + 2 * found.noise, 0, 1)
    upper.vlines(
        found.confidence, low, high, color=GRAY, linewidth=6, alpha=0.6, label="chance (2 σ)"
    )
    upper.plot(found.confidence, found.accuracy, "o", color=BLUE, label="what came")
    upper.set(ylabel="share that is right", xlim=(0, 1.03), ylim=(-0.04, 1.04))
    figure.legend(loc="outside upper center", ncols=3, fontsize=8, frameon=False)
    middles = (found.lower + found.upper) / 2
    bars = lower.bar(middles, found.counts, width=0.8 * (found.upper - found.lower), color=GRAY)
    lower.bar_label(bars, fontsize=8, padding=2)
    lower.set(xlabel="confidence: the probability of the answer", ylabel="rows", yscale="log")
    lower.set_ylim(0.7, 6 * found.counts.max())
    for panel in (upper, lower):
        panel.spines[["top", "right"]].set_visible(False)
    return figure


def _evidence(story: Story) -> Any:
    figure = _new_figure(9.0, 1.95)
    panels = figure.subplots(1, 1 + len(story.voters))
    answer = f"answer {story.evidence.label}\n(p = {story.evidence.probability:.3f})"
    _image(panels[0], story.query, f"the question:\n{answer}")
    for voter, panel in zip(story.voters, panels[1:], strict=True):
        _image(
            panel, voter.row, voter.words, BLUE if voter.label == story.numbers["truth"] else RED
        )
    return figure


def _image(panel: Any, pixels: Any, text: str, color: str = "black") -> None:
    panel.imshow(np.asarray(pixels).reshape(8, 8), cmap="gray_r")
    panel.set_title(text, fontsize=9, color=color)
    panel.set_xticks([])
    panel.set_yticks([])
