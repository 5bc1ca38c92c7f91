"""The recipe for CIFAR-10 is run in small, so that it still works when it is needed."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3]))

from attnknn import datasets
from attnknn.datasets import Dataset
from experiments.cifar import __main__ as experiment
from experiments.cifar.recipe import SETTINGS, Recipe
from tests.training.images.shapes import shapes


@pytest.fixture
def small_data(monkeypatch):
    """Shapes under the name of CIFAR-10, and a network as small."""
    images, codes = shapes(400)
    data = Dataset(images[:320], codes[:320], images[320:], codes[320:], tuple("abcd"))
    monkeypatch.setattr(datasets, "load", lambda name: data)
    chosen = SETTINGS["cifar10"]["narrow"] | {"widths": [8, 16, 16], "training": {}}
    monkeypatch.setitem(SETTINGS["cifar10"], "narrow", chosen)
    shared = {"batch_size": 32, "learning_rate": 0.05, "queue_size": 64, "bias_pace": 8.0}
    monkeypatch.setitem(SETTINGS, "training", SETTINGS["training"] | shared)


def test_the_recipe_leaves_a_report_and_does_not_train_twice(small_data, tmp_path, capsys):
    arguments = ["--width", "narrow", "--epochs", "3", "--results", str(tmp_path)]
    assert experiment.main(arguments) == 0
    path = tmp_path / "cifar10-narrow" / "0" / "report.json"
    first = json.loads(path.read_text())
    names = ("CNN head", "uniform", "distance", "learned")
    assert set(first["methods"]) == {*names, *(f"{name}, views" for name in names)}
    for row in first["methods"].values():
        assert 0 <= row["accuracy"] <= 1
        assert np.isfinite([row["nll"], row["ece"]]).all()
    assert first["rows"] == {"trained": 256, "fresh": 64, "test": 80}
    assert "learned, views" in capsys.readouterr().out
    assert experiment.main(arguments) == 0
    again = json.loads(path.read_text())
    assert again["train losses"] == first["train losses"]
    assert again["methods"] == first["methods"]


@pytest.mark.parametrize("data", sorted(set(SETTINGS) - {"training", "views"}))
def test_every_recipe_can_be_read(data, tmp_path):
    for width in SETTINGS[data]:
        recipe = Recipe(data, width, seed=0, epochs=1)
        assert recipe.training(tmp_path).epochs == 1
        recipe.encoder(tmp_path).check_settings()
        assert len(recipe.views) == (3 if data == "mnist" else 6)
        assert data in datasets.names()


def test_a_width_that_is_not_there_is_refused(capsys):
    with pytest.raises(SystemExit):
        experiment.main(["--data", "mnist", "--width", "wide"])
    assert "no wide network for mnist" in capsys.readouterr().err
