"""From settings to a table: one model for each layer and seed, all with the same budget."""

from __future__ import annotations

import re
import time
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import torch

from attnknn.encoders.image.rows import image_rows
from attnknn.metrics import row_correct, row_nll, score_all
from attnknn.research import datasets
from attnknn.research.datasets import Dataset
from attnknn.research.evaluation.protocol import versions
from attnknn.research.evaluation.report import REPORT, add_table, read_report
from attnknn.research.evaluation.table import Run, Table, merged
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


def measure_vits(name: str, seeds: list[int], results: Path) -> Table:
    """All layers on several seeds; what has a report is not run again."""
    folder = results / name
    report = read_report(folder / REPORT)
    missing = [
        (seed, layer)
        for seed in seeds
        for layer in LAYERS
        if report.table(slug(layer), seed) is None
    ]
    data = datasets.load("cifar10") if missing else None
    for seed, layer in missing:
        assert data is not None
        measure_layer(layer, seed, data, folder)
    return merged(read_report(folder / REPORT).tables.values()).with_seeds(seeds)


def measure_layer(layer: str, seed: int, data: Dataset, folder: Path) -> Table:
    """Train one model, or read what an earlier run left; each layer is a cell of the report."""
    known = read_report(folder / REPORT).table(slug(layer), seed)
    if known is not None:
        return known
    checkpoint = folder / slug(layer) / str(seed) / "checkpoint"
    training = VitTrainConfig(**SETTINGS["training"], seed=seed)
    settings = {**SETTINGS["model"], **LAYERS[layer], "num_classes": len(data.classes)}
    images, asked = Arrays(data.X_train), Arrays(data.X_test)
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
    found = evaluate(model, asked, data.y_test, pixels, keep_outputs=True)
    outputs = torch.cat(found.outputs).double()
    seconds = time.perf_counter() - started
    table = _table(layer, seed, data, outputs.softmax(1).numpy(), (result.seconds, seconds))
    add_table(folder / REPORT, table, slug(layer), training=_course(settings, result))
    checkpoint.unlink()
    return table


def line(layer: str, seed: int, epoch: EpochMetrics) -> str:
    """An epoch in words."""
    return (
        f"{layer}, seed {seed}, epoch {epoch.number}: train {epoch.train_top1:.4f}, validation "
        f"{epoch.validation_top1:.4f}, {epoch.seconds:.0f} s"
    )


def slug(layer: str) -> str:
    """A name for a folder.

    >>> slug("KVT, K = 9")
    'kvt-k-9'
    """
    return re.sub(r"[^a-z0-9]+", "-", layer.lower()).strip("-")


def _table(
    layer: str, seed: int, data: Dataset, found: np.ndarray[Any, Any], seconds: tuple[float, float]
) -> Table:
    run = Run(
        method=layer,
        seed=seed,
        scores=score_all(data.y_test, found),
        row_nll=row_nll(data.y_test, found),
        row_correct=row_correct(data.y_test, found),
        row_confidence=found.max(axis=1),
        fit_seconds=round(seconds[0], 1),
        predict_seconds=round(seconds[1], 1),
        settings=LAYERS[layer],
        chosen={},
    )
    return Table(
        dataset=data.name,
        checksum=data.checksum,
        n_train=len(data.y_train),
        n_test=len(data.y_test),
        corruption="none",
        encoder=_words(),
        versions=versions(),
        runs=(run,),
    )


def _words() -> str:
    model, training = SETTINGS["model"], SETTINGS["training"]
    return (
        f"ViT of {model['depth']} blocks, width {model['dim']}, {model['num_heads']} heads, "
        f"patches of {model['patch_size']} pixels, {training['epochs']} epochs"
    )


def _course(settings: dict[str, Any], result: VitTrainResult) -> dict[str, Any]:
    return {
        "model": settings,
        "training": SETTINGS["training"],
        "best_epoch": result.best_epoch,
        "epochs": [vars(epoch) for epoch in result.epochs],
        "seconds": round(result.seconds, 1),
    }
