"""Pretrained networks of timm, with weights from its hub or from a local file."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional as F

from attnknn._optional import require
from attnknn.encoders.image.weights import first_line, load_weights
from attnknn.errors import InvalidSettingError, unknown_name

PREFIX = "timm:"


class Backbone(nn.Module):
    """A network of timm without its classifier.

    Images are resized to the size that it was trained on, and gray ones get three equal channels.
    """

    def __init__(self, name: str, *, is_pretrained: bool = False) -> None:
        super().__init__()
        needs = {"extra": "images", "needed_by": "A pretrained image encoder"}
        timm = require("timm", **needs, instead="'resnet9'")
        bare = name.removeprefix(PREFIX)
        if bare.split(".")[0] not in timm.list_models():
            raise unknown_name("timm model", bare, timm.list_models())
        try:
            self.model = timm.create_model(bare, pretrained=is_pretrained, num_classes=0)
        except (RuntimeError, OSError, ValueError) as error:
            raise InvalidSettingError(
                f"timm cannot build {bare!r}: {first_line(error)} Pass `weights=` to read the "
                "weights from a file."
            ) from error
        config = timm.data.resolve_model_data_config(self.model)
        self.size: tuple[int, int] = tuple(config["input_size"][1:])
        self.normalization = (config["mean"], config["std"])
        self.width = int(self.model.num_features)

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[2:] != self.size:
            images = F.interpolate(
                images, self.size, mode="bicubic", align_corners=False, antialias=True
            )
        return self.model(images.expand(-1, 3, -1, -1))

    def load(self, path: str | Path) -> frozenset[str]:
        """Load weights from a file without its classifier; return the parameters that it holds."""
        held = load_weights(self.model, "the timm model", path, may_have_more=True)
        return frozenset(f"model.{name}" for name in held)
