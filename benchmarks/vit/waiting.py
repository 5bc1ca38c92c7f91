"""CPU time that torch's waiting threads take from ours.

OpenMP threads spin for some milliseconds while they wait for the next operation. The threads of
`in_shares` start during that time.
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
from benchmarks.vit.layers import DIM, OURS, build_layer
from benchmarks.vit.timing import RESULTS, SIZES

TASKS = Path("/proc/self/task")
POLICIES = {None: "waiting as OpenMP does", "passive": "OMP_WAIT_POLICY=passive"}


def main() -> None:
    """Measure and replace the old results."""
    report = json.loads(RESULTS.read_text())
    add_waiting(report, *SIZES[0], repeats=7)
    RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def add_waiting(report: dict[str, Any], n_images: int, n_tokens: int, repeats: int) -> None:
    """CPU milliseconds within the shares of a step, by wait policy."""
    if not TASKS.exists():
        print("\nThis system does not record the time of each thread: not measured.")
        return
    title = f"processor time within shares of a step, {n_images} images of {n_tokens} tokens"
    rows = report[f"{title}, 2 threads"] = {
        words: _apart(policy, n_images, n_tokens, repeats) for policy, words in POLICIES.items()
    }
    print(f"\n{title}, 2 threads")
    for words, row in rows.items():
        print(f"  {words:28s} {row['at work']:9.1f} ms {row['waiting']:9.1f} ms waiting")


def _apart(policy: str | None, n_images: int, n_tokens: int, repeats: int) -> dict[str, float]:
    """In a separate process, since OpenMP reads the policy when it is loaded."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment["OMP_NUM_THREADS"] = "2"
    if policy is not None:
        environment["OMP_WAIT_POLICY"] = policy
    arguments = json.dumps([n_images, n_tokens, repeats])
    command = [sys.executable, "-m", "benchmarks.vit.waiting", arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _measure(n_images: int, n_tokens: int, repeats: int) -> dict[str, float]:
    layer, x = build_layer(OURS), torch.randn(n_images, n_tokens, DIM, requires_grad=True)
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
    """CPU seconds of torch's threads: all but Python's own."""
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
