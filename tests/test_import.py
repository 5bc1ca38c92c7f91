"""Importing the classifier is cheap: nothing heavy that scikit-learn does not load itself."""

from __future__ import annotations

import statistics
import subprocess
import sys

import pytest

OURS = "from attnknn import AttnKNNClassifier"
ROOM = "import attnknn.memory; attnknn.memory.make_memory('auto')"
THEIRS = "import sklearn.base"
HEAVY = {"torch", "faiss", "matplotlib", "pandas", "pyarrow", "rich", "click", "safetensors"}


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


def packages_after(*statements: str) -> list[set[str]]:
    """The packages that are loaded after each of the statements, one after the other."""
    told = "print(*{name.split('.')[0] for name in sys.modules})"
    lines = ["import sys", *(line for statement in statements for line in (statement, told))]
    return [set(line.split()) for line in run("\n".join(lines)).splitlines()]


def test_importing_the_classifier_loads_nothing_heavy():
    theirs, *ours = packages_after(THEIRS, ROOM, OURS)
    for loaded in ours:
        assert not {"torch", "faiss", "matplotlib"} & loaded
        assert not HEAVY & (loaded - theirs)  # scikit-learn itself may load pandas


@pytest.mark.slow
def test_importing_every_module_needs_no_extra():
    code = """
import sys, importlib, pkgutil
for extra in ("faiss", "matplotlib", "sentence_transformers", "huggingface_hub", "torchmetrics"):
    sys.modules[extra] = None
import attnknn
for module in pkgutil.walk_packages(attnknn.__path__, "attnknn."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
    run(code)


def seconds(statement: str) -> float:
    return float(
        run(f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)")
    )


@pytest.mark.slow
def test_importing_the_classifier_takes_little_more_than_scikit_learn():
    pairs = [(seconds(OURS), seconds(THEIRS)) for _ in range(7)]
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    assert ours <= 1.5 * theirs
