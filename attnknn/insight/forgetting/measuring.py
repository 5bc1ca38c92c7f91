"""The loss that an edit brings, measured on the same rows before and after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn._validation import check_labels
from attnknn.calibration import Calibration
from attnknn.errors import InvalidInputError
from attnknn.insight.forgetting.record import Change
from attnknn.leave_one_out import leave_one_out_predictions
from attnknn.memory.entries import NO_GROUP
from attnknn.pipeline import Answer, make_neighbor_batch
from attnknn.records import Floats, Integers
from attnknn.vote import class_prior

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

TINY = np.finfo(float).tiny
ROWS_AT_ONCE = 8192


def change_on_held_out(before: AttnKNNClassifier, after: AttnKNNClassifier) -> Change | None:
    """What the held-out entries of `before` lose; None where there are none.

    Each is judged by the others in both. One that `after` no longer remembers is asked about like
    a row to come, without its group.
    """
    left_out = before._leave_one_out_predictions()
    if not len(left_out):
        return None
    place = {name: row for row, name in enumerate(after.memory_.entries.ids.tolist())}
    now = np.array([place.get(n, -1) for n in before.memory_.entries.ids[left_out.rows].tolist()])
    stays = now >= 0
    answered = np.empty_like(left_out.probabilities)
    if stays.any():
        answered[stays] = leave_one_out_predictions(
            after._left_out(now[stays]), after._parts()
        ).probabilities
    if not stays.all():
        asked = answers_about(before, after, left_out.rows[~stays])
        answered[~stays] = np.concatenate([answer.probabilities for _, answer in asked])
    return _change(left_out.own, left_out.probabilities, answered, before.calibration_)


def change_on_rows(
    before: AttnKNNClassifier, after: AttnKNNClassifier, rows: tuple[Any, Any]
) -> Change:
    """What given rows and labels lose."""
    labels = check_labels(rows[1])
    probabilities = before.predict_proba(rows[0])
    if len(labels) != len(probabilities) or not len(labels):
        raise InvalidInputError(
            f"`validation` must hold a label for each row, and at least one: it has "
            f"{len(probabilities)} rows and {len(labels)} labels."
        )
    known = set(before.classes_.tolist())
    unknown = [label for label in labels.tolist() if label not in known]
    if unknown:
        raise InvalidInputError(
            f"`validation` has the label {unknown[0]!r}, which is no remembered class."
        )
    own = before._codes(labels)
    return _change(own, probabilities, after.predict_proba(rows[0]), before.calibration_)


def answers_about(
    before: AttnKNNClassifier, after: AttnKNNClassifier, rows: Integers
) -> Iterator[tuple[Integers, Answer]]:
    """What `after` answers about entries that only `before` remembers, at `rows`, in blocks.

    Their groups are not asked.
    """
    entries, remembered = before.memory_.entries, after.memory_.entries
    parts = after._parts()
    groups = remembered.groups[remembered.groups != NO_GROUP]
    largest = int(np.unique(groups, return_counts=True)[1].max(initial=0))
    for start in range(0, len(rows), ROWS_AT_ONCE):
        chosen = rows[start : start + ROWS_AT_ONCE]
        queries, own_groups = entries.embeddings[chosen], entries.groups[chosen][:, None]
        neighbors = after.memory_.search_prepared(queries, parts.n_neighbors + largest)
        trust = None if parts.trust is None else parts.trust[neighbors.positions]
        batch = make_neighbor_batch(queries, neighbors, after.memory_, trust)
        is_other = (own_groups == NO_GROUP) | (remembered.groups[neighbors.positions] != own_groups)
        batch = batch.asking(is_other).nearest(parts.n_neighbors)
        yield chosen, parts.finish(batch, class_prior(parts.counts))


def _change(own: Integers, before: Floats, after: Floats, calibration: Calibration) -> Change:
    def log_loss(probabilities: Floats) -> float:
        likely = calibration.observed(probabilities)[np.arange(len(own)), own]
        return float(-np.log(np.maximum(likely, TINY)).mean())

    return Change(
        n_rows=len(own),
        accuracy_before=float((before.argmax(axis=1) == own).mean()),
        accuracy_after=float((after.argmax(axis=1) == own).mean()),
        log_loss_before=log_loss(before),
        log_loss_after=log_loss(after),
    )
