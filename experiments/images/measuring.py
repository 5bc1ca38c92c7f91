"""From a trained encoder to a table: all methods on one embedding, with and without views."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from attnknn.errors import InvalidInputError
from attnknn.research import datasets
from attnknn.research.datasets import Dataset
from attnknn.research.evaluation.report import REPORT, add_table, read_report
from attnknn.research.evaluation.table import Table, joined
from attnknn.research.experiments.methods import METHODS, Choices, Stage
from attnknn.research.experiments.running import losses_of, table_of
from attnknn.research.experiments.scenes import Scene, image_scene, network_words
from experiments.images.recipe import STRESSES, Recipe

COMPARED = ("head", "uniform", "distance", "learned", "attnknn")
WORST = "the worst of three people's labels (CIFAR-10N)"


def measure_named(name: str, seeds: list[int], results: Path) -> Table:
    """A recipe on several seeds; a seed that has a report is not run again."""
    tables = []
    for seed in seeds:
        recipe, folder = Recipe.named(name, seed), results / name
        table = read_report(folder / REPORT).table("", seed)
        if table is None:
            table = measure(recipe, datasets.load(recipe.source), folder)
        tables.append(_checked(recipe, table, folder / REPORT))
    return joined(tables)


def _checked(recipe: Recipe, table: Table, path: Path) -> Table:
    """A table that is there, if the recipe made it."""
    found = table.dataset, table.encoder
    asked = recipe.source, network_words(recipe.network, recipe.rows)
    if found != asked:
        raise InvalidInputError(
            f"{path} was made with other data or another network: {found}, asked for {asked}. "
            "Remove it to run again."
        )
    return table


def measure(recipe: Recipe, data: Dataset, folder: Path) -> Table:
    """Train or go on, vote, compare; add the table to the report in the folder."""
    scene = image_scene(
        data,
        STRESSES[recipe.stress],
        recipe.seed,
        recipe.network,
        folder / str(recipe.seed),
        n_rows=recipe.rows,
        verbose=1,
    )
    stage = Stage(scene)
    table = table_of(scene, [f for name in COMPARED for f in METHODS[name](stage, Choices())])
    if recipe.stress == "worst":
        table = replace(table, corruption=WORST)
    add_table(folder / REPORT, table, training=_training(recipe, scene))
    return table


def _training(recipe: Recipe, scene: Scene) -> dict[str, Any]:
    assert scene.held_out is not None
    assert scene.training is not None
    network = {name: value for name, value in asdict(recipe.network).items() if value}
    return {
        "recipe": {"data": recipe.data, "width": recipe.width, "stress": recipe.stress},
        "seed": recipe.seed,
        "network": network,
        "rows": {"trained": int((~scene.held_out).sum()), "held_out": int(scene.held_out.sum())},
        "fitted on": "held-out rows: scalars, exponents, the head's temperature; test rows: none",
        **losses_of(scene.training),
        "machine": {"processor": platform.processor(), "cores": os.cpu_count()},
    }
