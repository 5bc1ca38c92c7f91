"""Vision Transformer whose blocks can use different attention layers.

Modules are named as in timm, so that weights of a timm ViT of the same size can be loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from attnknn._validation import check_at_least, check_choice
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.vit.functional import Grid
from attnknn.vit.functional.grid import check_pair, patch_positions
from attnknn.vit.model.factory import make_layer

Pair = int | tuple[int, int]
POOLS, POSITIONS = ("token", "mean"), ("learned", "fixed")
INIT_STD = 0.02
NORM_EPS = 1e-6
LONGEST_WAVE = 10_000.0


class Mlp(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, dim: int, mlp_dim: int, drop: float, **factory: Any) -> None:
        super().__init__()
        self.fc1 = nn.Linear(dim, mlp_dim, **factory)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(mlp_dim, dim, **factory)
        self.drop = nn.Dropout(drop)

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, dim) to tokens of the same shape."""
        return self.drop(self.fc2(self.drop(self.act(self.fc1(x)))))


class Block(nn.Module):
    """Pre-norm transformer block: attention and an MLP, each with a residual connection."""

    def __init__(self, dim: int, attn: nn.Module, mlp: nn.Module, **factory: Any) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=NORM_EPS, **factory)
        self.attn = attn
        self.norm2 = nn.LayerNorm(dim, eps=NORM_EPS, **factory)
        self.mlp = mlp

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (B, N, dim) to tokens of the same shape."""
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class PatchEmbedding(nn.Module):
    """Images cut into patches, each projected to a token."""

    def __init__(self, size: Pair, patch: Pair, in_chans: int, dim: int, **factory: Any) -> None:
        super().__init__()
        image, patch = check_pair("image_size", size), check_pair("patch_size", patch)
        if image[0] % patch[0] or image[1] % patch[1]:
            raise InvalidSettingError(
                f"Patches of {_times(patch)} pixels do not fill images of {_times(image)}. Change "
                "`patch_size` or `image_size`.",
                parameter="patch_size",
            )
        self.img_size, self.patch_size = image, patch
        self.grid_size = (image[0] // patch[0], image[1] // patch[1])
        check_at_least("in_chans", in_chans, 1)
        self.proj = nn.Conv2d(in_chans, dim, patch, patch, **factory)

    def forward(self, images: Tensor) -> Tensor:
        """Images (B, C, H, W) to tokens (B, N, dim)."""
        if images.dim() != 4 or images.shape[1] != self.proj.in_channels:
            raise InvalidInputError(
                f"Images must be (B, {self.proj.in_channels}, {self.img_size[0]}, "
                f"{self.img_size[1]}), got {tuple(images.shape)}."
            )
        if tuple(images.shape[2:]) != self.img_size:
            raise InvalidSettingError(
                f"Images must have {_times(self.img_size)} pixels, got {_times(images.shape[2:])}. "
                "Resize them (an `ImageEncoder` does with `image_size`), or build the model with "
                "their `image_size`."
            )
        return self.proj(images).flatten(2).mT


class VisionTransformer(nn.Module):
    """Vision Transformer with any attention layer in any block.

    Parameters
    ----------
    image_size, patch_size : int or (int, int), default=32 and 4
        One side, or (height, width), in pixels; patches must fill the image.
    in_chans : int, default=3
        Channels of the images.
    num_classes : int, default=10
        Number of classes; 0 returns pooled features, so that the model is an encoder.
    dim : int, default=192
        Width of the tokens.
    depth : int, default=12
        Number of blocks.
    num_heads : int, default=3
        Heads of each attention layer.
    mlp_dim : int, default=None
        Hidden width of the MLPs, 4 × `dim` if None.
    layer : str or sequence of str, default='attention'
        Name of the attention layer in `LAYERS`, or one name per block.
    layer_settings : mapping or sequence of mappings, default=None
        Settings of the layer, such as `n_neighbors`, or one mapping per block.
    qkv_bias : bool, default=True
        Whether the projections of queries, keys and values have a bias.
    drop, attn_drop : float, default=0.0
        Dropout of features and of attention weights.
    pool : {'token', 'mean'}, default='token'
        Classify by a class token, or by the mean of the patches without a class token.
    positions : {'learned', 'fixed'}, default='learned'
        Learned or sinusoidal position embeddings.
    device, dtype : default=None
        Device and type of the parameters.

    Examples
    --------
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
        width = 4 * dim if mlp_dim is None else check_at_least("mlp_dim", mlp_dim, 1)
        factory: dict[str, Any] = {"device": device, "dtype": dtype}
        self.pool, self.num_prefix_tokens = pool, int(pool == "token")
        self.patch_embed = PatchEmbedding(image_size, patch_size, in_chans, dim, **factory)
        self.grid = Grid(*self.patch_embed.grid_size, self.num_prefix_tokens)
        self.cls_token = None
        if pool == "token":
            self.cls_token = nn.Parameter(torch.empty(1, 1, dim, **factory))
        if positions == "learned":
            self.pos_embed = nn.Parameter(torch.empty(1, self.grid.n_tokens, dim, **factory))
        else:
            waves = sinusoidal_positions(self.grid, dim).to(device, dtype)
            self.register_buffer("pos_embed", waves, persistent=False)
        self.pos_drop = nn.Dropout(drop)
        common: dict[str, Any] = {
            "num_heads": num_heads,
            "qkv_bias": qkv_bias,
            "attn_drop": attn_drop,
            "proj_drop": drop,
            **factory,
        }
        attention = self._make_attention(dim, _per_block(depth, layer, layer_settings), common)
        self.blocks = nn.Sequential(
            *(Block(dim, attn, Mlp(dim, width, drop, **factory), **factory) for attn in attention)
        )
        self.norm = nn.LayerNorm(dim, eps=NORM_EPS, **factory)
        self.head = nn.Linear(dim, num_classes, **factory) if num_classes else nn.Identity()
        self._init_weights()

    def _make_attention(
        self, dim: int, layers: Sequence[tuple[str, Mapping[str, Any]]], common: dict[str, Any]
    ) -> Iterator[nn.Module]:
        """The attention layer of each block, one at a time."""
        sees_patches = False
        for number, (name, settings) in enumerate(layers):
            from_model = {
                "grid_size": self.patch_embed.grid_size,
                "num_prefix_tokens": self.num_prefix_tokens,
                "seed": number,
            }
            attn = make_layer(name, dim, from_model=from_model, settings=settings, **common)
            sees_patches |= getattr(attn, "prefix_attends_patches", True)
            yield attn
        if self.pool == "token" and not sees_patches:
            raise InvalidSettingError(
                "The class token does not attend to any patch in any block, so the output would "
                "not depend on the image. Set `pool='mean'`, or use attention in some block.",
                parameter="pool",
            )

    @torch.no_grad()
    def _init_weights(self) -> None:
        """Truncated normal weights; kernels and convolutions inside layers stay as made."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=INIT_STD)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        self.patch_embed.proj.reset_parameters()
        if self.cls_token is not None:
            nn.init.trunc_normal_(self.cls_token, std=INIT_STD)
        if isinstance(self.pos_embed, nn.Parameter):
            nn.init.trunc_normal_(self.pos_embed, std=INIT_STD)

    def forward(self, images: Tensor) -> Tensor:
        """Compute class scores.

        Parameters
        ----------
        images : Tensor of shape (B, C, H, W)
            Images of the size that the model was built for.

        Returns
        -------
        Tensor of shape (B, num_classes)
            Scores (logits); pooled features (B, dim) if `num_classes` is 0.
        """
        x = self.patch_embed(images)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1)
        x = self.norm(self.blocks(self.pos_drop(x + self.pos_embed)))
        return self.head(x[:, 0] if self.pool == "token" else x.mean(1))

    def no_weight_decay(self) -> set[str]:
        """Names of parameters without weight decay.

        Returns
        -------
        set of str
            Position embeddings, the class token and kernels over ranks.
        """
        kernels = ("kernel", "position_kernel")
        names = {name for name, _ in self.named_parameters() if name.rsplit(".", 1)[-1] in kernels}
        return names | {"pos_embed", "cls_token"}


def vit_tiny(layer: str | Sequence[str] = "attention", **settings: Any) -> VisionTransformer:
    """Build ViT-Tiny: 12 blocks, 192 channels, 3 heads, 224 pixels, patches of 16, 1000 classes.

    Parameters
    ----------
    layer : str or sequence of str, default='attention'
        Name of the attention layer in `LAYERS`, or one name per block.
    **settings : Any
        Arguments of `VisionTransformer`; all others are settings of the layer.

    Returns
    -------
    VisionTransformer
        The model with random weights.

    Examples
    --------
    >>> vit_tiny("convnn", depth=1, num_classes=10, n_neighbors=4).blocks[0].attn.config.n_neighbors
    4
    """
    return _build(layer, settings, dim=192, num_heads=3)


def vit_small(layer: str | Sequence[str] = "attention", **settings: Any) -> VisionTransformer:
    """Build ViT-Small: as `vit_tiny`, with 384 channels and 6 heads.

    Parameters
    ----------
    layer, **settings : str or sequence of str, Any
        As in `vit_tiny`.

    Returns
    -------
    VisionTransformer
        The model with random weights.

    Examples
    --------
    >>> vit_small(depth=1).head.in_features
    384
    """
    return _build(layer, settings, dim=384, num_heads=6)


def _build(layer: str | Sequence[str], settings: dict[str, Any], **size: int) -> VisionTransformer:
    known = VisionTransformer.__init__.__kwdefaults__ or {}
    of_model = {name: value for name, value in settings.items() if name in known}
    of_layer = {name: value for name, value in settings.items() if name not in known}
    defaults: dict[str, Any] = {"image_size": 224, "patch_size": 16, "num_classes": 1000, **size}
    if of_layer:
        given = of_model.pop("layer_settings", None) or {}
        if not isinstance(given, Mapping):
            raise InvalidSettingError(
                f"Put {', '.join(map(repr, of_layer))} into `layer_settings`, which has one "
                "mapping per block."
            )
        defaults["layer_settings"] = {**given, **of_layer}
    return VisionTransformer(layer=layer, **{**defaults, **of_model})


def _per_block(
    depth: int,
    layer: str | Sequence[str],
    settings: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
) -> list[tuple[str, Mapping[str, Any]]]:
    """The name and the settings of the layer of each block."""
    names = [layer] * depth if isinstance(layer, str) else list(layer)
    is_shared = settings is None or isinstance(settings, Mapping)
    own = [settings or {}] * depth if is_shared else list(settings)  # type: ignore[arg-type]
    for what, found in (("layer", names), ("layer_settings", own)):
        if len(found) != depth:
            raise InvalidSettingError(
                f"`{what}` must have one entry for each of the {depth} blocks, got {len(found)}."
            )
    return list(zip(names, own, strict=True))  # type: ignore[arg-type]


def sinusoidal_positions(grid: Grid, dim: int) -> Tensor:
    """Sines and cosines of rows and columns, (1, N, dim); zeros for prefix tokens.

    Each of the four has a quarter of the channels; channels beyond a multiple of four are zero.

    >>> sinusoidal_positions(Grid(2, 2, n_prefix=1), 6)[0, :, :4].round(decimals=2)
    tensor([[0.0000, 0.0000, 0.0000, 0.0000],
            [0.0000, 1.0000, 0.0000, 1.0000],
            [0.0000, 1.0000, 0.8400, 0.5400],
            [0.8400, 0.5400, 0.0000, 1.0000],
            [0.8400, 0.5400, 0.8400, 0.5400]])
    """
    quarter = dim // 4
    waves = LONGEST_WAVE ** (-torch.arange(quarter, dtype=torch.float64) / max(quarter, 1))
    angles = patch_positions(grid).double()[:, :, None] * waves  # (N, 2, dim // 4)
    parts = [turn(angles[:, axis]) for axis in (0, 1) for turn in (torch.sin, torch.cos)]
    positions = torch.zeros(1, grid.n_tokens, dim)
    positions[0, grid.n_prefix :, : 4 * quarter] = torch.cat(parts, 1)
    return positions


def _times(sides: Sequence[int]) -> str:
    return " × ".join(map(str, sides))
