"""From settings to a trained encoder, its embeddings and its CNN head, kept in a folder."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.datasets import Dataset
from attnknn.encoders.image import ImageEncoder, ImageTraining
from attnknn.evaluation.stress import long_tail, symmetric_noise
from attnknn.learning.augment import Augmentation
from attnknn.learning.views import Views
from attnknn.training.images import HeadBaseline, Lesson, train_images

STRESSES = {
    "none": "",
    "noise": "30 % symmetric noise",
    "worst": "the worst of three people's labels (CIFAR-10N)",
    "imbalance": "the last class 100 times rarer than the first",
}
NOISE, RATIO = 0.3, 100.0
SETTINGS = tomllib.loads((Path(__file__).parent / "settings.toml").read_text())


@dataclass(frozen=True)
class Recipe:
    """One training: what on, how wide, how long, from which seed, with which damage.

    Parameters
    ----------
    rows : take only the first so many training rows, for a try
    stress : a name in `STRESSES`; the damage is done before anything is fitted
    """

    data: str
    width: str
    seed: int
    epochs: int
    rows: int | None = None
    stress: str = "none"

    @property
    def name(self) -> str:
        """What its folder of results is called."""
        return "-".join([self.data, self.width, *([] if self.stress == "none" else [self.stress])])

    @classmethod
    def named(cls, name: str, seed: int) -> Recipe:
        """The recipe whose folder has this name.

        >>> Recipe.named("cifar10-narrow-noise", 1).stress
        'noise'
        """
        parts = name.split("-")
        stress = parts.pop() if parts[-1] in STRESSES else "none"
        data, width = "-".join(parts[:-1]), parts[-1]
        return cls(data, width, seed, SETTINGS[data][width]["epochs"], stress=stress)

    @property
    def source(self) -> str:
        """The data set that has its rows."""
        return "cifar10n-worst" if self.stress == "worst" else self.data

    @property
    def chosen(self) -> dict[str, Any]:
        return SETTINGS[self.data][self.width]

    @property
    def views(self) -> Views:
        """Mirror images are views only where they are trained on; then there are half as many."""
        seen = SETTINGS["views"]
        kinds, count = seen["kinds"], seen["count"]
        if self.chosen["flip"] == "none":
            kinds, count = [kind for kind in kinds if kind != "flip"], count // 2
        return Views(tuple(kinds), count, seen["pixels"])

    def training(self, folder: Path) -> ImageTraining:
        """How the encoder is trained; a checkpoint in `folder` lets it go on where it was."""
        return ImageTraining(
            epochs=self.epochs,
            patience=self.epochs,  # one schedule, to its end
            augmentation=Augmentation(
                horizontal_flip=self.chosen["flip"], crop=self.chosen["crop"]
            ),
            checkpoint=str(folder / "checkpoint"),
            **SETTINGS["training"],
            **self.chosen.get("training", {}),
        )

    def encoder(self, folder: Path) -> ImageEncoder:
        return ImageEncoder(
            widths=tuple(self.chosen["widths"]),
            training=self.training(folder),
            random_state=self.seed,
            batch_size=500,
        )


@dataclass(frozen=True)
class Trained:
    """What a training leaves: the encoder, its head, and which rows it did not see."""

    encoder: ImageEncoder
    lesson: Lesson
    X: NDArray[Any]
    codes: NDArray[np.int64]
    fresh: NDArray[np.bool_]

    @property
    def baseline(self) -> HeadBaseline:
        assert self.lesson.baseline is not None
        return self.lesson.baseline


def stressed(recipe: Recipe, data: Dataset) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The training rows of a recipe and their labels, with the damage done."""
    X, codes = data.X_train[: recipe.rows], data.y_train[: recipe.rows]
    if recipe.stress == "noise":
        n_classes = len(data.classes)
        codes = symmetric_noise(codes, NOISE, random_state=recipe.seed, n_classes=n_classes)
    if recipe.stress == "imbalance":
        rows = long_tail(codes, RATIO, random_state=recipe.seed)
        X, codes = X[rows], codes[rows]
    return X, codes


def trained_encoder(recipe: Recipe, data: Dataset, folder: Path) -> Trained:
    """Train as the recipe says, or go on, or take what is there."""
    X, codes = stressed(recipe, data)
    fresh = np.zeros(len(codes), dtype=bool)
    n_fresh = min(recipe.chosen["fresh"], len(codes) // 5)
    generator = np.random.default_rng(recipe.seed)
    fresh[generator.choice(len(codes), n_fresh, replace=False)] = True
    encoder = recipe.encoder(folder).fit(X[~fresh])
    lesson = train_images(
        encoder,
        X,
        codes,
        n_classes=len(data.classes),
        groups=np.full(len(codes), -1),
        is_trained_on=~fresh,
        random_state=recipe.seed,
        verbose=1,
    )
    return Trained(encoder, lesson, X, codes, fresh)
