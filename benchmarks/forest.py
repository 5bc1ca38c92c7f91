"""What a vote of trees costs, beside scikit-learn's forest: `python -m benchmarks.forest`.

Both predict the same queries with the same trees on one thread; times are processor seconds,
medians of interleaved repeats. The bound is twice scikit-learn's `predict_proba`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from attnknn import AttnKNNClassifier, ForestAttention
from attnknn.attention import forest as forest_module

WIDTH, REPEATS = 10, 5


def main() -> None:
    """Grow one forest, and predict with it in three ways."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=100_000, help="entries")
    parser.add_argument("--trees", type=int, default=400)
    parser.add_argument("--queries", type=int, default=1_000)
    given = parser.parse_args()
    clf, theirs = grown(given.n, given.trees)
    model, rows = clf.model_, table(given.queries, seed=1)[0]
    queries = model.queries(rows)
    model.predict_proba(queries[:1])  # leaves of the entries are computed once
    times = interleaved(
        {
            "scikit-learn, predict_proba": lambda: theirs.predict_proba(queries),
            "attnknn, predict_proba": lambda: model.predict_proba(queries),
            "attnknn, explain (all weights)": lambda: list(model.answers(queries)),
        }
    )
    print(f"{given.n:,} entries, {given.trees} trees, {given.queries:,} queries")
    base = next(iter(times.values()))
    for name, seconds in times.items():
        print(f"{name:32} {1000 * seconds:8.1f} ms  {seconds / base:5.2f} x")
    largest = np.abs(theirs.predict_proba(queries) - shares(model, queries)).max()
    print(f"largest difference of the probabilities {largest:.1e}")


def table(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose class depends on products of columns, with some chance."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n, WIDTH)).astype(np.float32)
    score = rows[:, 0] * rows[:, 1] + rows[:, 2] + 0.5 * generator.normal(size=n)
    return rows, (score > 0).astype(int)


def grown(n: int, n_trees: int) -> tuple[AttnKNNClassifier, RandomForestClassifier]:
    """Our classifier and scikit-learn's forest around the same trees."""
    kept: list[object] = []
    grow = forest_module.grow_trees

    def keep(*args: object, **options: object) -> list[object]:
        kept.extend(grow(*args, **options))  # type: ignore[arg-type]
        return kept

    forest_module.grow_trees = keep  # type: ignore[assignment]
    attention = ForestAttention(n_trees, prior_score=-700.0)
    clf = AttnKNNClassifier(attention=attention, calibration="scores", label_noise=None)
    clf.set_params(random_state=0).fit(*table(n))
    theirs = RandomForestClassifier(n_trees, n_jobs=1)
    theirs.estimators_, theirs.n_outputs_, theirs.n_classes_ = kept, 1, 2
    theirs.classes_, theirs.n_features_in_ = np.arange(2), WIDTH
    return clf, theirs


def shares(model: object, queries: np.ndarray) -> np.ndarray:
    """The vote shares of our forest."""
    return model.direct_attention.shares(model, queries)  # type: ignore[attr-defined]


def interleaved(runs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median processor seconds of each run, in turns."""
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, run in runs.items():
            started = time.process_time()
            run()
            taken[name].append(time.process_time() - started)
    return {name: float(np.median(seconds)) for name, seconds in taken.items()}


if __name__ == "__main__":
    main()
