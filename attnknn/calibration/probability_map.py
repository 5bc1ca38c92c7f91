"""Calibration: the map from vote shares to probabilities, and the model of label noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from attnknn.records import Floats, Integers

TINY = np.finfo(float).tiny  # the weight of a very low prior score underflows


def noise_words(rate: float, error: float, no_estimate: str) -> str:
    """An estimate of label noise in words.

    >>> noise_words(0.148, 0.012, ""), noise_words(0.0, 0.012, "")
    ('0.148 ± 0.012', 'none found, at most 0.024')
    """
    if no_estimate:
        return no_estimate
    return f"{rate:.3f} ± {error:.3f}" if rate else f"none found, at most {2 * error:.3f}"


@dataclass(frozen=True)
class Calibration:
    """The fitted map from vote shares to probabilities, and the model of label noise.

    Parameters
    ----------
    exponent : float, default=1.0
        γ in p ∝ share^γ. Above 1 the vote was underconfident, below 1 overconfident.
    label_noise : float, default=0.0
        Probability ε that an observed label is not the true one.
    transition : ndarray of shape (n_classes, n_classes), default=None
        Probability of each observed label (column) for each true one (row), if the noise differs by
        class.
    noise_error : float, default=0.0
        Standard error of the estimate of ε. If ε is 0 because no noise was found, twice the error
        is the largest ε that the labels allow.
    no_estimate : str, default=""
        Why ε was not estimated, such as "not estimable: there is one class"; empty if it was. ε is
        then 0 in all computations, but that is no statement about the labels.

    Examples
    --------
    >>> Calibration(exponent=2.0).probabilities(np.array([[0.75, 0.25]]))
    array([[0.9, 0.1]])
    """

    exponent: float = 1.0
    label_noise: float = 0.0
    transition: Floats | None = None
    noise_error: float = 0.0
    no_estimate: str = ""

    @property
    def estimated_noise(self) -> float:
        """The estimated share ε of wrong labels; NaN if it was not estimated."""
        return float("nan") if self.no_estimate else self.label_noise

    @property
    def has_noise(self) -> bool:
        """Whether wrong labels are modeled."""
        return self.label_noise > 0 or self.transition is not None

    def probabilities(self, shares: Floats) -> Floats:
        """Map vote shares to probabilities of the true labels.

        Parameters
        ----------
        shares : ndarray of shape (n_rows, n_classes)
            Shares of the classes in the vote.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities; each row sums to one.
        """
        if self.exponent == 1.0:
            return shares / shares.sum(axis=1, keepdims=True)
        relative = shares / shares.max(axis=1, keepdims=True)  # else small powers underflow
        powers = relative**self.exponent
        return powers / powers.sum(axis=1, keepdims=True)

    def observed(self, probabilities: Floats) -> Floats:
        """Compute the probabilities of the labels that annotators would give.

        Parameters
        ----------
        probabilities : ndarray of shape (n_rows, n_classes)
            Probabilities of the true labels.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities of the observed labels.
        """
        if self.transition is not None:
            return probabilities @ self.transition
        n_others = max(probabilities.shape[1] - 1, 1)
        noise = self.label_noise
        return (1 - noise) * probabilities + noise * (1 - probabilities) / n_others

    def confusions(self, n_classes: int) -> Floats | None:
        """Compute the probability of each observed label for each true one.

        Parameters
        ----------
        n_classes : int
            Number of classes.

        Returns
        -------
        ndarray of shape (n_classes, n_classes) or None
            True labels in rows, observed ones in columns; None without label noise.

        Examples
        --------
        >>> Calibration(label_noise=0.25).confusions(2)
        array([[0.75, 0.25],
               [0.25, 0.75]])
        """
        if self.transition is not None or not self.label_noise or n_classes < 2:
            return self.transition
        return self.observed(np.eye(n_classes))

    @property
    def noise_words(self) -> str:
        """The estimate of label noise with its standard error, or the reason for no estimate."""
        return noise_words(self.label_noise, self.noise_error, self.no_estimate)

    def with_classes(self, n_classes: int) -> Calibration:
        """Extend the noise model to new classes, whose labels are assumed to be right.

        Parameters
        ----------
        n_classes : int
            Number of classes, the new ones included.

        Returns
        -------
        Calibration
            The extended calibration.
        """
        if self.transition is None:
            return self
        wider = np.eye(n_classes)
        wider[: len(self.transition), : len(self.transition)] = self.transition
        return replace(self, transition=wider)

    def with_order(self, order: Integers) -> Calibration:
        """Reorder the classes of the noise model.

        Parameters
        ----------
        order : ndarray of shape (n_classes,)
            Class `order[i]` becomes class i.

        Returns
        -------
        Calibration
            The reordered calibration.
        """
        if self.transition is None:
            return self
        return replace(self, transition=self.transition[np.ix_(order, order)])

    def losses(self, shares: Floats, own: Integers) -> Floats:
        """Compute the log-loss of the observed labels.

        Parameters
        ----------
        shares : ndarray of shape (n_rows, n_classes)
            Shares of the classes in the vote.
        own : ndarray of shape (n_rows,)
            Codes of the observed labels.

        Returns
        -------
        ndarray of shape (n_rows,)
            Losses in nats.
        """
        likely = self.observed(self.probabilities(shares))[np.arange(len(own)), own]
        return -np.log(np.maximum(likely, TINY))
