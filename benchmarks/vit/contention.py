"""The same with both cores taken by others: threads that wait for each other wait long."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from benchmarks.vit.layers import OURS, PLAIN
from benchmarks.vit.timing import clock_for, ratio, times_of


def contended(policy: str | None, n_images: int, n_tokens: int, repeats: int) -> dict[str, float]:
    """How many times faster than the plain formulation, beside one busy process for each core.

    Parameters
    ----------
    policy
        How threads wait (`OMP_WAIT_POLICY`); None is OpenMP's own way.
    """
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    if policy is not None:
        environment["OMP_WAIT_POLICY"] = policy
    asked = json.dumps([n_images, n_tokens, repeats])
    command = [sys.executable, "-m", "benchmarks.vit.contention", asked]
    with busy(os.cpu_count() or 1):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@contextmanager
def busy(n: int) -> Iterator[None]:
    """So many processes that do nothing but keep a core."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def _measure(n_images: int, n_tokens: int, repeats: int) -> dict[str, float]:
    threads = torch.get_num_threads()
    found = times_of((PLAIN, OURS), n_images, n_tokens, repeats, clock_for(max(threads, 2)))
    return {way: ratio(found, PLAIN, OURS, way) for way in ("forward", "both")}


if __name__ == "__main__":
    print(json.dumps(_measure(*json.loads(sys.argv[1]))))
