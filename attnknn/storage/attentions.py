"""Fitted attention becomes plain values and tensors, and back."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import numpy as np

from attnknn.attention import (
    AdaptiveAttention,
    Attention,
    DistanceAttention,
    KEnsembleAttention,
    LearnedAttention,
    PowerDistanceAttention,
    SeveralSizesAttention,
)
from attnknn.errors import ModelFolderError
from attnknn.storage.fields import Fields
from attnknn.storage.files import ModelFolder
from attnknn.storage.modules import module_from, state_of
from attnknn.storage.plain import part_from_plain, part_to_plain

FILE = "attention.safetensors"
MIXING = ("weights", "threshold", "model")  # fitted by attention over several sizes


def pack_attention(attention: Attention) -> dict[str, Any]:
    """Class, settings and fitted scalars; the tensors go into a file of their own."""
    stored: dict[str, Any] = {
        "part": part_to_plain("attention", attention),
        "temperature": float(attention.temperature_),
        "prior_score": float(attention.prior_score_),
    }
    if isinstance(attention, PowerDistanceAttention):
        stored["power"] = float(attention.power_)
    if isinstance(attention, LearnedAttention):
        stored["first_look"] = pack_attention(attention.first_look_)
        stored["shape"] = asdict(attention.module_.shape)
    if isinstance(attention, SeveralSizesAttention):
        stored["sizes"] = [int(size) for size in attention.sizes_]
        fitted = {name: getattr(attention, f"{name}_", None) for name in MIXING}
        stored["mixing"] = {
            name: np.asarray(value).tolist() for name, value in fitted.items() if value is not None
        }
    return stored


def tensors_of(attention: Attention) -> dict[str, Any]:
    """What learned attention was trained to, for safetensors."""
    if not isinstance(attention, LearnedAttention):
        return {}
    return state_of(attention.module_)


def without_prototypes(content: bytes, copies: Collection[bytes]) -> bytes:
    """A file of such tensors with zeros for the prototypes whose bytes are among `copies`."""
    from safetensors.torch import load, save

    from attnknn.attention.scores import cleared_of_copies

    tensors = load(content)
    if "prototypes" in tensors:
        tensors["prototypes"] = cleared_of_copies(tensors["prototypes"], copies)
    return save(tensors)


def unpack_attention(folder: ModelFolder, stored: Fields, dim: int, n_classes: int) -> Attention:
    """The fitted attention that `pack_attention` described."""
    attention: Attention = part_from_plain("attention", stored.anything("part"))
    attention.temperature_ = stored.number("temperature", least=1e-300)
    attention.prior_score_ = stored.number("prior_score")
    if isinstance(attention, PowerDistanceAttention):
        attention.power_ = stored.number("power", least=1e-3)
    if isinstance(attention, LearnedAttention):
        first_look = unpack_attention(folder, stored.of("first_look"), dim, n_classes)
        if type(first_look) is not DistanceAttention:
            raise ModelFolderError("The stored first look must be distance attention.")
        attention.first_look_ = first_look
        attention.module_ = module_from(stored.of("shape"), folder, dim, n_classes)
    if isinstance(attention, SeveralSizesAttention):
        attention.sizes_ = _sizes(stored.anything("sizes"))
        _unpack_mixing(attention, stored.of("mixing"))
    return attention


def _sizes(stored: Any) -> tuple[int, ...]:
    are_sizes = isinstance(stored, list) and all(type(s) is int and s > 0 for s in stored)
    if not are_sizes or not 0 < len(stored) < 1000 or stored != sorted(set(stored)):
        raise ModelFolderError("The stored `sizes` must be integers that rise.")
    return tuple(stored)


def _unpack_mixing(attention: SeveralSizesAttention, stored: Fields) -> None:
    """What the sizes are mixed by; one kind of attention has weights, the other a rule."""
    n_sizes = len(attention.sizes_)
    if isinstance(attention, KEnsembleAttention):
        attention.weights_ = stored.array("weights", (n_sizes,))
        if (attention.weights_ < 0).any() or abs(attention.weights_.sum() - 1) > 1e-6:
            raise ModelFolderError("The stored weights of the sizes must sum to one.")
    elif isinstance(attention, AdaptiveAttention):
        if "threshold" in stored:
            attention.threshold_ = stored.number("threshold", least=0.0)
        if "model" in stored:
            attention.model_ = stored.array("model", (1 + 2 * n_sizes, n_sizes))
