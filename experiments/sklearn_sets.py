"""The four classification sets of scikit-learn: default settings beside the usual classifiers.

    python -m experiments.sklearn_sets          measure what has no result yet
    python -m experiments.sklearn_sets bars     print every bar with the figure measured
    python -m experiments.sklearn_sets page     write the table of docs/attention.md

Log-loss of five-fold cross-validation, twice with different folds. Peers that depend on the scale
of the columns run on raw and on scaled ones.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from attnknn import AttnKNNClassifier
from attnknn.research.evaluation.report import write_json
from experiments.bars import Bar
from experiments.pages import ROOT, markdown, replace_between

RESULTS = Path(__file__).parent / "results" / "sklearn-sets.json"
SETS = {
    "iris": load_iris,
    "wine": load_wine,
    "breast cancer": load_breast_cancer,
    "digits": load_digits,
}
OURS = "attnknn"
TOLERANCE = 1.05  # times the log-loss of the best peer
REPEATS, FOLDS = 2, 5


def scaled(model: Any) -> Any:
    """The model behind a scaler."""
    return make_pipeline(StandardScaler(), model)


METHODS: dict[str, Callable[[int], Any]] = {
    OURS: lambda seed: AttnKNNClassifier(random_state=seed),
    "logistic regression": lambda _: scaled(LogisticRegression(max_iter=1000)),
    "kNN (15)": lambda _: KNeighborsClassifier(15),
    "kNN (15), scaled": lambda _: scaled(KNeighborsClassifier(15)),
    "random forest": lambda seed: RandomForestClassifier(500, random_state=seed),
    "HistGradientBoosting": lambda seed: HistGradientBoostingClassifier(random_state=seed),
    "SVC": lambda _: CalibratedClassifierCV(SVC()),
    "SVC, scaled": lambda _: scaled(CalibratedClassifierCV(SVC())),
}


def measure(name: str, method: str) -> dict[str, float]:
    """Mean log-loss and error of the folds, and seconds of a fit."""
    X, y = SETS[name](return_X_y=True)
    losses, errors, seconds = [], [], []
    for seed in range(REPEATS):
        for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(X, y):
            start = time.perf_counter()
            model = METHODS[method](seed).fit(X[train], y[train])
            seconds.append(time.perf_counter() - start)
            found = model.predict_proba(X[test])
            losses.append(log_loss(y[test], found, labels=model.classes_))
            errors.append(float((model.classes_[found.argmax(axis=1)] != y[test]).mean()))
    means = {"log_loss": losses, "error": errors, "seconds": seconds}
    return {key: round(float(np.mean(values)), 5) for key, values in means.items()}


def run(path: Path = RESULTS) -> None:
    """Measure every set and method that has no result yet."""
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name in SETS:
        for method in METHODS:
            if method not in known.setdefault(name, {}):
                known[name][method] = measure(name, method)
                print(f"{name}, {method}: {known[name][method]}", flush=True)
                write_json(path, known)


def bars(path: Path = RESULTS) -> Iterator[Bar]:
    """Whether the default is about as good as the best peer, or better."""
    for name, found in json.loads(path.read_text()).items():
        losses = {method: scores["log_loss"] for method, scores in found.items()}
        ours = losses.pop(OURS)
        best = min(losses, key=lambda method: losses[method])
        shown = f"{ours:.4f} against {losses[best]:.4f} of {best}"
        what = f"{name}: log-loss ≤ {TOLERANCE} × the best peer's"
        yield Bar(what, shown, ours <= TOLERANCE * losses[best])


def page(path: Path = RESULTS) -> str:
    """A table of log-loss and error, a column for each set."""
    found = json.loads(path.read_text())
    lines = [
        [
            method,
            *(
                f"{found[name][method]['log_loss']:.3f} / {100 * found[name][method]['error']:.1f}"
                for name in found
            ),
        ]
        for method in METHODS
    ]
    return markdown(["log-loss / error in %", *found], lines)


def main() -> None:
    """Measure, print the bars, or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", nargs="?", default="run", choices=["run", "bars", "page"])
    command = parser.parse_args().command
    if command == "run":
        run()
    for bar in bars() if command != "page" else ():
        print(bar)
    if command == "page":
        replace_between(ROOT / "docs" / "attention.md", "sklearn-sets", page())


if __name__ == "__main__":
    main()
