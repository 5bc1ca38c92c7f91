"""Vision Transformers without classes as the encoder of a classifier."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnknn import AttnKNNClassifier
from attnknn.encoders.image import ImageEncoder, ImageInference, ImageTraining
from attnknn.errors import InvalidSettingError
from attnknn.vit.model import LAYERS, vit_tiny

CLASSES = np.arange(48) % 2
IMAGES = np.random.default_rng(0).integers(0, 100, (48, 3, 16, 16), np.uint8)
IMAGES[CLASSES == 1] += 100
TAKES_NEIGHBORS = ("convnn", "kvt", "branching_conv", "branching_attention")
ON_CPU = {
    "training": ImageTraining.of(epochs=1, device="cpu"),
    "inference": ImageInference(device="cpu"),
}


def network(name, **settings):
    few = {"n_neighbors": 5} if name in TAKES_NEIGHBORS else {}
    size = {"image_size": 16, "patch_size": 4, "dim": 12, "depth": 1, "num_classes": 0}
    return vit_tiny(name, **size, **few, **settings)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_works_in_an_encoder(name):
    made = network(name)
    encoder = ImageEncoder(made, **ON_CPU).fit(IMAGES)
    embedded = encoder.transform(IMAGES)
    assert embedded.shape == (48, 12)
    normalized = (torch.from_numpy(IMAGES) / 255 - encoder.module_.mean) / encoder.module_.std
    expected = torch.nn.functional.normalize(made.eval()(normalized), dim=1)
    np.testing.assert_allclose(embedded, expected.detach(), atol=1e-5)


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("name", LAYERS)
def test_every_layer_is_trained_in_a_classifier(name):
    encoder = ImageEncoder(network(name), **ON_CPU)
    classifier = AttnKNNClassifier(encoder=encoder, random_state=0).fit(IMAGES, CLASSES)
    assert classifier.predict_proba(IMAGES[:3]).shape == (3, 2)


def test_images_of_another_size_are_refused_or_resized():
    small = np.ascontiguousarray(IMAGES[:2, :, :8, :8])
    with pytest.raises(InvalidSettingError, match=r"16 × 16 .* got 8 × 8\. Resize .*`image_size`"):
        ImageEncoder(network("convnn")).fit(small)
    encoder = ImageEncoder(network("convnn"), image_size=16, **ON_CPU).fit(small)
    assert encoder.transform(small).shape == (2, 12)
