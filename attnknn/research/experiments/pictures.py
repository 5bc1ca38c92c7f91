"""Trains an image encoder for an experiment, and keeps what all methods are then given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError
from attnknn.records import Booleans, Integers
from attnknn.research.datasets import Dataset
from attnknn.research.datasets.base import Source
from attnknn.research.experiments.networks import Network

if TYPE_CHECKING:
    from attnknn.encoders.image import ImageEncoder
    from attnknn.fitting.images import HeadBaseline, ImageTrainResult

SIDES = {"digits": (8, 8)}  # data sets whose vectors are images
BRIGHTEST = {"digits": 16.0}


@dataclass(frozen=True, eq=False)
class Trained:
    """What a training leaves: the encoder, its head, and which rows it did not see."""

    encoder: ImageEncoder
    training: ImageTrainResult
    images: NDArray[Any]
    codes: Integers
    held_out: Booleans

    @property
    def baseline(self) -> HeadBaseline:
        """The CNN head of the same training."""
        assert self.training.baseline is not None
        return self.training.baseline


def pictures(data: Dataset, X: NDArray[Any]) -> NDArray[np.uint8]:
    """Rows of an image data set as uint8 images.

    >>> from attnknn.research import datasets
    >>> digits = datasets.load("digits")
    >>> pictures(digits, digits.X_test).shape
    (360, 8, 8)
    """
    if data.kind == "images":
        return X
    if data.name not in SIDES:
        raise InvalidInputError(f"The rows of {data.name!r} are no images.")
    pixels = np.asarray(X).reshape(len(X), *SIDES[data.name]) * (255 / BRIGHTEST[data.name])
    return np.round(pixels).astype(np.uint8)


def is_pictures(data: Dataset | Source) -> bool:
    """Whether an image encoder can be trained on a data set."""
    return data.kind == "images" or data.name in SIDES


def trained_encoder(
    network: Network,
    images: NDArray[np.uint8],
    codes: Integers,
    n_classes: int,
    *,
    seed: int,
    checkpoint: Path,
    verbose: int = 0,
) -> Trained:
    """Train as the network says, or go on, or take what is there."""
    from attnknn.fitting.images import train_images

    held_out = np.zeros(len(codes), dtype=bool)
    n_held_out = min(network.held_out, len(codes) // 5)
    held_out[np.random.default_rng(seed).choice(len(codes), n_held_out, replace=False)] = True
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    encoder = network.encoder(checkpoint, seed).fit(images[~held_out])
    training = train_images(
        encoder,
        images,
        codes,
        n_classes=n_classes,
        groups=np.full(len(codes), -1),
        is_trained_on=~held_out,
        random_state=seed,
        verbose=verbose,
    )
    return Trained(encoder, training, images, codes, held_out)
