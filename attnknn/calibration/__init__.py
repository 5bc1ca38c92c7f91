"""Calibration: vote shares become probabilities, with a model of label noise.

`fit` maximizes the likelihood of held-out rows (`CalibrationBatch`) over temperature, prior score,
exponent and label noise, and returns a `Fitted`. Its `Calibration` is the part that predictions
need: it maps vote shares to probabilities of the true label, and these to probabilities of the
observed one. `AttnKNNClassifier.fit` calls all of this; use it directly to calibrate votes of your
own.
"""

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
from attnknn.calibration.likelihood import CalibrationBatch, Fitted
from attnknn.calibration.probability_map import Calibration

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
