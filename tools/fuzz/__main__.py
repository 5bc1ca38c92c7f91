"""Run the fuzzer: `python -m tools.fuzz --cases 20000 --processes 2`."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tools.fuzz.worker import build_samples, warm_up, work


def main() -> int:
    """Run the cases, write the counts, and say whether there were failures."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, default=Path("build/fuzz"), help="where a run resumes")
    parser.add_argument("--out", type=Path, help="JSON file for the counts")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as samples:
        build_samples(Path(samples))
        warm_up(Path(samples))
        n, shared = given.processes, (given.seed, Path(samples), given.work)
        parts = [(part, n, given.cases, *shared) for part in range(n)]
        with multiprocessing.get_context("fork").Pool(n) as pool:
            states = pool.starmap(work, parts)
    summary = summarize(states, given.cases, given.seed)
    text = json.dumps(summary, indent=1)
    if given.out is not None:
        given.out.write_text(text + "\n")
    print(text)
    return 1 if summary["n_failures"] else 0


def summarize(states: list[dict[str, Any]], n_cases: int, seed: int) -> dict[str, Any]:
    """Counts by target and outcome of all processes."""
    targets: dict[str, Counter[str]] = {}
    for state in states:
        for target, counts in state["outcomes"].items():
            targets.setdefault(target, Counter()).update(counts)
    total: Counter[str] = sum(targets.values(), Counter())
    return {
        "n_cases": n_cases,
        "seed": seed,
        "n_failures": sum(n for name, n in total.items() if name.startswith("!")),
        "outcomes": dict(total.most_common()),
        "targets": {name: dict(targets[name].most_common()) for name in sorted(targets)},
        "processes": len(states),
        "minutes": round(max(state["seconds"] for state in states) / 60, 1),
        "machine": {"python": platform.python_version(), "system": platform.platform()},
    }


if __name__ == "__main__":
    sys.exit(main())
