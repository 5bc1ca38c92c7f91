"""Training of table encoders beside an earlier commit: `python -m benchmarks.table_training`.

Both versions fit `encoder="learned-tabular"` on the same training rows of development tables; a
quarter of these rows is held out, and its log-loss is compared. Times are processor seconds of one
thread. Data is looked for in ATTNKNN_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.first_answer import BASELINE, BEFORE, HERE, NOW, exported

RESULTS = HERE / "results" / "table_training.json"
TABLES = ("wine-red", "churn", "satimage", "magic")
N_ROWS = 4_000
WORK = """
import sys, time, warnings
import numpy as np
from sklearn.utils import _safe_indexing as take
from attnknn import AttnKNNClassifier
from attnknn.metrics import nll
from attnknn.research import datasets
warnings.simplefilter("ignore")
name, seed, n_rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data = datasets.load(name)
order = np.random.default_rng(1000 + seed).permutation(len(data.y_train))
held_out, kept = np.split(order, [len(order) // 4])
kept = kept[:n_rows]
clf = AttnKNNClassifier(encoder="learned-tabular", random_state=seed)
started = time.process_time()
clf.fit(take(data.X_train, kept), data.y_train[kept])
seconds = time.process_time() - started
found = clf.predict_proba(take(data.X_train, held_out))
print(seconds, nll(np.searchsorted(clf.classes_, data.y_train[held_out]), found))
"""


def main() -> None:
    """Measure both versions, print and store the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--baseline", default=BASELINE, help="commit to compare with")
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[3, 4, 5])
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        sources = {BEFORE: exported(options.baseline, Path(scratch) / "before"), NOW: HERE.parent}
        for table in options.tables:
            for seed in options.seeds:
                runs = {name: measure(source, table, seed) for name, source in sources.items()}
                found.append({"table": table, "seed": seed, **runs})
                print(line(found[-1]), flush=True)
    print(summary(found))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")


def measure(source: Path, table: str, seed: int) -> dict[str, float]:
    """Processor seconds of a fit, and the log-loss of rows that were not fitted."""
    path = {"PYTHONPATH": str(source.resolve()), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", WORK, table, str(seed), str(N_ROWS)],
        cwd=source.anchor,  # Python would import from the working directory first
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        check=True,
    )
    seconds, loss = map(float, done.stdout.split())
    return {"seconds": round(seconds, 2), "log_loss": round(loss, 5)}


def line(run: dict[str, Any]) -> str:
    """One table and seed."""
    before, now = run[BEFORE], run[NOW]
    return (
        f"{run['table']}, seed {run['seed']}: {before['seconds']:.1f} -> {now['seconds']:.1f} s, "
        f"log-loss {before['log_loss']:.4f} -> {now['log_loss']:.4f}"
    )


def summary(found: list[dict[str, Any]]) -> str:
    """Geometric means of the ratios, that of the log-loss with its standard error.

    >>> run = {BEFORE: {"seconds": 6, "log_loss": 0.5}, NOW: {"seconds": 2, "log_loss": 0.5}}
    >>> summary([run, run])
    'mean of 2: 3.00 x faster, log-loss 1.000 x (± 0.000)'
    """
    logs = {
        key: np.log([run[NOW][key] / run[BEFORE][key] for run in found])
        for key in ("seconds", "log_loss")
    }
    faster, ratio = np.exp(-logs["seconds"].mean()), np.exp(logs["log_loss"].mean())
    error = logs["log_loss"].std(ddof=1) / np.sqrt(len(found)) if len(found) > 1 else np.nan
    return f"mean of {len(found)}: {faster:.2f} x faster, log-loss {ratio:.3f} x (± {error:.3f})"


if __name__ == "__main__":
    main()
