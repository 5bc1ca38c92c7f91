"""The answers of one method of an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from attnknn.model import Answer
from attnknn.records import Floats


@dataclass(frozen=True, eq=False)
class Found:
    """A method's answers for the test rows.

    Parameters
    ----------
    probabilities : (n, C)
    chosen : what its fit chose
    fit_seconds, predict_seconds : without the encoder, its training and the embedding of rows
    settings : the choices that the experiment made for it, written out
    answer : how the probabilities came about, where one vote gave them
    """

    method: str
    probabilities: Floats
    chosen: Mapping[str, Any] = field(default_factory=dict)
    fit_seconds: float = 0.0
    predict_seconds: float = 0.0
    settings: Mapping[str, str] = field(default_factory=dict)
    answer: Answer | None = None
