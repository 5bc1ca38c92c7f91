"""How long torch's second thread keeps its core by waiting, while shares of ours could use it.

OpenMP's threads wait for the next operation by asking again and again, for some milliseconds. The
shares of `in_shares` are threads of their own, which begin in just that time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnknn.training.threads import in_shares
from attnknn.vit.functional import cpu, embedding_bag
from benchmarks.vit.bars import RESULTS
from benchmarks.vit.layers import DIM, OURS, made
from benchmarks.vit.timing import SIZES

TASKS = Path("/proc/self/task")
POLICIES = {None: "waiting as OpenMP does", "passive": "OMP_WAIT_POLICY=passive"}


def main() -> None:
    """Measure, and replace what was there before."""
    report = json.loads(RESULTS.read_text())
    add_waiting(report, *SIZES[0], repeats=7)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def add_waiting(report: dict[str, Any], n_images: int, n_tokens: int, repeats: int) -> None:
    """Milliseconds of the processor within the shares of a step, by how threads wait."""
    if not TASKS.exists():
        print("\nThis system does not tell the time of each thread: not measured.")
        return
    title = f"processor time within shares of a step, {n_images} images of {n_tokens} tokens"
    rows = report[f"{title}, 2 threads"] = {
        words: _apart(policy, n_images, n_tokens, repeats) for policy, words in POLICIES.items()
    }
    print(f"\n{title}, 2 threads")
    for words, row in rows.items():
        print(f"  {words:28s} {row['at work']:9.1f} ms {row['waiting']:9.1f} ms waiting")


def _apart(policy: str | None, n_images: int, n_tokens: int, repeats: int) -> dict[str, float]:
    """In a process of its own: OpenMP reads the policy when it is loaded."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment["OMP_NUM_THREADS"] = "2"
    if policy is not None:
        environment["OMP_WAIT_POLICY"] = policy
    asked = json.dumps([n_images, n_tokens, repeats])
    command = [sys.executable, "-m", "benchmarks.vit.waiting", asked]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _measure(n_images: int, n_tokens: int, repeats: int) -> dict[str, float]:
    layer, x = made(OURS), torch.randn(n_images, n_tokens, DIM, requires_grad=True)
    seen: dict[str, list[float]] = {"at work": [], "waiting": []}

    def watched(work: Callable[..., Any], *tensors: Tensor) -> list[Any]:
        others, start = _others(), time.process_time()
        done = in_shares(work, *tensors)
        total = time.process_time() - start
        after = _others()
        waiting = sum(after[task] - others[task] for task in others if task in after)
        seen["waiting"].append(waiting)
        seen["at work"].append(total - waiting)
        return done

    cpu.in_shares = embedding_bag.in_shares = watched  # type: ignore[attr-defined]
    steps: dict[str, list[float]] = {name: [] for name in seen}
    for turn in range(repeats + 1):
        layer(x).sum().backward()
        for name, seconds in seen.items():
            if turn:
                steps[name].append(sum(seconds))
            seconds.clear()
    return {name: round(1e3 * statistics.median(values), 1) for name, values in steps.items()}


def _others() -> dict[str, float]:
    """Seconds that torch's threads took: all but Python's own, which do the work."""
    ours = {str(thread.native_id) for thread in threading.enumerate()}
    found = {}
    for task in TASKS.iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            found[task.name] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return {task: seconds for task, seconds in found.items() if task not in ours}


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(_measure(*json.loads(sys.argv[1]))))
    else:
        main()
