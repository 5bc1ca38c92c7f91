"""Pictures of what tokens look at, and of how a training went."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn._optional import require

if TYPE_CHECKING:
    from attnknn.vit.functional import Grid
    from attnknn.vit.looking import Looks
    from attnknn.vit.training import Epoch

RED, BLUE, GRAY = "#c2241f", "#1f5fbf", "#8a8a8a"
HAZE = (0.66, 0.68, 0.82)
SIDE = 1.5  # inches of a panel
FEW_EPOCHS = 5  # that have a tick each


def draw_looks(
    image: NDArray[np.uint8],
    looks: Sequence[Looks],
    grid: Grid,
    asking: Sequence[int],
    path: str | Path,
    *,
    head: int | None = None,
    title: str = "",
) -> None:
    """For each layer a row of panels: what some tokens look at, and whom all tokens look at.

    Parameters
    ----------
    image
        (C, H, W), as it was shown to the model, before numbers were moved and scaled.
    asking
        The tokens whose looks are drawn.
    head
        Which head; the mean of all if None.
    """
    figure = _figure((SIDE * (len(asking) + 1.3), SIDE * len(looks) + 0.7))
    panels = figure.subplots(len(looks), len(asking) + 1, squeeze=False)
    for row, layer in zip(panels, looks, strict=True):
        seen = seen_by(layer, grid.n_tokens, head)
        most = float(seen[list(asking)].max()) or 1.0
        for panel, token in zip(row, asking, strict=False):
            _show(panel, image, grid, seen[token], most)
            _outline(panel, image, grid, token)
        by_all = seen.mean(0)
        _show(row[-1], image, grid, by_all, float(by_all.max()))
        row[0].set_ylabel(_short(layer.layer), fontsize=7)
    for panel, token in zip(panels[0], asking, strict=False):
        panel.set_title(token_name(grid, token), fontsize=7)
    panels[0, -1].set_title("seen by all", fontsize=7)
    figure.suptitle(title or "What tokens look at", fontsize=9)
    figure.savefig(path, dpi=150)


def seen_by(looks: Looks, n_tokens: int, head: int | None) -> NDArray[np.float64]:
    """How much token i looks at token j, (N, N), of the first image."""
    tokens, weights = (part[0].double().numpy() for part in (looks.tokens, looks.weights))
    if head is not None:
        tokens, weights = tokens[head : head + 1], weights[head : head + 1]
    seen = np.zeros((n_tokens, n_tokens + 1))  # the last column is outside the grid
    for chosen, given in zip(tokens.astype(int), weights, strict=True):
        rows = np.broadcast_to(np.arange(n_tokens)[:, None], chosen.shape)
        np.add.at(seen, (rows, chosen), np.abs(given) / len(tokens))
    return seen[:, :n_tokens]


def token_name(grid: Grid, token: int) -> str:
    """A patch by its row and column."""
    place = token - grid.n_prefix
    if place < 0:
        return "class token" if token == 0 else f"token {token}"
    return f"patch {place // grid.width}, {place % grid.width}"


def draw_epochs(epochs: Sequence[Epoch], best_epoch: int, path: str | Path) -> None:
    """Losses and accuracies of each epoch."""
    figure = _figure((9, 3.6))
    of_loss, of_share = figure.subplots(1, 2)
    numbers = [epoch.number for epoch in epochs]
    for panel, kind, factor in ((of_loss, "loss", 1.0), (of_share, "top1", 100.0)):
        highest = 0.0
        for part, color in (("train", GRAY), ("validation", BLUE)):
            values = [factor * getattr(epoch, f"{part}_{kind}") for epoch in epochs]
            panel.plot(numbers, values, color=color, marker=".", label=part, clip_on=False)
            highest = max(highest, *values)
        panel.axvline(best_epoch, color=BLUE, linewidth=0.8, linestyle=":", label="kept")
        panel.set_xlabel("epoch")
        panel.set_ylim(0, 1.05 * highest or 1.0)
        if len(numbers) <= FEW_EPOCHS:  # else the axis of one epoch has fractions
            panel.set_xlim(numbers[0] - 0.5, numbers[-1] + 0.5)
            panel.set_xticks(numbers)
        else:
            panel.xaxis.get_major_locator().set_params(integer=True)
        panel.spines[["top", "right"]].set_visible(False)
    of_loss.set_title("loss")
    of_share.set_title("right, in percent")
    of_share.legend(frameon=False)
    figure.savefig(path, dpi=150)


def _figure(size: tuple[float, float]) -> Any:
    needs = {"extra": "plots", "needed_by": "Drawing"}
    require("matplotlib", **needs)
    return require("matplotlib.figure", **needs).Figure(figsize=size, layout="constrained")


def _show(panel: Any, image: NDArray[Any], grid: Grid, seen: NDArray[Any], most: float) -> None:
    """The image, and a haze where nobody looks, which neither dark nor bright images have."""
    height, width = image.shape[1:]
    shown = image.transpose(1, 2, 0).astype(float) / 255
    shown = np.repeat(shown, 3, 2) if shown.shape[2] == 1 else shown
    patches = (seen[grid.n_prefix :] / (most or 1.0)).reshape(grid.height, grid.width)
    weights = np.kron(patches, np.ones((height // grid.height, width // grid.width)))
    strength = (0.15 + 0.85 * np.sqrt(np.clip(weights, 0, 1)))[..., None]
    panel.imshow(shown * strength + (1 - strength) * np.array(HAZE))
    panel.set_xticks([])
    panel.set_yticks([])


def _outline(panel: Any, image: NDArray[Any], grid: Grid, token: int) -> None:
    place = token - grid.n_prefix
    if place < 0:
        return
    patches = require("matplotlib.patches", extra="plots", needed_by="Drawing")
    height, width = image.shape[1] / grid.height, image.shape[2] / grid.width
    corner = (place % grid.width * width - 0.5, place // grid.width * height - 0.5)
    panel.add_patch(
        patches.Rectangle(corner, width, height, fill=False, edgecolor=RED, linewidth=1.2)
    )


def _short(name: str) -> str:
    number = block_of(name)
    return name if number is None else f"block {number}"


def block_of(name: str) -> int | None:
    """The number of a layer's block, from 1.

    >>> block_of("blocks.3.attn")
    4
    """
    numbers = [int(part) for part in name.split(".") if part.isdecimal()]
    return numbers[0] + 1 if numbers else None
