"""Peak memory of a training step, measured in a separate process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import torch

from benchmarks.vit.layers import DIM, build_layer

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def can_measure() -> bool:
    """Whether the system records the peak memory and can reset it."""
    return STATUS.exists() and os.access(CLEAR, os.W_OK)


def measure_peak(name: str, n_images: int, n_tokens: int, *, backward: bool = True) -> float:
    """Peak megabytes that a step adds, in a new process with one thread."""
    arguments = json.dumps([name, n_images, n_tokens, backward])
    # Freed memory is returned at once, or the peak would include what the allocator keeps.
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MALLOC_MMAP_THRESHOLD_": "65536",
        "MALLOC_TRIM_THRESHOLD_": "65536",
    }
    command = [sys.executable, "-m", "benchmarks.vit.memory", arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _megabytes(mark: str) -> float:
    found = re.search(rf"{mark}:\s+(\d+)", STATUS.read_text())
    assert found is not None
    return int(found[1]) / 1024


def _measure(name: str, n_images: int, n_tokens: int, backward: bool) -> float:
    torch.set_num_threads(1)
    layer = build_layer(name)
    x = torch.randn(n_images, n_tokens, DIM, requires_grad=True)
    layer(x[:1, :64]).sum().backward()  # warm-up
    CLEAR.write_text("5")
    before = _megabytes("VmRSS")
    if backward:
        layer(x).sum().backward()
    else:
        with torch.no_grad():
            layer(x)
    return _megabytes("VmHWM") - before


if __name__ == "__main__":
    print(_measure(*json.loads(sys.argv[1])))
