"""From a trained encoder to a table: all methods on one embedding, with and without views."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn import datasets
from attnknn.attention import DistanceAttention, LearnedAttention
from attnknn.datasets import Dataset
from attnknn.evaluation.baselines import UniformKNN
from attnknn.evaluation.protocol import versions
from attnknn.evaluation.table import Run, Table, joined
from attnknn.metrics import row_correct, row_nll, score_all
from attnknn.records import Floats
from experiments.images.recipe import SETTINGS, STRESSES, Recipe, Trained, trained_encoder
from experiments.images.votes import (
    Remembered,
    head_with_noise,
    map_after_averaging,
    probabilities,
)

Seen = NDArray[np.float32]  # (V, n, D): what each view of n images became
Found = tuple[str, Floats, dict[str, Any]]  # a method, its probabilities, what was chosen
MOST_NEIGHBORS = {"distance": 1024, "learned": 64, "attnknn": 1024}


def measure_named(name: str, seeds: list[int], results: Path) -> Table:
    """A recipe on several seeds; a seed that has a report is not run again."""
    tables = []
    for seed in seeds:
        recipe, folder = Recipe.named(name, seed), results / name / str(seed)
        path = folder / "report.json"
        if not path.exists():
            measure(recipe, datasets.load(recipe.source), folder)
        tables.append(Table.from_json(path))
    return joined(tables)


def measure(recipe: Recipe, data: Dataset, folder: Path) -> Table:
    """Train or go on, vote, compare; leave `report.json` and `training.json` in the folder."""
    trained = trained_encoder(recipe, data, folder)
    outcome = trained.lesson.outcome
    started = time.perf_counter()
    runs = []
    for method, found, chosen in _answers(recipe, trained, data):
        seconds = time.perf_counter() - started
        runs.append(_run(recipe, data, method, found, chosen, (outcome.seconds, seconds)))
        started = time.perf_counter()
    table = Table(
        dataset=data.name or recipe.data,
        checksum=data.checksum,
        n_train=len(trained.codes),
        n_test=len(data.y_test),
        corruption=STRESSES[recipe.stress],
        encoder=_encoder_words(recipe),
        versions=versions(),
        runs=tuple(runs),
    )
    table.to_json(folder / "report.json")
    (folder / "training.json").write_text(json.dumps(_training(recipe, trained), indent=1) + "\n")
    return table


def _answers(recipe: Recipe, trained: Trained, data: Dataset) -> Iterator[Found]:
    encoder, views = trained.encoder, recipe.views  # the first view is the image itself
    asked, fresh = (encoder.features(X, views) for X in (data.X_test, trained.X[trained.fresh]))
    yield from _head_answers(trained, asked, fresh, has_noise=recipe.stress in ("noise", "worst"))
    yield from _votes(trained, encoder.embed(asked), encoder.embed(fresh), recipe.seed)


def _head_answers(
    trained: Trained, asked: Seen, fresh: Seen, *, has_noise: bool
) -> Iterator[Found]:
    """The CNN head, its temperature fitted on the fresh rows after averaging."""
    codes = trained.codes[trained.fresh]
    for views, n_views in (("", 1), (", views", len(asked))):
        head = trained.baseline.fit_on_features(fresh[:n_views], codes)
        found = head.probabilities_of(asked[:n_views])
        yield f"CNN head{views}", found, {"temperature": head.temperature}
        if has_noise:
            known = head_with_noise(head.probabilities_of(fresh[:n_views]), codes)
            chosen = {"exponent": known.exponent, "label_noise": known.label_noise}
            yield f"CNN head, noise model{views}", known.probabilities(found), chosen


def _votes(trained: Trained, asked: Seen, fresh: Seen, seed: int) -> Iterator[Found]:
    """Votes on the same embeddings: classical, by distance, learned, and the better of these."""
    entries = trained.encoder.transform(trained.X)
    kept = Remembered.of(entries, trained.codes, trained.fresh)
    uniform = UniformKNN().fit(entries, trained.codes)
    votes = [_all_classes(uniform.predict_proba(v), uniform.classes_, kept) for v in asked]
    yield "uniform", votes[0], {}
    yield "uniform, views", np.mean(votes, axis=0), {}
    attentions = {"distance": DistanceAttention(), "learned": LearnedAttention(), "attnknn": "auto"}
    for name, attention in attentions.items():
        parts = kept.fitted(attention, MOST_NEIGHBORS[name], seed)
        after = map_after_averaging(parts, kept, fresh)
        chosen = {
            "attention": type(parts.attention).__name__,
            "n_neighbors": parts.n_neighbors,
            "label_noise": parts.calibration.label_noise,
        }
        yield name, probabilities(parts, asked[:1]), chosen
        yield f"{name}, views", probabilities(parts, asked, after), chosen


def _all_classes(found: Floats, classes: NDArray[Any], kept: Remembered) -> Floats:
    """Columns for all classes, should one have no row left."""
    wide = np.zeros((len(found), len(kept.counts)))
    wide[:, classes] = found
    return wide


def _run(
    recipe: Recipe,
    data: Dataset,
    method: str,
    found: Floats,
    chosen: dict[str, Any],
    seconds: tuple[float, float],
) -> Run:
    training, own = seconds
    return Run(
        method=method,
        seed=recipe.seed,
        scores=score_all(data.y_test, found),
        row_nll=row_nll(data.y_test, found),
        row_correct=row_correct(data.y_test, found),
        row_confidence=found.max(axis=1),
        fit_seconds=round(training, 1),
        predict_seconds=round(own, 1),
        settings={},
        chosen=chosen,
    )


def _encoder_words(recipe: Recipe) -> str:
    widths = "/".join(map(str, recipe.chosen["widths"]))
    return f"resnet9 {widths}, {recipe.epochs} epochs"


def _training(recipe: Recipe, trained: Trained) -> dict[str, Any]:
    outcome = trained.lesson.outcome
    return {
        "recipe": {"data": recipe.data, "width": recipe.width, "stress": recipe.stress},
        "seed": recipe.seed,
        "epochs": recipe.epochs,
        "settings": {"chosen": recipe.chosen, **SETTINGS["training"], "views": SETTINGS["views"]},
        "rows": {"trained": int((~trained.fresh).sum()), "fresh": int(trained.fresh.sum())},
        "fitted on": "fresh rows: scalars, exponents and the head's temperature; test rows: none",
        "seconds": round(outcome.seconds, 1),
        "train losses": outcome.train_losses,
        "judged losses": outcome.judged_losses,
        "machine": {"processor": platform.processor(), "cores": os.cpu_count()},
    }
