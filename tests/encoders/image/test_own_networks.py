"""Networks of a user's own: by import path, in model folders, and what such folders cannot do."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from attnknn import AttnKNNClassifier
from attnknn.encoders import encoder_from_settings
from attnknn.encoders.image import ImageEncoder
from attnknn.errors import InvalidSettingError, ModelFolderError
from tests.encoders.image.test_encoder import restored

CODE = """
import torch
from torch import nn


class Small(nn.Module):
    def __init__(self, width=7, scale=1.0):
        super().__init__()
        self.scale = scale
        self.layer = nn.Linear(3 * 16 * 16, width)
        self.register_buffer("order", torch.arange(width).flip(0))

    def forward(self, images):
        return self.scale * self.layer(images.flatten(1))[:, self.order]


def wide() -> Small:
    return Small(width=9, scale=0.5)


def without_annotation():
    return Small()


def no_network() -> nn.Module:
    return 3


number = 3
"""


@pytest.fixture
def nets(tmp_path, monkeypatch):
    """An imported module with networks."""
    (tmp_path / "my_nets.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("my_nets")
    sys.modules.pop("my_nets", None)


@pytest.mark.parametrize(("network", "width"), [("my_nets:Small", 7), ("my_nets:wide", 9)])
def test_networks_by_import_path_are_stored(network, width, nets, images):
    encoder = ImageEncoder(network).fit(images)
    again = restored(encoder)
    assert encoder.transform(images).shape == (6, width)
    assert again.network == network
    assert np.array_equal(again.transform(images), encoder.transform(images))


def test_modules_of_importable_classes_are_stored_under_their_path(nets, images):
    encoder = ImageEncoder(nets.Small(), embed_dim=4).fit(images)
    again = restored(encoder)
    assert again.network == "my_nets:Small"
    assert np.array_equal(again.transform(images), encoder.transform(images))


def test_modules_that_their_class_does_not_rebuild_are_not_stored(nets, images):
    class Local(nn.Flatten):
        pass

    shifted = nets.Small()
    shifted.order += 1 - shifted.order  # a table that a file of numbers would not hold
    for own in (nets.Small(width=5), nets.Small(scale=2.0), shifted, nn.Sequential(nn.Flatten())):
        with pytest.raises(InvalidSettingError, match=r"network='module:function'"):
            ImageEncoder(own).fit(images).to_settings()
    with pytest.raises(InvalidSettingError, match="`Local` is your own code, which a model folder"):
        ImageEncoder(Local()).fit(images).to_settings()


def test_storing_leaves_the_module_and_the_chance_of_the_user_alone(nets, images):
    encoder = ImageEncoder(nets.Small()).fit(images)
    before, chance = encoder.transform(images), torch.get_rng_state()
    restored(encoder)
    assert torch.equal(torch.get_rng_state(), chance)
    assert np.array_equal(encoder.transform(images), before)


def test_weights_of_a_named_own_network_come_from_a_file(nets, images, tmp_path):
    state = nets.wide().state_dict()
    save_file(state, tmp_path / "a.safetensors")
    settings = {"weights": tmp_path / "a.safetensors", "backbone": "frozen"}
    encoder = ImageEncoder("my_nets:wide", **settings).fit(images)
    assert torch.equal(encoder.module_.network.layer.weight, state["layer.weight"])
    assert not encoder.module_.network.layer.weight.requires_grad


def test_a_model_with_an_own_network_is_saved_and_loaded(nets, images, tmp_path):
    encoder = ImageEncoder("my_nets:wide", backbone="frozen", holdout=0.4)
    X, y = np.repeat(images, 4, axis=0), np.arange(24) % 2
    model = AttnKNNClassifier(encoder=encoder, attention="distance").fit(X, y)
    model.save(tmp_path / "model")
    again = AttnKNNClassifier.load(tmp_path / "model")
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))
    path = str(tmp_path / "model")
    code = f"from attnknn import AttnKNNClassifier; AttnKNNClassifier.load({path!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "write `import my_nets` before loading" in done.stderr


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("no_such_module:Small", "can be imported: No module named 'no_such_module'"),
        ("my_nets:absent", "'absent' is not there"),
        ("my_nets:number", "'number' is neither"),
        ("my_nets:without_annotation", "the annotation `-> torch.nn.Module`"),
        ("my_nets:no_network", "must return a torch.nn.Module, got int"),
    ],
)
def test_paths_that_name_no_network_are_refused(network, message, nets, images):
    with pytest.raises(InvalidSettingError, match=message):
        ImageEncoder(network).fit(images)


def test_a_hostile_folder_imports_nothing_and_calls_nothing(nets, images):
    settings, arrays = ImageEncoder("my_nets:wide").fit(images).to_settings()
    stored = json.dumps(settings)
    for network in ("antigravity:fly", "os:abort", "sys:exit", "my_nets.wide:x", "my_nets:__doc__"):
        changed = json.loads(stored)
        changed["settings"]["network"] = network
        with pytest.raises(ModelFolderError):
            encoder_from_settings(changed, arrays)
    assert "antigravity" not in sys.modules
