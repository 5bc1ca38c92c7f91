"""Trains one small Vision Transformer for each layer and seed, all with the same budget."""

from __future__ import annotations

import re
import shutil
import time
import tomllib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from attnknn.encoders.image.rows import image_rows
from attnknn.research import datasets
from attnknn.research.datasets import Dataset
from attnknn.research.evaluation.protocol import CellRun, Predictions, run_cells, table_of
from attnknn.research.evaluation.report import REPORT
from attnknn.research.evaluation.table import Table, merged
from attnknn.vit.training import (
    EpochMetrics,
    ImagePreprocessor,
    VitTrainConfig,
    VitTrainResult,
    evaluate,
    train_vit,
)
from attnknn.vit.training.storage import build_vit

SETTINGS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("settings.toml").read_text())
LAYERS: dict[str, dict[str, Any]] = SETTINGS["layers"]


class Arrays:
    """Images of an array, as a training takes them."""

    def __init__(self, X: Any) -> None:
        self.rows = image_rows(X)
        self.shape = self.rows.shape(None)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, rows: Any) -> Any:
        return self.rows.take(rows, self.shape, may_resize=False)


def measure(layers: Sequence[str], seeds: Sequence[int], folder: Path) -> Table:
    """Train the models that the report does not have; each layer is a cell of it."""
    names = {slug(layer): layer for layer in layers}
    data = cache(lambda: datasets.load("cifar10"))

    def run_layer(name: str, seed: int) -> CellRun:
        return _run_layer(names[name], seed, data(), folder / name / str(seed) / "checkpoint")

    tables = run_cells(folder / REPORT, list(names), seeds, run_layer, lambda *_: {})
    for name in names:
        shutil.rmtree(folder / name, ignore_errors=True)  # checkpoints
    return merged(tables.values())


def _run_layer(layer: str, seed: int, data: Dataset, checkpoint: Path) -> CellRun:
    training = VitTrainConfig(**SETTINGS["training"], seed=seed)
    settings = {**SETTINGS["model"], **LAYERS[layer], "num_classes": len(data.classes)}
    images, queries = Arrays(data.X_train), Arrays(data.X_test)
    pixels = ImagePreprocessor.from_images(images, (settings["image_size"],) * 2)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    model, result = train_vit(
        lambda: build_vit(settings),
        images,
        data.y_train,
        pixels,
        training,
        checkpoint=checkpoint,
        on_epoch=lambda epoch: print(line(layer, seed, epoch), flush=True),
    )
    started = time.perf_counter()
    found = evaluate(model, queries, data.y_test, pixels, keep_outputs=True)
    probabilities = torch.cat(found.outputs).double().softmax(1).numpy()
    seconds = time.perf_counter() - started
    predictions = Predictions(
        layer, probabilities, {}, result.seconds, seconds, settings=LAYERS[layer]
    )
    table = table_of(data, [predictions], seed, corruption="none", encoder=_encoder())
    return CellRun(table, _training(settings, result))


def line(layer: str, seed: int, epoch: EpochMetrics) -> str:
    """Metrics of an epoch in one line."""
    return (
        f"{layer}, seed {seed}, epoch {epoch.number}: train {epoch.train_top1:.4f}, validation "
        f"{epoch.validation_top1:.4f}, {epoch.seconds:.0f} s"
    )


def slug(layer: str) -> str:
    """A layer as the name of a cell.

    >>> slug("KVT, K = 9")
    'kvt-k-9'
    """
    return re.sub(r"[^a-z0-9]+", "-", layer.lower()).strip("-")


def _encoder() -> str:
    model, training = SETTINGS["model"], SETTINGS["training"]
    return (
        f"ViT of {model['depth']} blocks, width {model['dim']}, {model['num_heads']} heads, "
        f"patches of {model['patch_size']} pixels, {training['epochs']} epochs"
    )


def _training(settings: dict[str, Any], result: VitTrainResult) -> dict[str, Any]:
    return {
        "model": settings,
        "training": SETTINGS["training"],
        "best_epoch": result.best_epoch,
        "epochs": [vars(epoch) for epoch in result.epochs],
        "seconds": round(result.seconds, 1),
    }
