"""Sentence embeddings of support intents by all-MiniLM-L6-v2: banking77, clinc150."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.research.datasets.base import KNOWN, DataFile, Rows, Source


def _reader(classes: tuple[str, ...]) -> Callable[[list[Path]], Rows]:
    def read(paths: list[Path]) -> Rows:
        with np.load(paths[0], allow_pickle=False) as file:
            arrays = {key: _typed(file[key]) for key in file.files}
        return Rows(
            X_train=arrays.pop("x_train"),
            y_train=arrays.pop("y_train"),
            X_test=arrays.pop("x_test"),
            y_test=arrays.pop("y_test"),
            classes=classes,
            extras=arrays,
        )

    return read


def _typed(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int64)


def _source(name: str, n_rows: int, origin: str, license: str) -> Source:
    classes = tuple(KNOWN["classes"][name].split())
    return Source(
        name=name,
        kind="vectors",
        n_rows=n_rows,
        n_classes=len(classes),
        origin=f"{origin}, embedded by all-MiniLM-L6-v2 (float16, unit length)",
        license=license,
        read=_reader(classes),
        files=(DataFile(f"vectors/{name}-minilm.npz", KNOWN["sha256"][f"{name}-minilm.npz"]),),
    )


POLY_AI = "https://github.com/PolyAI-LDN/task-specific-datasets"
SOURCES = (
    _source("banking77", 13_083, POLY_AI, "CC BY 4.0"),
    _source("clinc150", 22_500, "https://github.com/clinc/oos-eval", "CC BY 3.0"),
)
