"""A classifier that shows its evidence, that you can edit, and whose probabilities stay honest."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnknn.attention import (
        AdaptiveAttention,
        DistanceAttention,
        KEnsembleAttention,
        LearnedAttention,
        PowerDistanceAttention,
        UniformAttention,
    )
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.conformal import PredictionSets
    from attnknn.conformal.decisions import Decisions
    from attnknn.encoders import IdentityEncoder, TableEncoder
    from attnknn.evidence import Evidence
    from attnknn.memory import AutoMemory, FaissMemory, NumpyMemory, TorchMemory

__version__ = "0.1.0"

_HOMES = {
    "AdaptiveAttention": "attnknn.attention",
    "AttnKNNClassifier": "attnknn.classifier",
    "AutoMemory": "attnknn.memory",
    "Decisions": "attnknn.conformal.decisions",
    "DistanceAttention": "attnknn.attention",
    "Evidence": "attnknn.evidence",
    "FaissMemory": "attnknn.memory",
    "IdentityEncoder": "attnknn.encoders",
    "KEnsembleAttention": "attnknn.attention",
    "LearnedAttention": "attnknn.attention",
    "NumpyMemory": "attnknn.memory",
    "PowerDistanceAttention": "attnknn.attention",
    "PredictionSets": "attnknn.conformal",
    "TableEncoder": "attnknn.encoders",
    "TorchMemory": "attnknn.memory",
    "UniformAttention": "attnknn.attention",
    "open_for_editing": "attnknn.storage.editor",
}

__all__ = [
    "AdaptiveAttention",
    "AttnKNNClassifier",
    "AutoMemory",
    "Decisions",
    "DistanceAttention",
    "Evidence",
    "FaissMemory",
    "IdentityEncoder",
    "KEnsembleAttention",
    "LearnedAttention",
    "NumpyMemory",
    "PowerDistanceAttention",
    "PredictionSets",
    "TableEncoder",
    "TorchMemory",
    "UniformAttention",
    "open_for_editing",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first asked for, so that importing the package is cheap."""
    if name not in _HOMES:
        raise AttributeError(f"module 'attnknn' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
