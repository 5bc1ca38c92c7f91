"""The files that are mutated, and what is done with them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnknn import (
    AttnKNNClassifier,
    FaissMemory,
    ForestAttention,
    ImageEncoder,
    LearnedAttention,
    MixtureAttention,
    open_for_editing,
)
from attnknn.encoders import LearnedTableEncoder, TextEncoder, TfidfEncoder
from attnknn.encoders.image import ImageTraining
from attnknn.encoders.text_model import TextModel, fingerprint_of
from attnknn.errors import AttnKNNError
from attnknn.storage.folder import STORE
from attnknn.storage.store.head import head_of, write_head
from attnknn.training import TrainConfig

N = 40
CLASSES = np.array(["ant", "bee", "cat"])
HEADS = ("distance", "projection", ForestAttention(5))
TEXTS = [f"{kind} {word} {i}" for i, kind in enumerate(("card", "fee", "bank")) for word in "abcd"]


@dataclass(frozen=True)
class Target:
    """A folder of sample files, and what is done after one of them was changed.

    Parameters
    ----------
    build : writes the files to an empty folder
    use : takes the folder; returns, or raises an error of `attnknn.errors`
    mutated : pattern of the files that are changed
    share : how often it is taken, relative to the others
    """

    build: Callable[[Path], None]
    use: Callable[[Path], None]
    mutated: str = "model/*"
    share: float = 1.0


def rows(n: int = N, seed: int = 0) -> np.ndarray:
    """Rows of three classes."""
    return np.random.default_rng(seed).normal(size=(n, 3)) + 2.0 * (np.arange(n)[:, None] % 3)


def labels(n: int = N) -> np.ndarray:
    """Their labels."""
    return CLASSES[np.arange(n) % 3]


def table(n: int = N, seed: int = 0) -> pd.DataFrame:
    """Rows with a category, a date and gaps."""
    numbers = rows(n, seed)
    frame = pd.DataFrame({"a": numbers[:, 0], "b": numbers[:, 1]})
    frame.loc[::7, "b"] = np.nan
    frame["job"] = np.array(["cook", "nurse", "smith"])[np.arange(n) % 3]
    frame["day"] = pd.date_range("2024-01-01", periods=n)
    return frame


def images(n: int = N) -> np.ndarray:
    """Small gray images."""
    return np.random.default_rng(0).integers(0, 256, (n, 16, 16), dtype=np.uint8)


def quick(**settings: Any) -> AttnKNNClassifier:
    """A classifier that is fitted in no time."""
    settings = {"attention": "distance", "n_neighbors": 8, **settings}
    return AttnKNNClassifier(random_state=0, **settings)


def check_answers(classifier: AttnKNNClassifier, X: Any) -> None:
    """Predict and explain; the probabilities must be finite and sum to one."""
    found = classifier.predict_proba(X)
    assert found.shape == (len(X), len(classifier.classes_)), "wrong shape"
    assert np.isfinite(found).all(), "NaN"
    assert (found >= 0).all(), "negative"
    assert (np.abs(found.sum(axis=1) - 1) < 1e-6).all(), "not a distribution"
    classifier.explain(X[:2])


def model_target(make: Callable[[], AttnKNNClassifier], X: Callable[[], Any]) -> Target:
    """Load a model folder and predict."""
    return Target(
        lambda folder: make().save(folder / "model"),
        lambda folder: check_answers(AttnKNNClassifier.load(folder / "model"), X()),
    )


def _metadata() -> dict[str, Any]:
    return {
        "ids": [f"row {i}" for i in range(N)],
        "groups": np.arange(N) // 2,
        "sample_weight": np.linspace(1, 2, N),
        "payloads": [{"place": i, "text": "ä\n", "gap": None} for i in range(N)],
        "subjects": [f"person-{i % 8}" for i in range(N)],
    }


def _learned() -> AttnKNNClassifier:
    attention = LearnedAttention(
        n_heads=2,
        terms=("distance_bias", "support", "prototypes", "self_attention", "query_prior"),
        training=TrainConfig(epochs=1),
    )
    return quick(attention=attention, value_head=True).fit(rows(), labels(), **_metadata())


def _images() -> AttnKNNClassifier:
    training = ImageTraining(TrainConfig(epochs=1))
    encoder = ImageEncoder(widths=(4, 4, 4), image_size=16, training=training)
    return quick(encoder=encoder).fit(images(), labels())


def _build_store(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    quick().fit(rows(), labels(), payloads=["x"] * N, subjects=["ann"] * N).save(folder / "model")
    with open_for_editing(folder / "model") as model:
        model.forget([1])
        model.snapshot("one")
        model.relabel([2], ["ant"])


def _build_wal(folder: Path) -> None:
    """A store whose last edits are in SQLite's write-ahead log, as after a crash."""
    _build_store(folder / "closed")
    with open_for_editing(folder / "closed" / "model") as model:
        model.forget([3])
        shutil.copytree(folder / "closed" / "model", folder / "model")
    shutil.rmtree(folder / "closed")


def _use_store(folder: Path) -> None:
    check_answers(AttnKNNClassifier.load(folder / "model"), rows(6, seed=1))
    with open_for_editing(folder / "model", by="me") as model:
        model.log()
        model.snapshots()
        model.changes(model.head)
        model.forget(model.classifier.memory_.entries.ids[:1])
        model.undo()
        check_answers(model.classifier, rows(6, seed=1))


def run_command(*arguments: Any) -> None:
    """Run the command line; errors are raised, not printed."""
    import click

    from attnknn.cli import main

    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            main.main(["--traceback", *map(str, arguments)], standalone_mode=False)
    except (click.ClickException, click.exceptions.Exit):
        return


def reader_target(
    name: str, write: Callable[[Path], None], fit: tuple[str, ...], **settings: Any
) -> Target:
    """Fit on a file, and predict its rows with a model that was fitted before."""

    def build(folder: Path) -> None:
        (folder / "rows").mkdir()
        write(folder / "rows" / name)
        run_command("fit", folder / "rows" / name, "-o", folder / "good", "-k", 5, *fit)

    def use(folder: Path) -> None:
        path = folder / "rows" / name
        run_command("predict", folder / "good", path, "--proba", "-o", folder / "out.csv")
        run_command("fit", path, "-o", folder / "new", "-k", 5, *fit)

    return Target(build, use, **{"mutated": f"rows/{name}", **settings})


def _write_images(folder: Path) -> None:
    from PIL import Image

    for i, pixels in enumerate(images(12)):
        path = folder / CLASSES[i % 3] / f"{i}.{('png', 'jpg', 'gif', 'bmp')[i % 4]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)


def _learned_table() -> AttnKNNClassifier:
    encoder = LearnedTableEncoder(4, width=8, training=TrainConfig(epochs=1))
    return quick(encoder=encoder, attention="k-ensemble").fit(table(), labels())


def _build_sentences(folder: Path) -> None:
    """A model of texts whose sentence model has no weights, so that it can load but not encode."""
    home = folder / "sentences"
    (home / "1_Pooling").mkdir(parents=True)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(kinds.items())
    ]
    (home / "modules.json").write_text(json.dumps(modules))
    (home / "config.json").write_text(json.dumps({"model_type": "bert"}))
    (home / "1_Pooling" / "config.json").write_text(json.dumps({"embedding_dimension": 3}))
    (home / "model.safetensors").write_bytes(b"no weights")
    quick().fit(rows(), labels()).save(folder / "model")
    settings = json.loads((folder / "model" / "settings.json").read_bytes())
    encoder = TextEncoder("sentences")
    encoder.model_ = TextModel("sentences", "folder", None, fingerprint_of(home))
    encoder.width_, encoder.n_features_in_ = 3, 1
    settings["encoder"], settings["n_features_in"] = encoder.to_settings()[0], 1
    (folder / "model" / "settings.json").write_text(json.dumps(settings))
    resign(folder / "model", "settings.json")


def _use_sentences(folder: Path) -> None:
    with contextlib.chdir(folder):
        check_answers(AttnKNNClassifier.load("model"), TEXTS[:3])


def _write_compressed(path: Path) -> None:
    table().assign(kind=labels()).to_csv(path, index=False)


def _use_lines(folder: Path) -> None:
    run_command("predict", folder / "good", folder / "rows.txt", "-o", folder / "out.csv")


def _build_lines(folder: Path) -> None:
    texts = pd.DataFrame({"text": TEXTS * 2, "kind": [text[0] for text in TEXTS * 2]})
    texts.to_csv(folder / "train.csv", index=False)
    run_command(
        *("fit", folder / "train.csv", "-o", folder / "good", "-k", 5, *QUICK, "--text", "text")
    )
    (folder / "rows.txt").write_text("\n".join(TEXTS))


def _build_state(folder: Path) -> None:
    table(20).assign(kind=labels(20)).to_csv(folder / "stream.csv", index=False)
    table().assign(kind=labels()).to_csv(folder / "train.csv", index=False)
    quickly = ("--attention", "distance", "-k", 5)
    run_command("fit", folder / "train.csv", "-t", "kind", "-o", folder / "good", *quickly)
    _monitor(folder)


def _monitor(folder: Path) -> None:
    state = folder / "state.json"
    run_command("monitor", folder / "good", folder / "stream.csv", "--state", state)


def resign_sentences(folder: Path) -> None:
    """Store the fingerprint of a changed sentence model, as an attacker would."""
    path = folder / "model" / "settings.json"
    with contextlib.suppress(AttnKNNError, OSError, ValueError):
        settings = json.loads(path.read_bytes())
        settings["encoder"]["model"]["fingerprint"] = fingerprint_of(folder / "sentences")
        path.write_text(json.dumps(settings))
        resign(folder / "model", path.name)


def resign(folder: Path, name: str) -> None:
    """Give a changed file its size and checksum, as an attacker would."""
    if name == STORE:
        database = sqlite3.connect(folder / name)
        with contextlib.suppress(AttnKNNError, TypeError, ValueError, sqlite3.Error):
            write_head(folder, head_of(database))
        database.close()
    with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
        manifest = json.loads((folder / "manifest.json").read_bytes())
        data = (folder / name).read_bytes()
        manifest["files"][name] = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        (folder / "manifest.json").write_text(json.dumps(manifest))


QUICK = ("-t", "kind", "--attention", "distance", "--calibration", "none")
TARGETS: dict[str, Target] = {
    "plain": model_target(lambda: quick().fit(rows(), labels()), lambda: rows(6, seed=1)),
    "learned": model_target(_learned, lambda: rows(6, seed=1)),
    "mixture": model_target(
        lambda: quick(attention=MixtureAttention(HEADS)).fit(rows(), labels()),
        lambda: rows(6, seed=1),
    ),
    "table": model_target(
        lambda: quick(encoder="tabular", attention="adaptive").fit(table(), labels()),
        lambda: table(6, seed=1),
    ),
    "faiss": model_target(
        lambda: quick(memory=FaissMemory("hnsw"), metric="cosine").fit(rows(), np.arange(N) % 2),
        lambda: rows(6, seed=1),
    ),
    "texts": model_target(
        lambda: quick(encoder=TfidfEncoder(2)).fit(TEXTS, [text[0] for text in TEXTS]),
        lambda: TEXTS[:3],
    ),
    "images": model_target(_images, lambda: images(3)),
    "learned table": model_target(_learned_table, lambda: table(6, seed=1)),
    "sentences": Target(_build_sentences, _use_sentences),
    "sentence model": Target(_build_sentences, _use_sentences, mutated="sentences/**/*", share=0.5),
    "store": Target(_build_store, _use_store),
    "wal": Target(_build_wal, _use_store),
    "csv": reader_target(
        "rows.csv", lambda path: table().assign(kind=labels()).to_csv(path, index=False), QUICK
    ),
    "csv.gz": reader_target("rows.csv.gz", _write_compressed, QUICK),
    "lines": Target(_build_lines, _use_lines, mutated="rows.txt", share=0.5),
    "tsv": reader_target(
        "rows.tsv",
        lambda path: table().assign(kind=labels()).to_csv(path, index=False, sep="\t"),
        QUICK,
    ),
    "parquet": reader_target(
        "rows.parquet", lambda path: table().assign(kind=labels()).to_parquet(path), QUICK
    ),
    "npz": reader_target(
        "rows.npz",
        lambda path: np.savez(path, X=rows(), y=labels()),
        ("-t", "y", "--attention", "distance", "--calibration", "none"),
    ),
    "text file": reader_target(
        "rows.csv",
        lambda path: pd.DataFrame({"text": TEXTS * 2, "kind": [t[0] for t in TEXTS * 2]}).to_csv(
            path, index=False
        ),
        (*QUICK, "--text", "text"),
    ),
    "image files": reader_target(
        "images",
        _write_images,
        (
            *("--attention", "distance", "--calibration", "none"),
            "--image-size",
            "12",
            "--epochs",
            "1",
        ),
        mutated="rows/images/*/*",
        share=0.25,  # it trains a network
    ),
    "state": Target(_build_state, _monitor, mutated="state.json"),
}
