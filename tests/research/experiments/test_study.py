"""Claims from what is asked to what was measured, in small."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from attnknn import AttnKNNClassifier
from attnknn.encoders.image import image_cache_file
from attnknn.errors import AttnKNNError, InvalidInputError, InvalidSettingError
from attnknn.research import datasets
from attnknn.research.evaluation import error_analysis
from attnknn.research.evaluation import report as report_module
from attnknn.research.evaluation.baselines import UniformKNN
from attnknn.research.evaluation.corruption import Corruption
from attnknn.research.evaluation.report import read_report
from attnknn.research.experiments import networks, running
from attnknn.research.experiments.data import Setup, stratified_subset, subsample
from attnknn.research.experiments.networks import Network, as_images, weights_checksum
from attnknn.research.experiments.opening import classifier_of
from attnknn.research.experiments.study import Study, measure, network_for

TINY = {
    "image_size": 12,
    "widths": [8, 8, 8],
    "epochs": 1,
    "held_out": 60,
    "flip": "none",
    "crop": 1,
    "training": {"batch_size": 64, "queue_size": 64, "validation_entries": 64},
}


@pytest.fixture
def tiny_network(monkeypatch):
    monkeypatch.setitem(networks.KNOWN, "digits", {"narrow": TINY})


def test_tables_are_compared_on_one_embedding(tmp_path):
    changes = {"methods": ["logistic", "uniform", "distance", "k-ensemble", "adaptive"]}
    found = measure(Study("main", "iris", tmp_path, [0, 1], changes=changes))
    table = found.tables[None]
    assert table.methods == ["logistic", "uniform", "distance", "k-ensemble", "adaptive K"]
    assert table.seeds == [0, 1]
    assert table.encoder == "tabular"
    assert all(table.mean("accuracy", method) > 0.85 for method in table.methods)


def test_methods_may_train_encoders_of_their_own(tmp_path, tiny_network):
    changes = {
        "methods": ["head", "cnn", "distance", "learned", "joint"],
        "trainings": {"a narrower network": {"widths": [6, 6, 6]}},
    }
    found = measure(Study("training", "digits", tmp_path, [0], n_rows=400, changes=changes))
    table = found.tables[None]
    methods = ["CNN head", "CNN", "distance", "learned", "joint", "a narrower network"]
    assert [name for name in table.methods if ", views" not in name] == methods
    losses = [table.mean("nll", name) for name in methods]
    assert len(set(losses)) == len(losses)
    trained = {path.parent.name for path in (tmp_path / "trainings").glob("*/0")}
    names = ["", "-CNN", "-joint", "-a-narrower-network"]
    assert trained == {f"digits-narrow-400-rows{name}" for name in names}


def test_a_cnn_of_its_own_is_not_trained_on_tables(tmp_path):
    with pytest.raises(InvalidSettingError, match="'cnn' needs images that a network is trained"):
        measure(
            Study("training", "iris", tmp_path, [0], changes={"methods": ["cnn"], "trainings": {}})
        )


def test_what_has_a_report_is_not_run_again(tmp_path, monkeypatch):
    study = Study("noise", "iris", tmp_path, [0], changes={"methods": ["distance"]})
    first = measure(study)
    monkeypatch.setattr(running, "Workspace", None)  # whoever wants to measure would fail
    again = measure(study)
    assert list(again.tables) == [0.0, 0.1, 0.2, 0.3]
    assert again.tables[0.3].corruption == "30 % symmetric noise"
    for place, table in first.tables.items():
        assert again.tables[place].mean("nll", "distance") == table.mean("nll", "distance")


def test_a_stopped_claim_goes_on_with_what_is_missing(tmp_path):
    changes = {"methods": ["uniform"], "levels": [1, 10]}
    study = Study("imbalance", "iris", tmp_path, [0], changes=changes)
    measure(study)
    path = study.place / "report.json"
    before = json.loads(path.read_text())
    stopped = {**before, "tables": {"ratio-1": before["tables"]["ratio-1"]}}
    path.write_text(json.dumps(stopped))
    measure(study)
    after = json.loads(path.read_text())
    assert after["tables"]["ratio-1"] == before["tables"]["ratio-1"]  # with its times
    scores = [found["tables"]["ratio-10"]["runs"][0]["scores"] for found in (before, after)]
    assert scores[0] == scores[1]


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"changes": {"methods": ["distance"]}}, "methods"),
        ({"n_rows": 40}, "encoder"),
        ({"encoder": "identity"}, "encoder"),
    ],
)
def test_a_report_of_another_study_is_not_taken(change, name, tmp_path):
    asked = {"claim": "main", "dataset": "iris", "folder": tmp_path, "seeds": [0]}
    for _ in range(2):  # the second time it is the same study
        measure(Study(**asked, changes={"methods": ["head", "uniform"]}))
    with pytest.raises(InvalidInputError, match=f"made with other {name}"):
        measure(Study(**{**asked, "changes": {"methods": ["head", "uniform"]}, **change}))


def test_a_sheet_of_another_encoder_is_not_taken(tmp_path):
    changes = {"neighbors": [3]}
    measure(Study("theory", "iris", tmp_path, [0], changes=changes))
    with pytest.raises(InvalidInputError, match="made with other encoder"):
        measure(Study("theory", "iris", tmp_path, [0], encoder="identity", changes=changes))


def test_reports_hold_what_they_were_made_with(tmp_path, tiny_network):
    study = Study("noise", "digits", tmp_path, [0], n_rows=400)
    study = replace(study, changes={"methods": ["uniform"], "levels": [0.1]})
    measure(study)
    told = json.loads((study.place / "report.json").read_text())["tables"]["rate-0.1"]
    settings = told["settings"]
    assert (settings["claim"], settings["preset"], settings["rows"]) == ("noise", None, 400)
    assert settings["corruption"] == {"kind": "symmetric", "level": 0.1}
    assert settings["network"]["held_out"] == 60
    assert settings["network"]["training"]["config"]["label_smoothing"] == 0.2
    assert settings["network"]["training"]["augmentation"]["horizontal_flip"] == "none"
    assert settings["network"]["views"]["kinds"] == ["original", "shift"]
    assert int(told["versions"]["threads"]) >= 1
    (training,) = read_report(study.place / "report.json").trainings["rate-0.1"].values()
    assert {"vote", "head", "attention entropy"} <= set(training["components"])
    assert len(training["components"]["vote"]) == len(training["train_losses"])
    run = told["runs"][0]
    assert run["chosen"]["encoder_seconds"] >= 0
    assert run["fit_seconds"] > 0
    assert run["predict_seconds"] > 0


def test_reports_of_images_show_mistakes_and_their_neighbors(tmp_path, tiny_network):
    changes = {"methods": ["head", "attnknn"]}
    study = Study("main", "digits", tmp_path, [1, 0], n_rows=300, changes=changes)
    measure(study)
    report = read_report(study.place / "report.json")
    assert report.illustrations[""].keys() == {1}  # of the first seed only
    shown = report.illustrations[""][1]
    few = subsample(datasets.load("digits"), 300)
    by_head, ours = (
        next(found for found in report.error_analyses[""][1] if found.method == name)
        for name in ("CNN head", "attnknn")
    )
    assert all(mistake.neighbors == () for mistake in by_head.mistakes)
    for mistake in ours.mistakes[: error_analysis.N_SHOWN]:
        image = networks.as_images(few, few.X_test[[int(mistake.row)]])
        assert np.array_equal(shown.thumbnails.test[int(mistake.row)], image)
        for row, label, weight in mistake.neighbors:
            assert f"row {row} ({label}) {weight:.2f}"[:-1] in mistake.evidence
            assert few.classes[few.y_train[row]] == label
            image = networks.as_images(few, few.X_train[[row]])
            assert np.array_equal(shown.thumbnails.train[row], image)
    assert ours.mistakes
    assert np.array_equal(shown.embedding_map.codes, few.y_test)
    assert ours.one_vs_rest.curves
    assert not report.error_analyses[""][0][0].one_vs_rest.curves


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"held_out": 50}, "network.held_out 60, asked for 50"),
        ({"flip": "random"}, "horizontal_flip none, asked for random"),
        (
            {"training": {**TINY["training"], "label_smoothing": 0.1}},
            "network.training.config.label_smoothing 0.2, asked for 0.1",
        ),
    ],
)
def test_a_report_of_another_training_is_not_taken(
    tmp_path, tiny_network, monkeypatch, change, words
):
    study = Study("main", "digits", tmp_path, [0], n_rows=300, changes={"methods": ["uniform"]})
    measure(study)
    monkeypatch.setitem(networks.KNOWN, "digits", {"narrow": {**TINY, **change}})
    with pytest.raises(InvalidInputError, match=f"made with other settings: .*{words}"):
        measure(study)


def test_reports_of_something_else_are_found_before_anything_runs(tmp_path, monkeypatch):
    study = Study("k-sweep", "iris", tmp_path, [0, 1], changes={"methods": ["uniform"]})
    measure(replace(study, seeds=[1]))
    monkeypatch.setattr(running, "Workspace", None)  # whoever wants to measure would fail
    with pytest.raises(InvalidInputError, match="made with other methods"):
        measure(replace(study, changes={"methods": ["distance"]}))
    theory = Study("theory", "iris", tmp_path, [0], changes={"neighbors": [3]})
    monkeypatch.undo()
    measure(theory)
    monkeypatch.setattr(running, "Workspace", None)
    with pytest.raises(InvalidInputError, match=r"measure\.neighbors \[3\], asked for \[4\]"):
        measure(replace(theory, seeds=[1, 0], changes={"neighbors": [4]}))


def test_a_report_without_settings_is_not_taken(tmp_path):
    study = Study("main", "iris", tmp_path, [0], changes={"methods": ["uniform"]})
    measure(study)
    path = study.place / "report.json"
    told = json.loads(path.read_text())
    del told["tables"][""]["settings"]
    path.write_text(json.dumps(told))
    with pytest.raises(InvalidInputError, match="other settings: claim missing, asked for main"):
        measure(study)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("report.json", b'{"dataset": "iris", '),
        ("report.json", b"{}"),
        ("report.json", b"[]"),
        ("report.json", b"\xff"),
        ("report.npz", b"PK"),
        ("report.npz", None),
    ],
)
def test_damaged_reports_are_named(tmp_path, name, content):
    study = Study("main", "iris", tmp_path, [0], changes={"methods": ["uniform"]})
    measure(study)
    path = study.place / name
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"report\.json .*[Rr]emove"):
        measure(study)


@pytest.mark.parametrize(
    "content",
    [
        {"measurements": [{}]},
        {"measurements": [3]},
        {"tables": {}, "error_analyses": {"": {"0": {}}}},
        {"tables": {}, "error_analyses": {"": {"0": {"classes": ["a"], "confusions": [1, 2]}}}},
    ],
    ids=str,
)
def test_damaged_measurements_and_error_analyses_are_named(tmp_path, content):
    path = tmp_path / "some.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidInputError, match=r"some\.json is no report .* again"):
        read_report(path)


def test_the_report_is_written_last_and_whole(tmp_path, tiny_network, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    study = Study("main", "digits", tmp_path, [0], n_rows=300, changes={"methods": ["attnknn"]})
    measure(study)
    before = (study.place / "report.json").read_text()
    monkeypatch.setattr(report_module, "write_json", stopped)
    with pytest.raises(KeyboardInterrupt):
        measure(replace(study, seeds=[0, 1]))
    assert (study.place / "report.json").read_text() == before
    assert read_report(study.place / "report.json").tables[""].seeds == [0]
    assert read_report(study.place / "report.json").error_analyses[""].keys() == {0}
    assert read_report(study.place / "report.json").trainings[""].keys() == {0}


def test_a_full_preset_has_a_folder_of_its_own(tmp_path):
    cut = Study("main", "cifar10", tmp_path, preset="experiment-4")
    assert replace(cut, is_full=True).place != cut.place


def test_reports_of_other_choices_are_not_taken(tmp_path):
    study = Study("k-sweep", "iris", tmp_path, [0], changes={"methods": ["uniform"]})
    measure(study)
    path = study.place / "report.json"
    told = json.loads(path.read_text())
    told["tables"]["K-3"] = told["tables"]["K-5"]
    path.write_text(json.dumps(told))
    with pytest.raises(InvalidInputError, match=r"made with other methods: uniform\.n_neighbors"):
        measure(study)


def test_variants_that_change_their_settings_are_not_taken(tmp_path):
    heads = {
        "a": {"n_heads": 1, "training": {"epochs": 1}},
        "b": {"n_heads": 2, "training": {"epochs": 1}},
    }
    study = Study("ablation", "iris", tmp_path, [0], changes={"variants": heads})
    measure(study)
    swapped = replace(study, changes={"variants": {"a": heads["b"], "b": heads["a"]}})
    with pytest.raises(InvalidInputError, match="made with other methods"):
        measure(swapped)


@pytest.mark.parametrize("level", [3, 38])
def test_few_rows_are_asked_and_damage_is_done_before_the_fit(tmp_path, level):
    changes = {"levels": [level], "methods": ["uniform"]}
    found = measure(Study("shots", "wine", tmp_path, [0], changes=changes))
    assert found.tables[level].n_train == 3 * level


@pytest.mark.parametrize(("claim", "level"), [("shots", 39), ("imbalance", 50)])
def test_classes_too_small_for_a_damage_are_said(tmp_path, claim, level):
    study = Study(claim, "wine", tmp_path, [0], changes={"levels": [level]})
    with pytest.raises(InvalidSettingError, match="has 38 training rows, too few for"):
        measure(study)


def test_images_are_trained_once_for_all_claims(tmp_path, tiny_network):
    study = Study("main", "digits", tmp_path, [0], n_rows=400)
    names = ["head", "uniform", "distance"]
    table = measure(replace(study, changes={"methods": names})).tables[None]
    assert table.methods == [
        *("CNN head", "CNN head, views", "uniform", "uniform, views"),
        *("distance", "distance, views"),
    ]
    assert table.encoder == "resnet9 8/8/8, 1 epoch, 400 rows only"
    checkpoint = tmp_path / "trainings" / "digits-narrow-400-rows" / "0" / "checkpoint"
    written = checkpoint.stat().st_mtime_ns
    sweep = measure(
        replace(study, claim="k-sweep", changes={"methods": ["uniform"], "neighbors": [3]})
    )
    assert checkpoint.stat().st_mtime_ns == written
    assert sweep.tables[3].methods == ["uniform", "uniform, views"]
    training = read_report(study.place / "report.json").trainings[""][0]
    assert len(training["validation_losses"]) == len(training["train_losses"]) + 1 == 2


def test_damage_that_leaves_all_rows_needs_no_training_of_its_own(tmp_path):
    rows = datasets.load("iris")  # forty of each class
    setup = Setup(rows, tmp_path, networks.network_of("digits"))
    plain = setup.training_folder(Corruption(), 0)
    assert setup.training_folder(Corruption("imbalance", 1), 0) == plain
    assert setup.training_folder(Corruption("symmetric", 0.0), 0) == plain
    for corruption in (
        Corruption("imbalance", 2),
        Corruption("shots", 5),
        Corruption("symmetric", 0.1),
    ):
        assert setup.training_folder(corruption, 0) != plain


def test_with_noise_the_head_has_a_noise_model_too(tmp_path, tiny_network):
    changes = {"methods": ["head"], "levels": [0.0, 0.3]}
    found = measure(Study("noise", "digits", tmp_path, [0], n_rows=400, changes=changes))
    for level in (0.0, 0.3):
        assert "CNN head, noise model, views" in found.tables[level].methods


def test_wrong_labels_of_the_data_are_reported_and_have_no_noise_axis(tmp_path, monkeypatch):
    iris = datasets.load("iris")
    wrong = replace(iris, y_train=(iris.y_train + 1) % 3, extras={"y_true": iris.y_train})
    monkeypatch.setattr(datasets, "load", lambda _: wrong)
    study = Study("main", "iris", tmp_path, [0], changes={"methods": ["uniform"]})
    for _ in range(2):
        table = measure(study).tables[None]
    assert table.corruption == "100.0 % wrong labels in the data"
    with pytest.raises(AttnKNNError, match="are wrong already"):
        measure(replace(study, claim="noise"))


def test_k_of_uniform_is_chosen_by_held_out_rows(tmp_path, tiny_network, monkeypatch):
    told = []
    fit = UniformKNN.fit

    def spied(self, X, y, held_out=None):
        told.append(held_out)
        return fit(self, X, y, held_out)

    monkeypatch.setattr(UniformKNN, "fit", spied)
    changes = {"methods": ["uniform"]}
    measure(Study("main", "digits", tmp_path, [0], n_rows=400, changes=changes))
    measure(Study("main", "iris", tmp_path, [0], changes=changes))
    assert told[0].sum() == 60
    assert told[1] is None


def test_test_images_are_damaged_after_the_fit(tmp_path, tiny_network):
    changes = {"methods": ["head", "distance"], "severities": [0, 5]}
    study = Study("shift", "digits", tmp_path, [0], n_rows=400, changes=changes)
    tables = measure(study).tables
    assert tables[5].corruption == "test images with noise 5 of 5"
    assert tables[5].mean("nll", "CNN head") > tables[0].mean("nll", "CNN head")
    chosen = [{run.method: dict(run.chosen) for run in tables[level].runs} for level in (0, 5)]
    for of_method in (*chosen[0].values(), *chosen[1].values()):
        del of_method["encoder_seconds"]
    assert chosen[0] == chosen[1]  # what was fitted knows nothing of the damage


def test_pixels_can_be_taken_as_they_are(tmp_path):
    study = Study("main", "digits", tmp_path, [0], network="none", n_rows=300)
    table = measure(replace(study, changes={"methods": ["logistic", "uniform"]})).tables[None]
    assert table.encoder == "identity, 300 rows only"
    assert table.n_train == 300
    assert table.mean("accuracy", "uniform") > 0.8


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"claim": "mian"}, "Did you mean 'main'"),
        ({"dataset": "digitz"}, "Did you mean 'digits'"),
        ({"network": "widest"}, "No network for 'digits' is called 'widest'"),
        ({"weights": "a.pt"}, "are for a network of `ImageEncoder`: name one"),
        ({"network": "narrow", "backbone": "frozen"}, "are for a network of `ImageEncoder`"),
        ({"network": "mobilenet-v2", "cache": True}, "`cache` needs `backbone='frozen'`"),
        ({"network": "mobilenet-v2", "backbone": "cold"}, "No backbone is called 'cold'"),
        ({"network": "mobilenet-v2", "weights": "nowhere.pt"}, "there is no file at nowhere.pt"),
        ({"encoder": "tabular"}, "set `network='none'`"),
        ({"dataset": "iris", "encoder": "ngrams"}, "not trained for the vote"),
        ({"device": "gpu"}, "No device is called 'gpu'"),
        ({"dataset": "iris", "preset": "experiment-5"}, "trains an image encoder"),
        (
            {"claim": "ablation", "preset": "experiment-5"},
            "one can measure main, k-sweep, noise, index",
        ),
        ({"preset": "experiment-7"}, "No preset is called 'experiment-7'"),
        ({"preset": "experiment-5", "network": "wide"}, "has a network of its own"),
        ({"dataset": "iris", "network": "none"}, "iris is a table; omit `network`"),
        ({"is_full": True}, "name a preset"),
        ({"claim": "shift", "dataset": "iris"}, "Only images that a network is trained on"),
        ({"claim": "shift", "network": "none"}, "Only images that a network is trained on"),
        ({"dataset": "iris", "changes": {"methods": ["head"]}}, "'head' needs images"),
        ({"changes": {"methods": ["logistic"]}}, "'logistic' replaces the CNN head"),
        ({"n_rows": 10_000}, "at most the 1,437 training rows of 'digits', got 10,000"),
        ({"seeds": [1, 1]}, "each seed once"),
        (
            {"claim": "k-sweep", "dataset": "iris", "changes": {"neighbors": [5, 120]}},
            "at most 119 can be neighbors here, got K = 120",
        ),
        (
            {"claim": "theory", "dataset": "iris", "changes": {"neighbors": [65]}},
            "at most 64 can be neighbors here, got K = 65",
        ),
        (
            {"claim": "overhead", "dataset": "iris", "changes": {"neighbors": 500}},
            "at most 119 can be neighbors here",
        ),
        ({"changes": {"methods": ["uniform", "uniform"]}}, "each of its methods once"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(tmp_path, monkeypatch, changed, words):
    monkeypatch.setattr(running, "Workspace", None)  # whoever wants to measure would fail
    with pytest.raises(AttnKNNError, match=words):
        measure(replace(Study("main", "digits", tmp_path, [0]), **changed))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("below", ["", "main", "main/iris"])
def test_reports_need_a_folder_that_can_be_one(tmp_path, below):
    path = tmp_path / "out" / below
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    with pytest.raises(AttnKNNError, match=r"Reports need a folder, but .* is a file"):
        measure(Study("main", "iris", tmp_path / "out", [0]))


def test_fewer_rows_are_drawn_by_class(tmp_path):
    data = datasets.load("digits")
    by_class = np.argsort(data.y_train, kind="stable")
    sorted_data = replace(data, X_train=data.X_train[by_class], y_train=data.y_train[by_class])
    few = subsample(sorted_data, 100)
    assert np.bincount(few.y_train).tolist() == [10] * 10
    assert np.array_equal(few.X_train, subsample(sorted_data, 100).X_train)
    assert (
        len(
            set(stratified_subset(data.y_train, 300, "a"))
            & set(stratified_subset(data.y_train, 300, "b"))
        )
        < 150
    )
    y = np.repeat([0, 1, 2], [997, 2, 1])
    assert np.bincount(y[stratified_subset(y, 10, "rare")]).tolist() == [8, 1, 1]
    assert subsample(data, None) is data


def test_a_class_without_a_row_left_has_a_column(tmp_path):
    changes = {"levels": [1], "methods": ["uniform", "distance"]}
    table = measure(Study("shots", "iris", tmp_path, [0], n_rows=60, changes=changes)).tables[1]
    assert np.isfinite(table.mean("nll", "distance"))


def test_settings_of_networks_are_all_read():
    assert Network("x", 3, widths=(8, 8, 8), flip="none").views.kinds == ("original", "shift")
    made = Network("x", 3, mixing={"mixup": 0.5}, training={"clip": 1.0}, crop=3, embed_dim=32)
    training = made.image_training(Path("there"))
    assert (training.mixing.mixup, training.config.clip, training.augmentation.crop) == (
        0.5,
        1.0,
        3,
    )
    assert (training.config.epochs, training.checkpoint) == (3, "there")
    assert made.encoder(Path("there"), 7).embed_dim == 32
    assert "32 numbers, 3 epochs" in made.description


CODE = """
from torch import nn


def tiny() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten())
"""


@pytest.fixture
def own_network(tmp_path, monkeypatch):
    """The name of an own network, and a file with its weights."""
    (tmp_path / "tiny_nets.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    network = importlib.import_module("tiny_nets").tiny()
    torch.save(network.state_dict(), tmp_path / "tiny.pt")
    yield "tiny_nets:tiny", str(tmp_path / "tiny.pt")
    sys.modules.pop("tiny_nets", None)


def test_own_and_pretrained_networks_are_measured(tmp_path, tiny_network, own_network, monkeypatch):
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "cache"))
    network, weights = own_network
    changes = {"methods": ["uniform", "head"]}
    study = Study("main", "digits", tmp_path / "a", [0], n_rows=200, changes=changes)
    chosen = replace(study, network=network, weights=weights, backbone="frozen")
    table = measure(chosen).tables[None]
    assert {"uniform", "CNN head"} <= set(table.methods)
    assert f"weights {weights_checksum(weights)}, frozen, 1 epoch" in table.encoder
    settings = read_report(chosen.place / "report.json").tables[""].settings
    assert settings["network"]["weights"] == weights_checksum(weights)
    assert settings["network"]["training"]["layer_decay"] == 0.8
    with pytest.raises(AttnKNNError, match="asked for"):
        measure(replace(chosen, backbone="tuned"))
    cached = replace(chosen, folder=tmp_path / "b", cache=True)
    assert measure(cached).tables[None].mean("nll", "uniform") == pytest.approx(
        table.mean("nll", "uniform")
    )
    assert image_cache_file().exists()


def test_a_chosen_network_replaces_that_of_a_data_set_or_preset(own_network):
    _, weights = own_network
    study = Study("main", "cifar10", network="mobilenet-v2", weights=weights, image_size=64)
    source = datasets.SOURCES["cifar10"]
    network = network_for(study, source)
    assert (network.backbone, network.image_size, network.widths) == ("mobilenet-v2", 64, None)
    assert network.name == f"mobilenet-v2-{weights_checksum(weights)}-64"
    assert network.image_training(Path()).config.optimizer == "adamw"
    assert network.image_training(Path()).window is None
    timm = network_for(Study("main", "cifar10", network="timm:a/b.c"), source)
    assert (timm.name, timm.image_size) == ("timm-a-b.c", None)
    preset = replace(study, preset="experiment-5", network="resnet18-cifar", backbone="frozen")
    network = network_for(preset, source)
    assert network.name.endswith("-frozen")
    assert network.embed_dim == 256
    assert network.encoder(Path(), 0).backbone == "frozen"
    assert network.image_training(Path()).layer_decay == 1  # a preset keeps its own settings


@pytest.fixture
def own_images(tmp_path, rng):
    """A folder of small images of two classes, dark and bright."""
    for row in range(60):
        path = tmp_path / "pets" / ("cat" if row % 2 else "dog") / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 128, (12, 12), dtype=np.uint8) + 120 * (row % 2)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return tmp_path / "pets"


@pytest.mark.parametrize("network", ["narrow", "none"])
def test_a_folder_of_images_is_measured(tmp_path, own_images, monkeypatch, network):
    monkeypatch.setitem(networks.KNOWN, "others", {"narrow": {**TINY, "image_size": None}})
    study = Study("main", str(own_images), tmp_path / "out", [0], network=network)
    study = replace(study, changes={"methods": ["uniform", "distance"]})
    table = measure(study).tables[None]
    assert table.dataset == "pets"
    assert study.place == tmp_path / "out" / "main" / "pets"
    assert (study.place / "report.json").exists()
    assert table.mean("accuracy", "distance") > 0.9
    with pytest.raises(AttnKNNError, match="asked for"):
        measure(replace(study, image_size=14))


def test_images_of_a_folder_need_one_size(tmp_path, own_images):
    Image.fromarray(np.zeros((9, 12), dtype=np.uint8)).save(own_images / "cat" / "other.png")
    study = Study("main", str(own_images), tmp_path / "out", [0], network="none")
    with pytest.raises(InvalidInputError, match="Set `image_size` to resize"):
        measure(study)
    assert not (tmp_path / "out").exists()


def test_the_model_of_a_study_predicts_what_the_study_measured(tmp_path):
    study = Study("main", "iris", tmp_path / "out", [0], changes={"methods": ["attnknn"]})
    table = measure(study).tables[None]
    classifier_of(study).save(tmp_path / "model")
    clf = AttnKNNClassifier.load(tmp_path / "model")
    data = datasets.load("iris")
    found = clf.predict(data.X_test) == np.array(data.classes)[data.y_test]
    (run,) = table.of("attnknn")
    np.testing.assert_array_equal(found, run.row_correct)


def test_classes_whose_names_are_not_sorted_keep_their_rows(tmp_path, monkeypatch):
    data = datasets.load("iris")
    renamed = replace(data, classes=("z", "a", "m"))
    monkeypatch.setattr(datasets, "load", lambda _: renamed)
    clf = classifier_of(Study("main", "iris", tmp_path, [0]))
    assert clf.classes_.tolist() == ["a", "m", "z"]
    assert (clf.predict(data.X_test) == np.array(renamed.classes)[data.y_test]).mean() > 0.9


@pytest.mark.slow
def test_the_model_of_an_image_study_uses_the_trained_encoder(tmp_path):
    study = Study("main", "digits", tmp_path, [0], n_rows=200, changes={"methods": ["attnknn"]})
    measure(study)
    clf = classifier_of(study)
    data = datasets.load("digits")
    images = as_images(data, data.X_test)
    assert (clf.predict(images) == np.array(data.classes)[data.y_test]).mean() > 0.8
