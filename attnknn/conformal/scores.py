"""Conformity scores: how badly each label fits a row, from its probabilities; higher is worse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from attnknn._validation import Limits, check_limits
from attnknn.errors import unknown_name
from attnknn.records import Floats, Integers

LIMITS = {
    "k_reg": Limits(least=0, is_whole=True),
    "penalty": Limits(least=0),
}


class SetScore(Protocol):
    """Interface of nonconformity scores: how badly each label fits each row.

    A prediction set contains the labels whose score is at most a threshold.

    Attributes
    ----------
    name : str
        Short name of the score.

    Examples
    --------
    >>> score: SetScore = Lac()
    >>> score.name
    'lac'
    """

    name: str

    def of_all(self, probabilities: Floats, uniform: Floats | None = None) -> Floats:
        """Score all labels of some rows.

        Parameters
        ----------
        probabilities : ndarray of shape (n_rows, n_classes)
            Class probabilities.
        uniform : ndarray of shape (n_rows,), default=None
            Numbers in [0, 1) that randomize the scores; None leaves them as computed.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Scores; a label with a higher score fits worse.
        """


@dataclass(frozen=True)
class Lac:
    """Score one minus the probability of the label (LAC, Sadinle et al. 2019).

    It gives the smallest sets on average. Some sets may be empty.

    Examples
    --------
    >>> Lac().of_all(np.array([[0.5, 0.25, 0.25]]))
    array([[0.5 , 0.75, 0.75]])
    """

    name = "lac"

    def of_all(self, probabilities: Floats, uniform: Floats | None = None) -> Floats:  # noqa: ARG002
        """Compute one minus the probability.

        Parameters
        ----------
        probabilities : ndarray of shape (n_rows, n_classes)
            Class probabilities.
        uniform : ndarray of shape (n_rows,), default=None
            Ignored: this score cannot be randomized.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Scores; a label with a higher score fits worse.
        """
        return 1.0 - np.asarray(probabilities, dtype=np.float64)


@dataclass(frozen=True)
class Aps:
    """Score the summed probability of all more probable labels (APS, Romano et al. 2020).

    Sets are larger for uncertain rows and never empty: the most probable label scores zero. The
    randomized score adds the share `uniform` of the label's own probability: coverage is then exact
    instead of a little higher, and a set may be empty. Labels of equal probability rank by column.

    Examples
    --------
    >>> Aps().of_all(np.array([[0.25, 0.5, 0.25]]))
    array([[0.5 , 0.  , 0.75]])
    >>> Aps().of_all(np.array([[0.25, 0.5, 0.25]]), np.array([0.5]))
    array([[0.625, 0.25 , 0.875]])
    """

    name = "aps"

    def of_all(self, probabilities: Floats, uniform: Floats | None = None) -> Floats:
        """Compute the cumulated probabilities of more probable labels.

        Parameters
        ----------
        probabilities : ndarray of shape (n_rows, n_classes)
            Class probabilities.
        uniform : ndarray of shape (n_rows,), default=None
            Numbers in [0, 1) that randomize the scores; None leaves them as computed.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Scores; a label with a higher score fits worse.
        """
        p = np.asarray(probabilities, dtype=np.float64)
        order = np.argsort(-p, axis=1, kind="stable")
        ranked = np.take_along_axis(p, order, axis=1)
        cumulated = np.zeros_like(p)
        cumulated[:, 1:] = ranked[:, :-1].cumsum(axis=1)
        if uniform is not None:
            cumulated += uniform[:, None] * ranked
        scores = np.empty_like(p)
        np.put_along_axis(scores, order, cumulated, axis=1)
        return scores


@dataclass(frozen=True)
class Raps:
    """APS with a penalty for each rank beyond `k_reg` (RAPS, Angelopoulos et al. 2021).

    It gives fewer large sets than APS.

    Parameters
    ----------
    k_reg : int, default=1
        Labels up to this rank have no penalty; higher values allow larger sets.
    penalty : float, default=0.05
        Penalty per rank; higher values make sets more equal in size.

    Examples
    --------
    >>> Raps(k_reg=1, penalty=0.125).of_all(np.array([[0.25, 0.5, 0.25]]))
    array([[0.625, 0.   , 1.   ]])
    """

    k_reg: int = 1
    penalty: float = 0.05
    name = "raps"

    def __post_init__(self) -> None:
        check_limits(self, LIMITS)

    def of_all(self, probabilities: Floats, uniform: Floats | None = None) -> Floats:
        """Compute the cumulated probabilities of more probable labels plus the penalties.

        Parameters
        ----------
        probabilities : ndarray of shape (n_rows, n_classes)
            Class probabilities.
        uniform : ndarray of shape (n_rows,), default=None
            Numbers in [0, 1) that randomize the scores; None leaves them as computed.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Scores; a label with a higher score fits worse.
        """
        beyond = np.maximum(ranks(probabilities) - self.k_reg, 0)
        return Aps().of_all(probabilities, uniform) + self.penalty * beyond


KNOWN: dict[str, type[Lac] | type[Aps] | type[Raps]] = {"lac": Lac, "aps": Aps, "raps": Raps}


def make_score(score: str | SetScore) -> SetScore:
    """Find a score by name.

    Parameters
    ----------
    score : {"lac", "aps", "raps"} or SetScore
        Name of a score, or a score object, which is returned unchanged.

    Returns
    -------
    SetScore
        The score with default settings.

    Examples
    --------
    >>> make_score("raps")
    Raps(k_reg=1, penalty=0.05)
    """
    if not isinstance(score, str):
        return score
    if score not in KNOWN:
        raise unknown_name("score", score, KNOWN)
    return KNOWN[score]()


def ranks(probabilities: Floats) -> Integers:
    """The rank (n, C) of each label, 1 for the most probable; ties by column.

    >>> ranks(np.array([[0.25, 0.5, 0.25]])).tolist()
    [[2, 1, 3]]
    """
    order = np.argsort(-np.asarray(probabilities), axis=1, kind="stable")
    found = np.empty_like(order)
    np.put_along_axis(found, order, np.arange(1, order.shape[1] + 1)[None, :], axis=1)
    return found
