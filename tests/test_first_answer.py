"""The first answer of a process comes soon: a small table needs no heavy package."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from strategies import blobs

from attnknn import AttnKNNClassifier

HEAVY = {"torch", "faiss", "matplotlib"}
LOADED = "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
TABLE = """
import sys
from sklearn.datasets import load_iris
from attnknn import AttnKNNClassifier
X, y = load_iris(return_X_y=True)
clf = AttnKNNClassifier({settings}).fit(X, y)
clf.predict_proba(X[:1]), clf.predict_proba(X), clf.explain(X[:2]), clf.predict_set(X, 0.9)
clf.leave_one_out_proba()
"""
COMMAND = "import sys; from attnknn.cli import main; main(sys.argv[1:], standalone_mode=False)"


def packages_after(code: str, *arguments: str) -> set[str]:
    """The packages that are loaded after some code has run in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{LOADED}", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return set(done.stderr.split("\n")[-2].split())


@pytest.mark.parametrize("settings", ["", "encoder='tabular', device='cpu'"])
def test_a_small_table_is_fitted_and_answered_without_torch(settings):
    assert not HEAVY & packages_after(TABLE.format(settings=settings))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("iris")
    X, y = blobs(150, spread=1.0)
    AttnKNNClassifier(encoder="tabular").fit(X, y).save(folder / "model")
    lines = [",".join(map(str, row)) for row in X.tolist()]
    header = ",".join(f"x{place}" for place in range(X.shape[1]))
    (folder / "rows.csv").write_text("\n".join([header, *lines]) + "\n")
    return folder


@pytest.mark.parametrize(
    "options", [["predict", "--sets", "0.9", "--max-risk", "0.2"], ["explain"]]
)
def test_commands_answer_for_a_small_table_without_torch(model, options):
    files = str(model / "model"), str(model / "rows.csv")
    assert not (HEAVY | {"rich"}) & packages_after(COMMAND, *options[:1], *files, *options[1:])


def test_the_help_of_the_command_line_loads_no_numbers():
    loaded = packages_after(COMMAND, "--help")
    assert not (HEAVY | {"numpy", "pandas", "sklearn", "scipy", "rich"}) & loaded
