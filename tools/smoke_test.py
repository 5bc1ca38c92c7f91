"""Use the installed package from end to end; `make wheel-test` runs it outside the checkout."""

from __future__ import annotations

import importlib.resources
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris

import attnknn
from attnknn import AttnKNNClassifier

CHECKOUT = Path(__file__).parent.parent


def check_python(folder: Path) -> None:
    """Fit, predict, explain, edit, save and load."""
    X, y = load_iris(return_X_y=True)
    clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X[::2], y[::2])
    assert clf.score(X[1::2], y[1::2]) > 0.9
    evidence = clf.explain(X[1:2])[0]
    assert np.isclose(evidence.weights.sum() + evidence.prior_weight, 1)
    clf.relabel([evidence.ids[0]], 2)
    clf.save(folder / "model")
    loaded = AttnKNNClassifier.load(folder / "model")
    assert np.array_equal(loaded.predict_proba(X), clf.predict_proba(X))


def check_commands(folder: Path) -> None:
    """The command line answers, and fits a file."""
    frame = load_iris(as_frame=True).frame
    frame.to_csv(folder / "iris.csv", index=False)
    for words in (
        ["--help"],
        ["fit", "iris.csv", "--target", "target", "--encoder", "tabular", "-o", "m"],
        ["predict", "m", "iris.csv", "-o", "answers.csv"],
        ["explain", "m", "iris.csv", "--limit", "1"],
    ):
        done = subprocess.run(["attnknn", *words], cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, f"attnknn {' '.join(words)}\n{done.stderr}"
    assert len((folder / "answers.csv").read_text().splitlines()) == len(frame) + 1


def check_files() -> None:
    """The package comes from the wheel, with every data file that the sources have."""
    installed = importlib.resources.files(attnknn)
    assert not Path(str(installed)).is_relative_to(CHECKOUT / "attnknn"), installed
    data = list((CHECKOUT / "attnknn").rglob("*.toml"))
    data.append(CHECKOUT / "attnknn" / "py.typed")
    for path in data:
        name = path.relative_to(CHECKOUT / "attnknn")
        assert installed.joinpath(str(name)).is_file(), f"{name} is not in the wheel"


def main() -> None:
    """Run all checks."""
    check_files()
    with tempfile.TemporaryDirectory() as name:
        check_python(Path(name))
        check_commands(Path(name))
    print(f"attnknn {attnknn.__version__} works on Python {sys.version.split()[0]}.")


if __name__ == "__main__":
    main()
