"""The image encoder: embeddings of images by a network that is trained for the vote."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from attnknn._validation import Limits, check_at_least, check_choice, check_limits
from attnknn.encoders.base import (
    BATCH_SIZE,
    EMBED_DIM,
    EPOCHS,
    Arrays,
    Encoder,
    Settings,
)
from attnknn.encoders.image.rows import ArrayRows, ImageRows, ImageShape, image_rows
from attnknn.encoders.image.training import ImageInference, ImageTraining
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.records import Integers
from attnknn.registry import Option, register
from attnknn.training.config import TrainConfig
from attnknn.training.terminal import track

if TYPE_CHECKING:
    from torch import Tensor

    from attnknn.encoders.image.feature_cache import FeatureCache
    from attnknn.encoders.image.networks import EmbeddingNetwork
    from attnknn.training.views import Views

BACKBONES = ("tuned", "frozen")
MAX_SIDE = 4096


@register("encoder", "image")
class ImageEncoder(Encoder):
    """Embed small images with a network that is trained for the vote.

    `fit` reads the size and colors of the images and initializes the network; the classifier then
    trains it. Rows are uint8 arrays (n, H, W), (n, H, W, 3) or (n, 3, H, W), or a list of PIL
    images and paths.

    Parameters
    ----------
    network : str or torch.nn.Module, default='resnet9'
        'resnet9' (fast), 'resnet18' or 'resnet50' with first layers for small images;
        'resnet18-cifar' or 'resnet50-cifar', the same with the further layers of torchvision, whose
        weights they can take; 'efficientnet-lite0' or 'mobilenet-v2', networks for photographs;
        'timm:NAME', a pretrained network of timm (extra `images`); or your own with outputs
        (B, width), a module or the import path of a class or function, 'module:factory'.
    widths : tuple of int, default=None
        Channels of each stage; None takes those of the network, (64, 256, 256) for 'resnet9'.
    activation : {'gelu', 'celu', 'relu'}, default=None
        Activation; None takes that of the network.
    embed_dim : int, default=None
        Size of the embedding, by a projection head (linear, LayerNorm, GELU, linear); None takes
        the features of the network without a head.
    image_size : int or tuple of int, default=None
        Side, or (height, width), to which images are resized; None requires equal sizes. A network
        for photographs resizes arrays itself, and without `image_size` to the side that it was
        trained on.
    weights : str or Path, default=None
        File with pretrained weights (safetensors, or a state dict saved by torch); None takes those
        of timm's hub for a timm network, and random ones for others.
    backbone : {'tuned', 'frozen'}, default='tuned'
        Whether a pretrained network is fine-tuned, at a lower learning rate, or frozen.
    training : ImageTraining, default=None
        Settings of the training.
    views : Views, default=None
        Test-time augmentation: the votes of all views of a query are averaged. None uses the image
        alone.
    holdout : float, default=0.1
        Share of the rows that are not trained on. They are used for validation and calibration,
        and become entries like the others.
    inference : ImageInference, default=None
        Batch size, reading threads, device and cache of features; None takes the defaults.
    random_state : int, default=0
        Seed of the initial weights.

    Attributes
    ----------
    module_ : EmbeddingNetwork
        The network from images (B, C, H, W) with values from 0 to 1 to embeddings.
    shape_ : ImageShape
        Channels, height and width of the images.
    width_ : int
        Size of the embedding.

    Examples
    --------
    >>> images = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)
    >>> ImageEncoder(widths=(8, 16, 16)).fit(images).transform(images).shape
    (4, 16)
    """

    accepts: ClassVar[frozenset[str]] = frozenset({"images"})
    allows_missing: ClassVar[bool] = True  # an image has no cells that could be missing
    is_trained: ClassVar[bool] = True
    is_trained_jointly: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "--network",
            "network",
            "Image network: resnet9, resnet18, resnet50, resnet18-cifar, resnet50-cifar, "
            "efficientnet-lite0, mobilenet-v2, timm:NAME, or your own as module:factory.",
        ),
        Option(
            "--image-size", "image_size", "Resize images to a side (32) or height x width (32x48)."
        ),
        Option(
            "--weights",
            "weights",
            "File with pretrained weights of the network; without it, timm asks its hub.",
        ),
        Option(
            "--backbone",
            "backbone",
            "Fine-tune a pretrained network or freeze it.",
            choices=BACKBONES,
        ),
        Option(
            "--cache-features",
            "cache",
            "Store features of a frozen network in the user's cache folder.",
            bool,
        ),
        Option(
            "--views",
            "views",
            "Test-time augmentation: average over original,flip,vertical_flip,shift,crop.",
        ),
        Option("--n-views", "n_views", "Number of these views to use.", int, minimum=1),
        Option("--workers", "workers", "Threads that read image files ahead.", int, minimum=0),
        *(EMBED_DIM, EPOCHS, BATCH_SIZE),
    )

    def __init__(
        self,
        network: Any = "resnet9",
        *,
        widths: tuple[int, ...] | None = None,
        activation: str | None = None,
        embed_dim: int | None = None,
        image_size: int | tuple[int, int] | None = None,
        weights: str | Path | None = None,
        backbone: str = "tuned",
        training: ImageTraining | None = None,
        views: Views | None = None,
        holdout: float = 0.1,
        inference: ImageInference | None = None,
        random_state: int = 0,
    ) -> None:
        self.network = network
        self.widths = widths
        self.activation = activation
        self.embed_dim = embed_dim
        self.image_size = image_size
        self.weights = weights
        self.backbone = backbone
        self.training = training
        self.views = views
        self.holdout = holdout
        self.inference = inference
        self.random_state = random_state

    module_: EmbeddingNetwork
    shape_: ImageShape

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        from attnknn.encoders.image.backbone import is_backbone
        from attnknn.encoders.image.building import new_module, sample_of

        self.check_settings()
        rows = image_rows(X)
        if not len(rows):
            raise InvalidInputError("`X` must have at least one image, got none.")
        is_resized_inside = is_backbone(self.network) and isinstance(rows, ArrayRows)
        self.shape_ = rows.shape(None if is_resized_inside else self.size)
        self.module_ = new_module(self, self.shape_, sample_of(self, rows))
        self.width_ = self.module_.width
        self.n_features_in_ = self.shape_.channels * self.shape_.height * self.shape_.width
        return self

    def train(self, X: Any, labels: Integers, **context: Any) -> Any:
        # By name, since the trainers are in a room above the encoders.
        train = pkgutil.resolve_name("attnknn.fitting.images:train_images")
        return train(self, X, labels, **context).result

    @classmethod
    def from_options(cls, **given: Any) -> Self:
        training = {name: given.pop(name) for name in ("epochs", "batch_size") if name in given}
        if training:
            given["training"] = ImageTraining(TrainConfig(**training))
        inference = {name: given.pop(name) for name in ("workers", "cache") if name in given}
        if inference:
            given["inference"] = ImageInference(**inference)
        if "image_size" in given:
            given["image_size"] = _parse_size(given["image_size"])
        n_views = given.pop("n_views", None)
        if "views" in given:
            from attnknn.training.views import Views

            given["views"] = Views(tuple(given["views"].split(",")), n_views)
        elif n_views is not None:
            raise InvalidSettingError("`n_views` says how many of `views` are used: set both.")
        return cls(**given)

    @property
    def computing(self) -> ImageInference:
        """Batch size, reading threads and device in use."""
        return self.inference or ImageInference()

    def transform(self, X: Any) -> NDArray[Any]:
        return self.embeddings(X)[0]

    def embeddings(self, X: Any, views: Views | None = None) -> NDArray[np.float32]:
        """Encode several views of each image.

        Parameters
        ----------
        X : array-like or list
            Images as in `fit`.
        views : Views, default=None
            The views; None uses the image alone.

        Returns
        -------
        ndarray of shape (n_views, n_rows, width_)
            Embeddings of unit length.
        """
        return self.embed(self.features(X, views))

    def features(self, X: Any, views: Views | None = None) -> NDArray[np.float32]:
        """Compute the features of several views of each image, before the projection head.

        Parameters
        ----------
        X, views : array-like or list, Views or None
            As in `embeddings`.

        Returns
        -------
        ndarray of shape (n_views, n_rows, n_features)
            Outputs of the network.
        """
        import torch

        from attnknn.encoders.image.building import rows_per_batch
        from attnknn.training.views import Views, views_of

        views = views or Views()
        rows, module = self.rows(X), self.module_
        compute = self._feature_cache().features if self.computing.cache else module.features
        found = np.empty((len(views), len(rows), module.features_width), dtype=np.float32)
        module.eval()
        with torch.inference_mode():
            blocks = list(_blocks(len(rows), rows_per_batch(self)))
            for block, images in zip(blocks, self.read(rows, blocks), strict=True):
                for place, view in enumerate(views_of(images, views)):
                    found[place, block] = compute(view).float().cpu().numpy()
        return found

    def forget_features(self) -> int:
        """Erase all features of this network from the cache.

        Returns
        -------
        int
            Number of erased feature vectors.
        """
        self.check_fitted()
        return self._feature_cache().clear()

    def _feature_cache(self) -> FeatureCache:
        from attnknn.encoders.image.feature_cache import FeatureCache

        return FeatureCache(self.module_)

    def embed(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply the projection head to features.

        Parameters
        ----------
        features : ndarray of shape (n_views, n_rows, n_features)
            Features that `features` returned.

        Returns
        -------
        ndarray of shape (n_views, n_rows, width_)
            Embeddings of unit length.
        """
        import torch

        module = self.module_
        device, found = module.mean.device, np.empty((*features.shape[:2], self.width_), np.float32)
        with torch.inference_mode():
            for place, view in enumerate(features):
                for block in _blocks(len(view), self.computing.batch_size):
                    part = torch.from_numpy(view[block]).to(device)
                    found[place, block] = module.embed(part).cpu().numpy()
        return found

    def rows(self, X: Any) -> ImageRows:
        """Wrap images for reading in batches, and move the network to its device.

        Parameters
        ----------
        X : array-like or list
            Images as in `fit`.

        Returns
        -------
        ImageRows
            The images, which are read when they are needed.
        """
        self.check_fitted()
        from attnknn.training.devices import device_of

        self.module_.to(device_of(self.computing.device))
        return image_rows(X)

    def read(
        self, rows: ImageRows, batches: Sequence[NDArray[np.int64]], workers: int | None = None
    ) -> Iterator[Tensor]:
        """Read batches of images.

        Parameters
        ----------
        rows : ImageRows
            Images that `rows` returned.
        batches : sequence of ndarray
            Row numbers of each batch.
        workers : int, default=None
            Threads that read ahead; None takes the setting of the encoder.

        Yields
        ------
        Tensor
            Images (B, C, H, W) with values from 0 to 1, channels last, on the network's device.
        """
        import torch

        from attnknn.training.threads import read_ahead

        may_resize = self.image_size is not None

        def pixels(chosen: NDArray[np.int64]) -> NDArray[np.uint8]:
            return rows.take(chosen, self.shape_, may_resize=may_resize)

        n_workers = self.computing.workers if workers is None else workers
        for found in read_ahead(pixels, batches, n_workers):
            images = torch.from_numpy(np.ascontiguousarray(found)).to(self.module_.mean.device)
            yield images.float().div_(255).contiguous(memory_format=torch.channels_last)

    def to_settings(self) -> tuple[Settings, Arrays]:
        from attnknn.encoders.image.building import settings_of

        self.check_fitted()
        return settings_of(self)

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:
        from attnknn.encoders.image.building import restore

        return restore(cls, settings, arrays)

    def check_settings(self) -> None:
        """Raise for the first setting that is not valid."""
        from attnknn.encoders.image.networks import ACTIVATIONS

        self._check_network()
        for width in self.widths or ():
            check_at_least("widths", width, 1)
        check_choice("activation", self.activation, (None, *ACTIVATIONS))
        if self.embed_dim is not None:
            check_at_least("embed_dim", self.embed_dim, 1)
        _ = self.size  # raises
        check_choice("backbone", self.backbone, BACKBONES)
        for name, record in (("training", ImageTraining), ("inference", ImageInference)):
            if not isinstance(getattr(self, name), record | None):
                raise InvalidSettingError(
                    f"`{name}` must be an `{record.__name__}` or None, got {getattr(self, name)!r}."
                )
        if self.computing.cache and self.backbone != "frozen":
            raise InvalidSettingError(
                "`cache=True` needs `backbone='frozen'`: features of a trained network change."
            )
        if self.views is not None and not hasattr(self.views, "kinds"):
            raise InvalidSettingError(
                f"`views` must be an `attnknn.training.views.Views` or None, got {self.views!r}."
            )
        check_limits(self, {"holdout": Limits(above=0, below=1)})
        check_at_least("random_state", self.random_state, 0)

    def _check_network(self) -> None:
        from torch import nn

        from attnknn.encoders.image.backbone import is_backbone
        from attnknn.encoders.image.inverted_residuals import TRUNKS
        from attnknn.encoders.image.networks import NETWORKS
        from attnknn.encoders.image.own_networks import is_import_path

        is_found = is_backbone(self.network) or is_import_path(self.network)
        if isinstance(self.network, str) and not is_found:
            check_choice("network", self.network, (*NETWORKS, *TRUNKS))
        elif not isinstance(self.network, str | nn.Module):
            known = ", ".join((*NETWORKS, *TRUNKS))
            raise InvalidSettingError(
                f"`network` must be one of {known}, 'timm:NAME', 'module:factory' or a "
                f"torch.nn.Module, got {self.network!r}."
            )
        if is_backbone(self.network) and (self.widths or self.activation) is not None:
            raise InvalidSettingError(
                f"`widths` and `activation` are for {', '.join(NETWORKS)} only, not for "
                f"{self.network!r}."
            )

    @property
    def size(self) -> tuple[int, int] | None:
        """Height and width to which images are resized; None without resizing."""
        if self.image_size is None:
            return None
        sides = self.image_size if isinstance(self.image_size, tuple | list) else (self.image_size,)
        for side in sides:
            if check_at_least("image_size", side, 1) > MAX_SIDE:
                raise InvalidSettingError(f"`image_size` must be at most {MAX_SIDE}, got {side}.")
        if len(sides) > 2 or not sides:
            raise InvalidSettingError(
                f"`image_size` must be a side or (height, width), got {self.image_size!r}."
            )
        return int(sides[0]), int(sides[-1])


def _blocks(n_rows: int, size: int) -> Iterator[NDArray[np.int64]]:
    for start in track(range(0, n_rows, size), "Encoding images"):
        yield np.arange(start, min(start + size, n_rows))


def _parse_size(text: str) -> tuple[int, int]:
    sides = text.lower().split("x")
    if len(sides) > 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise InvalidSettingError(
            f"`image_size` must be a side (32) or height x width (32x48), got {text!r}."
        )
    return int(sides[0]), int(sides[-1])
