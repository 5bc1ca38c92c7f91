"""Networks for photographs, with weights from a local file or from timm's hub."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn
from torch.nn import functional as F

from attnknn._optional import require
from attnknn.encoders.image.inverted_residuals import TRUNKS, Trunk
from attnknn.encoders.image.networks import layer_depths
from attnknn.encoders.image.weights import first_line, load_weights
from attnknn.errors import InvalidSettingError, unknown_name

PREFIX = "timm:"
Size = tuple[int, int]


class Backbone(nn.Module):
    """A network for photographs without its classifier, from images of any size to features.

    Images are resized to `size`, by default that of the pretraining, and gray ones get three
    equal channels.

    Parameters
    ----------
    model : from images (B, 3, H, W) to features (B, width)
    normalization : means and standard deviations by which the images of the pretraining were
        normalized
    is_pretrained : whether the weights are those of a hub
    """

    def __init__(
        self,
        name: str,
        model: nn.Module,
        *,
        size: Size,
        width: int,
        normalization: tuple[Any, Any],
        is_pretrained: bool = False,
    ) -> None:
        super().__init__()
        self.name, self.model = name, model
        self.size, self.width, self.normalization = size, width, normalization
        self.is_pretrained = is_pretrained

    @classmethod
    def named(cls, name: str, size: Size | None, *, is_pretrained: bool) -> Self:
        """The network called `name` at a resolution; timm asks its hub if `is_pretrained`."""
        if name.startswith(PREFIX):
            return cls._of_timm(name, size, is_pretrained)
        plan = TRUNKS[name]
        trunk = Trunk(plan)
        return cls(
            name,
            trunk,
            size=size or (plan.size, plan.size),
            width=trunk.width,
            normalization=plan.normalization,
        )

    @classmethod
    def _of_timm(cls, name: str, size: Size | None, is_pretrained: bool) -> Self:
        needs = {"extra": "images", "needed_by": "A pretrained image encoder"}
        timm = require("timm", **needs, instead="'resnet9'")
        bare = name.removeprefix(PREFIX)
        if bare.split(".")[0] not in timm.list_models():
            raise unknown_name("timm model", bare, timm.list_models())
        try:
            model = _timm_model(timm, bare, size, is_pretrained)
        except (RuntimeError, OSError, ValueError) as error:
            raise InvalidSettingError(
                f"timm cannot build {bare!r}: {first_line(error)} Pass `weights=` to read the "
                "weights from a file."
            ) from error
        config = timm.data.resolve_model_data_config(model)
        return cls(
            name,
            model,
            size=size or tuple(config["input_size"][1:]),
            width=int(model.num_features),
            normalization=(config["mean"], config["std"]),
            is_pretrained=is_pretrained,
        )

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[2:] != self.size:
            images = F.interpolate(
                images, self.size, mode="bicubic", align_corners=False, antialias=True
            )
        return self.model(images.expand(-1, 3, -1, -1))

    def load(self, path: str | Path) -> frozenset[str]:
        """Load weights from a file without its classifier; return the parameters that it holds."""
        is_timm = self.name.startswith(PREFIX)
        what = "the timm model" if is_timm else repr(self.name)
        held = load_weights(self.model, what, path, may_have_more=is_timm)
        return frozenset(f"model.{name}" for name in held)

    def layer_depths(self) -> dict[str, int]:
        """The stage of every parameter, counted from the output; timm's models know their own."""
        matcher: Callable[..., Any] | None = getattr(self.model, "group_matcher", None)
        if matcher is not None:
            timm = require("timm", extra="images", needed_by="A pretrained image encoder")
            groups = timm.models.group_parameters(self.model, matcher(coarse=False), reverse=True)
            last = max(groups.values())
            depths = {name: last - group for name, group in groups.items()}
        else:
            depths = layer_depths(self.model)
        return {f"model.{name}": depth for name, depth in depths.items()}


def is_backbone(network: object) -> bool:
    """Whether a setting names a network for photographs."""
    return isinstance(network, str) and (network.startswith(PREFIX) or network in TRUNKS)


def _timm_model(timm: Any, name: str, size: Size | None, is_pretrained: bool) -> Any:
    """A model of timm that takes images of `size`.

    Transformers have to know the size; those of one kind interpolate the positions of their
    patches, so that weights of another resolution fit. Convolutional networks take any size.
    """
    ways: list[dict[str, Any]] = [{}]
    if size is not None:
        ways = [{"dynamic_img_size": True}, {"img_size": size}, {}]
    for way in ways[:-1]:
        try:
            model = timm.create_model(name, pretrained=is_pretrained, num_classes=0, **way)
        except TypeError:  # this network has no such argument
            continue
        _check_patches(name, model, size)
        return model
    return timm.create_model(name, pretrained=is_pretrained, num_classes=0)


def _check_patches(name: str, model: nn.Module, size: Size | None) -> None:
    patch = getattr(getattr(model, "patch_embed", None), "patch_size", None)
    if size is not None and patch is not None and (size[0] % patch[0] or size[1] % patch[1]):
        raise InvalidSettingError(
            f"`image_size` of {name!r} must be a multiple of its patches of {patch[0]} × "
            f"{patch[1]} pixels, got {size[0]} × {size[1]}."
        )
