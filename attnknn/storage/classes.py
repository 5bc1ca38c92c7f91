"""Remove classes without entries from the stored parts of a model."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from attnknn.attention import Attention, LearnedAttention
from attnknn.attention.k_ensemble import SeveralSizesAttention
from attnknn.records import Integers
from attnknn.registry import registered
from attnknn.storage.files import SETTINGS, Contents
from attnknn.storage.parts import ATTENTION_FILE

TRANSITION = "transition.npy"


def without_classes(parts: Mapping[str, bytes], gone: Collection[Any]) -> dict[str, bytes] | None:
    """The files that change if classes are removed; None if a fitted part needs them.

    The value head has one output for each class that it was trained with, and an attention of
    another package may have parameters of classes in any form.

    Parameters
    ----------
    parts : the files of the fitted parts, by name
    gone : the labels of the classes
    """
    settings = json.loads(parts[SETTINGS])
    labels = settings["classes"]["values"]
    kept = np.array([code for code, label in enumerate(labels) if label not in gone], dtype=int)
    if len(kept) == len(labels):
        return {}
    if not len(kept) or not _allows(settings, kept):
        return None
    changed = Contents(settings)
    values = [labels[code] for code in kept]
    is_text = isinstance(values[0], str)
    settings["classes"]["values"] = values
    settings["classes"]["dtype"] = (
        np.array(values).dtype.str if is_text else settings["classes"]["dtype"]
    )
    if settings["value_head"]:
        places = settings["value_head"]["places"]
        settings["value_head"]["places"] = [places[code] for code in kept]
    if TRANSITION in parts:
        transition = np.load(io.BytesIO(parts[TRANSITION]), allow_pickle=False)[np.ix_(kept, kept)]
        changed.arrays["transition"] = transition / transition.sum(axis=1, keepdims=True)
    attention, fitted = _scoring(settings["attention"])
    if attention is LearnedAttention:
        _drop_prototypes(fitted, parts, kept, changed)
    return {name: b"".join(map(bytes, blocks)) for name, blocks in changed.files()}


def _scoring(stored: dict[str, Any]) -> tuple[type[Any] | None, dict[str, Any]]:
    """The class of the attention that scores the neighbors, and what is stored of its fit."""
    part, fitted, known = stored["part"], stored["fitted"], registered("attention")
    attention = known.get(part["name"])
    if attention is None or not issubclass(attention, SeveralSizesAttention):
        return attention, fitted
    inner = part["params"]["attention"]
    return known.get(inner["name"] if isinstance(inner, dict) else inner), fitted["inner"]


def _allows(settings: dict[str, Any], kept: Integers) -> bool:
    attention, _ = _scoring(settings["attention"])
    has_no_classes = attention is not None and (
        attention.reorder_classes is Attention.reorder_classes  # it has nothing of classes to move
    )
    head = settings["value_head"]
    places = np.array(head["places"] if head else [])
    return (has_no_classes or attention is LearnedAttention) and bool(
        not head or (np.delete(places, kept) == -1).all()
    )


def _drop_prototypes(
    fitted: dict[str, Any], parts: Mapping[str, bytes], kept: Integers, changed: Contents
) -> None:
    from safetensors.numpy import load

    fitted["shape"]["n_classes"] = len(kept)
    arrays = load(parts[ATTENTION_FILE])
    if "prototypes" in arrays:
        arrays["prototypes"] = arrays["prototypes"][kept]
    changed.trained["attention"] = arrays
