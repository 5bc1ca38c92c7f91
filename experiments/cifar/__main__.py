"""`python -m experiments.cifar` trains an image encoder and compares its votes with its CNN head.

A run that was stopped goes on from its last epoch. The report is written to
experiments/results/images/<data>-<width>/<seed>/report.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnknn import datasets
from attnknn.attention import DistanceAttention, LearnedAttention
from attnknn.datasets import Dataset
from attnknn.errors import AttnKNNError
from attnknn.evaluation.baselines import UniformKNN
from attnknn.metrics import score_all
from attnknn.records import Floats
from experiments.cifar.recipe import SETTINGS, Recipe, Trained, trained_encoder
from experiments.cifar.votes import Remembered, map_after_averaging, probabilities

Seen = NDArray[np.float32]  # (V, n, D): what each view of n images became
RESULTS = Path(__file__).parents[1] / "results" / "images"
N_NEIGHBORS = {"distance": 1024, "learned": 64}


def measure(recipe: Recipe, data: Dataset, folder: Path) -> dict[str, Any]:
    """Train, embed, vote and compare; every method with and without views."""
    trained = trained_encoder(recipe, data, folder)
    started = time.perf_counter()
    encoder, views = trained.encoder, recipe.views  # the first view is the image itself
    asked, fresh = (encoder.features(X, views) for X in (data.X_test, trained.X[trained.fresh]))
    rows = {
        **_head_rows(trained, data, asked, fresh),
        **_neighbor_rows(trained, data, encoder.embed(asked), encoder.embed(fresh), recipe.seed),
    }
    outcome = trained.lesson.outcome
    return {
        "recipe": {"data": recipe.data, "width": recipe.width, "seed": recipe.seed},
        "epochs": recipe.epochs,
        "settings": {"chosen": recipe.chosen, **SETTINGS["training"], "views": SETTINGS["views"]},
        "rows": {
            "trained": int((~trained.fresh).sum()),
            "fresh": int(trained.fresh.sum()),
            "test": len(data.y_test),
        },
        "fitted on": "fresh rows: scalars, exponents and the head's temperature; test rows: none",
        "training seconds": round(outcome.seconds, 1),
        "measuring seconds": round(time.perf_counter() - started, 1),
        "train losses": outcome.train_losses,
        "judged losses": outcome.judged_losses,
        "methods": rows,
        "data sha256": data.checksum,
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "machine": {"processor": platform.processor(), "cores": os.cpu_count()},
    }


def _head_rows(trained: Trained, data: Dataset, asked: Seen, fresh: Seen) -> dict[str, Any]:
    """The CNN head, its temperature fitted on the fresh rows after averaging."""
    found, codes = {}, trained.codes[trained.fresh]
    for name, n_views in (("CNN head", 1), ("CNN head, views", len(asked))):
        head = trained.baseline.fit_on_features(fresh[:n_views], codes)
        scores = _scores(data, head.probabilities_of(asked[:n_views]))
        found[name] = scores | {"temperature": head.temperature}
    return found


def _neighbor_rows(
    trained: Trained, data: Dataset, asked: Seen, fresh: Seen, seed: int
) -> dict[str, Any]:
    """Votes on the same embeddings: classical, by distance, and learned."""
    entries = trained.encoder.transform(trained.X)
    kept = Remembered.of(entries, trained.codes, trained.fresh)
    uniform = UniformKNN().fit(entries, trained.codes)
    votes = [uniform.predict_proba(view) for view in asked]
    found = {
        "uniform": _scores(data, votes[0]),
        "uniform, views": _scores(data, np.mean(votes, axis=0)),
    }
    for name, attention in (("distance", DistanceAttention()), ("learned", LearnedAttention())):
        parts = kept.fitted(attention, N_NEIGHBORS[name], seed)
        after = map_after_averaging(parts, kept, fresh)
        found[name] = _scores(data, probabilities(parts, asked[:1])) | {"K": parts.n_neighbors}
        found[f"{name}, views"] = _scores(data, probabilities(parts, asked, after))
    return found


def _scores(data: Dataset, found: Floats) -> dict[str, float]:
    scores = score_all(data.y_test, found, classes=range(len(data.classes)))
    names = ("accuracy", "nll", "ece", "brier")
    return {name: float(getattr(scores, name)) for name in names}


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    names = sorted(set(SETTINGS) - {"training", "views"})
    parser = argparse.ArgumentParser(prog="python -m experiments.cifar", description=__doc__)
    parser.add_argument("--data", choices=names, default="cifar10")
    parser.add_argument("--width", choices=["wide", "narrow"], default="wide")
    parser.add_argument("--epochs", type=int, help="other than the settings say")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, help="only so many training rows, for a try")
    parser.add_argument("--results", type=Path, default=RESULTS)
    chosen = parser.parse_args(arguments)
    if chosen.width not in SETTINGS[chosen.data]:
        parser.error(f"the settings have no {chosen.width} network for {chosen.data}")
    epochs = chosen.epochs or SETTINGS[chosen.data][chosen.width]["epochs"]
    recipe = Recipe(chosen.data, chosen.width, chosen.seed, epochs, chosen.rows)
    folder = chosen.results / f"{chosen.data}-{chosen.width}" / str(chosen.seed)
    try:
        report = measure(recipe, datasets.load(chosen.data), folder)
    except AttnKNNError as error:
        print(error, file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"{'':18} accuracy    NLL    ECE")
    for name, row in report["methods"].items():
        print(f"{name:18} {row['accuracy']:8.4f} {row['nll']:6.4f} {row['ece']:6.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
