"""The losses of a training as a picture."""

from __future__ import annotations

from pathlib import Path

from attnknn._optional import require
from attnknn.training.course import Outcome

BLUE, GRAY = "#1f5fbf", "#8a8a8a"


def draw_curves(outcome: Outcome, path: str | Path, title: str = "Training") -> None:
    """Write the loss of each epoch, of trained and of held-out rows, to a PNG, PDF or SVG file.

    The two are not of one kind: trained rows are asked about with whatever the training leaves
    out, mixes or adds, held-out rows without, so that theirs may well be lower.
    """
    needs = {"extra": "plots", "needed_by": "Drawing the curves of a training"}
    require("matplotlib", **needs)
    figure = require("matplotlib.figure", **needs).Figure(figsize=(6, 3.6), layout="constrained")
    panel = figure.subplots()
    epochs = range(1, len(outcome.train_losses) + 1)
    panel.plot(epochs, outcome.train_losses, color=GRAY, marker=".", label="trained rows")
    left_out = range(len(outcome.validation_losses))
    panel.plot(left_out, outcome.validation_losses, color=BLUE, marker=".", label="held-out rows")
    best = outcome.best_epoch
    panel.axvline(best, color=BLUE, linewidth=0.8, linestyle=":", label=f"kept: epoch {best}")
    panel.set(xlabel="epoch", ylabel="loss", title=title)
    panel.set_ylim(bottom=min(0.0, *outcome.train_losses, *outcome.validation_losses))
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False)
    figure.savefig(path, dpi=150)
