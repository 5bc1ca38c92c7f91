"""Vote shares become probabilities: temperature, prior score, probability map and label noise."""

from attnknn.calibration.fitting import (
    LEAST_NOISE,
    MOST_NEIGHBORS_TO_SEE_NOISE,
    LabelNoise,
    as_it_is,
    confusions_now,
    fit,
    fit_under,
    is_better,
    rule_of_thumb,
    sample_of,
)
from attnknn.calibration.likelihood import Calibration, CalibrationBatch, Fitted

__all__ = [
    "LEAST_NOISE",
    "MOST_NEIGHBORS_TO_SEE_NOISE",
    "Calibration",
    "CalibrationBatch",
    "Fitted",
    "LabelNoise",
    "as_it_is",
    "confusions_now",
    "fit",
    "fit_under",
    "is_better",
    "rule_of_thumb",
    "sample_of",
]
