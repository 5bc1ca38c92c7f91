"""Baselines for raw tables."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from attnknn.encoders import LearnedTableEncoder
from attnknn.encoders.learned_table import TableLayers
from attnknn.research.evaluation import table_baselines
from attnknn.research.evaluation.table_baselines import AsCategories, TableMLP
from attnknn.training import TrainConfig


@pytest.fixture
def rows() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {"place": generator.uniform(-2, 2, 300), "kind": generator.choice(["a", "b"], 300)}
    )


@pytest.fixture
def labels(rows):
    is_up = (rows["place"] > 0) ^ (rows["kind"] == "a")
    return np.where(is_up, "up", "down")


def small(network="auto") -> LearnedTableEncoder:
    return LearnedTableEncoder(
        8,
        network=network,
        width=32,
        layers=TableLayers(n_blocks=1),
        training=TrainConfig(batch_size=32),
    )


def test_the_network_with_a_head_learns_what_no_line_can(rows, labels):
    model = TableMLP(small("deep"), random_state=0).fit(rows, labels)
    assert model.score(rows, labels) > 0.9
    probabilities = model.predict_proba(rows)
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert model.classes_.tolist() == ["down", "up"]


def test_it_is_the_same_for_a_seed(rows, labels, monkeypatch):
    monkeypatch.setattr(table_baselines, "EPOCHS", 3)
    first, second = (TableMLP(small(), random_state=3).fit(rows, labels) for _ in range(2))
    assert np.array_equal(first.predict_proba(rows), second.predict_proba(rows))


def test_its_temperature_is_fitted_on_rows_it_was_not_trained_on(rows):
    labels = np.random.default_rng(1).choice(["up", "down"], 300)
    model = TableMLP(small("deep"), random_state=0).fit(rows, labels)
    probabilities = model.predict_proba(rows)
    assert probabilities.max(axis=1).mean() < 0.75  # nothing can be known, and it knows


def test_unseen_categories_are_missing_values(rows):
    encoder = AsCategories().fit(rows)
    unseen = encoder.transform(pd.DataFrame({"place": [0.0], "kind": ["c"]}))
    assert unseen["kind"].isna().all()
    assert unseen["kind"].cat.categories.tolist() == rows["kind"].unique().tolist()
