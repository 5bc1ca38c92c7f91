"""Small fitted classifiers and their folders."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from attnknn import AttnKNNClassifier, LearnedAttention
from attnknn.training import TrainConfig

from .samples import N, fitted, labels, quick, rows


@pytest.fixture
def plain() -> AttnKNNClassifier:
    return quick().fit(rows(), labels())


@pytest.fixture(scope="session")
def learned() -> AttnKNNClassifier:
    """Every part that learned attention can have, and a value head."""
    attention = LearnedAttention(
        n_heads=2,
        terms=("distance_bias", "support", "prototypes", "self_attention", "query_prior"),
        training=TrainConfig(epochs=1),
    )
    classifier = AttnKNNClassifier(8, attention=attention, value_head=True, random_state=0)
    return classifier.fit(
        rows(),
        labels(),
        ids=[f"row {i}" for i in range(N)],
        groups=np.arange(N) // 2,
        sample_weight=np.linspace(1, 2, N),
        payloads=[{"place": i, "text": "ä\n", "gap": None} for i in range(N)],
    )


@pytest.fixture
def saved(plain: AttnKNNClassifier, tmp_path: Path) -> Path:
    plain.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def saved_learned(learned: AttnKNNClassifier, tmp_path: Path) -> Path:
    learned.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A stored model whose rows belong to people."""
    fitted().save(tmp_path / "model")
    return tmp_path / "model"
