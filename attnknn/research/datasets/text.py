"""Texts, and their sentence embeddings by all-MiniLM-L6-v2.

banking77 and clinc150 are embeddings of support intents; banking77-texts, clinc150-texts and sst2
are texts, with 8,000 training rows that the seed draws.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from attnknn.records import Integers
from attnknn.research.datasets.base import KNOWN, DataFile, Rows, Source, codes_of

N_TEXTS = 8_000  # training rows that are drawn of the texts
Labeled = tuple[list[str], list[str]]  # texts and labels


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


def _texts_reader(
    classes: tuple[str, ...], labeled: Callable[[list[Path]], tuple[Labeled, Labeled]]
) -> Callable[[list[Path]], Rows]:
    def read(paths: list[Path]) -> Rows:
        train, test = labeled(paths)
        (X_train, y_train), (X_test, y_test) = (
            (np.array(texts, dtype=object), codes_of(labels, classes))
            for texts, labels in (train, test)
        )
        return _drawn(Rows(X_train, y_train, X_test, y_test, classes), seed=0)

    return read


def _drawn(rows: Rows, seed: int) -> Rows:
    """Rows with a stratified sample of the training rows, another one for each seed."""
    places: Integers = np.arange(len(rows.y_train))
    if len(places) > N_TEXTS:
        places, _ = train_test_split(
            places, train_size=N_TEXTS, random_state=seed, stratify=rows.y_train
        )
    return Rows(
        *(rows.X_train[places], rows.y_train[places], rows.X_test, rows.y_test, rows.classes),
        by_seed=lambda seed: _drawn(rows, seed),
    )


def _from_lines(paths: list[Path]) -> tuple[Labeled, Labeled]:
    """Files of training and test rows with a JSON object in each line."""
    train, test = ([json.loads(line) for line in _unpacked(path).splitlines()] for path in paths)
    return _labeled(train), _labeled(test)


def _labeled(rows: list[dict[str, str]]) -> Labeled:
    return [row["text"] for row in rows], [row["label"] for row in rows]


def _from_parts(paths: list[Path]) -> tuple[Labeled, Labeled]:
    """A JSON file with lists of pairs of text and label; without those that are out of scope."""
    content = json.loads(_unpacked(paths[0]))
    train, test = (
        [list(part) for part in zip(*content[key], strict=True)] for key in ("train", "test")
    )
    return (train[0], train[1]), (test[0], test[1])


def _from_columns(paths: list[Path]) -> tuple[Labeled, Labeled]:
    """Files of training and test rows with a header, and the label before the text."""
    train, test = (_columns(path) for path in paths)
    return train, test


def _columns(path: Path) -> Labeled:
    lines = _unpacked(path).replace("\r\n", "\n").split("\n")[1:]
    labels, texts = zip(*(line.split("\t", 1) for line in lines if line), strict=True)
    return list(texts), list(labels)


def _unpacked(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def _texts_source(
    name: str,
    size: tuple[int, tuple[str, ...]],
    origin: tuple[str, str],
    files: tuple[str, ...],
    labeled: Callable[[list[Path]], tuple[Labeled, Labeled]],
) -> Source:
    n_rows, classes = size
    return Source(
        name=name,
        kind="texts",
        n_rows=n_rows,
        n_classes=len(classes),
        origin=origin[0],
        license=origin[1],
        read=_texts_reader(classes, labeled),
        files=tuple(DataFile(f"text/{file}", KNOWN["sha256"][file]) for file in files),
    )


POLY_AI = "https://github.com/PolyAI-LDN/task-specific-datasets"
CLINC = "https://github.com/clinc/oos-eval"
INTENTS = {name: tuple(KNOWN["classes"][name].split()) for name in ("banking77", "clinc150")}
SOURCES = (
    _source("banking77", 13_083, POLY_AI, "CC BY 4.0"),
    _source("clinc150", 22_500, CLINC, "CC BY 3.0"),
    _texts_source(
        "banking77-texts",
        (13_083, INTENTS["banking77"]),
        (POLY_AI, "CC BY 4.0"),
        ("banking77-train.jsonl.gz", "banking77-test.jsonl.gz"),
        _from_lines,
    ),
    _texts_source(
        "clinc150-texts",
        (19_500, INTENTS["clinc150"]),
        (CLINC, "CC BY 3.0"),
        ("clinc150.json.gz",),
        _from_parts,
    ),
    _texts_source(
        "sst2",
        (68_221, ("0", "1")),
        ("https://gluebenchmark.com (SST-2)", "not stated"),
        ("sst2-train.tsv.gz", "sst2-dev.tsv.gz"),
        _from_columns,
    ),
)
