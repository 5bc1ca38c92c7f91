"""From `attnknn serve` to the first paint."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from .desk import serve

pytestmark = pytest.mark.slow

MAX_SECONDS = 3.0
PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_the_page_is_painted_within_three_seconds(model, open_page, record_property):
    """On busy cores the clock says little: then the processor time of the server counts."""
    started = time.perf_counter()
    with serve(model) as server:
        page = open_page(server.url)
        page.wait_for_function(PAINTED)
        wall = time.perf_counter() - started
        painted = page.evaluate(PAINTED) / 1000
        own = cpu_seconds(server.process.pid)
        page.get_by_role("heading", name="Ask", exact=True).wait_for()
        page.context.close()
    record_property("seconds", {"clock": wall, "processor": own, "paint": painted})
    assert min(wall, own) <= MAX_SECONDS
