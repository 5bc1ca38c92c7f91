"""A Vision Transformer whose blocks may each attend in another way.

Parts are named as timm names them, so that weights of a timm ViT of the same size can be loaded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnknn._validation import check_at_least, check_choice
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.vit.functional import Grid
from attnknn.vit.model.named import make_layer
from attnknn.vit.model.positions import fixed_positions

Pair = int | tuple[int, int]
POOLS, POSITIONS = ("token", "mean"), ("learned", "fixed")
SPREAD = 0.02  # of first weights
EPSILON = 1e-6  # of norms


class Mlp(nn.Module):
    """Two linear maps with a nonlinearity between them."""

    def __init__(self, dim: int, mlp_dim: int, drop: float, **at: Any) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, mlp_dim, **at)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(mlp_dim, dim, **at)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, dim) to the same."""
        return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))


class Block(nn.Module):
    """Attention and a small network, each on normed tokens, each added to them."""

    def __init__(self, dim: int, attn: nn.Module, mlp: nn.Module, **at: Any) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=EPSILON, **at)
        self.attn = attn
        self.norm2 = nn.LayerNorm(dim, eps=EPSILON, **at)
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        """(B, N, dim) to the same."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbedding(nn.Module):
    """Images cut into patches, each mapped to a token."""

    def __init__(self, size: Pair, patch: Pair, in_chans: int, dim: int, **at: Any) -> None:
        super().__init__()
        self.img_size, self.patch_size = _pair("image_size", size), _pair("patch_size", patch)
        self.grid_size = _grid_size(self.img_size, self.patch_size)
        check_at_least("in_chans", in_chans, 1)
        self.proj = nn.Conv2d(in_chans, dim, self.patch_size, self.patch_size, **at)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) to (B, N, dim)."""
        if images.dim() != 4 or images.shape[1] != self.proj.in_channels:
            raise InvalidInputError(
                f"Images must be (B, {self.proj.in_channels}, {self.img_size[0]}, "
                f"{self.img_size[1]}), got {tuple(images.shape)}."
            )
        if tuple(images.shape[2:]) != self.img_size:
            raise InvalidSettingError(
                f"Images must have {_times(self.img_size)} pixels, got {_times(images.shape[2:])}."
            )
        return self.proj(images).flatten(2).mT


class VisionTransformer(nn.Module):
    """A Vision Transformer.

    Parameters
    ----------
    image_size, patch_size
        A side, or (height, width); patches must fill the image.
    num_classes
        0 gives pooled features instead of scores of classes, as an encoder needs.
    layer
        How blocks attend, a name in `LAYERS`; or a name for each block.
    layer_settings
        Settings of the layer, such as `n_neighbors`; or a mapping for each block.
    mlp_dim
        Width of the small network of a block, four times `dim` if None.
    drop, attn_drop
        Shares of features and of attention weights that are dropped in training.
    pool
        'token' asks a class token, 'mean' the mean of all patches, and there is no class token.
    positions
        'learned', or 'fixed' waves over rows and columns.

    >>> model = VisionTransformer(image_size=8, dim=12, depth=1, layer="convnn",
    ...                           layer_settings={"n_neighbors": 2})
    >>> model(torch.zeros(2, 3, 8, 8)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        *,
        image_size: Pair = 32,
        patch_size: Pair = 4,
        in_chans: int = 3,
        num_classes: int = 10,
        dim: int = 192,
        depth: int = 12,
        num_heads: int = 3,
        mlp_dim: int | None = None,
        layer: str | Sequence[str] = "attention",
        layer_settings: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        qkv_bias: bool = True,
        drop: float = 0.0,
        attn_drop: float = 0.0,
        pool: str = "token",
        positions: str = "learned",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_at_least("depth", depth, 1)
        check_at_least("num_classes", num_classes, 0)
        check_choice("pool", pool, POOLS)
        check_choice("positions", positions, POSITIONS)
        wide = 4 * dim if mlp_dim is None else check_at_least("mlp_dim", mlp_dim, 1)
        at: dict[str, Any] = {"device": device, "dtype": dtype}
        self.pool, self.num_prefix_tokens = pool, int(pool == "token")
        self.patch_embed = PatchEmbedding(image_size, patch_size, in_chans, dim, **at)
        self.grid = Grid(*self.patch_embed.grid_size, self.num_prefix_tokens)
        self.cls_token = nn.Parameter(torch.empty(1, 1, dim, **at)) if pool == "token" else None
        self._place(dim, positions, at)
        self.pos_drop = nn.Dropout(drop)
        common: dict[str, Any] = {
            "num_heads": num_heads,
            "qkv_bias": qkv_bias,
            "attn_drop": attn_drop,
            "proj_drop": drop,
            **at,
        }
        self.blocks = nn.Sequential(
            *(
                Block(dim, self._layer(number, dim, *own, common), Mlp(dim, wide, drop, **at), **at)
                for number, own in enumerate(_each(depth, layer, layer_settings))
            )
        )
        if pool == "token" and not any(map(_sees_patches, self.blocks)):
            raise InvalidSettingError(
                "The class token would see no patch in any block, and the model no image. Set "
                "`pool='mean'`, or let a block attend."
            )
        self.norm = nn.LayerNorm(dim, eps=EPSILON, **at)
        self.head = nn.Linear(dim, num_classes, **at) if num_classes else nn.Identity()
        self.reset_parameters()

    def _place(self, dim: int, positions: str, at: Mapping[str, Any]) -> None:
        """Positions are a parameter, or a buffer that is not stored."""
        if positions == "learned":
            self.pos_embed = nn.Parameter(torch.empty(1, self.grid.n_tokens, dim, **at))
        else:
            waves = fixed_positions(self.grid, dim).to(at["device"], at["dtype"])
            self.register_buffer("pos_embed", waves, persistent=False)

    def _layer(
        self, number: int, dim: int, name: str, own: Mapping[str, Any], common: Mapping[str, Any]
    ) -> nn.Module:
        """The attention of a block, told how the patches stand."""
        facts = {
            "grid_size": self.patch_embed.grid_size,
            "num_prefix_tokens": self.num_prefix_tokens,
            "seed": number,
        }
        return make_layer(name, dim, facts=facts, settings=own, **common)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """First weights: small normal ones for linear maps, zeros for biases.

        Kernels over ranks, and convolutions inside layers, start as their layers made them.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=SPREAD)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        self.patch_embed.proj.reset_parameters()
        if self.cls_token is not None:
            nn.init.trunc_normal_(self.cls_token, std=SPREAD)
        if isinstance(self.pos_embed, nn.Parameter):
            nn.init.trunc_normal_(self.pos_embed, std=SPREAD)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) to scores of the classes (B, num_classes)."""
        return self.head(self.pooled(self.norm(self.blocks(self.tokens(images)))))

    def tokens(self, images: Tensor) -> Tensor:
        """What the first block is given, (B, N, dim)."""
        x = self.patch_embed(images)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        return self.pos_drop(x + self.pos_embed)

    def pooled(self, x: Tensor) -> Tensor:
        """(B, N, dim) to (B, dim)."""
        return x[:, 0] if self.pool == "token" else x.mean(1)

    def no_weight_decay(self) -> set[str]:
        """Parameters that zero is no rest for: positions, the class token, kernels over ranks."""
        kernels = ("kernel", "position_kernel")
        names = {name for name, _ in self.named_parameters() if name.rsplit(".", 1)[-1] in kernels}
        return names | {"pos_embed", "cls_token"}


def vit_tiny(layer: str | Sequence[str] = "attention", **settings: Any) -> VisionTransformer:
    """ViT-Tiny: 12 blocks, 192 channels, 3 heads; 224 pixels in patches of 16, 1000 classes.

    Settings of `VisionTransformer` change any of that; all others are of the layer.

    >>> vit_tiny("convnn", depth=1, num_classes=10, n_neighbors=4).blocks[0].attn.rule.n_neighbors
    4
    """
    return _of_size(layer, settings, dim=192, num_heads=3)


def vit_small(layer: str | Sequence[str] = "attention", **settings: Any) -> VisionTransformer:
    """ViT-Small: as `vit_tiny`, with 384 channels and 6 heads."""
    return _of_size(layer, settings, dim=384, num_heads=6)


def _of_size(
    layer: str | Sequence[str], settings: dict[str, Any], **size: int
) -> VisionTransformer:
    known = VisionTransformer.__init__.__kwdefaults__ or {}
    of_model = {name: value for name, value in settings.items() if name in known}
    of_layer = {name: value for name, value in settings.items() if name not in known}
    usual: dict[str, Any] = {"image_size": 224, "patch_size": 16, "num_classes": 1000, **size}
    if of_layer:
        given = of_model.pop("layer_settings", None) or {}
        if not isinstance(given, Mapping):
            raise InvalidSettingError(
                f"Give {', '.join(map(repr, of_layer))} within `layer_settings`, which has a "
                "mapping for each block."
            )
        usual["layer_settings"] = {**given, **of_layer}
    return VisionTransformer(layer=layer, **{**usual, **of_model})


def _each(
    depth: int,
    layer: str | Sequence[str],
    settings: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
) -> list[tuple[str, Mapping[str, Any]]]:
    """The name and the settings of each block's layer."""
    names = [layer] * depth if isinstance(layer, str) else list(layer)
    one = settings is None or isinstance(settings, Mapping)
    own = [settings or {}] * depth if one else list(settings)  # type: ignore[arg-type]
    for what, found in (("layer", names), ("layer_settings", own)):
        if len(found) != depth:
            raise InvalidSettingError(
                f"`{what}` must have one entry for each of the {depth} blocks, got {len(found)}."
            )
    return list(zip(names, own, strict=True))  # type: ignore[arg-type]


def _sees_patches(block: nn.Module) -> bool:
    return bool(getattr(block.attn, "sees_others", True))


def _pair(name: str, value: Pair) -> tuple[int, int]:
    height, width = (value, value) if isinstance(value, int) else value
    return check_at_least(name, height, 1), check_at_least(name, width, 1)


def _grid_size(image: tuple[int, int], patch: tuple[int, int]) -> tuple[int, int]:
    if image[0] % patch[0] or image[1] % patch[1]:
        raise InvalidSettingError(
            f"Patches of {_times(patch)} pixels do not fill images of {_times(image)}. Change "
            "`patch_size` or `image_size`."
        )
    return image[0] // patch[0], image[1] // patch[1]


def _times(sides: Sequence[int]) -> str:
    return " × ".join(map(str, sides))
