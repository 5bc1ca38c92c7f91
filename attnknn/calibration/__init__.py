"""Calibration: vote shares become probabilities, with a model of label noise.

`fit` maximizes the likelihood of held-out rows (`CalibrationBatch`) over temperature, prior score,
exponent and label noise, and returns a `CalibrationFit`. Its `Calibration` is the part that
predictions need: it maps vote shares to probabilities of the true label, and these to probabilities
of the observed one. `AttnKNNClassifier.fit` calls all of this; use it directly to calibrate votes
of your own.
"""

from attnknn.calibration.fitting import fit
from attnknn.calibration.likelihood import CalibrationBatch, CalibrationFit
from attnknn.calibration.probability_map import Calibration

__all__ = ["Calibration", "CalibrationBatch", "CalibrationFit", "fit"]
