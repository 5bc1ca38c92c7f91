"""The CNN baseline: the same network with the linear head that was trained beside the vote."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

from attnknn.calibration.likelihood import PULL, surprise_of_any
from attnknn.records import Floats, Integers
from attnknn.training.views import Views
from attnknn.vote import class_prior

if TYPE_CHECKING:
    from attnknn.encoders.image import ImageEncoder

WIDEST = 3.0  # log of the largest temperature, and of one over the smallest


class HeadBaseline:
    """Class probabilities by a linear head on the features of a trained image encoder.

    Probabilities are averaged over views, then a temperature divides their logarithms: one number,
    fitted on rows that were not trained on, as every method of a table gets it.

    Parameters
    ----------
    weight : (C, width of the features), its outputs times the head's scale
    views : which views of an image are averaged
    """

    def __init__(self, encoder: ImageEncoder, weight: Floats, views: Views | None = None) -> None:
        self.encoder, self.weight = encoder, weight
        self.views = views or Views()
        self.temperature = 1.0

    def seeing(self, views: Views) -> HeadBaseline:
        """The same head with other views; its temperature is to be fitted again."""
        return HeadBaseline(self.encoder, self.weight, views)

    def fit_temperature(self, X: Any, codes: Integers) -> HeadBaseline:
        """Fit the temperature on held-out rows by their log-loss."""
        return self.fit_on_features(self.encoder.features(X, self.views), codes)

    def predict_proba(self, X: Any) -> Floats:
        """Class probabilities (n, C) of the images of `X`."""
        return self.probabilities_of(self.encoder.features(X, self.views))

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The code of the most probable class of each image."""
        return self.predict_proba(X).argmax(axis=1)

    def fit_on_features(self, features: NDArray[np.float32], codes: Integers) -> HeadBaseline:
        """As `fit_temperature`, of features (V, n, width) that are known already.

        One row of any label is counted too, as for votes: on few rows that are all answered right
        the temperature would fall without end.
        """
        log_means = self._log_means(features)
        prior = class_prior(np.bincount(codes, minlength=len(self.weight)))

        def loss(log_temperature: float) -> float:
            probable = log_softmax(log_means / np.exp(log_temperature), axis=1)
            of_any = surprise_of_any(np.exp(probable), prior) + 0.5 * PULL * log_temperature**2
            return of_any - float(probable[np.arange(len(codes)), codes].sum())

        found = minimize_scalar(loss, bounds=(-WIDEST, WIDEST), method="bounded")
        self.temperature = float(np.exp(found.x))
        return self

    def probabilities_of(self, features: NDArray[np.float32]) -> Floats:
        """Class probabilities (n, C) of features (V, n, width)."""
        return np.exp(log_softmax(self._log_means(features) / self.temperature, axis=1))

    def _log_means(self, features: NDArray[np.float32]) -> Floats:
        """Logarithms (n, C) of the mean probabilities over views, before the temperature."""
        logits = features.astype(np.float64) @ self.weight.T
        return logsumexp(log_softmax(logits, axis=2), axis=0) - np.log(len(features))
