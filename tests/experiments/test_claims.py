"""Which cells claims have, and what they may be told."""

from __future__ import annotations

import tomllib

import pytest

from attnknn.attention import LearnedAttention
from attnknn.cli import experiment as command
from attnknn.errors import InvalidSettingError
from attnknn.experiments.claims import CLAIMS, SHEETS, cells_of, settings_of
from attnknn.experiments.measures import MEASURES
from attnknn.experiments.methods import METHODS, Choices
from attnknn.experiments.presets import PRESETS


def test_the_command_names_all_claims_and_presets():
    assert set(command.CLAIMS) == set(CLAIMS)
    assert set(command.PRESETS) == set(PRESETS)
    assert set(SHEETS) == set(MEASURES)


@pytest.mark.parametrize("claim", sorted(set(CLAIMS) - set(SHEETS)))
def test_every_claim_has_cells_of_known_methods(claim):
    cells = cells_of(claim, settings_of(claim), Choices())
    assert len({cell.name for cell in cells}) == len(cells)
    assert {ask.method for cell in cells for ask in cell.asks} <= set(METHODS)


def test_a_sweep_sets_k_for_every_method():
    cells = cells_of("k-sweep", settings_of("k-sweep", {"neighbors": [2, 8]}), Choices())
    assert [cell.place for cell in cells] == [2, 8]
    assert all(ask.choices.n_neighbors == cell.place for cell in cells for ask in cell.asks)


def test_every_part_of_attention_is_left_out_or_added_in_turn():
    (cell,) = cells_of("ablation", settings_of("ablation"), Choices(attention={"epochs": 2}))
    settings = {ask.name: ask.choices.attention for ask in cell.asks if ask.name}
    usual = LearnedAttention().get_params()
    switches = {"support", "trust", "prototypes", "distance_bias", "self_attention", "query_prior"}
    tried = {name for found in settings.values() for name in found}
    assert tried >= switches | {"n_heads", "temperature", "dropout", "entropy_weight"}
    assert tried <= set(usual)
    assert all(found["epochs"] == 2 for found in settings.values())
    assert settings["as it is"] == {"epochs": 2}


def test_unknown_names_are_refused():
    with pytest.raises(InvalidSettingError, match="Did you mean 'main'"):
        settings_of("mian")
    with pytest.raises(InvalidSettingError, match="'levles'"):
        settings_of("noise", tomllib.loads("levles = [0.5]"))
    with pytest.raises(InvalidSettingError, match="'nobody'"):
        cells_of("main", settings_of("main", {"methods": ["nobody"]}), Choices())
    with pytest.raises(InvalidSettingError, match="at least one method"):
        cells_of("main", settings_of("main", {"methods": []}), Choices())
