"""Two processes train an encoder as one would with the whole batch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = str(Path(__file__).with_name("in_processes.py"))


def run(result, *before):
    done = subprocess.run(
        [sys.executable, *before, SCRIPT, str(result)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return json.loads(result.read_text())


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(tmp_path):
    alone = run(tmp_path / "alone.json")
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    together = run(tmp_path / "together.json", *launcher)
    assert together["train"] == pytest.approx(alone["train"], rel=1e-3)
    assert together["validation"] == pytest.approx(alone["validation"], rel=1e-2)
    assert np.allclose(together["embeddings"], alone["embeddings"], atol=0.02)
