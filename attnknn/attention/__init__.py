"""Neighbors become weights: uniform, by distance, or learned."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from sklearn.base import clone

from attnknn.attention.base import Attention, NeighborBatch, Scores, Weights
from attnknn.attention.distance import DistanceAttention, PowerDistanceAttention, UniformAttention
from attnknn.attention.learned import LearnedAttention
from attnknn.attention.several import (
    AdaptiveAttention,
    KEnsembleAttention,
    SeveralSizesAttention,
)
from attnknn.errors import InvalidSettingError, unknown_name

__all__ = [
    "ATTENTIONS",
    "AdaptiveAttention",
    "Attention",
    "DistanceAttention",
    "KEnsembleAttention",
    "LearnedAttention",
    "NeighborBatch",
    "PowerDistanceAttention",
    "Scores",
    "SeveralSizesAttention",
    "UniformAttention",
    "Weights",
    "make_attention",
]

ATTENTIONS: dict[str, Callable[[], Attention]] = {
    "uniform": UniformAttention,
    "distance": DistanceAttention,
    "power": PowerDistanceAttention,
    "learned": LearnedAttention,
    "k-ensemble": KEnsembleAttention,
    "adaptive": AdaptiveAttention,
}


def make_attention(attention: str | Attention) -> Attention:
    """A fresh attention for a short name, or a clone of the one given.

    >>> make_attention("distance")
    DistanceAttention()
    """
    if isinstance(attention, Attention):
        return cast(Attention, clone(attention))
    if not isinstance(attention, str):
        raise InvalidSettingError(
            f"`attention` must be a short name or an `Attention`, got {type(attention).__name__}."
        )
    if attention not in ATTENTIONS:
        raise unknown_name("attention", attention, [*ATTENTIONS, "auto"])
    return ATTENTIONS[attention]()
