"""Predictions of several questions by one call of the model, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic_core import to_json

from attnknn.errors import InvalidInputError
from attnknn.records import Floats
from attnknn.serving.batching import Question
from attnknn.serving.rows import read_rows
from attnknn.serving.state import State

DIGITS = 9  # of probabilities and weights


def answer_together(state: State, questions: Sequence[Question]) -> list[bytes]:
    """The answers to questions of the route `predict`, from one state.

    `Question.options` says whether all probabilities are wanted.
    """
    rows = [row for question in questions for row in question.rows]
    probabilities = predict(state, read_rows(state, rows))
    answers, first = [], 0
    for question in questions:
        own = probabilities[first : first + len(question.rows)]
        first += len(own)
        answers.append(predictions_as_json(state, own, bool(question.options)))
    return answers


def predictions_as_json(state: State, probabilities: Floats, wants_all: bool) -> bytes:
    """An answer in the form of `schemas.Predictions`."""
    classes: list[Any] = state.classifier.model_.classes.tolist()
    head: bytes = state.derived("classes as JSON", lambda: _head(state.version, classes))
    best = probabilities.argmax(axis=1).tolist()
    rounded = np.round(probabilities, DIGITS).tolist()
    predictions = [
        {
            "label": classes[code],
            "confidence": row[code],
            "probabilities": row if wants_all else None,
        }
        for code, row in zip(best, rounded, strict=True)
    ]
    return head + to_json(predictions, inf_nan_mode="null") + b"}"


def _head(version: int, classes: list[Any]) -> bytes:
    """The part of an answer that is the same for all rows."""
    head = to_json({"version": version, "classes": classes}, inf_nan_mode="null")
    return head[:-1] + b',"predictions":'


def predict(state: State, X: Any) -> Floats:
    """Class probabilities of rows; an error for a model without entries."""
    if not state.n_entries:
        raise InvalidInputError("The model has no entries to answer from. Add rows first.")
    return state.classifier.predict_proba(X)
