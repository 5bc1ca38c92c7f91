"""A classifier that shows its evidence, can be edited, and has calibrated probabilities.

`AttnKNNClassifier` predicts by an attention-weighted vote of the nearest remembered examples;
`open_for_editing` edits a stored model durably. `audit`, `what_if` and `DriftMonitor` inspect a
fitted classifier. Encoders, memories and attentions are the parts it is made of.
`attnknn.vit` has nearest-neighbor attention layers for Vision Transformers.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnknn.attention import (
        AdaptiveAttention,
        BlockAttention,
        BoostingAttention,
        ClassScoreAttention,
        DistanceAttention,
        ForestAttention,
        HierarchicalAttention,
        KEnsembleAttention,
        LearnedAttention,
        MetaLearnedAttention,
        MixtureAttention,
        MLPAttention,
        PowerDistanceAttention,
        ProjectionAttention,
        UniformAttention,
    )
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.conformal import Decisions, PredictionSets
    from attnknn.encoders import (
        IdentityEncoder,
        ImageEncoder,
        LearnedTableEncoder,
        NgramEncoder,
        ScaledEncoder,
        SvdEncoder,
        TableEncoder,
        TextEncoder,
        TfidfEncoder,
        UnionEncoder,
    )
    from attnknn.evidence import Evidence
    from attnknn.fitting.meta_training import meta_train
    from attnknn.fitting.report import FitReport
    from attnknn.insight import Audit, DriftMonitor, WhatIf, audit, what_if
    from attnknn.memory import AutoMemory, FaissMemory, NumpyMemory, TorchMemory
    from attnknn.model import FittedModel
    from attnknn.storage.editor import open_for_editing
    from attnknn.storage.verification import Verification, backup, verify
    from attnknn.training import TrainConfig

__version__ = "0.1.0"

_HOMES = {
    "AdaptiveAttention": "attnknn.attention",
    "AttnKNNClassifier": "attnknn.classifier",
    "Audit": "attnknn.insight",
    "AutoMemory": "attnknn.memory",
    "BlockAttention": "attnknn.attention",
    "BoostingAttention": "attnknn.attention",
    "ClassScoreAttention": "attnknn.attention",
    "Decisions": "attnknn.conformal",
    "DistanceAttention": "attnknn.attention",
    "DriftMonitor": "attnknn.insight",
    "Evidence": "attnknn.evidence",
    "FaissMemory": "attnknn.memory",
    "FitReport": "attnknn.fitting.report",
    "FittedModel": "attnknn.model",
    "IdentityEncoder": "attnknn.encoders",
    "ImageEncoder": "attnknn.encoders",
    "ForestAttention": "attnknn.attention",
    "HierarchicalAttention": "attnknn.attention",
    "KEnsembleAttention": "attnknn.attention",
    "LearnedAttention": "attnknn.attention",
    "MetaLearnedAttention": "attnknn.attention",
    "MixtureAttention": "attnknn.attention",
    "LearnedTableEncoder": "attnknn.encoders",
    "MLPAttention": "attnknn.attention",
    "NgramEncoder": "attnknn.encoders",
    "NumpyMemory": "attnknn.memory",
    "PowerDistanceAttention": "attnknn.attention",
    "ProjectionAttention": "attnknn.attention",
    "PredictionSets": "attnknn.conformal",
    "ScaledEncoder": "attnknn.encoders",
    "SvdEncoder": "attnknn.encoders",
    "TableEncoder": "attnknn.encoders",
    "TextEncoder": "attnknn.encoders",
    "TfidfEncoder": "attnknn.encoders",
    "TorchMemory": "attnknn.memory",
    "TrainConfig": "attnknn.training",
    "UniformAttention": "attnknn.attention",
    "UnionEncoder": "attnknn.encoders",
    "Verification": "attnknn.storage.verification",
    "WhatIf": "attnknn.insight",
    "audit": "attnknn.insight",
    "backup": "attnknn.storage.verification",
    "meta_train": "attnknn.fitting.meta_training",
    "open_for_editing": "attnknn.storage.editor",
    "verify": "attnknn.storage.verification",
    "what_if": "attnknn.insight",
}

__all__ = [
    "AdaptiveAttention",
    "AttnKNNClassifier",
    "Audit",
    "AutoMemory",
    "BlockAttention",
    "BoostingAttention",
    "ClassScoreAttention",
    "Decisions",
    "DistanceAttention",
    "DriftMonitor",
    "Evidence",
    "FaissMemory",
    "FitReport",
    "FittedModel",
    "ForestAttention",
    "HierarchicalAttention",
    "IdentityEncoder",
    "ImageEncoder",
    "KEnsembleAttention",
    "LearnedAttention",
    "LearnedTableEncoder",
    "MLPAttention",
    "MetaLearnedAttention",
    "MixtureAttention",
    "NgramEncoder",
    "NumpyMemory",
    "PowerDistanceAttention",
    "PredictionSets",
    "ProjectionAttention",
    "ScaledEncoder",
    "SvdEncoder",
    "TableEncoder",
    "TextEncoder",
    "TfidfEncoder",
    "TorchMemory",
    "TrainConfig",
    "UniformAttention",
    "UnionEncoder",
    "Verification",
    "WhatIf",
    "audit",
    "backup",
    "meta_train",
    "open_for_editing",
    "verify",
    "what_if",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that importing the package is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'attnknn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
