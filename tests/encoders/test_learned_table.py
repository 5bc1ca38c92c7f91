"""The learned table encoder: what it reads, gives, stores and refuses."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pandas as pd
import pytest
import torch

from attnknn import AttnKNNClassifier
from attnknn.encoders import LearnedTableEncoder, encoder_from_settings
from attnknn.encoders.learned_table import TableLayers
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.testing import check_encoder
from attnknn.training import TrainConfig


def small(**settings: object) -> LearnedTableEncoder:
    names = {field.name for field in fields(TableLayers)}
    layers = {name: settings.pop(name) for name in names & set(settings)}
    layers = TableLayers(**{"n_frequencies": 3, "number_dim": 2, **layers})
    return LearnedTableEncoder(**{"embed_dim": 6, "width": 12, **settings}, layers=layers)


@pytest.fixture
def table() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "job": generator.choice(["cook", "nurse", "pilot"], 40),
            "age": np.where(generator.random(40) < 0.2, np.nan, generator.normal(size=40)),
            "pay": generator.lognormal(size=40),
            "same": 1,
        }
    )


def stored(encoder: LearnedTableEncoder) -> tuple[dict, dict]:
    """Settings and arrays as a model folder gives them back."""
    settings, arrays = encoder.to_settings()
    return json.loads(json.dumps(settings)), arrays


def test_it_keeps_the_contract_of_encoders(table):
    check_encoder(small(), table)


def test_numbers_come_first_and_every_column_has_its_places(table):
    encoder = small().fit(table)
    shape = encoder.module_.shape
    assert (shape.n_numbers, shape.places) == (2, (3, 1))  # job has three, age may be missing
    assert encoder.inputs(table).shape == (40, 6)
    assert encoder.transform(table).shape == (40, 6)
    assert encoder.table_.dropped_ == {"same": "all values are equal"}


@pytest.mark.parametrize("columns", [["job"], ["pay"]])
def test_tables_of_one_kind_of_column(table, columns):
    assert small().fit(table[columns]).transform(table[columns]).shape == (40, 6)


def test_every_parameter_gets_a_gradient(table):
    encoder = small(n_blocks=2).fit(table)
    module = encoder.module_.train()
    module(torch.from_numpy(encoder.inputs(table))).square().sum().backward()
    dead = [name for name, p in module.named_parameters() if p.grad is None or not p.grad.any()]
    # a shift before a batch norm is taken out again; so is the bias of the last layer by distances
    assert [name for name in dead if not name.endswith("bias")] == []


def test_building_does_not_use_the_global_generator(table):
    state = torch.random.get_rng_state()
    first, second = small().fit(table), small().fit(table)
    assert torch.equal(state, torch.random.get_rng_state())
    assert np.array_equal(first.transform(table), second.transform(table))
    second.build(1)
    assert not np.array_equal(first.transform(table), second.transform(table))


def test_columns_are_dropped_in_training_only(table):
    encoder = small(column_dropout=0.9).fit(table)
    module, rows = encoder.module_, torch.from_numpy(encoder.inputs(table))
    plain = module._inputs(rows)
    module.train()
    assert torch.equal(module._inputs(rows), plain)  # no generator is set yet
    module.seeded_dropout.generator = torch.Generator().manual_seed(0)
    lost = module._inputs(rows)
    assert (lost == 0).float().mean() > 0.8
    kept = lost != 0
    assert torch.allclose(lost[kept], 10 * plain[kept])
    module.eval()
    assert torch.equal(module._inputs(rows), plain)


def test_a_stored_encoder_gives_the_same_embeddings(table):
    encoder = small(n_blocks=1).fit(table)
    again = encoder_from_settings(*stored(encoder))
    assert np.array_equal(again.transform(table), encoder.transform(table))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 10**9}, "size"),
        ({"n_blocks": 10**6}, "blocks"),
        ({"embed_dim": 10**9}, "size"),
        ({"n_frequencies": 10**9}, "size"),
        ({"width": "many"}, "width"),
        ({"speed": 3}, "speed"),
    ],
)
def test_stored_sizes_that_do_not_fit_are_refused_before_memory_is_taken(table, change, message):
    settings, arrays = stored(small().fit(table))
    (name,) = change
    layers = settings["settings"]["layers"]
    (layers if name in layers else settings["settings"]).update(change)
    with pytest.raises(ModelFolderError, match=message):
        encoder_from_settings(settings, arrays)


def test_weights_that_are_not_finite_are_refused(table):
    settings, arrays = stored(small().fit(table))
    arrays["net_exit__weight"][0] = np.nan
    with pytest.raises(ModelFolderError, match="finite"):
        encoder_from_settings(settings, arrays)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("embed_dim", 0),
        ("network", "wide"),
        ("dropout", 1.0),
        ("candidates", "far"),
        ("holdout", 0.0),
        ("refresh", 0),
        ("training", {"epochs": 2}),
        ("training", TrainConfig(batch_size=1)),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(table, name, value):
    with pytest.raises(
        InvalidSettingError, match="batch_size" if isinstance(value, TrainConfig) else name
    ):
        small(**{name: value}).fit(table)


def test_a_classifier_with_it_survives_its_folder(table, tmp_path):
    labels = (table["pay"] > 1).astype(str)
    encoder = small(training=TrainConfig(epochs=2))
    classifier = AttnKNNClassifier(encoder=encoder, random_state=0).fit(table, labels)
    classifier.save(tmp_path / "model")
    again = AttnKNNClassifier.load(tmp_path / "model")
    assert again.predict_proba(table).tobytes() == classifier.predict_proba(table).tobytes()
    assert repr(again.encoder) == repr(encoder)
