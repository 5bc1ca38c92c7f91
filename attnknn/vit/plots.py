"""Plots of attention maps and of training curves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn import _display
from attnknn._optional import require
from attnknn._output_files import replace_file

if TYPE_CHECKING:
    from attnknn.vit.attention_maps import AttentionMap
    from attnknn.vit.functional import Grid
    from attnknn.vit.training import EpochMetrics

RED, BLUE, GRAY = "#c2241f", "#1f5fbf", "#8a8a8a"
HAZE = (0.66, 0.68, 0.82)
PANEL_INCHES = 1.5
MAX_TICKS = 5  # with more epochs, matplotlib places the ticks


def plot_attention_maps(
    image: NDArray[np.uint8],
    maps: Sequence[AttentionMap],
    grid: Grid,
    queries: Sequence[int],
    path: str | Path,
    *,
    head: int | None = None,
    title: str = "",
) -> None:
    """Plot, for each layer, the attention of some tokens and the mean attention of all.

    Parameters
    ----------
    image
        (C, H, W) in the size of the model's input, before normalization.
    queries
        The tokens whose attention is plotted.
    head
        Number of the head; the mean of all if None.
    """
    size = (PANEL_INCHES * (len(queries) + 1.3), PANEL_INCHES * len(maps) + 0.7)
    figure = _display.figure(*size, "Plotting")
    panels = figure.subplots(len(maps), len(queries) + 1, squeeze=False)
    for row, layer in zip(panels, maps, strict=True):
        attention = attention_matrix(layer, grid.n_tokens, head)
        largest = float(attention[list(queries)].max()) or 1.0
        for panel, token in zip(row, queries, strict=False):
            _show(panel, image, grid, attention[token], largest)
            _outline(panel, image, grid, token)
        mean = attention.mean(0)
        _show(row[-1], image, grid, mean, float(mean.max()))
        block = block_number(layer.layer)
        row[0].set_ylabel(layer.layer if block is None else f"block {block}", fontsize=7)
    for panel, token in zip(panels[0], queries, strict=False):
        panel.set_title(token_name(grid, token), fontsize=7)
    panels[0, -1].set_title("mean of all tokens", fontsize=7)
    figure.suptitle(title or "Attention maps", fontsize=9)
    with replace_file(path, force=True) as temporary:
        figure.savefig(temporary, dpi=150)


def attention_matrix(
    layer: AttentionMap, n_tokens: int, head: int | None = None
) -> NDArray[np.float64]:
    """Weight with which token i attends to token j, (N, N), in the first image."""
    tokens, weights = (part[0].double().numpy() for part in (layer.tokens, layer.weights))
    if head is not None:
        tokens, weights = tokens[head : head + 1], weights[head : head + 1]
    matrix = np.zeros((n_tokens, n_tokens + 1))  # the last column is outside the grid
    for chosen, given in zip(tokens.astype(int), weights, strict=True):
        rows = np.broadcast_to(np.arange(n_tokens)[:, None], chosen.shape)
        np.add.at(matrix, (rows, chosen), np.abs(given) / len(tokens))
    return matrix[:, :n_tokens]


def token_name(grid: Grid, token: int) -> str:
    """'class token', or a patch by its row and column."""
    patch = token - grid.n_prefix
    if patch < 0:
        return "class token" if token == 0 else f"token {token}"
    return f"patch {patch // grid.width}, {patch % grid.width}"


def block_number(name: str) -> int | None:
    """The number of a layer's block, from 1.

    >>> block_number("blocks.3.attn")
    4
    """
    numbers = [int(part) for part in name.split(".") if part.isdecimal()]
    return numbers[0] + 1 if numbers else None


def plot_training(epochs: Sequence[EpochMetrics], best_epoch: int, path: str | Path) -> None:
    """Plot losses and accuracies of each epoch."""
    figure = _display.figure(9, 3.6, "Plotting")
    panels = figure.subplots(1, 2)
    numbers = [epoch.number for epoch in epochs]
    for panel, kind, factor in zip(panels, ("loss", "top1"), (1.0, 100.0), strict=True):
        highest = 0.0
        for part, color in (("train", GRAY), ("validation", BLUE)):
            values = [factor * getattr(epoch, f"{part}_{kind}") for epoch in epochs]
            panel.plot(numbers, values, color=color, marker=".", label=part, clip_on=False)
            highest = max(highest, *values)
        panel.axvline(best_epoch, color=BLUE, linewidth=0.8, linestyle=":", label="best epoch")
        panel.set_xlabel("epoch")
        panel.set_ylim(0, 1.05 * highest or 1.0)
        if len(numbers) <= MAX_TICKS:  # else the axis of one epoch has fractions
            panel.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
            panel.set_xticks(numbers)
        else:
            panel.xaxis.get_major_locator().set_params(integer=True)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_title("loss")
    panels[1].set_title("accuracy in percent")
    panels[1].legend(frameon=False)
    with replace_file(path, force=True) as temporary:
        figure.savefig(temporary, dpi=150)


def _show(
    panel: Any, image: NDArray[Any], grid: Grid, attention: NDArray[Any], largest: float
) -> None:
    """The image, with a haze of a color rare in images where there is no attention."""
    height, width = image.shape[1:]
    shown = image.transpose(1, 2, 0).astype(float) / 255
    shown = np.repeat(shown, 3, 2) if shown.shape[2] == 1 else shown
    patches = (attention[grid.n_prefix :] / (largest or 1.0)).reshape(grid.height, grid.width)
    weights = np.kron(patches, np.ones((height // grid.height, width // grid.width)))
    strength = (0.15 + 0.85 * np.sqrt(np.clip(weights, 0, 1)))[..., None]
    panel.imshow(shown * strength + (1 - strength) * np.array(HAZE))
    panel.set_xticks([])
    panel.set_yticks([])


def _outline(panel: Any, image: NDArray[Any], grid: Grid, token: int) -> None:
    patch = token - grid.n_prefix
    if patch < 0:
        return
    patches = require("matplotlib.patches", extra="plots", needed_by="Plotting")
    height, width = image.shape[1] / grid.height, image.shape[2] / grid.width
    corner = (patch % grid.width * width - 0.5, patch // grid.width * height - 0.5)
    panel.add_patch(
        patches.Rectangle(corner, width, height, fill=False, edgecolor=RED, linewidth=1.2)
    )
