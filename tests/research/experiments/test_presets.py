"""The research's set-ups, and that they run in small."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attnknn.research.experiments import study
from attnknn.research.experiments.presets import PRESETS, Preset, differences, preset_of, values_of
from attnknn.research.experiments.study import Study, measure


@pytest.mark.parametrize("name", list(PRESETS))
def test_at_full_size_only_what_is_known_differs_from_the_documents(name):
    found = {setting for setting, _, _ in differences(preset_of(name, is_full=True))}
    assert found <= {"pretrained", "score", "backbone_lr_scale", "attention_lr_scale"}


@pytest.mark.parametrize("name", list(PRESETS))
def test_what_was_cut_for_two_cores_is_listed(name):
    preset = preset_of(name)
    listed = {setting: (there, here) for setting, there, here in differences(preset)}
    assert listed["rows"] == ("all", "20000")
    assert listed["network"][1] == "resnet9 24/96/96"
    assert listed["epochs"][1] == "4"
    assert set(preset.document) <= set(values_of(preset))


def test_a_value_that_a_document_does_not_state_is_no_difference():
    first = preset_of("experiments-1-3", is_full=True)
    assert "mixup_alpha" not in first.document
    changed = replace(first, network=replace(first.network, mixing={"mixup": 1.0}))
    assert differences(changed) == differences(first)


def test_the_sixth_experiment_repeats_the_fifth_with_other_seeds():
    fifth, sixth = preset_of("experiment-5"), preset_of("experiment-6")
    assert replace(sixth.network, name="") == replace(fifth.network, name="")
    assert sixth.options == fifth.options
    assert not set(sixth.seeds) & set(fifth.seeds)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(PRESETS))
def test_presets_run_in_small(name, tmp_path, monkeypatch):
    def small(asked: str, *, is_full: bool) -> Preset:
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
    assert {"CNN", "joint"} & set(chosen) == {"CNN"}  # the encoder was trained with the attention
    listed = {setting for setting, _, _ in table.settings["differs"]}
    assert {"network", "epochs", "rows"} <= listed
    assert (tmp_path / name / "main" / "digits" / "report.json").exists()
