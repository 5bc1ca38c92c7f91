"""A value head becomes plain values and tensors, and back."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn.errors import ModelFolderError
from attnknn.records import Integers
from attnknn.storage.fields import Fields
from attnknn.storage.files import ModelFolder
from attnknn.storage.modules import check_sizes, fill, state_of
from attnknn.value_head import ValueHead

if TYPE_CHECKING:
    from attnknn.value_head.network import ValueShape

WHAT = "a value head"


def pack_head(head: ValueHead | None) -> dict[str, Any] | None:
    """Shape, temperature and classes; the tensors go into a file of their own."""
    if head is None:
        return None
    return {
        "shape": asdict(head.net.shape),
        "temperature": float(head.temperature),
        "places": head.places.tolist(),
    }


def head_tensors(head: ValueHead | None) -> dict[str, Any]:
    """What the head was trained to, for safetensors."""
    return {} if head is None else state_of(head.net)


def unpack_head(folder: ModelFolder, stored: Fields, dim: int, n_classes: int) -> ValueHead:
    """The head that `pack_head` described."""
    import torch

    from attnknn.value_head.network import ValueNet

    places = _places(stored.anything("places"), n_classes)
    shape = _shape(stored.of("shape"))
    if (shape.dim, shape.n_classes) != (dim, int((places >= 0).sum())):
        raise ModelFolderError("The stored value head must fit the embeddings and the classes.")
    tensors = folder.tensors("value_head")
    check_sizes(folder, tensors, _sizes(shape), WHAT)
    if not bool((tensors["spread"] > 0).all()):
        raise folder.refuse("the tensor `spread` must hold positive numbers")
    net = fill(ValueNet(shape, torch.Generator()), tensors, folder, WHAT)
    return ValueHead(net, stored.number("temperature", least=1e-6, most=1e6), places)


def _shape(stored: Fields) -> ValueShape:
    from attnknn.value_head.network import ValueShape

    return ValueShape(
        dim=stored.integer("dim", least=1),
        n_classes=stored.integer("n_classes", least=2),
        width=stored.integer("width", least=1),
        value_dim=stored.integer("value_dim", least=1),
    )


def _sizes(shape: ValueShape) -> dict[str, tuple[int, ...]]:
    """Of all tensors that are large, so that a shape alone reserves no memory."""
    return {
        "center": (shape.dim,),
        "spread": (shape.dim,),
        "query.weight": (shape.width, shape.dim),
        "label_values.weight": (shape.width, shape.n_classes),
        "compare.weight": (shape.value_dim, shape.dim),
        "difference_values.weight": (shape.width, shape.value_dim),
        "up.weight": (2 * shape.width, shape.width),
    }


def _places(stored: Any, n_classes: int) -> Integers:
    are_places = isinstance(stored, list) and all(type(place) is int for place in stored)
    known = sorted(place for place in stored if place != -1) if are_places else None
    if known is None or len(stored) != n_classes or known != list(range(len(known))):
        raise ModelFolderError("The stored `places` must give every class one place, or -1.")
    return np.array(stored, dtype=np.int64)
