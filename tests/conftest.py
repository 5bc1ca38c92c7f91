"""What all tests share: one generator, one thread, and Hypothesis without a clock."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg  # noqa: F401  (its BLAS must be loaded to be held to one thread)
import torch
from hypothesis import HealthCheck, settings
from threadpoolctl import threadpool_limits

# Small work on busy cores is several times slower with two threads than with one.
torch.set_num_threads(1)
threadpool_limits(limits=1, user_api="blas")

settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=10,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # tests run in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng() -> np.random.Generator:
    """The generator of a test."""
    return np.random.default_rng(0)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Print what the tests of killed writers and damaged files counted, and store it if asked to.

    Only the counts of tests that passed are known; a failure leaves the stored ones as they are.
    """
    passed = terminalreporter.stats.get("passed", [])
    reports = [report for report in passed if report.when == "call"]
    found = [
        value for report in reports for name, value in report.user_properties if name == "chaos"
    ]
    for counts in found:
        listed = (f"{name.replace('_', ' ')} {n:,}" for name, n in counts.items() if name != "test")
        terminalreporter.write_line(f"chaos: {counts['test']}: {', '.join(listed)}")
    out = os.environ.get("ATTNKNN_CHAOS_OUT")
    if out and found and not terminalreporter.stats.get("failed"):
        Path(out).write_text(json.dumps({"tests": found}, indent=1) + "\n")
