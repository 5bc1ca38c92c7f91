"""Settings that are objects become plain values, and back; only classes on a list are made."""

from __future__ import annotations

import inspect
from pathlib import PurePath
from typing import Any

import numpy as np

from attnknn.attention import (
    AdaptiveAttention,
    DistanceAttention,
    KEnsembleAttention,
    LearnedAttention,
    PowerDistanceAttention,
    UniformAttention,
)
from attnknn.encoders.image import ImageTraining
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.registry import Kind, registered
from attnknn.training.config import TrainConfig

ATTENTIONS = (
    UniformAttention,
    DistanceAttention,
    PowerDistanceAttention,
    LearnedAttention,
    KEnsembleAttention,
    AdaptiveAttention,
)
RECORDS = ("ImageTraining", "TableLayers", "TrainConfig", "Views")  # settings that have settings
LARGEST_NUMBER = 1 << 63


def storable(kind: Kind) -> dict[str, type[Any]]:
    """The classes of a kind that model folders can hold, by class name."""
    classes = ATTENTIONS if kind == "attention" else registered(kind).values()
    return {cls.__name__: cls for cls in classes}


def part_to_plain(kind: Kind, part: Any) -> dict[str, Any]:
    """A part's class and settings, or an error for code of the user's own.

    >>> part_to_plain("attention", UniformAttention(0.1))
    {'class': 'UniformAttention', 'params': {'prior_weight': 0.1}}
    """
    name = type(part).__name__
    known = storable(kind)
    if known.get(name) is not type(part):
        raise InvalidSettingError(
            f"A model folder holds no code, so `{kind}={name}(...)` cannot be stored. "
            f"Known: {', '.join(known)}."
        )
    params: dict[str, Any] = part.get_params(deep=False)
    return {"class": name, "params": {key: to_plain(key, value) for key, value in params.items()}}


def part_from_plain(kind: Kind, stored: Any) -> Any:
    """The unfitted part that `part_to_plain` described."""
    if not isinstance(stored, dict) or set(stored) != {"class", "params"}:
        raise ModelFolderError(f"The stored {kind} must be a class with params, got {stored!r}.")
    name, params, classes = stored["class"], stored["params"], storable(kind)
    if not isinstance(name, str) or name not in classes:
        raise ModelFolderError(
            f"The stored {kind} must be one of {', '.join(classes)}, got {name!r}."
        )
    cls = classes[name]
    known = set(inspect.signature(cls).parameters)
    if not isinstance(params, dict) or set(params) != known:
        raise ModelFolderError(f"The stored settings of {name} must be {sorted(known)}.")
    return cls(**{key: from_plain(key, value) for key, value in params.items()})


def to_plain(name: str, value: Any) -> Any:
    """A setting as JSON can hold it; tuples become lists, paths texts, trainings dicts."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value).__name__ in RECORDS:
        return {"class": type(value).__name__, **value.to_dict()}
    if isinstance(value, PurePath):
        return str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float) and np.isfinite(value):
        return value
    if isinstance(value, tuple):
        return [to_plain(name, item) for item in value]
    shown = type(value).__name__ if not isinstance(value, float) else repr(value)
    raise InvalidSettingError(
        f"`{name}` must be a number, a text or None to be stored in a model folder, got {shown}."
    )


def from_plain(name: str, value: Any) -> Any:
    """The setting that `to_plain` wrote."""
    if isinstance(value, dict):
        return _record(name, value)
    if isinstance(value, list):
        return tuple(from_plain(name, item) for item in value)
    is_wild = isinstance(value, int | float) and not abs(value) <= LARGEST_NUMBER
    if is_wild or not (value is None or isinstance(value, bool | int | float | str)):
        raise ModelFolderError(f"The stored setting `{name}` cannot be {str(value)[:40]!r}.")
    return value


def _record(name: str, stored: dict[str, Any]) -> Any:
    """A setting that is a record: how to train, the layers of a network, or views."""
    from attnknn.encoders.learned_table import TableLayers
    from attnknn.training.views import Views

    records: dict[str, Any] = {c.__name__: c for c in (ImageTraining, TableLayers, Views)}
    records["TrainConfig"] = TrainConfig
    try:
        settings = {key: value for key, value in stored.items() if key != "class"}
        return records[stored["class"]].from_dict(settings)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise ModelFolderError(f"The stored {name} cannot be read: {error!r}.") from error
