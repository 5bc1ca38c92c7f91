"""MobileNetV2 and EfficientNet-Lite0: names of known files, resolution, storage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from attnknn.encoders.image import ImageEncoder, ImageInference
from attnknn.encoders.image.inverted_residuals import TRUNKS, SamePadded, Trunk
from attnknn.errors import InvalidInputError, InvalidSettingError
from tests.encoders.image.test_encoder import restored

# Some tensors of the files that PyPI's packages and torchvision have.
IN_FILES = {
    ("efficientnet-lite0", 0): {
        "_conv_stem.weight": (32, 3, 3, 3),
        "_bn0.running_var": (32,),
        "_blocks.0._depthwise_conv.weight": (32, 1, 3, 3),
        "_blocks.0._bn2.weight": (16,),
        "_blocks.3._bn0.bias": (144,),
        "_blocks.8._depthwise_conv.weight": (480, 1, 5, 5),
        "_blocks.15._project_conv.weight": (320, 1152, 1, 1),
        "_bn1.weight": (1280,),
    },
    ("mobilenet-v2", 0): {
        "features.0.1.running_mean": (32,),
        "features.1.conv.3.weight": (16, 32, 1, 1),
        "features.2.conv.3.weight": (96, 1, 3, 3),
        "features.17.conv.7.weight": (320,),
        "features.18.0.weight": (1280, 320, 1, 1),
    },
    ("mobilenet-v2", 1): {
        "features.0.0.weight": (32, 3, 3, 3),
        "features.1.conv.0.0.weight": (32, 1, 3, 3),
        "features.1.conv.2.weight": (16,),
        "features.2.conv.1.1.weight": (96,),
        "features.17.conv.2.weight": (320, 960, 1, 1),
        "features.17.conv.3.running_var": (320,),
    },
}
LAST = {"efficientnet-lite0": "_fc", "mobilenet-v2": "classifier.1"}


@pytest.fixture(scope="module")
def states():
    """A state dict of each network with random numbers."""
    torch.manual_seed(1)
    return {name: _random_state(Trunk(plan)) for name, plan in TRUNKS.items()}


def _random_state(trunk):
    for module in trunk.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.running_mean, -0.1, 0.1)
            nn.init.uniform_(module.bias, -0.1, 0.1)
    return trunk.state_dict()


def in_file(network, naming, state):
    """The same tensors under the names of a file, with a classifier."""
    trunk = Trunk(TRUNKS[network])
    names = {name: TRUNKS[network].namings[naming](layer) for name, layer in trunk._layers()}
    split = {name: name.rpartition(".") for name in state}
    renamed = {f"{names[split[n][0]]}.{split[n][2]}": tensor for n, tensor in state.items()}
    return renamed | {f"{LAST[network]}.weight": torch.rand(10, 1280)}


def encoder_of(network, **settings):
    return ImageEncoder(network, inference=ImageInference(device="cpu"), **settings)


@pytest.mark.parametrize(("network", "naming"), IN_FILES)
def test_names_of_known_files_are_taken(network, naming, states, images, tmp_path):
    state = states[network]
    tensors = in_file(network, naming, state)
    for name, shape in IN_FILES[network, naming].items():
        assert tensors[name].shape == shape
    save_file(tensors, tmp_path / "a.safetensors")
    settings = {"weights": tmp_path / "a.safetensors", "backbone": "frozen", "image_size": 32}
    encoder = encoder_of(network, **settings).fit(images)
    held = encoder.module_.network.model.state_dict()
    assert all(torch.equal(held[name], value) for name, value in state.items())
    means, _ = TRUNKS[network].normalization
    assert torch.allclose(encoder.module_.mean.flatten(), torch.tensor(means))
    assert encoder.transform(images).shape == (6, 1280)
    assert np.array_equal(restored(encoder).transform(images), encoder.transform(images))


def test_own_names_and_gray_images_are_taken(states, images, tmp_path):
    torch.save(states["mobilenet-v2"], tmp_path / "a.pt")
    settings = {"weights": tmp_path / "a.pt", "image_size": 32, "embed_dim": 5}
    encoder = encoder_of("mobilenet-v2", **settings).fit(images[..., 0])
    assert encoder.transform(images[..., 0]).shape == (6, 5)
    assert torch.allclose(encoder.module_.mean.flatten(), torch.tensor(0.449), atol=1e-4)


def test_weights_of_the_other_network_and_settings_of_others_are_refused(states, images, tmp_path):
    torch.save(in_file("mobilenet-v2", 0, states["mobilenet-v2"]), tmp_path / "a.pt")
    with pytest.raises(InvalidInputError, match="do not fit 'efficientnet-lite0': the file has no"):
        encoder_of("efficientnet-lite0", weights=tmp_path / "a.pt").fit(images)
    with pytest.raises(InvalidSettingError, match="`widths` and `activation` are for resnet9, "):
        encoder_of("mobilenet-v2", widths=(8, 8)).fit(images)
    with pytest.raises(InvalidSettingError, match="'mobilenet-v2' has none: pass a file"):
        encoder_of("mobilenet-v2", backbone="frozen").fit(images)


def test_arrays_are_resized_by_the_network_and_files_when_read(images, folder):
    paths = sorted(folder.rglob("*.png"))
    inside = encoder_of("mobilenet-v2", image_size=(40, 48)).fit(images)
    outside = encoder_of("mobilenet-v2", image_size=(40, 48)).fit(paths)
    assert inside.module_.network.size == outside.module_.network.size == (40, 48)
    assert (inside.shape_.height, outside.shape_.height, outside.shape_.width) == (16, 40, 48)
    small = encoder_of("mobilenet-v2", image_size=32).fit(images)
    assert not np.allclose(small.transform(images), inside.transform(images), atol=1e-3)
    assert encoder_of("mobilenet-v2").fit(images).module_.network.size == (224, 224)


@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (5, 2)])
def test_same_padding_is_larger_at_the_far_sides(size, stride):
    layer = SamePadded(1, 1, size, stride, bias=False)
    images = torch.randn(1, 1, 8, 7)
    for side, axis in ((8, 2), (7, 3)):
        assert layer(images).shape[axis] == -(-side // stride)
    n_missing = size - stride  # for an even side
    near, far = n_missing // 2, n_missing - n_missing // 2
    padded = nn.functional.pad(images[..., :6], (near, far, near, far))
    expected = nn.functional.conv2d(padded, layer.weight, stride=stride)
    assert torch.allclose(layer(images[..., :6]), expected, atol=1e-6)


def test_every_parameter_gets_a_gradient(images):
    for network in TRUNKS:
        module = encoder_of(network, image_size=32).fit(images).module_.train()
        batch = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
        module(batch)[:, ::3].sum().backward()
        assert all(p.grad is not None and p.grad.abs().max() > 0 for p in module.parameters())
