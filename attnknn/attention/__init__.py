"""Attentions turn the neighbors of a query into weights of a vote.

`DistanceAttention` weighs by a fitted Gaussian kernel and needs no training;
`PowerDistanceAttention` also fits the shape of the kernel, and `ClassScoreAttention` counts the
scores of a query where embeddings are class scores. `LearnedAttention` trains projections
and score terms so that the vote predicts the labels. `UniformAttention` is the classical vote.
`KEnsembleAttention` and `AdaptiveAttention` combine several numbers of neighbors.
`ForestAttention` lets the entries vote that share a leaf with the query in the trees of a forest,
`ProjectionAttention` those that are nearest in the space of a linear classifier's scores,
`BoostingAttention` those that are nearest in the space of boosted trees' scores, `MLPAttention`
in that of neural networks' scores, and `MixtureAttention` several attentions together.
`HierarchicalAttention` weighs clusters or classes first, then the entries within the nearest ones.
`MetaLearnedAttention` was trained over many small tasks, for new ones.
`BlockAttention` lets another attention see one block of a joined embedding.
A class of your own derives from `Attention`, or from `DirectAttention` if it finds its voters
itself, and is registered by `attnknn.registry.register`.
"""

from __future__ import annotations

from typing import cast

from sklearn.base import clone

from attnknn.attention.base import Attention, Head, NeighborBatch, Scores
from attnknn.attention.block import BlockAttention
from attnknn.attention.boosting import BoostingAttention
from attnknn.attention.class_scores import ClassScoreAttention
from attnknn.attention.direct import DirectAttention
from attnknn.attention.distance import DistanceAttention, PowerDistanceAttention, UniformAttention
from attnknn.attention.forest import ForestAttention
from attnknn.attention.hierarchical import HierarchicalAttention
from attnknn.attention.k_ensemble import AdaptiveAttention, KEnsembleAttention
from attnknn.attention.learned import LearnedAttention
from attnknn.attention.meta_learned import MetaLearnedAttention
from attnknn.attention.mixture import MixtureAttention
from attnknn.attention.mlp import MLPAttention
from attnknn.attention.projection import ProjectionAttention
from attnknn.errors import InvalidSettingError
from attnknn.records import Weights
from attnknn.registry import find

__all__ = [
    "AdaptiveAttention",
    "Attention",
    "BlockAttention",
    "BoostingAttention",
    "ClassScoreAttention",
    "DirectAttention",
    "DistanceAttention",
    "ForestAttention",
    "HierarchicalAttention",
    "KEnsembleAttention",
    "LearnedAttention",
    "MLPAttention",
    "MetaLearnedAttention",
    "MixtureAttention",
    "NeighborBatch",
    "PowerDistanceAttention",
    "ProjectionAttention",
    "Scores",
    "UniformAttention",
    "Weights",
    "make_attention",
]


def make_attention(attention: str | Head) -> Attention | DirectAttention:
    """Create an unfitted attention from its name, or clone the one given.

    Parameters
    ----------
    attention : str, Attention or DirectAttention
        A registered name such as "distance" or "forest", or an attention.

    Returns
    -------
    Attention or DirectAttention
        The unfitted attention.

    Raises
    ------
    InvalidSettingError
        If no attention is registered under the name.

    Examples
    --------
    >>> make_attention("distance")
    DistanceAttention()
    """
    if isinstance(attention, Head):
        return cast("Attention | DirectAttention", clone(attention))
    if not isinstance(attention, str):
        raise InvalidSettingError(
            f"`attention` must be a short name or an `Attention`, got {type(attention).__name__}."
        )
    return cast("Attention | DirectAttention", find("attention", attention, "auto")())
