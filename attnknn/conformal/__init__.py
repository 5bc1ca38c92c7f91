"""Prediction sets: the classes that a row may well have, with a stated chance to be right."""

from attnknn.conformal.scores import Aps, Lac, Raps, SetScore, make_score
from attnknn.conformal.sets import PredictionSets, members
from attnknn.conformal.thresholds import fewest_examples, thresholds

__all__ = [
    "Aps",
    "Lac",
    "PredictionSets",
    "Raps",
    "SetScore",
    "fewest_examples",
    "make_score",
    "members",
    "thresholds",
]
