"""Figures of a report, with intervals."""

from __future__ import annotations

import io
import itertools
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from attnknn import _display
from attnknn.metrics import ReliabilityBins, RiskCoverage
from attnknn.records import Booleans, Floats, Integers
from attnknn.research.evaluation.illustrations import EmbeddingMap, OneVsRest
from attnknn.research.evaluation.intervals import Interval
from attnknn.training.config import TrainResult

BLUE, GRAY, RED, PALE = "#1f5fa8", "#8a9099", "#b3402a", "#d9dde2"
COLORS = (BLUE, "#d1811f", "#4a8f4d", RED, "#7a5aa6", GRAY, "#20808d", "#a05a2c", "#c2568f")
MANY = (  # of up to 20 classes
    *("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f"),
    *("#bcbd22", "#17becf", "#aec7e8", "#ffbb78", "#98df8a", "#ff9896", "#c5b0d5", "#c49c94"),
    *("#f7b6d2", "#c7c7c7", "#dbdb8d", "#9edae5"),
)
STROKES = ("-", "--", ":", "-.")
MAX_INSIDE, IN_COLUMN = 9, 26  # names of lines inside a panel, and in a column beside it
MAX_ACROSS = 4  # panels side by side
MAX_NAMED = 20  # classes whose names and counts fit into a confusion matrix


def new_figure(width: float, height: float) -> Any:
    """A new figure without a window."""
    return _display.figure(width, height, "The figures of a report")


def as_bytes(figure: Any, ending: str) -> bytes:
    """A figure as bytes of a png, pdf or svg file; reproducible."""
    if figure.get_layout_engine() is not None:  # laid out once: every drawing would move it a bit
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    content = io.BytesIO()
    still = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(ending)
    figure.savefig(content, format=ending, dpi=150, metadata=still)
    return content.getvalue()


def reliability(bins: ReliabilityBins, title: str) -> Any:
    """Reliability diagram: accuracy by confidence, and below the number of predictions.

    Whiskers reach two standard deviations to each side. Where they miss the diagonal, sampling
    noise does not explain the gap.
    """
    filled = bins.nonempty()
    figure = new_figure(4.8, 5.2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    above.plot([0, 1], [0, 1], color=GRAY, linewidth=1, linestyle=":", label="perfect calibration")
    above.errorbar(
        filled.confidence,
        filled.accuracy,
        yerr=_inside(filled.accuracy, 2 * filled.noise),
        fmt="o",
        color=BLUE,
        markersize=4,
        capsize=2,
        label="observed",
        clip_on=False,  # else a point at 0 or 1 is half a point
    )
    above.set(ylim=(0, 1), ylabel="accuracy")
    above.set_title(title, pad=26)
    # Whiskers may be anywhere inside.
    above.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    bars = below.bar(
        filled.lower,
        filled.counts,
        width=filled.upper - filled.lower,
        align="edge",
        color=PALE,
        edgecolor="white",
    )
    # Most predictions are confident; the other bars would be too low to be read.
    below.bar_label(bars, fmt="{:,.0f}", rotation=90, padding=2, fontsize=7)
    below.set(xlim=(0, 1), xlabel="confidence", ylabel="predictions")
    below.set_ylim(0, 1.6 * filled.counts.max(initial=1))
    return plain(figure)


def reliabilities(
    bins: Mapping[str, ReliabilityBins], errors: Mapping[str, float], title: str
) -> Any:
    """Reliability diagrams of several methods side by side, with their calibration errors."""
    n_columns = min(len(bins), MAX_ACROSS)
    n_rows = math.ceil(len(bins) / n_columns)
    figure = new_figure(0.5 + 2.1 * n_columns, 0.7 + 2.3 * n_rows)
    panels = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False).ravel()
    for panel, (name, found) in zip(panels, bins.items(), strict=False):
        filled = found.nonempty()
        shares = filled.counts / max(filled.counts.sum(), 1)
        panel.plot([0, 1], [0, 1], color=GRAY, linewidth=1, linestyle=":")
        panel.bar(filled.lower, shares, width=filled.upper - filled.lower, align="edge", color=PALE)
        panel.errorbar(
            filled.confidence,
            filled.accuracy,
            yerr=_inside(filled.accuracy, 2 * filled.noise),
            fmt="o",
            color=BLUE,
            markersize=3,
            capsize=1.5,
            linewidth=1,
            clip_on=False,
        )
        panel.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        panel.set_title(f"{textwrap.fill(name, 24)}\nECE {errors[name]:.4f}", fontsize=9)
        panel.set_xticks([0, 0.5, 1])
    for place, panel in enumerate(panels):
        panel.set_visible(place < len(bins))
        panel.tick_params(labelbottom=place + n_columns >= len(bins))
    figure.suptitle(title)
    figure.supxlabel("confidence", fontsize=10)
    figure.supylabel("accuracy", fontsize=10)
    return plain(figure)


def comparison(
    values: Mapping[str, Interval],
    title: str,
    *,
    ours: str | None = None,
    observed: Mapping[str, float] | None = None,
) -> Any:
    """A point and its 95 % interval for each method, the first on top.

    `observed`: further values, drawn as hollow points.
    """
    figure = new_figure(6.4, 1.1 + 0.36 * len(values))
    panel = figure.subplots()
    for place, (name, value) in enumerate(values.items()):
        color = BLUE if name == ours else GRAY
        panel.plot([value.lower, value.upper], [place, place], color=color, linewidth=2)
        panel.plot(value.mean, place, "o", color=color, clip_on=False)
        if observed is not None:
            panel.plot(observed[name], place, "o", color=color, markerfacecolor="white")
        panel.annotate(
            f"{value.mean:.4f}",
            (value.mean, place),
            textcoords="offset points",
            xytext=(0, 6),
            ha="center",
            fontsize=8,
        )
    panel.set_yticks(range(len(values)), list(values), parse_math=False)
    panel.set_ylim(len(values) - 0.5, -0.7)
    panel.set_title(title)
    panel.margins(x=0.08)
    if all(value.lower >= 0 for value in values.values()):
        panel.set_xlim(left=max(0.0, panel.get_xlim()[0]))
    return plain(figure)


def lines(
    places: Sequence[float],
    values: Mapping[str, Sequence[Interval | None]],
    title: str,
    *,
    across: str,
    up: str,
    is_log: bool = False,
    from_zero: bool = False,
) -> Any:
    """One line per method over K, noise rate or the like, with 95 % bands.

    A line has a gap where its value is None.
    """
    figure = new_figure(6.4, 4.0)
    panel = figure.subplots()
    for look, (name, found) in zip(_looks(len(values)), values.items(), strict=True):
        mean, low, high = (
            [math.nan if value is None else getattr(value, part) for value in found]
            for part in ("mean", "lower", "upper")
        )
        panel.plot(places, mean, marker=".", label=name, **look)
        panel.fill_between(places, low, high, color=look["color"], alpha=0.15, linewidth=0)
    panel.set(xlabel=across, ylabel=up, title=title)
    if is_log:
        panel.set_xscale("log", base=2)
        panel.set_xticks(places, [f"{place:g}" for place in places])
    if from_zero:
        panel.set_ylim(bottom=0)
    _name_lines(panel)
    return plain(figure)


def training_curves(runs: Mapping[str, TrainResult], title: str) -> Any:
    """Training and validation loss by epoch; a ring marks the epoch whose weights were kept.

    They have panels of their own since training losses include dropout, mixing and augmentation.
    """
    figure = new_figure(8.0, 3.6)
    left, right = figure.subplots(1, 2)
    for look, (name, run) in zip(_looks(len(runs)), runs.items(), strict=True):
        epochs = range(1, len(run.train_losses) + 1)
        left.plot(epochs, run.train_losses, marker=".", label=name, **look)
        validation, kept = run.validation_losses, run.best_epoch
        right.plot(range(len(validation)), validation, marker=".", clip_on=False, **look)
        ring = {"marker": "o", "markersize": 9, "fillstyle": "none", "clip_on": False}
        right.plot(kept, validation[kept], color=look["color"], **ring)
    losses = np.array(
        [x for run in runs.values() for x in (*run.train_losses, *run.validation_losses)]
    )
    lowest = losses[np.isfinite(losses)].min(initial=0.0)  # a training that diverges leaves NaN
    for panel, kind in ((left, "training"), (right, "validation")):
        panel.set(xlabel="epoch", ylabel=f"{kind} loss")
        panel.set_xlim(left=0)
        panel.set_ylim(bottom=lowest)
        panel.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(title)
    _name_lines(left)
    return plain(figure)


def component_curves(runs: Mapping[str, TrainResult], title: str) -> Any:
    """Terms of the training loss by epoch, and the attention entropy, in a panel each."""
    names = list(dict.fromkeys(name for run in runs.values() for name in run.components))
    n_columns = min(len(names), 3)
    figure = new_figure(2.9 * n_columns, 0.5 + 2.5 * math.ceil(len(names) / n_columns))
    shape = (math.ceil(len(names) / n_columns), n_columns)
    panels = figure.subplots(*shape, squeeze=False).ravel()
    lines = {}
    for panel, name in itertools.zip_longest(panels, names):
        panel.set_visible(name is not None)
        for look, (run, result) in zip(_looks(len(runs)), runs.items(), strict=True):
            values = result.components.get(name, [])
            n_epochs = len(result.train_losses)  # a resumed training may lack the first ones
            epochs = range(n_epochs - len(values) + 1, n_epochs + 1)
            if values:
                (lines[run],) = panel.plot(epochs, values, marker=".", **look)
        panel.set(xlabel="epoch", title=name or "")
        panel.set_xlim(left=0)
        panel.xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(title)
    if len(lines) > 1:
        _legend_beside(figure, list(lines.values()), list(lines))
    return plain(figure)


def risk_and_coverage(curves: Mapping[str, RiskCoverage], title: str) -> Any:
    """Risk-coverage curves: the error rate among the most confident predictions.

    A range without errors that covers more than half of the axis is named and not drawn.
    """
    figure = new_figure(6.4, 4.0)
    panel = figure.subplots()
    for look, (name, curve) in zip(_looks(len(curves)), curves.items(), strict=True):
        panel.step(curve.coverage, curve.risk, where="post", label=name, **look)
    start = _faultless(curves.values())
    note = f"; no errors up to {start:g}" if start else ""
    panel.set(xlim=(start, 1), xlabel=f"coverage{note}", title=title)
    panel.set(ylabel="risk (error rate)")
    panel.set_ylim(bottom=0)
    _name_lines(panel, "upper left")  # risk rises to the right; to look for room takes seconds
    return plain(figure)


def _faultless(curves: Iterable[RiskCoverage]) -> float:
    """A coverage of at least one half up to which there is no error, in steps of 0.05; else 0."""
    first = min(float(curve.coverage[curve.risk > 0].min(initial=1.0)) for curve in curves)
    start = (math.ceil(20 * first) - 1) / 20  # below the first mistake, not at it
    return start if start >= 0.5 and first < 1 else 0.0


def confusions(matrix: Integers, classes: Sequence[str], title: str) -> Any:
    """Confusion matrix: true classes down, predicted ones across, shaded by shares of each row."""
    n_classes = len(classes)
    is_named = n_classes <= MAX_NAMED
    side = 2.4 + (0.42 * n_classes if is_named else 4.2)
    figure = new_figure(side, side)
    panel = figure.subplots()
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    panel.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if is_named:
        panel.set_xticks(range(n_classes), classes, rotation=90, parse_math=False)
        panel.set_yticks(range(n_classes), classes, parse_math=False)
        for (row, column), count in np.ndenumerate(matrix):
            color = "white" if shares[row, column] > 0.5 else "black"
            if count:
                panel.text(
                    column, row, str(count), ha="center", va="center", fontsize=7, color=color
                )
    panel.set(xlabel="predicted class", ylabel="true class", title=title)
    return as_written(figure)


def one_vs_rest(found: OneVsRest, classes: Sequence[str], title: str) -> Any:
    """ROC curves (left) and precision-recall curves (right) of classes against all others."""
    figure = new_figure(8.0, 3.8)
    left, right = figure.subplots(1, 2)
    lines = []
    for look, curves in zip(_looks(len(found.curves)), found.curves, strict=True):
        lines += left.plot(*curves.roc, clip_on=False, **look)
        right.step(*curves.precision_recall, where="pre", clip_on=False, **look)
    left.plot([0, 1], [0, 1], color=GRAY, linewidth=1, linestyle=":")
    left.set(xlabel="false positive rate", ylabel="true positive rate", title="ROC")
    right.set(xlabel="recall", ylabel="precision", title="precision and recall")
    for panel in (left, right):
        panel.set(xlim=(0, 1), ylim=(0, 1))
    names = [
        f"{textwrap.shorten(classes[curves.code], 24, placeholder=' …')} "
        f"({found.roc_auc[curves.code]:.3f}, {found.average_precision[curves.code]:.3f})"
        for curves in found.curves
    ]
    figure.suptitle(title)
    _legend_beside(figure, lines, names)
    return plain(figure)


def embedding_map(found: EmbeddingMap, is_wrong: Booleans, title: str) -> Any:
    """Rows in the plane of two principal components, colored by class; crosses mark errors."""
    figure = new_figure(5.4, 5.0)
    panel = figure.subplots()
    present, handles = np.unique(found.codes).tolist(), []
    is_named = len(present) <= MAX_NAMED
    for place, code in enumerate(present):
        x, y = found.points[found.codes == code].T
        look = {"color": MANY[place] if is_named else PALE, "edgecolors": "none", "alpha": 0.8}
        handles.append(panel.scatter(x, y, s=16, **look))
    names = [textwrap.shorten(found.classes[code], 24, placeholder=" …") for code in present]
    x, y = found.points[is_wrong].T
    wrong = panel.scatter(x, y, s=42, color="black", marker="x", linewidths=1.2)
    if not is_named:
        handles, names = handles[:1], ["test rows"]
    for axis, share, number in zip(
        (panel.xaxis, panel.yaxis), found.explained, (1, 2), strict=True
    ):
        axis.set_label_text(f"principal component {number} ({share:.0%} of the variance)")
    panel.set(xticks=[], yticks=[], aspect="equal", title=title)
    _legend_beside(figure, [*handles, wrong], [*names, "error"])
    return plain(figure)


def image_rows(lines: Sequence[Sequence[tuple[Any, str]]], title: str) -> Any:
    """Images (channels, height, width) with captions, in lines of equal length or shorter."""
    n_columns = max(map(len, lines))
    figure = new_figure(max(3.0, 1.4 * n_columns), 0.4 + 1.5 * len(lines))
    panels = figure.subplots(len(lines), n_columns, squeeze=False)
    for panel in panels.ravel():
        panel.set_axis_off()
    for line, shown in zip(panels, lines, strict=True):
        for panel, (image, caption) in zip(line, shown, strict=False):
            pixels = image.transpose(1, 2, 0)
            panel.imshow(
                pixels[..., 0] if len(image) == 1 else pixels, cmap="gray", vmin=0, vmax=255
            )
            panel.set_title(caption, fontsize=7)
    figure.suptitle(title, fontsize=11)
    return as_written(figure)


def plain(figure: Any) -> Any:
    """Remove the top and right spines."""
    for panel in figure.axes:
        panel.spines[["top", "right"]].set_visible(False)
    return as_written(figure)


def as_written(figure: Any) -> Any:
    """Show titles, labels and names literally: $ and ^ in them begin no formula."""
    texts = list(figure.texts)
    for panel in figure.axes:
        texts += [panel.title, panel.xaxis.label, panel.yaxis.label, *panel.texts]
        legend = panel.get_legend()
        texts += [] if legend is None else legend.get_texts()
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    for text in texts:
        text.set_parse_math(False)
    return figure


def _inside(middle: Floats, reach: Floats) -> Floats:
    """Whiskers (2, n) that stay between 0 and 1."""
    return np.stack([np.minimum(reach, middle), np.minimum(reach, 1 - middle)])


def _looks(n: int) -> list[dict[str, str]]:
    """Color and stroke of each of n lines; lines that follow each other differ in both."""
    looks = []
    for line in range(n):
        turn, color = divmod(line, len(COLORS))
        stroke = STROKES[(color + turn) % len(STROKES)]
        looks.append({"color": COLORS[color], "linestyle": stroke})
    return looks


def _name_lines(panel: Any, place: str = "best") -> None:
    """Add a legend if there is more than one line; a long one beside the panel."""
    lines, names = panel.get_legend_handles_labels()
    if len(names) <= 1:
        return
    if len(names) <= MAX_INSIDE:
        panel.legend(frameon=False, fontsize=8, loc=place)
        return
    _legend_beside(panel.figure, lines, names)


def _legend_beside(figure: Any, lines: Sequence[Any], names: Sequence[str]) -> None:
    """Add a legend to the right of the panels, and make the figure as much wider."""
    n_columns = math.ceil(len(names) / IN_COLUMN)
    width, height = figure.get_size_inches()
    width += n_columns * (0.55 + 0.06 * max(map(len, names)))
    figure.set_size_inches(width, max(height, 0.18 * math.ceil(len(names) / n_columns) + 0.3))
    figure.legend(
        lines, names, frameon=False, fontsize=8, loc="outside right upper", ncols=n_columns
    )
