"""Convolutions of 3 × 3 by few multiplications: products of polynomials at a few points.

A row of m outputs of a filter with three taps needs n = m + 2 inputs. Outputs are coefficients of
a product of polynomials, and such a product is known from its values at n points, where it costs n
multiplications instead of 3m (Winograd 1980; Lavin and Gray 2016, section 4). Along one axis

    outputs (m) = Aᵀ [ (G filter) ⊙ (Bᵀ inputs) ]

and along two axes every matrix works on rows and on columns. At each of the n × n points, the sum
over channels is a product of matrices, over the tiles of many images at once. That is where the
time goes, so the gradients are computed at the points as well, by the transposed matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from attnknn.training.threads import in_shares

# Finite points by the outputs of a tile; infinity is the last point of each. Chosen among small
# fractions for the least rounding: of the outputs about 1e-6 with 4, 2e-5 with 7.
POINTS = {
    3: (0, 3 / 4, -3 / 4, 2),
    4: (0, 3 / 4, -3 / 4, 3 / 2, -3 / 2),
    5: (0, 1 / 2, -1 / 2, 1, -1, 3),
    6: (0, 1 / 2, -1 / 2, 1, -1, 2, -2),
    7: (0, 3 / 4, -3 / 4, 5 / 4, -5 / 4, 2, -2, 1 / 4),
}
BYTES_AT_ONCE = 8 << 20  # of values at the points, for each thread: they should stay in cache


def convolve(images: Tensor, weight: Tensor) -> Tensor:
    """As `F.conv2d(images, weight, padding=1)`, up to rounding.

    >>> images, weight = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3)
    >>> convolve(images, weight)[0, 0, 0].round(decimals=3)
    tensor([4., 6., 6., 4.])
    """
    return _Convolution.apply(images, weight)


@dataclass(frozen=True)
class Matrices:
    """What leads to the points and back along one axis, for tiles of m outputs."""

    inputs: Tensor  # Bᵀ (n, n), or (n, m) without a margin
    filters: Tensor  # G (n, 3)
    outputs: Tensor  # Aᵀ (m, n)


@lru_cache(maxsize=32)
def matrices(tile: int, has_margin: bool, dtype: torch.dtype) -> Matrices:
    """The three matrices for tiles of so many outputs, from the points.

    Without a margin, the first and the last input of the tile are zeros that nobody stores.
    """
    points = np.array(POINTS[tile])
    n = tile + 2
    inputs, filters, outputs = np.zeros((n, n)), np.zeros((n, 3)), np.zeros((tile, n))
    for place, point in enumerate(points):
        others = np.delete(points, place)
        inputs[place, :-1] = np.poly(others)[::-1]  # the polynomial with these zeros
        filters[place] = point ** np.arange(3) / np.prod(point - others)
    inputs[-1] = np.poly(points)[::-1]
    outputs[:, :-1] = points ** np.arange(tile)[:, None]
    filters[-1, -1] = outputs[-1, -1] = 1  # infinity: the highest coefficient
    if not has_margin:
        inputs = inputs[:, 1:-1]
    return Matrices(*(torch.from_numpy(m.copy()).to(dtype) for m in (inputs, filters, outputs)))


@dataclass(frozen=True)
class Axis:
    """One side of the images, cut into tiles.

    Each tile sees `reach` inputs of a canvas: the image with a margin of zeros before and after.
    A single tile needs no margin: its matrix leaves out the columns that would meet zeros.
    """

    size: int
    tile: int

    @property
    def n_tiles(self) -> int:
        return -(-self.size // self.tile)

    @property
    def n_points(self) -> int:
        return self.tile + 2

    @property
    def tiled(self) -> int:
        return self.n_tiles * self.tile

    @property
    def margin(self) -> int:
        return 1 if self.n_tiles > 1 else 0

    @property
    def reach(self) -> int:
        return self.tile + 2 * self.margin

    @property
    def canvas(self) -> int:
        return self.tiled + 2 * self.margin

    @property
    def inner(self) -> slice:
        """Where the image stands in its canvas."""
        return slice(self.margin, self.margin + self.size)

    def matrices(self, dtype: torch.dtype) -> Matrices:
        return matrices(self.tile, bool(self.margin), dtype)


def axis_of(size: int) -> Axis:
    """The side cut into the tiles that need the fewest multiplications."""
    return min((Axis(size, tile) for tile in POINTS), key=lambda axis: axis.n_tiles * axis.n_points)


class Plane:
    """Both sides of the images, with the ways between images (b, H, W, C) and points.

    Blocks are laid out (place in the tile, tile, channel): each way is a product with small
    matrices from the left, and at each of the P points all tiles stand side by side.
    """

    def __init__(self, height: int, width: int, dtype: torch.dtype) -> None:
        self.high, self.wide = axis_of(height), axis_of(width)
        self.on_high, self.on_wide = self.high.matrices(dtype), self.wide.matrices(dtype)
        self.n_points = self.high.n_points * self.wide.n_points
        self.n_tiles = self.high.n_tiles * self.wide.n_tiles
        self.dtype = dtype

    def part_size(self, n_images: int, n_channels: int) -> int:
        """How many images at once: their values at all points should stay in the cache."""
        n_bytes = self.n_points * self.n_tiles * n_channels * self.dtype.itemsize
        n_parts = -(-n_images // max(BYTES_AT_ONCE // n_bytes, 1))
        return -(-n_images // n_parts)

    def canvas(self, n_images: int, n_channels: int) -> Tensor | None:
        """Zeros, with room for images within; None if tiles see just the images."""
        return self._room(n_images, self.high.canvas, self.wide.canvas, n_channels)

    def whole_tiles(self, n_images: int, n_channels: int) -> Tensor | None:
        """Zeros, with room for images that are no whole tiles; None if they are."""
        return self._room(n_images, self.high.tiled, self.wide.tiled, n_channels)

    def _room(self, n_images: int, height: int, width: int, n_channels: int) -> Tensor | None:
        if (height, width) == (self.high.size, self.wide.size):
            return None
        return torch.zeros(n_images, height, width, n_channels, dtype=self.dtype)

    def filters_at_points(self, weight: Tensor) -> Tensor:
        """(n_out, n_in, 3, 3) gives (P, n_out, n_in)."""
        blocks = weight.permute(2, 3, 0, 1)
        values = _on_both(self.on_high.filters, self.on_wide.filters, blocks)
        return values.view(self.n_points, *weight.shape[:2])

    def filters_from_points(self, values: Tensor) -> Tensor:
        """The adjoint of `filters_at_points`."""
        blocks = _on_both(self.on_high.filters.T, self.on_wide.filters.T, values)
        return blocks.view(3, 3, *values.shape[1:]).permute(2, 3, 0, 1)

    def inputs_at_points(self, images: Tensor, canvas: Tensor | None) -> Tensor:
        """(b, H, W, C) gives (P, b · tiles, C)."""
        if canvas is not None:
            canvas = canvas[: len(images)]
            canvas[:, self.high.inner, self.wide.inner] = images
        windows = self._windows(images if canvas is None else canvas)
        values = _on_both(self.on_high.inputs, self.on_wide.inputs, windows)
        return values.view(self.n_points, -1, images.shape[3])

    def inputs_from_points(self, values: Tensor, images: Tensor, canvas: Tensor | None) -> None:
        """The adjoint of `inputs_at_points`, into `images`; what several tiles saw adds up."""
        high, wide = self.high, self.wide
        seen = images if canvas is None else canvas[: len(images)]
        windows = self._windows(seen)
        blocks = _on_both(self.on_high.inputs.T, self.on_wide.inputs.T, values).view(windows.shape)
        seen[:, high.tiled :] = 0
        seen[:, :, wide.tiled :] = 0
        windows[: high.tile, : wide.tile] = blocks[: high.tile, : wide.tile]
        windows[: high.tile, wide.tile :] += blocks[: high.tile, wide.tile :]
        windows[high.tile :, : wide.tile] += blocks[high.tile :, : wide.tile]
        windows[high.tile :, wide.tile :] += blocks[high.tile :, wide.tile :]
        if canvas is not None:
            images.copy_(seen[:, high.inner, wide.inner])

    def outputs_from_points(self, values: Tensor, images: Tensor, whole: Tensor | None) -> None:
        """(P, b · tiles, C) gives images (b, H, W, C), which are written."""
        blocks = _on_both(self.on_high.outputs, self.on_wide.outputs, values)
        tiles = self._tiles(images if whole is None else whole[: len(images)])
        tiles.copy_(blocks.view(tiles.shape))
        if whole is not None:
            images.copy_(whole[: len(images), : self.high.size, : self.wide.size])

    def outputs_at_points(self, images: Tensor, whole: Tensor | None) -> Tensor:
        """The adjoint of `outputs_from_points`."""
        if whole is not None:
            whole = whole[: len(images)]
            whole[:, : self.high.size, : self.wide.size] = images
        tiles = self._tiles(images if whole is None else whole)
        values = _on_both(self.on_high.outputs.T, self.on_wide.outputs.T, tiles)
        return values.view(self.n_points, -1, images.shape[3])

    def _windows(self, canvas: Tensor) -> Tensor:
        """What each tile sees: (reach, reach, b, tiles, tiles, C); neighbors overlap."""
        image, row, column, channel = canvas.stride()
        high, wide = self.high, self.wide
        return canvas.as_strided(
            (high.reach, wide.reach, len(canvas), high.n_tiles, wide.n_tiles, canvas.shape[3]),
            (row, column, image, high.tile * row, wide.tile * column, channel),
        )

    def _tiles(self, whole: Tensor) -> Tensor:
        """(tile, tile, b, tiles, tiles, C)."""
        cut = whole.unflatten(2, (self.wide.n_tiles, -1)).unflatten(1, (self.high.n_tiles, -1))
        return cut.permute(2, 4, 0, 1, 3, 5)


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, weight: Tensor) -> Tensor:
        plane = Plane(images.shape[2], images.shape[3], images.dtype)
        filters = plane.filters_at_points(weight)  # (P, n_out, n_in)
        outputs = _empty(images, len(weight))
        work = partial(_forward, plane, filters)
        in_shares(work, images.permute(0, 2, 3, 1), outputs.permute(0, 2, 3, 1))
        ctx.save_for_backward(images, filters)
        ctx.plane = plane
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor | None, Tensor | None]:
        images, filters = ctx.saved_tensors
        of_images = _empty(images, images.shape[1])
        work = partial(_backward, ctx.plane, filters, *ctx.needs_input_grad)
        tensors = (tensor.permute(0, 2, 3, 1) for tensor in (images, slopes, of_images))
        first, *others = in_shares(work, *tensors)
        if not ctx.needs_input_grad[1]:
            return of_images, None
        of_weight = ctx.plane.filters_from_points(sum(others, first))
        return of_images if ctx.needs_input_grad[0] else None, of_weight


def _forward(plane: Plane, filters: Tensor, images: Tensor, outputs: Tensor) -> None:
    """Writes outputs (b, H, W, n_out)."""
    _, n_out, n_in = filters.shape
    size = plane.part_size(len(images), n_in + n_out)
    canvas, whole = plane.canvas(size, n_in), plane.whole_tiles(size, n_out)
    for shown, given in zip(images.split(size), outputs.split(size), strict=True):
        values = torch.bmm(plane.inputs_at_points(shown, canvas), filters.mT)
        plane.outputs_from_points(values, given, whole)


def _backward(
    plane: Plane,
    filters: Tensor,
    wants_images: bool,
    wants_weight: bool,
    images: Tensor,
    slopes: Tensor,
    of_images: Tensor,
) -> Tensor:
    """Writes the gradient of the images and returns that of the filters at the points."""
    _, n_out, n_in = filters.shape
    size = plane.part_size(len(images), n_in + n_out)
    canvas, whole = plane.canvas(size, n_in), plane.whole_tiles(size, n_out)
    back, of_filters = plane.canvas(size, n_in), torch.zeros_like(filters)
    parts = (images.split(size), slopes.split(size), of_images.split(size))
    for shown, slope, given in zip(*parts, strict=True):
        values = plane.outputs_at_points(slope, whole)  # (P, b · tiles, n_out)
        if wants_weight:
            of_filters.baddbmm_(values.mT, plane.inputs_at_points(shown, canvas))
        if wants_images:
            plane.inputs_from_points(torch.bmm(values, filters), given, back)
    return of_filters


def _on_both(rows: Tensor, columns: Tensor, blocks: Tensor) -> Tensor:
    """Matrices (p, r) and (q, s) applied to both axes of blocks (r, s, ...): (p, q, M)."""
    half = torch.mm(rows, blocks.reshape(rows.shape[1], -1))
    return torch.bmm(columns.expand(len(rows), -1, -1), half.view(len(rows), columns.shape[1], -1))


def _empty(like: Tensor, n_channels: int) -> Tensor:
    shape = (len(like), n_channels, *like.shape[2:])
    return torch.empty(shape, dtype=like.dtype, memory_format=torch.channels_last)
