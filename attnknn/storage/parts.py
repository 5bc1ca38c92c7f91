"""Attentions, value heads and settings become plain values and arrays, and back."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from dataclasses import asdict
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn._escape import without_passwords
from attnknn._stored import Arrays, Fields, check_arrays, load_arrays, state_arrays
from attnknn.attention import Attention, DirectAttention
from attnknn.attention.base import Head
from attnknn.encoders import Encoder
from attnknn.encoders.image import ImageInference, ImageTraining
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.records import Integers
from attnknn.registry import Kind, registered
from attnknn.training.config import LossTerms, TrainConfig
from attnknn.value_head import ValueHead

if TYPE_CHECKING:
    from attnknn.value_head.network import ValueShape

RECORDS = (  # settings that have settings
    *("ImageInference", "ImageTraining", "LossTerms", "TableLayers", "TrainConfig", "Views"),
)
MAX_NUMBER = 1 << 63
ATTENTION_FILE = "attention.safetensors"
VALUE_HEAD = "a value head"


def part_to_plain(kind: Kind, part: Any) -> dict[str, Any]:
    """A part's registered name and settings; a class that is not registered is an error.

    >>> from attnknn.attention import UniformAttention
    >>> part_to_plain("attention", UniformAttention(0.1))
    {'name': 'uniform', 'params': {'prior_weight': 0.1}}
    """
    known = registered(kind)
    name = getattr(type(part), "registered_name", None)
    if known.get(str(name)) is not type(part):
        raise InvalidSettingError(
            f"A model folder holds no code, so `{kind}={type(part).__name__}(...)` cannot be "
            f"stored. Register the class by `attnknn.registry.register`; known: "
            f"{', '.join(known)}."
        )
    params: dict[str, Any] = part.get_params(deep=False)
    return {"name": name, "params": {key: to_plain(key, value) for key, value in params.items()}}


def part_from_plain(kind: Kind, stored: Any) -> Any:
    """The unfitted part that `part_to_plain` described."""
    if not isinstance(stored, dict) or set(stored) != {"name", "params"}:
        raise ModelFolderError(f"The stored {kind} must be a name with params, got {stored!r}.")
    name, params, known = stored["name"], stored["params"], registered(kind)
    if not isinstance(name, str) or name not in known:
        raise ModelFolderError(
            f"The stored {kind} must be one of {', '.join(known)}, got {name!r}. If another "
            "package provides it, install that package."
        )
    expected = set(inspect.signature(known[name]).parameters)
    if not isinstance(params, dict) or set(params) != expected:
        raise ModelFolderError(f"The stored settings of {name!r} must be {sorted(expected)}.")
    return known[name](**{key: from_plain(key, value) for key, value in params.items()})


def to_plain(name: str, value: Any) -> Any:
    """A setting as JSON can hold it; tuples become lists, paths strings, records dicts."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value).__name__ in RECORDS:
        settings = value.to_dict() if hasattr(value, "to_dict") else asdict(value)
        return {"class": type(value).__name__, **settings}
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, str):
        return without_passwords(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return value
    if isinstance(value, tuple | list):
        return [to_plain(name, item) for item in value]
    if isinstance(value, Head | Encoder):
        return part_to_plain("attention" if isinstance(value, Head) else "encoder", value)
    shown = type(value).__name__ if not isinstance(value, float) else repr(value)
    raise InvalidSettingError(
        f"`{name}` must be a number, a string or None to be stored in a model folder, got {shown}."
    )


def from_plain(name: str, value: Any) -> Any:
    """The setting that `to_plain` wrote."""
    if isinstance(value, dict):
        kind: Kind = "encoder" if name == "encoders" else "attention"  # of a union, or of a mixture
        is_part = set(value) == {"name", "params"}
        return part_from_plain(kind, value) if is_part else _record(name, value)
    if isinstance(value, list):
        return tuple(from_plain(name, item) for item in value)
    is_too_large = isinstance(value, int | float) and not abs(value) <= MAX_NUMBER
    if is_too_large or not (value is None or isinstance(value, bool | int | float | str)):
        raise ModelFolderError(f"The stored setting `{name}` cannot be {str(value)[:40]!r}.")
    return value


def _record(name: str, stored: dict[str, Any]) -> Any:
    """A setting that is a record: how to train, what for, the layers of a network, or views."""
    from attnknn.encoders.learned_table import TableLayers
    from attnknn.training.views import Views

    records: dict[str, Any] = {
        cls.__name__: cls
        for cls in (ImageInference, ImageTraining, LossTerms, TableLayers, TrainConfig, Views)
    }
    try:
        settings = {key: value for key, value in stored.items() if key != "class"}
        record = records[stored["class"]]
        return getattr(record, "from_dict", lambda given: record(**given))(settings)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ModelFolderError(f"The stored {name} cannot be read: {error!r}.") from error


def attention_to_plain(attention: Head) -> tuple[dict[str, Any], Arrays]:
    """Name, settings, scalars and fitted values of an attention, and its arrays."""
    fitted, arrays = attention.state()
    stored = {
        "part": part_to_plain("attention", attention),
        "temperature": float(attention.temperature_),
        "prior_score": float(attention.prior_score_),
        "has_tensors": bool(arrays),
        "fitted": fitted,
    }
    return stored, arrays


def attention_from_plain(
    stored: Fields, arrays: Arrays, dim: int, n_classes: int
) -> Attention | DirectAttention:
    """The fitted attention that `attention_to_plain` described."""
    attention: Attention | DirectAttention = part_from_plain("attention", stored.anything("part"))
    attention.temperature_ = stored.number("temperature", least=1e-300)
    attention.prior_score_ = stored.number("prior_score")
    try:
        attention.restore(stored.of("fitted").to_dict(), arrays, dim, n_classes)
    except ModelFolderError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFolderError(f"The stored attention cannot be read: {error!r}.") from error
    return attention


def without_prototypes(content: bytes, copies: Collection[bytes]) -> bytes:
    """The bytes of an attention's arrays with zeros for prototypes that are among `copies`."""
    from safetensors.numpy import load, save

    arrays = load(content)
    for name, array in arrays.items():
        if name.rpartition(".")[2] == "prototypes":  # of a head in a mixture, after its number
            is_copy = np.array([row.tobytes() in copies for row in array])
            arrays[name] = np.where(is_copy[:, None], np.zeros_like(array), array)
    return save(arrays)


def value_head_to_plain(head: ValueHead | None) -> tuple[dict[str, Any] | None, Arrays]:
    """Shape, temperature and classes of a value head, and its arrays."""
    if head is None:
        return None, {}
    stored = {
        "shape": asdict(head.net.shape),
        "temperature": float(head.temperature),
        "places": head.places.tolist(),
    }
    return stored, state_arrays(head.net)


def value_head_from_plain(stored: Fields, arrays: Arrays, dim: int, n_classes: int) -> ValueHead:
    """The value head that `value_head_to_plain` described."""
    import torch

    from attnknn.value_head.network import ValueNet, ValueShape

    places = _places(stored.anything("places"), n_classes)
    sizes = stored.of("shape")
    shape = ValueShape(
        dim=sizes.integer("dim", least=1),
        n_classes=sizes.integer("n_classes", least=2),
        width=sizes.integer("width", least=1),
        value_dim=sizes.integer("value_dim", least=1),
    )
    if (shape.dim, shape.n_classes) != (dim, int((places >= 0).sum())):
        raise ModelFolderError("The stored value head must fit the embeddings and the classes.")
    check_arrays(arrays, _array_shapes(shape), VALUE_HEAD)
    if not (arrays["spread"] > 0).all():
        raise ModelFolderError("The stored array `spread` must hold positive numbers.")
    net = load_arrays(ValueNet(shape, torch.Generator()), arrays, VALUE_HEAD)
    return ValueHead(net, stored.number("temperature", least=1e-6, most=1e6), places)


def _array_shapes(shape: ValueShape) -> dict[str, tuple[int, ...]]:
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
