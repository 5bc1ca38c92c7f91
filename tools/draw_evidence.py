"""Draw one prediction with its evidence, for the README and the landing page of the site.

python -m tools.draw_evidence    # writes docs/_static/evidence.svg
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("svg")

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from attnknn import AttnKNNClassifier, Evidence

TARGET = Path(__file__).parent.parent / "docs" / "_static" / "evidence.svg"
BLUE, ORANGE, GRAY = "#1f77b4", "#e6750d", "#8a94a6"
N_SHOWN = 6


def draw(query: NDArray[np.float64], rows: NDArray[np.float64], evidence: Evidence) -> plt.Figure:
    """The query, its weightiest neighbors above bars of their weights, and the probabilities."""
    figure = plt.figure(figsize=(10, 2.9), facecolor="white")
    parts = figure.subfigures(1, 3, width_ratios=[1.25, 5, 2.3])
    _image(parts[0].add_axes((0.1, 0.28, 0.8, 0.5)), query, "black")
    parts[0].suptitle("query", y=0.93, fontsize=10)
    parts[0].text(0.5, 0.1, f"predicted: {evidence.label}", ha="center", fontsize=11, weight="bold")
    _neighbors(parts[1], rows, evidence)
    _probabilities(parts[2].add_axes((0.1, 0.2, 0.86, 0.58)), evidence)
    parts[2].suptitle("calibrated probabilities", y=0.93, fontsize=10)
    return figure


def _neighbors(part: mpl.figure.SubFigure, rows: NDArray[np.float64], evidence: Evidence) -> None:
    rest = float(evidence.weights[N_SHOWN:].sum())
    part.suptitle("evidence: labeled examples and their weights in the vote", y=0.93, fontsize=10)
    width = 1 / (N_SHOWN + 1.1)
    most = max(*evidence.weights[:N_SHOWN], rest, evidence.prior_weight)
    for place in range(N_SHOWN):
        label, weight = evidence.labels[place], float(evidence.weights[place])
        color = BLUE if label == evidence.label else ORANGE
        left = place * width + 0.02
        image = rows[evidence.ids[place]]
        _image(part.add_axes((left, 0.42, width - 0.03, 0.36)), image, color)
        _bar(part, left, width - 0.03, weight / most, color)
        words = f"label {label}\n{weight:.2f}"
        part.text(left + width / 2 - 0.015, 0.02, words, ha="center", fontsize=9, color=color)
    left = N_SHOWN * width + 0.02
    n_rest = len(evidence.ids) - N_SHOWN
    lines = f"{n_rest} more\n{rest:.2f}\n\nprior\n{evidence.prior_weight:.3f}"
    part.text(left + width / 2, 0.34, lines, ha="center", fontsize=9, color=GRAY)


def _bar(part: mpl.figure.SubFigure, left: float, width: float, share: float, color: str) -> None:
    axis = part.add_axes((left, 0.2, width, 0.18))
    axis.bar([0], [share], color=color, width=0.6)
    axis.set_xlim(-0.5, 0.5)
    axis.set_ylim(0, 1)
    axis.axis("off")


def _image(axis: plt.Axes, pixels: NDArray[np.float64], color: str) -> None:
    axis.imshow(pixels.reshape(8, 8), cmap="gray_r")
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set(color=color, linewidth=1.6)


def _probabilities(axis: plt.Axes, evidence: Evidence) -> None:
    colors = [BLUE if c == evidence.label else ORANGE for c in evidence.classes]
    axis.bar(range(len(evidence.classes)), evidence.probabilities, color=colors)
    axis.set_xticks(range(len(evidence.classes)), [str(c) for c in evidence.classes], fontsize=8)
    axis.set_yticks([])
    for side in ("top", "right", "left"):
        axis.spines[side].set_visible(False)
    best = int(evidence.probabilities.argmax())
    axis.text(best, evidence.probability, f"{evidence.probability:.2f}", ha="center", va="bottom")


def main() -> None:
    """Fit digits, pick a test row that is right but not certain, and draw it."""
    X, y = load_digits(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.3, random_state=0, stratify=y)
    clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X, y)
    probabilities = clf.predict_proba(X_test)
    is_right = clf.classes_[probabilities.argmax(axis=1)] == y_test
    doubtful = np.flatnonzero(is_right & (probabilities.max(axis=1) < 0.8))
    row = int(doubtful[probabilities[doubtful].max(axis=1).argmax()])
    figure = draw(X_test[row], X, clf.explain(X_test[[row]])[0])
    mpl.rcParams.update({"svg.hashsalt": "attnknn", "svg.fonttype": "path"})
    figure.savefig(TARGET, metadata={"Date": None})
    print(TARGET)


if __name__ == "__main__":
    main()
