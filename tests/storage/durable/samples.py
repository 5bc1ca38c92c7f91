"""Rows of three classes and eight people, and what a classifier says of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from attnknn import AttnKNNClassifier

N = 40


def rows(n: int = N, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 6)) + np.arange(n)[:, None] % 3


def labels(n: int = N) -> np.ndarray:
    return np.array(["ant", "bee", "cat"])[np.arange(n) % 3]


def payloads(n: int = N, start: int = 0) -> list[str]:
    return [f"the secret of row {i:03}" for i in range(start, start + n)]


def people(n: int = N) -> list[str]:
    return [f"person-{i % 8}" for i in range(n)]


def fitted(**settings: Any) -> AttnKNNClassifier:
    """Distance attention by a rule of thumb: nothing is fitted, so that tests are quick."""
    settings = {"attention": "distance", "calibration": None, "n_neighbors": 8, **settings}
    classifier = AttnKNNClassifier(random_state=0, **settings)
    return classifier.fit(rows(), labels(), payloads=payloads(), subjects=people())


def answers(classifier: AttnKNNClassifier) -> np.ndarray:
    return classifier.predict_proba(rows(6, seed=1))


def assert_same(one: AttnKNNClassifier, other: AttnKNNClassifier) -> None:
    """The same entries in the same order, and the same answers."""
    first, second = one.memory_.entries, other.memory_.entries
    assert one.classes_.tolist() == other.classes_.tolist()
    for name in (
        "ids",
        "labels",
        "groups",
        "sample_weight",
        "effective_weight",
        "held_out",
        "embeddings",
    ):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name), err_msg=name)
    for name in ("payloads", "subjects"):
        assert _listed(getattr(first, name)) == _listed(getattr(second, name))
    if len(one.memory_):
        np.testing.assert_allclose(answers(one), answers(other), rtol=0, atol=1e-12)


def _listed(values: np.ndarray | None) -> list[Any] | None:
    return None if values is None else values.tolist()
