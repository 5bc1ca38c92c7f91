"""Small classifiers, and ways to tamper with their folders."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from attnknn import AttnKNNClassifier

N = 40


def rows(n: int = N, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3)) + np.arange(n)[:, None] % 3


def labels(n: int = N) -> np.ndarray:
    return np.array(["ant", "bee", "cat"])[np.arange(n) % 3]


def quick(**settings: Any) -> AttnKNNClassifier:
    """Distance attention by a rule of thumb: nothing is fitted, so that tests are quick."""
    settings = {"attention": "distance", "calibration": None, "n_neighbors": 8, **settings}
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
