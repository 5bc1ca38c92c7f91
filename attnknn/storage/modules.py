"""Trained modules, built once their tensors are seen to fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from attnknn.errors import ModelFolderError
from attnknn.storage.fields import Fields

if TYPE_CHECKING:
    from torch import nn

    from attnknn.attention.scores import NeighborScores, Shape
    from attnknn.storage.files import ModelFolder

WHAT = "learned attention"
_Module = TypeVar("_Module", bound="nn.Module")


def state_of(module: nn.Module) -> dict[str, Any]:
    """What a module was trained to, for safetensors."""
    state = module.state_dict()
    return {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}


def module_from(stored: Fields, folder: ModelFolder, dim: int, n_classes: int) -> NeighborScores:
    """The module of scores with its stored weights."""
    from attnknn.attention.scores import NeighborScores

    shape = _shape(stored, dim, n_classes)
    tensors = folder.tensors("attention")
    check_sizes(folder, tensors, _sizes(shape), WHAT)
    if not ("unit" in tensors and tensors["unit"].ndim == 0 and tensors["unit"] > 0):
        raise folder.refuse("the tensor `unit` must be a positive number")
    return fill(NeighborScores(shape), tensors, folder, WHAT)


def fill(module: _Module, tensors: dict[str, Any], folder: ModelFolder, what: str) -> _Module:
    """The module with its stored weights."""
    try:
        module.load_state_dict(tensors)
    except RuntimeError as error:
        why = str(error).splitlines()[-1].strip()
        raise folder.refuse(f"the tensors of {what} do not fit ({why})") from error
    return module


def check_sizes(
    folder: ModelFolder,
    tensors: dict[str, Any],
    wanted: dict[str, tuple[int, ...]],
    what: str,
) -> None:
    """All that is large must be in the file already: a shape alone reserves no memory."""
    import torch

    for name, size in wanted.items():
        if name not in tensors or tuple(tensors[name].shape) != size:
            raise folder.refuse(f"the tensor `{name}` of {what} must be of size {size}")
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or not bool(torch.isfinite(tensor).all()):
            raise folder.refuse(f"the tensor `{name}` must hold finite float32 numbers")


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


def _sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    sizes: dict[str, tuple[int, ...]] = {
        "projection": (shape.n_heads, shape.head_dim, shape.dim),
    }
    if shape.prototypes:
        sizes["prototypes"] = (shape.n_classes, shape.dim)
    return sizes
