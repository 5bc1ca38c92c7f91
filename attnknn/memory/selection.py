"""The largest numbers of each row, found through the maxima of groups of columns."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnknn.records import Integers

if TYPE_CHECKING:
    from torch import Tensor

SMALL = 1 << 18  # numbers up to which one thread is faster than several
WIDEST_GROUP = 128  # a row that is to be searched by groups has a multiple of this many columns


def largest(values: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """The `m` largest values (B, m) of each row and their columns, in no particular order.

    The `m` groups with the largest maxima must contain the `m` largest values: a group that is
    left out has `m` numbers above all of its own. So only those groups are looked into.

    >>> import torch
    >>> top, columns = largest(torch.arange(1024.0)[None], 2)
    >>> sorted(columns[0].tolist())
    [1022, 1023]
    """
    size = group_size(values.shape[1], m)
    if values.numel() <= SMALL and values.device.type == "cpu":
        return _largest_in_numpy(values, m, size)
    if size == 1:
        top, columns = values.topk(m, sorted=False)
        return top, columns
    groups = values.view(len(values), -1, size)
    chosen = groups.amax(dim=2).topk(m, sorted=False).indices  # (B, m)
    inside = _rows_of(groups, chosen)  # (B, m · size)
    top, places = inside.topk(m, sorted=False)
    return top, chosen.gather(1, places // size) * size + places % size


def _largest_in_numpy(values: Tensor, m: int, size: int) -> tuple[Tensor, Tensor]:
    """The same on one thread: OpenMP would take longer to start than the work takes."""
    import torch

    groups = values.numpy().reshape(len(values), -1, size)
    chosen = _partition(groups.max(axis=2), m)
    inside = np.take_along_axis(groups, chosen[:, :, None], axis=1).reshape(len(values), -1)
    places = _partition(inside, m)
    columns = np.take_along_axis(chosen, places // size, axis=1) * size + places % size
    top = np.take_along_axis(inside, places, axis=1)
    return torch.from_numpy(top), torch.from_numpy(columns)


def _partition(values: NDArray[np.float32], m: int) -> Integers:
    m = min(m, values.shape[1])
    return np.argpartition(values, values.shape[1] - m, axis=1)[:, values.shape[1] - m :]


def group_size(width: int, m: int) -> int:
    """The size that makes the two selections cost about the same; 1 where groups do not pay."""
    size = 1 << round(math.log2(max(1.0, math.sqrt(width / m))))
    return 1 if size < 8 or width % WIDEST_GROUP else min(size, WIDEST_GROUP)


def padded(width: int) -> int:
    """`width` rounded up to whole groups."""
    return -(-width // WIDEST_GROUP) * WIDEST_GROUP


def _rows_of(groups: Tensor, chosen: Tensor) -> Tensor:
    """The numbers of the chosen groups side by side; one flat look-up copies whole groups."""
    n_rows, n_groups, size = groups.shape
    first = chosen.new_tensor(range(n_rows))[:, None] * n_groups
    return groups.reshape(-1, size).index_select(0, (chosen + first).view(-1)).view(n_rows, -1)
