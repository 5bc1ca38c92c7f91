"""Which cells claims have, and what they may be told."""

from __future__ import annotations

import re
import tomllib

import pytest

from attnknn.attention import LearnedAttention
from attnknn.cli import research as command
from attnknn.errors import InvalidSettingError
from attnknn.research.experiments.claims import CLAIMS, MEASURED, cells_of, settings_of
from attnknn.research.experiments.measures import MEASURES
from attnknn.research.experiments.methods import METHODS, MethodSettings, learned_attention
from attnknn.research.experiments.presets import PRESETS
from attnknn.training import LossTerms


def test_the_command_names_all_claims_and_presets():
    assert set(command.CLAIMS) == set(CLAIMS)
    assert set(command.PRESETS) == set(PRESETS)
    assert set(MEASURED) == set(MEASURES)


@pytest.mark.parametrize("claim", sorted(set(CLAIMS) - set(MEASURED)))
def test_every_claim_has_cells_of_known_methods(claim):
    cells = cells_of(claim, settings_of(claim), MethodSettings())
    assert len({cell.name for cell in cells}) == len(cells)
    assert {spec.method for cell in cells for spec in cell.specs} <= set(METHODS)


def test_a_sweep_sets_k_for_every_method():
    cells = cells_of("k-sweep", settings_of("k-sweep", {"neighbors": [2, 8]}), MethodSettings())
    assert [cell.place for cell in cells] == [2, 8]
    assert all(spec.options.n_neighbors == cell.place for cell in cells for spec in cell.specs)


def test_every_part_of_attention_is_left_out_or_added_in_turn():
    (cell,) = cells_of(
        "ablation", settings_of("ablation"), MethodSettings(attention={"training": {"epochs": 2}})
    )
    settings = {spec.name: spec.options.attention for spec in cell.specs if spec.name}
    usual = LearnedAttention().get_params() | LossTerms().to_dict()
    tried = {name for found in settings.values() for name in found}
    assert tried >= {"terms", "trust", "n_heads", "temperature", "dropout", "entropy_weight"}
    assert tried <= set(usual)
    assert all(found["training"] == {"epochs": 2} for found in settings.values())
    assert settings["as it is"] == {"training": {"epochs": 2}}
    made = learned_attention(settings["with entropy term"])
    assert made.loss == LossTerms(entropy_weight=0.01)


def test_every_part_of_the_training_is_changed_in_turn():
    (cell,) = cells_of("training", settings_of("training"), MethodSettings())
    changed = {spec.name: spec.options.network for spec in cell.specs if spec.method == "trained"}
    names = {name for changes in changed.values() for name in changes.get("training", {})}
    assert names >= {
        "contrastive_weight",
        "contrastive_margin",
        "negatives_weight",
        "boundary_share",
        "label_smoothing",
        "entropy_weight",
        "bank",
        "refresh_steps",
        "momentum",
    }
    assert {"mixing", "widths", "backbone"} <= {
        name for found in changed.values() for name in found
    }
    assert {"cnn", "head", "joint", "learned"} <= {spec.method for spec in cell.specs}


def test_settings_of_a_training_are_checked_before_anything_runs():
    for changes, message in {
        "epochs = 2": "must be a table",
        '"x, views" = {}': "nor end with",
        "x = { width = 3 }": "Did you mean 'widths'",
        "x = { training = { margin = 1 } }": "'margin'",
    }.items():
        with pytest.raises(InvalidSettingError, match=message):
            settings_of("training", {"trainings": tomllib.loads(changes)})


def test_unknown_names_are_refused():
    with pytest.raises(InvalidSettingError, match="Did you mean 'main'"):
        settings_of("mian")
    with pytest.raises(InvalidSettingError, match="'levles'"):
        settings_of("noise", tomllib.loads("levles = [0.5]"))
    with pytest.raises(InvalidSettingError, match="'nobody'"):
        settings_of("main", {"methods": ["nobody"]})


@pytest.mark.parametrize(
    ("claim", "changes", "words"),
    [
        ("main", "methods = []", "`methods` must be a list of methods, at least one, got"),
        ("main", "methods = 3", "`methods` must be a list of methods"),
        ("main", "methods = 'uniform'", "`methods` must be a list of methods"),
        ("main", "methods = [3]", "No method is called 3"),
        ("main", "methods = ['uniform', 'uniform']", "each of its methods once"),
        ("main", "title = 3", "`title` must be a text"),
        ("noise", "levels = 0.1", "`levels` must be a list of numbers"),
        ("noise", "levels = []", "`levels` must be a list of numbers"),
        ("noise", "levels = ['a']", "`levels` must hold finite numbers only, got 'a'"),
        ("noise", "levels = [nan]", "`levels` must hold finite numbers only"),
        ("noise", "levels = [true]", "`levels` must hold finite numbers only"),
        ("noise", "levels = [0.1, 0.1]", "each of its numbers once"),
        ("noise", "levels = [0.1, 0.10000001]", "each of its numbers once"),
        ("noise", "levels = [1.5]", "must lie in 0..1, got 1.5"),
        ("noise", "kind = 'shots'", "No kind of noise is called 'shots'"),
        ("shots", "levels = [5.5]", "whole number of rows, got 5.5"),
        ("shots", "levels = [inf]", "`levels` must hold finite numbers only"),
        ("imbalance", "levels = [0]", "must be at least 1, got 0"),
        ("shift", "severities = [6]", "integers from 0 to 5, got 6"),
        ("shift", "severities = [2.0]", "integers from 0 to 5, got 2.0"),
        ("shift", "severities = ['a']", "integers from 0 to 5, got 'a'"),
        ("k-sweep", "neighbors = 3", "`neighbors` must be a list of integers"),
        ("k-sweep", "neighbors = ['3']", "`neighbors` must be an integer of at least 1, got '3'"),
        ("k-sweep", "neighbors = [2.5]", "`neighbors` must be an integer of at least 1, got 2.5"),
        ("theory", "neighbors = [0]", "`neighbors` must be an integer of at least 1, got 0"),
        ("theory", "neighbors = [3, 3]", "each of its integers once"),
        ("index", "neighbors = [3]", "`neighbors` must be an integer of at least 1, got [3]"),
        ("overhead", "queries = 0", "`queries` must be an integer of at least 1, got 0"),
        ("overhead", "repeats = 0", "`repeats` must be an integer of at least 1, got 0"),
        ("ablation", "variants = 3", "`variants` must be a table"),
        ("ablation", "variants = { wide = 3 }", "The variant 'wide' must be a table, got 3"),
        ("ablation", "variants = { a = { n_haeds = 2 } }", "Did you mean 'n_heads'"),
        ("ablation", "variants = { a = { dropout = 2.0 } }", "`dropout` must be"),
        ("ablation", "variants = { distance = {} }", "must not have the name of a method"),
        ("ablation", "variants = { 'CNN head' = {} }", "must not have the name of a method"),
        ("ablation", "variants = { 'a, views' = {} }", "nor end with ', views'"),
    ],
)
def test_settings_that_cannot_be_are_refused(claim, changes, words):
    with pytest.raises(InvalidSettingError, match=re.escape(words)):
        settings_of(claim, tomllib.loads(changes))
