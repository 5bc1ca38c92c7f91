"""The trained module of learned attention, built once its tensors are seen to fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnknn.errors import ModelFolderError
from attnknn.storage.fields import Fields

if TYPE_CHECKING:
    from attnknn.attention.scores import NeighborScores, Shape
    from attnknn.storage.reading import ModelFolder


def module_from(stored: Fields, folder: ModelFolder, dim: int, n_classes: int) -> NeighborScores:
    """The module of scores with its stored weights."""
    from attnknn.attention.scores import NeighborScores

    shape = _shape(stored, dim, n_classes)
    tensors = folder.tensors()
    _check_sizes(folder, tensors, shape)
    module = NeighborScores(shape)
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        why = str(error).splitlines()[-1].strip()
        raise folder.refuse(f"the tensors of learned attention do not fit ({why})") from error
    return module


def _shape(stored: Fields, dim: int, n_classes: int) -> Shape:
    from attnknn.attention.scores import Shape

    bounds = stored.anything("temperature_bounds")
    are_numbers = isinstance(bounds, list) and all(type(bound) is float for bound in bounds)
    if not are_numbers or len(bounds) != 2 or not 0 < bounds[0] < bounds[1] < 1e300:
        raise ModelFolderError("The stored `temperature_bounds` must be two rising numbers.")
    shape = Shape(
        dim=stored.integer("dim", least=1),
        n_classes=stored.integer("n_classes", least=1),
        n_heads=stored.integer("n_heads", least=1),
        head_dim=stored.integer("head_dim", least=1),
        temperature_bounds=(bounds[0], bounds[1]),
        distance_bias=stored.flag("distance_bias"),
        support=stored.flag("support"),
        trust=stored.flag("trust"),
        prototypes=stored.flag("prototypes"),
        self_attention=stored.flag("self_attention"),
        query_prior=stored.flag("query_prior"),
    )
    if (shape.dim, shape.n_classes) != (dim, n_classes):
        raise ModelFolderError("The stored attention must fit the embeddings and the classes.")
    return shape


def _check_sizes(folder: ModelFolder, tensors: dict[str, Any], shape: Shape) -> None:
    """All that is large must be in the file already: a shape alone reserves no memory."""
    import torch

    wanted = {"projection": (shape.n_heads, shape.head_dim, shape.dim)}
    if shape.prototypes:
        wanted["prototypes"] = (shape.n_classes, shape.dim)  # type: ignore[assignment]
    for name, size in wanted.items():
        if name not in tensors or tuple(tensors[name].shape) != size:
            raise folder.refuse(f"the tensor `{name}` of learned attention must be of size {size}")
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or not bool(torch.isfinite(tensor).all()):
            raise folder.refuse(f"the tensor `{name}` must hold finite float32 numbers")
    if not ("unit" in tensors and tensors["unit"].ndim == 0 and tensors["unit"] > 0):
        raise folder.refuse("the tensor `unit` must be a positive number")
