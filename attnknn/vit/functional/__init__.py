"""The one core of all neighbor layers: score, choose, weigh, combine by rank."""

from attnknn.vit.functional.attend import Choice, Rule, choose, convnn_attention
from attnknn.vit.functional.candidates import random_candidates, spatial_candidates
from attnknn.vit.functional.grid import Grid

__all__ = [
    "Choice",
    "Grid",
    "Rule",
    "choose",
    "convnn_attention",
    "random_candidates",
    "spatial_candidates",
]
