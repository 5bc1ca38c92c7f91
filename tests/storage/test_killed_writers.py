"""A writer that is killed at any moment loses no acknowledged edit and leaves a whole folder."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from attnknn import AttnKNNClassifier, open_for_editing

from .samples import fitted


def kill(path: Path, n_kills: int) -> tuple[int, ...]:
    """How many writers were killed, how many had acknowledged an edit, and all edits."""
    fitted(memory="numpy").save(path)
    command = [sys.executable, str(Path(__file__).with_name("killing.py")), str(path), str(n_kills)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(map(int, done.stdout.split()))


@pytest.mark.slow
def test_three_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    n_kills, n_told, n_edits = kill(tmp_path / "model", 300)
    assert n_kills == 300
    assert n_told > 50
    assert n_edits > 150


def test_a_few_kills_lose_nothing(tmp_path: Path) -> None:
    n_kills, n_told, _ = kill(tmp_path / "model", 8)
    assert n_kills == 8
    assert n_told >= 2


@pytest.mark.slow
def test_the_first_opening_may_be_killed(path: Path) -> None:
    script = (
        "import sys; from attnknn import open_for_editing; print('ready', flush=True); "
        "open_for_editing(sys.argv[1])"
    )
    for delay in (0.0, 0.03, 0.1):
        fitted().save(path)
        command = [sys.executable, "-c", script, str(path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            time.sleep(delay)
            process.kill()
        assert len(AttnKNNClassifier.load(path).memory_) == 40
        with open_for_editing(path) as model:
            assert len(model.log()) == 1
