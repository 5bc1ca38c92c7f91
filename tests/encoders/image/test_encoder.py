"""The image encoder: its contract, its networks, its settings, its storage."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

from attnknn.encoders import encoder_from_settings, make_encoder
from attnknn.encoders.image import ImageEncoder, ImageInference, ImageTraining
from attnknn.encoders.image.backbone import Backbone
from attnknn.encoders.image.networks import NETWORKS, build_network, layer_depths
from attnknn.errors import (
    InvalidInputError,
    InvalidSettingError,
    MissingExtraError,
    ModelFolderError,
    NotFittedYetError,
)
from attnknn.testing.encoder import check_encoder
from attnknn.training.augmentation import Augmentation
from attnknn.training.views import Views

SMALL = {
    "resnet9": (4, 8, 8),
    "resnet18": (4, 4, 8, 8),
    "resnet50": (2, 2, 4, 4),
    "resnet18-cifar": (4, 4, 8, 8),
    "resnet50-cifar": (2, 2, 4, 4),
}


def small(network="resnet9", **settings):
    return ImageEncoder(network, widths=SMALL[network], **settings)


def restored(encoder):
    settings, arrays = encoder.to_settings()
    return encoder_from_settings(json.loads(json.dumps(settings)), arrays)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("embed_dim", [None, 5])
def test_embeddings_have_unit_length_and_the_asked_width(network, embed_dim, images):
    encoder = small(network, embed_dim=embed_dim).fit(images)
    embeddings = encoder.transform(images)
    assert embeddings.dtype == np.float32
    assert embeddings.shape == (6, embed_dim or encoder.module_.features_width)
    assert np.allclose(np.linalg.norm(embeddings, axis=1), 1, atol=1e-5)
    assert len(encoder.get_feature_names_out()) == embeddings.shape[1]


@pytest.mark.parametrize("network", NETWORKS)
def test_every_parameter_that_is_trained_gets_a_gradient(network, images):
    module = small(network, embed_dim=6).fit(images).module_.train()
    batch = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    (module(batch) * torch.randn(6, 6, generator=torch.Generator().manual_seed(0))).sum().backward()
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("network", NETWORKS)
def test_stored_encoders_give_the_same_bytes(network, images):
    encoder = small(network, embed_dim=3, image_size=(16, 14), training=ImageTraining.of(epochs=2))
    encoder.fit(images)
    again = restored(encoder)
    assert np.array_equal(again.transform(images), encoder.transform(images))
    assert again.get_params() == {**encoder.get_params(), "weights": None}
    assert again.n_features_in_ == encoder.n_features_in_ == 3 * 16 * 14


def test_settings_of_training_and_inference_come_back_whole(images):
    training = ImageTraining.of(augmentation=Augmentation(rotation=5.0), clip=1.0, average=0.9)
    inference = ImageInference(batch_size=3, workers=1, device="cpu")
    again = restored(small(training=training, inference=inference).fit(images))
    assert (again.training, again.inference) == (training, inference)


@pytest.mark.parametrize(
    "change",
    [
        {"network": "resnet99"},
        {"network": "timm:no_such_model"},
        {"network": {"code": "rm"}},
        {"widths": [4, 8, 1 << 40]},
        {"widths": [4, 8]},
        {"widths": "wide"},
        {"embed_dim": 1 << 50},
        {"image_size": [1 << 40]},
    ],
)
def test_hostile_settings_are_refused_before_memory_is_reserved(change, images):
    settings, arrays = small().fit(images).to_settings()
    settings["settings"] |= change
    with pytest.raises((ModelFolderError, MissingExtraError)):
        encoder_from_settings(settings, arrays)


@pytest.mark.parametrize("inference", [{"device": "toaster"}, {"batch_size": 0}, {"x": 1}, 3])
def test_hostile_settings_of_the_inference_are_refused(inference, images):
    settings, arrays = small().fit(images).to_settings()
    settings["inference"] = inference
    with pytest.raises(ModelFolderError):
        encoder_from_settings(settings, arrays)


@pytest.mark.parametrize("shape", [[3, 16], [2, 16, 16], [3, 1 << 40, 16], [3, 0, 16], None, "x"])
def test_hostile_shapes_are_refused(shape, images):
    settings, arrays = small().fit(images).to_settings()
    with pytest.raises(ModelFolderError):
        encoder_from_settings(settings | {"shape": shape}, arrays)


def test_weights_of_another_size_or_kind_are_refused(images):
    settings, arrays = small().fit(images).to_settings()
    broken = arrays["weights"].copy()
    broken[3] = np.nan
    for weights in (arrays["weights"][:-1], broken, arrays["weights"][None]):
        with pytest.raises(ModelFolderError, match="finite numbers"):
            encoder_from_settings(settings, {"weights": weights})
    with pytest.raises(ModelFolderError):
        encoder_from_settings(settings, {})
    with pytest.raises(ModelFolderError):
        encoder_from_settings(settings | {"training": {"epochs": 3}}, arrays)


def test_own_modules_are_copied(images):
    own = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 7))
    encoder = ImageEncoder(own, embed_dim=4).fit(images)
    assert encoder.transform(images).shape == (6, 4)
    assert encoder.module_.network is not own


def test_own_modules_must_give_vectors(images):
    with pytest.raises(InvalidSettingError, match=r"got \(1, 4, 16, 16\)"):
        ImageEncoder(nn.Conv2d(3, 4, 1)).fit(images)


def test_stages_are_counted_from_the_output():
    for network, n_stages in (("resnet18", 9), ("resnet18-cifar", 9), ("resnet50-cifar", 17)):
        built = build_network(network, 3, SMALL[network], None)
        depths = layer_depths(built)
        assert set(depths) == {name for name, _ in built.named_parameters()}
        assert sorted(set(depths.values())) == list(range(n_stages))
        first, *_, last = depths.values()
        assert (first, last) == (n_stages - 1, 0)
    trunk = Backbone.named("mobilenet-v2", None, is_pretrained=False)
    assert set(trunk.layer_depths()) == {name for name, _ in trunk.named_parameters()}
    assert max(trunk.layer_depths().values()) == 1 + 17  # stem, blocks, last layer
    plain = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten())
    assert set(layer_depths(plain).values()) == {0}


def test_the_start_depends_on_the_seed_alone(images):
    before = torch.get_rng_state()
    first, same, other = (small(random_state=seed).fit(images) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(first.transform(images), same.transform(images))
    assert not np.array_equal(first.transform(images), other.transform(images))


def test_images_are_normalized_by_the_training_images(images):
    module = small().fit(images).module_
    numbers = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
    normed = (numbers - module.mean) / module.std
    assert torch.allclose(normed.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(normed.std(dim=(0, 2, 3), correction=0), torch.ones(3), atol=1e-5)


def test_images_of_one_color_can_be_fitted():
    flat = np.full((4, 16, 16), 128, np.uint8)
    assert np.isfinite(small().fit(flat).transform(flat)).all()


def test_a_row_has_the_same_embedding_alone_and_in_a_batch(images):
    encoder = small(inference=ImageInference(batch_size=4)).fit(images)
    together = encoder.transform(images)
    alone = np.concatenate([encoder.transform(images[[row]]) for row in range(6)])
    assert np.allclose(alone, together, atol=1e-5)
    assert encoder.transform(images[:0]).shape == (0, 8)


def test_views_give_one_set_of_embeddings_each_and_no_chance(images):
    encoder = small().fit(images)
    views = Views(("original", "flip", "shift"))
    seen = encoder.embeddings(images, views)
    assert seen.shape == (10, 6, 8)
    assert np.array_equal(seen, encoder.embeddings(images, views))
    assert np.array_equal(seen[0], encoder.transform(images))
    assert np.array_equal(seen[1], encoder.transform(images[:, :, ::-1]))


def test_encoders_clone_and_pickle(images):
    encoder = small(training=ImageTraining.of(epochs=1)).fit(images)
    assert not hasattr(clone(encoder), "module_")
    again = pickle.loads(pickle.dumps(encoder))
    assert np.array_equal(again.transform(images), encoder.transform(images))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": "resnet10"}, "Did you mean 'resnet18'|No network is called 'resnet10'"),
        ({"network": 3}, "got 3"),
        ({"widths": (8, 8)}, "must be 3 numbers"),
        ({"widths": (8, 8, 0)}, "`widths` must be an integer of at least 1"),
        ({"activation": "tanh"}, "No activation is called 'tanh'"),
        ({"embed_dim": 0}, "`embed_dim` must be"),
        ({"image_size": (1, 2, 3)}, "a side or"),
        ({"image_size": 10_000}, "at most 4096"),
        ({"backbone": "frozen"}, "'frozen'` needs pretrained weights, and 'resnet9' has none"),
        ({"backbone": "cold"}, "No backbone is called 'cold'"),
        ({"training": {"epochs": 3}}, "must be an `ImageTraining`"),
        ({"inference": {"batch_size": 4}}, "must be an `ImageInference`"),
        ({"random_state": None}, "`random_state` must be"),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings, message, images):
    with pytest.raises(InvalidSettingError, match=message):
        ImageEncoder(**settings).fit(images)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "`batch_size` must be"),
        ({"workers": -1}, "`workers` must be"),
        ({"device": "tpu"}, "No device is called 'tpu'"),
    ],
)
def test_settings_of_the_inference_that_cannot_be_used_are_named(settings, message):
    with pytest.raises(InvalidSettingError, match=message):
        ImageInference(**settings)


def test_images_too_small_for_a_network_are_refused_and_enlarged(images):
    with pytest.raises(InvalidInputError, match="at least 9 pixels a side, got 6 × 16"):
        small().fit(images[:, :6])
    assert small(image_size=16).fit(images[:, :6]).transform(images[:, :6]).shape == (6, 8)


def test_nothing_to_fit_on_and_nothing_fitted_are_errors(images):
    with pytest.raises(InvalidInputError, match="at least one image"):
        small().fit(images[:0])
    with pytest.raises(NotFittedYetError):
        small().transform(images)
    with pytest.raises(NotFittedYetError):
        small().to_settings()


def test_timm_is_named_where_it_is_missing(images, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(MissingExtraError, match=r"Install `attnknn\[images\]`, or use 'resnet9'"):
        ImageEncoder("timm:resnet18").fit(images)


def test_every_setting_of_the_training_is_checked():
    for name, value in (
        ("warmup", 1.0),
        ("average", 1.0),
        ("window", (0, 1)),
        ("queue_size", -1),
        ("head_scale", 0),
        ("layer_decay", 1.5),
        ("optimizer", "lion"),
        ("clip", 0),
    ):
        with pytest.raises(InvalidSettingError, match=name):
            ImageTraining.of(**{name: value})


def test_the_encoder_keeps_the_contract(folder):
    paths = np.array(sorted(str(path) for path in folder.rglob("*.png")))
    check_encoder(small(), paths)
    assert isinstance(make_encoder("image"), ImageEncoder)
