"""The recipe for CIFAR-10 is run in small, so that it still works when it is needed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from attnknn.errors import InvalidInputError
from attnknn.research import datasets
from attnknn.research.datasets import Dataset, load
from attnknn.research.evaluation.baselines import UniformKNN
from attnknn.research.evaluation.corruption import symmetric_noise
from attnknn.research.evaluation.protocol import Method
from attnknn.research.evaluation.protocol import run as run_methods
from attnknn.research.evaluation.report import add_table, read_report
from attnknn.research.experiments.methods import head_with_noise
from attnknn.research.experiments.networks import KNOWN, network_of
from experiments.images import __main__ as experiment
from experiments.images.measuring import measure
from experiments.images.recipe import CORRUPTIONS, Recipe
from tests.fitting.shapes import shapes


@pytest.fixture
def small_data(monkeypatch):
    """Shapes under the name of CIFAR-10, and a network as small."""
    images, codes = shapes(400)
    data = Dataset(
        images[:320], codes[:320], images[320:], codes[320:], tuple("abcd"), kind="images"
    )
    monkeypatch.setattr(datasets, "load", lambda name: data)
    chosen = KNOWN["cifar10"]["narrow"] | {"widths": [8, 16, 16], "training": {}}
    monkeypatch.setitem(KNOWN["cifar10"], "narrow", chosen)
    shared = {"batch_size": 32, "learning_rate": 0.05, "queue_size": 64, "bias_lr_scale": 8.0}
    monkeypatch.setitem(KNOWN, "training", KNOWN["training"] | shared)


METHODS = ["CNN head", "CNN", "uniform", "distance", "learned", "joint", "attnknn"]


@pytest.mark.slow
def test_the_recipe_leaves_a_report_and_does_not_train_twice(small_data, tmp_path, capsys):
    arguments = ["--width", "narrow", "--epochs", "3", "--results", str(tmp_path)]
    assert experiment.main(arguments) == 0
    path = tmp_path / "cifar10-narrow" / "report.json"
    report = read_report(path)
    first = report.tables[""]
    assert first.methods == [name + views for name in METHODS for views in ("", ", views")]
    for run in first.runs:
        assert 0 <= run.scores.accuracy <= 1
        assert np.isfinite([run.scores.nll, run.scores.ece]).all()
        assert len(run.row_nll) == 80
    training = report.trainings[""][0]
    assert training["rows"] == {"trained": 256, "held_out": 64}
    assert "learned, views" in capsys.readouterr().out
    assert experiment.main(arguments) == 0
    again = read_report(path)
    assert [r.scores for r in again.tables[""].runs] == [r.scores for r in first.runs]
    assert again.trainings[""][0] == training


@pytest.mark.slow
def test_the_corruption_is_in_the_report(small_data, tmp_path):
    arguments = ["--width", "narrow", "--epochs", "1", "--results", str(tmp_path)]
    assert experiment.main([*arguments, "--corruption", "noise"]) == 0
    table = read_report(tmp_path / "cifar10-narrow-noise" / "report.json").tables[""]
    assert table.corruption == "30 % symmetric noise"
    assert "CNN head, noise model" in table.methods


def test_a_report_of_another_network_is_not_taken(small_data, tmp_path):
    iris = run_methods(load("iris"), [Method("uniform", lambda _: UniformKNN())], [0])
    add_table(tmp_path / "cifar10-narrow" / "report.json", iris)
    with pytest.raises(InvalidInputError, match="made with other encoder"):
        measure(Recipe.named("cifar10-narrow"), [0], tmp_path)


def test_the_damage_is_done_before_anything_is_fitted(small_data):
    data = datasets.load("cifar10")
    noisy = CORRUPTIONS["noise"].apply(data.y_train, 4, seed=0).codes
    assert 0.2 < (noisy != data.y_train).mean() < 0.4
    rare = CORRUPTIONS["imbalance"].apply(data.y_train, 4, seed=0).codes
    assert np.bincount(rare).tolist() == [80, 17, 4, 1]


def test_people_labeled_one_data_set_only(capsys):
    with pytest.raises(SystemExit):
        experiment.main(["--data", "mnist", "--width", "narrow", "--corruption", "worst"])
    assert "cifar10 only" in capsys.readouterr().err
    assert Recipe("cifar10", "narrow", 1, corruption="worst").source == "cifar10n-worst"


def test_a_head_that_knows_of_noise_finds_how_much(rng):
    true = rng.integers(0, 4, 4000)
    sure = np.full((4000, 4), 0.01)
    sure[np.arange(4000), true] = 0.97
    found = head_with_noise(sure, symmetric_noise(true, 0.3, random_state=0))
    assert found.label_noise == pytest.approx(0.3, abs=0.03)
    assert head_with_noise(sure, true).label_noise < 0.01


@pytest.mark.parametrize("data", sorted(set(KNOWN) - {"training", "pretrained", "views", "others"}))
def test_every_network_can_be_made(data, tmp_path):
    for name in KNOWN[data]:
        network = network_of(data, name, epochs=1)
        assert network.image_training(tmp_path).config.epochs == 1
        network.encoder(tmp_path, 0).check_settings()
        assert len(network.views) == (3 if data in ("mnist", "digits") else 6)
        assert data == "cifar100" or data in datasets.names()


def test_a_width_that_is_not_there_is_refused(capsys, small_data, tmp_path):
    assert experiment.main(["--data", "mnist", "--width", "wide", "--results", str(tmp_path)]) == 1
    assert "No network for 'mnist' is called 'wide'" in capsys.readouterr().err
