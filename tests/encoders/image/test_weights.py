"""Pretrained weights: files are data, and a network takes exactly what fits."""

from __future__ import annotations

import os
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from attnknn.encoders.image import ImageEncoder
from attnknn.encoders.image.networks import NETWORKS, build_network
from attnknn.encoders.image.weights import read_weights
from attnknn.errors import InvalidInputError, InvalidSettingError
from tests.encoders.image.test_encoder import SMALL, restored, small


def test_weights_are_read_from_both_kinds_of_files(tmp_path):
    state = {"weight": torch.arange(3.0)}
    save_file(state, tmp_path / "a.safetensors")
    torch.save(state, tmp_path / "a.pt")
    for name in ("a.safetensors", "a.pt"):
        assert torch.equal(read_weights(tmp_path / name)["weight"], state["weight"])


class Trap:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_code_in_weights_is_not_run(tmp_path):
    trap = Trap()
    trap.path = tmp_path / "sprung"
    (tmp_path / "a.pt").write_bytes(pickle.dumps({"weight": trap}))
    torch.save({"weight": trap}, tmp_path / "b.pt")
    for name in ("a.pt", "b.pt"):
        with pytest.raises(InvalidInputError, match=f"{name} must hold weights"):
            read_weights(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


def test_files_without_weights_are_named(tmp_path):
    (tmp_path / "a.safetensors").write_text("no weights")
    (tmp_path / "b.pt").write_text("no weights")
    torch.save({"epoch": 3}, tmp_path / "c.pt")
    torch.save([1, 2], tmp_path / "d.pt")
    for name in ("a.safetensors", "b.pt", "c.pt", "d.pt"):
        with pytest.raises(InvalidInputError, match=f"{name} must hold weights"):
            read_weights(tmp_path / name)
    with pytest.raises(InvalidInputError, match="there is no file at"):
        read_weights(tmp_path / "e.pt")


def random_state(network, seed=1):
    """A state dict of the small network with random numbers everywhere."""
    torch.manual_seed(seed)
    state = build_network(network, 3, SMALL[network], None).state_dict()
    return {
        name: torch.rand_like(value) + 0.1 if value.is_floating_point() else value
        for name, value in state.items()
    }


def photograph_file(tmp_path, network="resnet18-cifar"):
    """Weights with the first layer and the classifier of a network for photographs."""
    state = random_state(network)
    state["conv1.weight"] = torch.rand(len(state["conv1.weight"]), 3, 7, 7)
    state |= {"fc.weight": torch.rand(10, 8), "fc.bias": torch.rand(10)}
    torch.save(state, tmp_path / "photographs.pth")
    return tmp_path / "photographs.pth", state


@pytest.mark.parametrize("network", NETWORKS)
def test_named_networks_take_weights_from_a_file(network, images, tmp_path):
    state = random_state(network)
    save_file(state, tmp_path / "a.safetensors")
    encoder = small(network, weights=tmp_path / "a.safetensors", backbone="frozen").fit(images)
    held = encoder.module_.network.state_dict()
    assert all(torch.equal(held[name], value) for name, value in state.items())
    assert encoder.module_.pretrained == {n for n, _ in encoder.module_.network.named_parameters()}
    assert np.array_equal(restored(encoder).transform(images), encoder.transform(images))


def test_own_modules_take_weights_from_a_file(images, tmp_path):
    own = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 7))
    torch.save({n: t + 1 for n, t in own.state_dict().items()}, tmp_path / "a.pt")
    encoder = ImageEncoder(own, weights=tmp_path / "a.pt").fit(images)
    assert torch.equal(encoder.module_.network[1].bias, own[1].bias + 1)
    torch.save({"other": own[1].bias}, tmp_path / "b.pt")
    with pytest.raises(InvalidInputError, match=r"your own network: the file has no '1\.weight'"):
        ImageEncoder(own, weights=tmp_path / "b.pt").fit(images)


def test_of_a_network_for_photographs_all_but_the_first_convolution_is_taken(images, tmp_path):
    path, state = photograph_file(tmp_path)
    plain = small("resnet18-cifar").fit(images).module_.network.state_dict()
    encoder = small("resnet18-cifar", weights=path).fit(images)
    held = encoder.module_.network.state_dict()
    assert torch.equal(held.pop("conv1.weight"), plain["conv1.weight"])  # the same random start
    assert all(torch.equal(value, state[name]) for name, value in held.items())
    assert "conv1.weight" not in encoder.module_.pretrained
    with pytest.raises(InvalidSettingError, match=r"has none for 'conv1\.weight'.*'tuned'"):
        small("resnet18-cifar", weights=path, backbone="frozen").fit(images)


def test_weights_of_other_networks_are_refused(images, tmp_path):
    path, state = photograph_file(tmp_path)
    with pytest.raises(InvalidInputError, match=r"Use `network='resnet18-cifar'`"):
        small("resnet18", weights=path).fit(images)
    deeper = state | {"layer1.2.conv1.weight": torch.zeros(4, 4, 3, 3)}
    torch.save(deeper, path)
    with pytest.raises(InvalidInputError, match=r"also has 'layer1\.2\.conv1\.weight'"):
        small("resnet18-cifar", weights=path).fit(images)
    torch.save(state | {"bn1.weight": torch.zeros(5)}, path)
    with pytest.raises(InvalidInputError, match=r"another size of 'bn1\.weight', \(5,\) instead"):
        small("resnet18-cifar", weights=path).fit(images)


def test_files_without_counters_of_batch_norms_are_taken(images, tmp_path):
    state = random_state("resnet18")
    torch.save({n: t for n, t in state.items() if "num_batches" not in n}, tmp_path / "a.pt")
    encoder = small("resnet18", weights=tmp_path / "a.pt").fit(images)
    assert torch.equal(encoder.module_.network.stem[0].weight, state["stem.0.weight"])


def test_a_strided_shortcut_is_the_convolution_with_that_stride():
    from attnknn.encoders.image.standard_resnet import Subsampled

    images, layer = torch.randn(2, 3, 7, 6), Subsampled(3, 5, 2)
    expected = nn.functional.conv2d(images, layer.weight, stride=2)
    assert torch.allclose(layer(images), expected, atol=1e-6)
