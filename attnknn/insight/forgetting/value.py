"""Whom a memory can spare: the value of each entry to all rows, those of forgotten ones too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnknn.insight.audit import entry_values
from attnknn.insight.audit.value import gains_of_votes
from attnknn.insight.forgetting.measuring import answers_about
from attnknn.records import Floats, Integers
from attnknn.vote import class_prior

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

NEAREST = 3  # of an entry that goes stay for one more round: they may stand in for each other


def values_to_all(whole: AttnKNNClassifier, left: AttnKNNClassifier) -> Floats:
    """The value (N,) of each entry of `left` to all rows that `whole` remembers.

    Rows whose entries are gone keep asking. Otherwise the memory would come to serve only those
    that are left, which lie where votes are close, and not where most rows to come will be.
    """
    value = entry_values(left)
    entries = whole.memory_.entries
    gone = np.flatnonzero(~np.isin(entries.ids, left.memory_.entries.ids))
    prior = class_prior(left._counts())
    for rows, answer in answers_about(whole, left, gone):
        gains = gains_of_votes(answer, entries.labels[rows], prior, left.calibration_)
        value += np.bincount(answer.neighbors.positions.ravel(), gains.ravel(), len(value))
    return value


def first_apart(clf: AttnKNNClassifier, order: Integers, n: int) -> Integers:
    """At most `n` positions of an order, the first ones of which none is near an earlier one.

    Entries that make each other dispensable would otherwise go together.
    """
    found = clf._everyone().batch.neighbors.nearest(NEAREST)
    stays = np.zeros(len(clf.memory_), dtype=bool)
    chosen: list[int] = []
    for position in order.tolist():
        if len(chosen) == n:
            break
        if not stays[position]:
            chosen.append(position)
            stays[found.positions[position][found.mask[position]]] = True
    return np.array(chosen, dtype=np.int64)
