"""Peak memory of a training step, measured in a separate process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.vit.layers import OURS, PLAIN, SDPA  # noqa: E402
from benchmarks.vit.memory import can_measure, measure_peak  # noqa: E402


@pytest.mark.slow
@pytest.mark.skipif(not can_measure(), reason="the system keeps no highest mark of memory")
def test_a_step_needs_no_more_memory_than_softmax_attention(monkeypatch):
    monkeypatch.chdir(ROOT)
    ours, fused, plain = (measure_peak(name, 32, 1024) for name in (OURS, SDPA, PLAIN))
    assert ours <= 1.1 * fused
    assert ours < plain / 2
