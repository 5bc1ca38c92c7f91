"""Claims from what is asked to what was measured, in small."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnknn.errors import AttnKNNError, InvalidInputError
from attnknn.experiments import networks, running
from attnknn.experiments.networks import Network
from attnknn.experiments.study import Study, measure

TINY = {
    "image_size": 12,
    "widths": [8, 8, 8],
    "epochs": 1,
    "fresh": 60,
    "flip": "none",
    "crop": 1,
    "training": {"batch_size": 64, "queue_size": 64, "judge_entries": 64},
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


def test_what_has_a_report_is_not_run_again(tmp_path, monkeypatch):
    study = Study("noise", "iris", tmp_path, [0], changes={"methods": ["distance"]})
    first = measure(study)
    monkeypatch.setattr(running, "Stage", None)  # whoever wants to measure would fail
    again = measure(study)
    assert list(again.tables) == [0.0, 0.1, 0.2, 0.3]
    assert again.tables[0.3].corruption == "30 % symmetric noise"
    for place, table in first.tables.items():
        assert again.tables[place].mean("nll", "distance") == table.mean("nll", "distance")


def test_a_stopped_claim_goes_on_with_what_is_missing(tmp_path):
    study = Study("imbalance", "iris", tmp_path, [0], changes={"methods": ["uniform"]})
    measure(study)
    report = study.place / "ratio-10" / "0" / "report.json"
    kept = study.place / "ratio-1" / "0" / "report.json"
    before, times = report.read_text(), kept.stat().st_mtime_ns
    report.unlink()
    measure(study)
    assert kept.stat().st_mtime_ns == times
    scores = [json.loads(text)["runs"][0]["scores"] for text in (before, report.read_text())]
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
    with pytest.raises(InvalidInputError, match="another encoder or other settings"):
        measure(Study("theory", "iris", tmp_path, [0], encoder="identity", changes=changes))


def test_a_full_preset_has_a_folder_of_its_own(tmp_path):
    cut = Study("main", "cifar10", tmp_path, preset="experiment-4")
    assert replace(cut, is_full=True).place != cut.place


def test_reports_of_other_choices_are_not_taken(tmp_path):
    study = Study("k-sweep", "iris", tmp_path, [0], changes={"methods": ["uniform"]})
    measure(study)
    other = study.place / "K-3" / "0"
    for ending in ("json", "npz"):
        (other / f"report.{ending}").write_bytes(
            (study.place / "K-5" / "0" / f"report.{ending}").read_bytes()
        )
    with pytest.raises(InvalidInputError, match="made with other choices"):
        measure(study)


@pytest.mark.parametrize("level", [3, 50])
def test_few_rows_are_asked_and_damage_is_done_before_the_fit(tmp_path, level):
    changes = {"levels": [level], "methods": ["uniform"]}
    found = measure(Study("shots", "wine", tmp_path, [0], changes=changes))
    table = found.tables[level]
    assert table.n_train == min(level, 38) + min(level, 47) + min(level, 57)


def test_images_are_trained_once_for_all_claims(tmp_path, tiny_network):
    study = Study("main", "digits", tmp_path, [0], n_rows=400)
    names = ["head", "uniform", "distance"]
    table = measure(replace(study, changes={"methods": names})).tables[None]
    assert table.methods == [
        *("CNN head", "CNN head, views", "uniform", "uniform, views"),
        *("distance", "distance, views"),
    ]
    assert table.encoder == "resnet9 8/8/8, 1 epoch, first 400 rows only"
    checkpoint = tmp_path / "trainings" / "digits-narrow-400" / "0" / "checkpoint"
    written = checkpoint.stat().st_mtime_ns
    sweep = measure(
        replace(study, claim="k-sweep", changes={"methods": ["uniform"], "neighbors": [3]})
    )
    assert checkpoint.stat().st_mtime_ns == written
    assert sweep.tables[3].methods == ["uniform", "uniform, views"]
    training = json.loads((study.place / "0" / "training.json").read_text())
    assert len(training["judged losses"]) == len(training["train losses"]) + 1 == 2


def test_with_noise_the_head_is_also_told_of_it(tmp_path, tiny_network):
    changes = {"methods": ["head"], "levels": [0.3]}
    found = measure(Study("noise", "digits", tmp_path, [0], n_rows=400, changes=changes))
    assert "CNN head, noise model, views" in found.tables[0.3].methods


def test_test_images_are_damaged_after_the_fit(tmp_path, tiny_network):
    changes = {"methods": ["head", "distance"], "severities": [0, 5]}
    study = Study("shift", "digits", tmp_path, [0], n_rows=400, changes=changes)
    tables = measure(study).tables
    assert tables[5].corruption == "test images with noise 5 of 5"
    assert tables[5].mean("nll", "CNN head") > tables[0].mean("nll", "CNN head")
    chosen = [{run.method: run.chosen for run in tables[level].runs} for level in (0, 5)]
    assert chosen[0] == chosen[1]  # what was fitted knows nothing of the damage
    with pytest.raises(AttnKNNError, match="Only images that a network is trained on"):
        measure(replace(study, dataset="iris"))


def test_pixels_can_be_taken_as_they_are(tmp_path):
    study = Study("main", "digits", tmp_path, [0], network="none", n_rows=300)
    table = measure(replace(study, changes={"methods": ["logistic", "uniform"]})).tables[None]
    assert table.encoder == "identity, first 300 rows only"
    assert table.n_train == 300
    assert table.mean("accuracy", "uniform") > 0.8


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"claim": "mian"}, "Did you mean 'main'"),
        ({"dataset": "digitz"}, "Did you mean 'digits'"),
        ({"network": "widest"}, "No network is called 'widest'"),
        ({"encoder": "tabular"}, "set `network='none'`"),
        ({"dataset": "iris", "encoder": "learned-tabular"}, "not trained for the vote"),
        ({"dataset": "iris", "preset": "experiment-5"}, "trains an image encoder"),
        ({"claim": "ablation", "preset": "experiment-5"}, "measured main, k-sweep, noise"),
        ({"preset": "experiment-7"}, "No preset is called 'experiment-7'"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(tmp_path, changed, words):
    with pytest.raises(AttnKNNError, match=words):
        measure(replace(Study("main", "digits", tmp_path, [0]), **changed))
    assert not list(tmp_path.rglob("report.json"))


def test_a_class_without_a_row_left_has_a_column(tmp_path):
    changes = {"levels": [1], "methods": ["uniform", "distance"]}
    table = measure(Study("shots", "iris", tmp_path, [0], n_rows=60, changes=changes)).tables[1]
    assert np.isfinite(table.mean("nll", "distance"))


def test_settings_of_networks_are_all_read():
    assert Network("x", 3, widths=(8, 8, 8), flip="none").views.kinds == ("original", "shift")
    made = Network("x", 3, mixing={"mixup": 0.5}, training={"clip": 1.0}, crop=3, embed_dim=32)
    training = made.image_training(Path("there"))
    assert (training.mixing.mixup, training.clip, training.augmentation.crop) == (0.5, 1.0, 3)
    assert (training.epochs, training.checkpoint) == (3, "there")
    assert made.encoder(Path("there"), 7).embed_dim == 32
    assert "32 numbers, 3 epochs" in made.words
