"""Which classifier a stored monitor watched, and whether what was stored can be used."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn.errors import InvalidInputError
from attnknn.insight.drift.martingale import ON_SMALL
from attnknn.insight.drift.record import WORDS
from attnknn.insight.drift.scores import scores_of_entries

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

FORMAT = "attnknn drift monitor"
VERSION = 1
SAME = 1e-5  # relative; another processor rounds otherwise


def signature_of(clf: AttnKNNClassifier) -> dict[str, Any]:
    """What tells this classifier, as it is now, from others."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "entries": _digest(clf),
        "answers": _means(clf),
    }


def check_state(clf: AttnKNNClassifier, state: Any) -> None:
    """An error for a state that is none, or of another classifier."""
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise InvalidInputError("This is no state of a drift monitor, as `to_dict` gives it.")
    if state.get("version") != VERSION:
        raise InvalidInputError(
            f"The state must be of version {VERSION}, got {state.get('version')!r}."
        )
    _check_fields(state, FIELDS, "")
    for name in ("rows", "labels"):
        _check_fields(state[name], FIELDS_OF_STREAM, f"{name}.")
    now = signature_of(clf)
    is_same = np.allclose(state["answers"], now["answers"], rtol=SAME, atol=SAME)
    if state["entries"] != now["entries"] or not is_same:
        raise InvalidInputError(
            "The state is of another classifier, or of this one before it was edited or fitted "
            "again: what is watched has moved. Begin again, without the state."
        )


def _digest(clf: AttnKNNClassifier) -> str:
    entries = clf.memory_.entries
    found = hashlib.sha256(repr((clf.memory_.metric_, clf.classes_.tolist())).encode())
    for name in ("embeddings", "labels", "groups", "sample_weight", "held_out"):
        found.update(np.ascontiguousarray(getattr(entries, name)).tobytes())
    return found.hexdigest()


def _means(clf: AttnKNNClassifier) -> list[float]:
    """Means that move with whatever moves an answer: attention, calibration, K."""
    scores = scores_of_entries(clf)
    n_scores = max(1, len(scores.rows))
    return [float(scores.rows.sum()) / n_scores, float(scores.labels.sum()) / n_scores]


def _check_fields(part: Any, fields: dict[str, Callable[[Any], bool]], where: str) -> None:
    for name, is_right in fields.items():
        if not isinstance(part, dict) or name not in part or not is_right(part[name]):
            raise InvalidInputError(f"The state of the monitor is damaged: `{where}{name}`.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _is_sorted(value: Any) -> bool:
    return _is_numbers(value) and value == sorted(value)


def _is_shares(value: Any) -> bool:
    is_right = _is_numbers(value) and len(value) == len(ON_SMALL) and min(value) > 0
    return is_right and abs(sum(value) - 1.0) < SAME


def _is_alarm(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and isinstance(value[0], str)
        and isinstance(value[2], bool)
        and (value[0], value[2]) in WORDS
        and _is_count(value[1])
    )


FIELDS: dict[str, Callable[[Any], bool]] = {
    "entries": lambda value: isinstance(value, str),
    "answers": lambda value: _is_numbers(value) and len(value) == 2,
    "false_alarms": lambda value: _is_number(value) and 0 < value < 1,
    "seed": _is_count,
    "n_rows": _is_count,
    "alarms": lambda value: isinstance(value, list) and all(map(_is_alarm, value)),
}
FIELDS_OF_STREAM: dict[str, Callable[[Any], bool]] = {
    "calibration": _is_sorted,
    "known": _is_sorted,
    "n_drawn": _is_count,
    "n_bets": _is_count,
    "log_staked": _is_number,
    "shares": _is_shares,
    "has_alarmed": lambda value: isinstance(value, bool),
}
