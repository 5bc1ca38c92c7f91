"""Answers to questions about rows, as the page shows them: evidence, sets, decisions, what-if."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnknn.evidence import Evidence
from attnknn.insight import AddedRows, Audit, what_if
from attnknn.records import Floats
from attnknn.serving.entry_images import EntryImages
from attnknn.serving.labels import read_label, read_new_labels
from attnknn.serving.rows import read_rows
from attnknn.serving.schemas import (
    Decision,
    EvidenceAnswer,
    Neighbor,
    Others,
    Prediction,
    PriorPart,
    Thresholds,
    WhatIfAnswer,
    WhatIfBody,
    WhatIfRow,
)
from attnknn.serving.state import State
from attnknn.serving.uploads import as_json_value

MAX_EXPLAINED = 1000  # rows of one request
MAX_ASKED = 100
NOVELTY_LEVEL = 0.01


class EvidenceWriter:
    """Writes evidence as the page shows it.

    Parameters
    ----------
    state : that answers
    images : which entries have pictures
    n_neighbors : that are listed for each row
    """

    def __init__(self, state: State, images: EntryImages, n_neighbors: int) -> None:
        self._images, self._n_shown = images, n_neighbors
        audit: Audit | None = state.known("audit")
        self._wrong: dict[Any, float] = {}
        if audit is not None and not audit.no_probabilities:
            self._wrong = dict(zip(audit.ids.tolist(), audit.wrong.tolist(), strict=True))

    def write(self, evidence: Evidence) -> EvidenceAnswer:
        """One answer; the weights of its parts sum to one."""
        shown = min(self._n_shown, len(evidence.ids))
        return EvidenceAnswer(
            label=plain(evidence.label),
            probability=evidence.probability,
            probabilities=evidence.probabilities.tolist(),
            shares=evidence.shares.tolist(),
            prior=PriorPart(weight=evidence.prior_weight),
            neighbors=[self._neighbor(evidence, place) for place in range(shown)],
            others=Others(
                count=len(evidence.ids) - shown, weight=float(evidence.weights[shown:].sum())
            ),
            remark=evidence.remark,
        )

    def _neighbor(self, evidence: Evidence, place: int) -> Neighbor:
        name = plain(evidence.ids[place])
        payload = None if evidence.payloads is None else evidence.payloads[place]
        distance = float(evidence.distances[place])
        return Neighbor(
            id=name,
            label=plain(evidence.labels[place]),
            weight=float(evidence.weights[place]),
            distance=distance if np.isfinite(distance) else None,
            payload=as_json_value(payload),
            image=self._images.has(payload),
            p_wrong=self._wrong.get(name),
        )


def plain(value: Any) -> Any:
    """A label or id as a Python value."""
    return value.item() if isinstance(value, np.generic) else value


def prediction_of(classes: Sequence[Any], probabilities: Floats) -> Prediction:
    """Label, confidence and probabilities of a row."""
    best = int(probabilities.argmax())
    return Prediction(
        label=classes[best],
        confidence=float(probabilities[best]),
        probabilities=probabilities.tolist(),
    )


def decide(state: State, X: Any, thresholds: Thresholds) -> tuple[list[Decision], float]:
    """Labels or reasons to abstain, and the confidence below which it abstains."""
    level = thresholds.novelty_level
    found = state.classifier.decide(
        X,
        thresholds.max_risk,
        min_confidence=thresholds.min_confidence,
        novelty_level=NOVELTY_LEVEL if level is None else level,
    )
    columns = zip(
        found.labels(),
        found.is_answered.tolist(),
        found.reasons,
        found.confidence.tolist(),
        found.novelty_p_values.tolist(),
        strict=True,
    )
    decisions = [
        Decision(
            label=label,
            is_answered=is_answered,
            reason=reason or None,
            confidence=confidence,
            novelty_p=p if np.isfinite(p) else None,
        )
        for label, is_answered, reason, confidence, p in columns
    ]
    return decisions, float(found.min_confidence)


def try_edit(state: State, X: Any, question: WhatIfBody) -> WhatIfAnswer:
    """The effect of an edit that is not made, on the rows `X`."""
    classifier = state.classifier
    found = what_if(
        classifier,
        X,
        forget=question.forget or None,
        relabel=read_new_labels(classifier, question.relabel, allows_new=True),
        add=_added(state, question),
    )
    classes = found.classes.tolist()
    is_changed = np.zeros(len(found.before), dtype=bool)
    is_changed[found.changed] = True
    order = np.lexsort((-found.shift, ~is_changed))[: question.limit]
    return WhatIfAnswer(
        version=state.version,
        classes=classes,
        sentence=found.sentence(),
        n_rows=len(found.before),
        n_changed=int(is_changed.sum()),
        rows=[
            WhatIfRow(
                row=row,
                before=prediction_of(classes, found.before[row]),
                after=prediction_of(classes, found.after[row]),
                changed=bool(is_changed[row]),
            )
            for row in order.tolist()
        ],
    )


def _added(state: State, question: WhatIfBody) -> AddedRows | None:
    if not question.add:
        return None
    X = read_rows(state, [added.row for added in question.add])
    labels = [read_label(state.classifier, added.label, allows_new=True) for added in question.add]
    return AddedRows(X, labels)
