"""Settings and results of a training: checked, filled with defaults, drawn as curves."""

from __future__ import annotations

import json

import pytest

from attnknn.errors import InvalidSettingError
from attnknn.training import LossTerms, TrainConfig, TrainResult, WarmRestarts
from attnknn.training.config import draw_curves


def test_curves_show_every_epoch_and_the_one_that_was_kept(tmp_path):
    pytest.importorskip("matplotlib")
    result = TrainResult([0.9, 0.5, 0.4], [1.2, 0.8, 0.6, 0.7])
    draw_curves(result, tmp_path / "curves.svg", "Learning")
    text = (tmp_path / "curves.svg").read_text()
    for words in ("training rows", "held-out rows", "kept: epoch 2", "Learning"):
        assert words in text
    draw_curves(result, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"epochs": 0}, "`epochs` must be an integer of at least 1"),
        ({"learning_rate": 0.0}, "`learning_rate` must be a finite number above 0"),
        ({"average": 1.0}, "`average` must be"),
        ({"optimizer": "adma"}, "No optimizer is called 'adma'"),
        ({"schedule": "cosinus"}, "No schedule is called 'cosinus'"),
    ],
)
def test_wrong_settings_are_refused(setting, message):
    with pytest.raises(InvalidSettingError, match=message):
        TrainConfig(**setting)


@pytest.mark.parametrize("setting", [{"first_cycle": 0}, {"first_cycle": 5, "cycle_factor": 0.5}])
def test_cycles_that_shrink_are_refused(setting):
    with pytest.raises(InvalidSettingError, match=f"`{list(setting)[-1]}` must be"):
        WarmRestarts(**setting)


def test_settings_left_out_are_those_of_what_is_trained():
    defaults = TrainConfig(epochs=16, batch_size=512, weight_decay=0.1, warmup=0.3)
    filled = TrainConfig(epochs=2, weight_decay=0.0).filled(defaults)
    assert filled == TrainConfig(epochs=2, batch_size=512, weight_decay=0.0, warmup=0.3)


def test_settings_are_restored_from_what_json_holds():
    config = TrainConfig(epochs=2, schedule="linear", clip=1.0)
    assert TrainConfig.from_dict(config.to_dict()) == config
    config = TrainConfig(schedule=WarmRestarts(5, 1.5))
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config
    with pytest.raises(ValueError, match="this version"):
        TrainConfig.from_dict({"epochs": 2})
    with pytest.raises(InvalidSettingError, match="must be a name to be stored"):
        TrainConfig(schedule=lambda step: 1.0).to_dict()


def test_terms_of_the_loss_are_checked_and_restored():
    terms = LossTerms(entropy_weight=-0.1, calibration_weight=0.5)
    assert LossTerms.from_dict(terms.to_dict()) == terms
    with pytest.raises(InvalidSettingError, match="`entropy_weight` must be"):
        LossTerms(entropy_weight=float("nan"))
    with pytest.raises(InvalidSettingError, match="`calibration_weight` must be"):
        LossTerms(calibration_weight=-1.0)
    for coverage in (0.0, 1.0):
        with pytest.raises(InvalidSettingError, match="`selective_coverage` must be"):
            LossTerms(selective_coverage=coverage)
