"""What all tests share: one generator, one thread, and Hypothesis without a clock."""

from __future__ import annotations

import signal
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
    """Print what the tests of killed writers and damaged files counted."""
    reports = terminalreporter.stats.get("passed", [])
    for report in reports:
        for name, counts in report.user_properties:
            if name == "chaos" and report.when == "call":
                terminalreporter.write_line(f"chaos: {counts}")
