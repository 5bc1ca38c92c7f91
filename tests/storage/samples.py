"""Small classifiers, and ways to tamper with their folders."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from attnknn import AttnKNNClassifier, open_for_editing

N = 40


def rows(n: int = N, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3)) + np.arange(n)[:, None] % 3


def labels(n: int = N) -> np.ndarray:
    return np.array(["ant", "bee", "cat"])[np.arange(n) % 3]


def quick(**settings: Any) -> AttnKNNClassifier:
    """Distance attention by a rule of thumb: nothing is fitted, so that tests are quick."""
    fixed = {"encoder": "identity", "attention": "distance", "calibration": None}
    settings = {**fixed, "n_neighbors": 8, **settings}
    return AttnKNNClassifier(random_state=0, **settings)


def same_answers(first: AttnKNNClassifier, second: AttnKNNClassifier, X: Any) -> bool:
    return bool(first.predict_proba(X).tobytes() == second.predict_proba(X).tobytes())


def resign(folder: Path, *names: str) -> None:
    """Give changed files their right size and checksum, as an attacker would."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for name in names:
        data = (folder / name).read_bytes()
        checksum = hashlib.sha256(data).hexdigest()
        manifest["files"][name] = {"bytes": len(data), "sha256": checksum}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def change_settings(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    settings = json.loads((folder / "settings.json").read_text())
    change(settings)
    (folder / "settings.json").write_text(json.dumps(settings))
    resign(folder, "settings.json")


def change_array(folder: Path, name: str, array: np.ndarray) -> None:
    np.save(folder / f"{name}.npy", array, allow_pickle=array.dtype == object)
    resign(folder, f"{name}.npy")


def payloads(n: int = N, start: int = 0) -> list[str]:
    return [f"the secret of row {i:03}" for i in range(start, start + n)]


def people(n: int = N) -> list[str]:
    return [f"person-{i % 8}" for i in range(n)]


def fitted(**settings: Any) -> AttnKNNClassifier:
    """A classifier whose rows belong to eight people."""
    return quick(**settings).fit(rows(), labels(), payloads=payloads(), subjects=people())


def with_store(path: Path) -> Path:
    """Move the entries of a saved model into a store, as the first edit does."""
    with open_for_editing(path) as model:
        assert model.database is not None
    return path


def predict(classifier: AttnKNNClassifier) -> np.ndarray:
    return classifier.predict_proba(rows(6, seed=1))


def assert_same(one: AttnKNNClassifier, other: AttnKNNClassifier) -> None:
    """The same entries in the same order, and the same predictions."""
    first, second = one.memory_.read(), other.memory_.read()
    assert one.classes_.tolist() == other.classes_.tolist()
    for name in (
        *("ids", "labels", "groups", "sample_weight", "effective_weight", "held_out"),
        "embeddings",
    ):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    for name in ("payloads", "subjects"):
        assert _listed(getattr(first, name)) == _listed(getattr(second, name))
    if len(one.memory_):
        np.testing.assert_allclose(predict(one), predict(other), rtol=0, atol=1e-12)


def _listed(values: np.ndarray | None) -> list[Any] | None:
    return None if values is None else values.tolist()
