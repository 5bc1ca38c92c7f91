"""The research's set-ups, and that they run in small."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from attnknn.research.experiments import study
from attnknn.research.experiments.study import PRESETS, Study, measure, preset_of


def test_presets_have_the_numbers_of_the_documents():
    first, fourth = (
        preset_of("experiments-1-3", is_full=True),
        preset_of("experiment-4", is_full=True),
    )
    fifth = preset_of("experiment-5", is_full=True)
    assert [p.network.backbone for p in (first, fourth, fifth)] == [
        "resnet18",
        "resnet50",
        "resnet18",
    ]
    assert [p.network.embed_dim for p in (first, fourth, fifth)] == [128, 256, 256]
    assert [p.network.epochs for p in (first, fourth, fifth)] == [30, 50, 20]
    assert [p.options.n_neighbors for p in (first, fourth, fifth)] == [10, 10, 16]
    assert [p.options.attention["n_heads"] for p in (first, fourth, fifth)] == [1, 4, 4]
    assert fourth.options.attention["temperature"] == 0.5
    assert fourth.options.attention["temperature_bounds"] == (0.05, 2.0)
    training = fourth.network.training
    assert (training["contrastive_weight"], training["contrastive_margin"]) == (0.5, 0.5)
    assert (training["negatives_weight"], training["warmup"], training["batch_size"]) == (
        2,
        0.1,
        256,
    )
    assert fifth.options.sizes == (5, 10, 20)
    assert fifth.network.mixing == {"mixup": 1.0, "strength": 0.4}
    training = fifth.network.training
    assert (training["label_smoothing"], training["batch_size"]) == (0.1, 512)
    assert (training["learning_rate"], training["weight_decay"]) == (2e-4, 1e-4)
    assert (training["entropy_weight"], training["contrastive_weight"]) == (0.01, 0.5)
    assert not fifth.network.cut
    assert fifth.n_rows is None


def test_the_sixth_experiment_repeats_the_fifth_with_other_seeds():
    fifth, sixth = preset_of("experiment-5"), preset_of("experiment-6")
    assert replace(sixth.network, name="") == replace(fifth.network, name="")
    assert sixth.options == fifth.options
    assert not set(sixth.seeds) & set(fifth.seeds)


@pytest.mark.parametrize("name", list(PRESETS))
def test_what_was_cut_is_said(name):
    preset = preset_of(name)
    assert preset.network.cut in preset.network.description
    assert preset.network.backbone == "resnet9"
    assert preset.n_rows == 20000
    preset.network.image_training(Path("checkpoint"))  # every setting is known


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_run_in_small(name, tmp_path, monkeypatch):
    def small(asked: str, *, is_full: bool) -> study.Preset:
        found = preset_of(asked, is_full=is_full)
        training = {**found.network.training, "batch_size": 64, "queue_size": 64}
        network = replace(
            found.network, epochs=1, widths=(8, 8, 8), held_out=60, crop=1, training=training
        )
        return replace(found, network=network)

    monkeypatch.setattr(study, "preset_of", small)
    table = measure(Study("main", "digits", tmp_path, [0], preset=name, n_rows=400)).tables[None]
    n_neighbors = PRESETS[PRESETS[name].get("like", name)]["n_neighbors"]
    chosen = {run.method: run.chosen for run in table.runs}
    for method in ("uniform", "distance", "learned", "learned, views"):
        assert chosen[method]["n_neighbors"] == n_neighbors
    assert "for resnet" in table.encoder
    assert (tmp_path / name / "main" / "digits" / "report.json").exists()
