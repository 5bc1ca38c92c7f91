"""Trains an image encoder, and compares votes on its embeddings with its CNN head."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from attnknn.research import datasets
from attnknn.research.evaluation.protocol import CellRun, run_cells
from attnknn.research.evaluation.report import REPORT
from attnknn.research.evaluation.table import Table
from attnknn.research.experiments.data import Setup
from attnknn.research.experiments.methods import METHODS, MethodSettings, Workspace
from attnknn.research.experiments.running import cell_run
from experiments.images.recipe import CORRUPTIONS, Recipe

COMPARED = ("head", "cnn", "uniform", "distance", "learned", "joint", "attnknn")
WORST = "the worst of three people's labels (CIFAR-10N)"


def measure(recipe: Recipe, seeds: Sequence[int], results: Path) -> Table:
    """Run a recipe on the seeds that its report does not have."""
    folder = results / recipe.name
    data = datasets.load(recipe.source)
    setup = Setup(data, folder, recipe.network, recipe.rows, progress=_print, verbose=1)

    def run_seed(_: str, seed: int) -> CellRun:
        embedded = setup.embed(CORRUPTIONS[recipe.corruption], seed)
        workspace = Workspace(embedded)
        found = [p for name in COMPARED for p in METHODS[name](workspace, MethodSettings())]
        corruption = WORST if recipe.corruption == "worst" else None
        n_held_out = 0 if embedded.held_out is None else int(embedded.held_out.sum())
        rows = {"trained": len(embedded.codes) - n_held_out, "held_out": n_held_out}
        training = {**_training(recipe, seed), "rows": rows}
        return cell_run(embedded, found, corruption=corruption, training=training)

    def requested(_: str, __: int) -> dict[str, Any]:
        return {"encoder": setup.encoder_description}

    return run_cells(folder / REPORT, [""], seeds, run_seed, requested)[""]


def _training(recipe: Recipe, seed: int) -> dict[str, Any]:
    return {
        "recipe": {"data": recipe.data, "width": recipe.width, "corruption": recipe.corruption},
        "seed": seed,
        "network": {name: value for name, value in asdict(recipe.network).items() if value},
        "fitted on": "held-out rows: scalars, exponents, the head's temperature; test rows: none",
        "machine": {"processor": platform.processor(), "cores": os.cpu_count()},
    }


def _print(words: str) -> None:
    print(words, flush=True)
