"""The cache of image features: by content of images and network, and erased without a trace."""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch

from attnknn import AttnKNNClassifier
from attnknn.encoders.image import (
    ImageEncoder,
    ImageInference,
    clear_image_cache,
    image_cache_file,
)
from attnknn.encoders.image.networks import EmbeddingNetwork, build_network
from attnknn.errors import CacheError, InvalidSettingError
from attnknn.storage.editor import open_for_editing
from attnknn.training.views import Views
from tests.encoders.image.test_encoder import SMALL, restored

CACHED = ImageInference(cache=True)


@pytest.fixture
def weights(tmp_path):
    """A file of weights of a small network."""
    torch.manual_seed(1)
    network = build_network("resnet18", 3, SMALL["resnet18"], None)
    torch.save(network.state_dict(), tmp_path / "a.pt")
    return tmp_path / "a.pt"


def frozen(weights, **settings):
    given = {"widths": SMALL["resnet18"], "backbone": "frozen", "inference": CACHED, **settings}
    return ImageEncoder("resnet18", weights=weights, **given)


@pytest.fixture
def n_computed(monkeypatch):
    """The number of images that networks computed, as a list of batches."""
    batches, features = [], EmbeddingNetwork.features

    def counted(self, images):
        batches.append(len(images))
        return features(self, images)

    monkeypatch.setattr(EmbeddingNetwork, "features", counted)
    return batches


def test_features_are_computed_once_for_each_image(weights, images, n_computed):
    encoder = frozen(weights).fit(images)
    first = encoder.transform(images[:4])
    assert sum(n_computed) == 4
    again = encoder.transform(images)
    assert sum(n_computed) == 6
    assert np.array_equal(again[:4], first)
    plain = frozen(weights, inference=None).fit(images).transform(images)
    assert np.allclose(again, plain, atol=1e-6)


def test_another_process_and_a_stored_encoder_use_the_same_features(weights, images, n_computed):
    encoder = frozen(weights, embed_dim=3).fit(images)
    found = encoder.transform(images)
    assert np.array_equal(frozen(weights, embed_dim=3).fit(images).transform(images), found)
    assert np.array_equal(restored(encoder).transform(images), found)
    assert sum(n_computed) == 6


def test_other_weights_sizes_and_views_have_features_of_their_own(weights, images, n_computed):
    frozen(weights).fit(images).transform(images)
    state = torch.load(weights, weights_only=True)
    state["stem.0.weight"] += 0.01
    torch.save(state, weights)
    frozen(weights).fit(images).transform(images)
    assert sum(n_computed) == 12
    larger = frozen(weights, image_size=20).fit(images)
    larger.transform(images)
    assert sum(n_computed) == 18
    larger.embeddings(images, Views(("original", "flip")))
    assert sum(n_computed) == 24


def test_only_frozen_networks_have_a_cache(images):
    with pytest.raises(InvalidSettingError, match="`cache=True` needs `backbone='frozen'`"):
        ImageEncoder(inference=CACHED).fit(images)
    assert ImageEncoder.from_options(cache=True, workers=1).computing.cache


def test_the_cache_is_private_can_be_cleared_and_says_if_it_is_damaged(weights, images, n_computed):
    assert clear_image_cache() == 0
    assert not image_cache_file().exists()
    encoder = frozen(weights).fit(images)
    vectors = encoder.features(images)[0]
    if os.name == "posix":
        assert image_cache_file().stat().st_mode & 0o077 == 0
    assert vectors[0].tobytes() in image_cache_file().read_bytes()
    assert clear_image_cache() == 6
    assert vectors[0].tobytes() not in image_cache_file().read_bytes()
    image_cache_file().write_bytes(b"this is no database" * 100)
    with pytest.raises(CacheError, match="cannot be used"):
        encoder.transform(images)
    assert sum(n_computed) == 6


def test_erasing_a_subject_erases_the_features_of_the_network(weights, images, tmp_path):
    X, y = np.concatenate([images, images[:, ::-1], images[:, :, ::-1]]), np.arange(18) % 2
    model = AttnKNNClassifier(encoder=frozen(weights, holdout=0.3), attention="distance")
    model.fit(X, y, subjects=[f"person {row}" for row in range(18)]).save(tmp_path / "model")
    assert image_cache_file().exists()
    with open_for_editing(tmp_path / "model", by="a test") as stored:
        receipt = stored.forget(subject="person 3")
    assert receipt.n_cached_embeddings == 18
    assert clear_image_cache() == 0
