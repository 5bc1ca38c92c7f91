"""Image encoders of experiments: their settings in `networks.toml`, and their training."""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError, unknown_name
from attnknn.records import Booleans, Integers
from attnknn.research.datasets import Dataset
from attnknn.research.datasets.base import Source

if TYPE_CHECKING:
    from attnknn.attention import LearnedAttention
    from attnknn.attention.scores import NeighborScores
    from attnknn.encoders.image import ImageEncoder, ImageTraining
    from attnknn.fitting.images import HeadBaseline, ImageTrainResult
    from attnknn.training.views import Views


KNOWN = tomllib.loads(
    (files("attnknn.research.experiments") / "networks.toml").read_text(encoding="utf-8")
)


NAMES = ("narrow", "wide")  # of networks in that file


@dataclass(frozen=True)
class Network:
    """An image encoder and its training."""

    name: str  # of the network among those of its data set: 'narrow' or 'wide'
    epochs: int
    backbone: str = "resnet9"  # what `ImageEncoder` calls its network
    widths: tuple[int, ...] | None = None  # as in `ImageEncoder`, like the next two
    embed_dim: int | None = None
    image_size: int | None = None
    weights: str | None = None  # file of pretrained weights
    is_frozen: bool = False  # whether only a head is trained on the features
    cache: bool = False  # whether features of a frozen network are cached on disk
    held_out: int = 2000  # rows that are not trained on, at most a fifth
    # flip and crop of the augmentation; mirror images are views only where they are trained on
    flip: Literal["none", "random", "alternating"] = "alternating"
    crop: int = 2
    augmentation: Mapping[str, Any] = field(
        default_factory=dict
    )  # further settings of `Augmentation`
    mixing: Mapping[str, float] = field(default_factory=dict)  # as in `Mixing`
    precision: Mapping[str, Any] = field(default_factory=dict)  # as in `Precision`
    restarts: Mapping[str, Any] = field(default_factory=dict)  # as in `WarmRestarts`
    test_views: Mapping[str, Any] = field(default_factory=dict)  # as in `Views`; else the usual
    training: Mapping[str, Any] = field(default_factory=dict)  # further settings of `ImageTraining`
    device: str = "auto"  # that trains and computes the network; results hardly depend on it

    @property
    def description(self) -> str:
        """Description for captions.

        >>> network_of("mnist", "narrow").description
        'resnet9 24/96/96, 6 epochs'
        """
        from attnknn.encoders.image.backbone import is_backbone

        widths = f" {'/'.join(map(str, self.widths))}" if self.widths else ""
        dim = f", {self.embed_dim} numbers" if self.embed_dim else ""
        dim += (
            f", {self.image_size} pixels" if self.image_size and is_backbone(self.backbone) else ""
        )
        dim += f", weights {weights_checksum(self.weights)}" if self.weights else ""
        dim += ", frozen" if self.is_frozen else ""
        epochs = "1 epoch" if self.epochs == 1 else f"{self.epochs} epochs"
        return f"{self.backbone}{widths}{dim}, {epochs}"

    @property
    def settings(self) -> dict[str, Any]:
        """Settings of training and views, for reports; of weights the checksum.

        >>> network_of("mnist").settings["training"]["config"]["learning_rate"]
        0.5
        """
        # in the words of the training and of views, or without effect on results
        written = {"training", "mixing", "flip", "crop", "epochs", "augmentation", "restarts"}
        written |= {"test_views", "cache", "precision", "device"}
        own = {name: value for name, value in vars(self).items() if name not in written}
        own |= {"weights": weights_checksum(self.weights)} if self.weights else {}
        training = asdict(self.image_training(Path()))
        for place in ("checkpoint", "device"):
            del training[place]
        return {**own, "training": training, "views": asdict(self.views)}

    @property
    def views(self) -> Views:
        """Views for test-time augmentation; half as many without flips."""
        from attnknn.training.views import Views

        if self.test_views:
            return Views.from_dict(self.test_views)
        kinds, count = list(KNOWN["views"]["kinds"]), KNOWN["views"]["count"]
        if self.flip == "none":
            kinds, count = [kind for kind in kinds if kind != "flip"], count // 2
        return Views(tuple(kinds), count, KNOWN["views"]["pixels"])

    def changed(self, changes: Mapping[str, Any]) -> Network:
        """The same with some settings changed, those of `training` and `mixing` one by one.

        >>> network_of("mnist").changed({"training": {"batch_size": 64}}).training
        {'batch_size': 64}
        """
        tables = ("training", "mixing")
        merged = {name: {**getattr(self, name), **changes.get(name, {})} for name in tables}
        made = {**changes, **merged}
        if made.get("widths") is not None:
            made["widths"] = tuple(made["widths"])
        return replace(self, **made)

    def image_training(self, checkpoint: Path) -> ImageTraining:
        """Training settings of the encoder; training resumes from the checkpoint."""
        from attnknn.encoders.image import ImageTraining
        from attnknn.training import WarmRestarts
        from attnknn.training.augmentation import Augmentation, Mixing
        from attnknn.training.devices import Precision

        return ImageTraining.of(
            **{
                **KNOWN["training"],
                **self.training,
                "epochs": self.epochs,
                "patience": self.epochs,  # one schedule, to its end
                **({"schedule": WarmRestarts(**self.restarts)} if self.restarts else {}),
                "augmentation": Augmentation(
                    horizontal_flip=self.flip, crop=self.crop, **self.augmentation
                ),
                "mixing": Mixing(**self.mixing),
                "precision": Precision(**{"is_channels_last": True, **self.precision}),
                "checkpoint": str(checkpoint),
                "device": self.device,
            }
        )

    def encoder(self, checkpoint: Path, seed: int) -> ImageEncoder:
        """The untrained encoder."""
        from attnknn.encoders.image import ImageEncoder, ImageInference

        return ImageEncoder(
            self.backbone,
            widths=self.widths,
            embed_dim=self.embed_dim,
            image_size=self.image_size,
            weights=self.weights,
            backbone="frozen" if self.is_frozen else "tuned",
            training=self.image_training(checkpoint),
            random_state=seed,
            inference=ImageInference(batch_size=500, cache=self.cache, device=self.device),
        )


def network_of(data: str, name: str = "narrow", **changes: Any) -> Network:
    """The network of a data set by name; `changes` replace settings.

    >>> network_of("cifar10n-worst").widths
    (24, 96, 96)
    """
    source = "cifar10" if data.startswith("cifar10n-") else data
    source = source if source in KNOWN else "others"
    if name not in KNOWN[source]:
        raise unknown_name(f"network for {data!r}", name, KNOWN[source])
    found = {**KNOWN[source][name], **changes}
    if found.get("widths") is not None:
        found["widths"] = tuple(found["widths"])
    return Network(name=name, **found)


def is_image_network(name: str) -> bool:
    """Whether `ImageEncoder` knows a network of this name.

    >>> is_image_network("mobilenet-v2"), is_image_network("narrow")
    (True, False)
    """
    from attnknn.encoders.image.backbone import is_backbone
    from attnknn.encoders.image.networks import NETWORKS
    from attnknn.encoders.image.own_networks import is_import_path

    return name in NETWORKS or is_backbone(name) or is_import_path(name)


@dataclass(frozen=True)
class NetworkChoice:
    """An image network by its name in `ImageEncoder`, its weights and resolution."""

    backbone: str
    weights: str | None = None
    is_frozen: bool = False
    image_size: int | None = None
    cache: bool = False

    def in_place_of(self, network: Network) -> Network:
        """This network, trained with the schedule and augmentation of another one."""
        from attnknn.encoders.image.backbone import is_backbone

        size = self.image_size
        if size is None and not is_backbone(self.backbone):
            size = network.image_size
        training = {k: v for k, v in network.training.items() if k != "window"}
        is_pretrained = self.weights is not None or self.backbone.startswith("timm:")
        if is_pretrained and network.name in NAMES:  # a preset has its own settings
            training |= KNOWN["pretrained"]
        return replace(
            network,
            name=self._slug(size),
            widths=None,
            training=training,
            **{**vars(self), "image_size": size},
        )

    def _slug(self, size: int | None) -> str:
        """A name for folders, different for different weights and resolutions."""
        parts = [re.sub(r"[^\w.-]+", "-", self.backbone)]
        parts += [weights_checksum(self.weights)] if self.weights else []
        parts += [str(size)] if size else []
        return "-".join([*parts, *(["frozen"] if self.is_frozen else [])])


def weights_checksum(path: str) -> str:
    """The beginning of the sha256 of a file of weights."""
    if not Path(path).is_file():
        raise InvalidInputError(f"`weights` must name a file, there is no file at {path}.")
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]


SIDES = {"digits": (8, 8)}  # data sets whose vectors are images
BRIGHTEST = {"digits": 16.0}


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained encoder with the images it was trained on, and those that were held out."""

    encoder: ImageEncoder
    training: ImageTrainResult
    images: NDArray[Any]
    codes: Integers
    held_out: Booleans
    scores: NeighborScores | None = None  # of attention that was trained with the encoder

    @property
    def baseline(self) -> HeadBaseline:
        """The CNN head of the same training."""
        assert self.training.baseline is not None
        return self.training.baseline


def as_images(data: Dataset, X: NDArray[Any]) -> NDArray[np.uint8]:
    """Rows of an image data set as uint8 images.

    >>> from attnknn.research import datasets
    >>> digits = datasets.load("digits")
    >>> as_images(digits, digits.X_test).shape
    (360, 8, 8)
    """
    if data.kind == "images":
        return X
    if data.name not in SIDES:
        raise InvalidInputError(f"The rows of {data.name!r} are no images.")
    pixels = np.asarray(X).reshape(len(X), *SIDES[data.name]) * (255 / BRIGHTEST[data.name])
    return np.round(pixels).astype(np.uint8)


def has_images(data: Dataset | Source) -> bool:
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
    joint: LearnedAttention | None = None,
    verbose: int = 0,
) -> Trained:
    """Train an image encoder, resume its training, or load it if it is complete.

    `joint` is attention that is trained with it.
    """
    from attnknn.fitting.images import train_images
    from attnknn.fitting.joint import JointVote

    held_out = np.zeros(len(codes), dtype=bool)
    n_held_out = min(network.held_out, len(codes) // 5)
    held_out[np.random.default_rng(seed).choice(len(codes), n_held_out, replace=False)] = True
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    encoder = network.encoder(checkpoint, seed).fit(images[~held_out])
    vote = None if joint is None else JointVote(joint, encoder.width_, n_classes, seed)
    training = train_images(
        encoder,
        images,
        codes,
        n_classes=n_classes,
        groups=np.full(len(codes), -1),
        is_trained_on=~held_out,
        random_state=seed,
        joint=vote,
        verbose=verbose,
    )
    scores = None if vote is None else vote.scores.eval()
    return Trained(encoder, training, images, codes, held_out, scores)
