"""The stored state of a drift monitor: the classifier it belongs to, and checks of its fields."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn.errors import InvalidInputError
from attnknn.insight.martingale import ON_SMALL

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.insight.drift import DriftScores

FORMAT = "attnknn drift monitor"
VERSION = 1
TOLERANCE = 1e-5  # relative; processors round differently
ALARMS = {
    ("rows", True): "rows are farther from the memory than its own entries are",
    ("rows", False): "rows are nearer to the memory than its own entries are (duplicates?)",
    ("labels", True): "labels agree less with the predictions than those of the entries do",
    ("labels", False): "labels agree more with the predictions than those of the entries do",
}


def describe_model(clf: AttnKNNClassifier, scores: DriftScores) -> dict[str, Any]:
    """Format, version, a hash of the entries, and the means of their scores.

    The means change with everything that changes a prediction: attention, calibration, K.
    """
    memory, n_scores = clf.memory_, max(1, len(scores.rows))
    digest = hashlib.sha256(repr((memory.metric_, clf.classes_.tolist())).encode())
    for _, block in memory.vectors.blocks():
        digest.update(np.ascontiguousarray(block).tobytes())
    for name in ("labels", "groups", "sample_weight", "held_out"):
        digest.update(np.ascontiguousarray(getattr(memory.entries, name)).tobytes())
    means = [float(scores.rows.sum()) / n_scores, float(scores.labels.sum()) / n_scores]
    return {
        "format": FORMAT,
        "version": VERSION,
        "entries": digest.hexdigest(),
        "answers": means,
    }


def check_state(state: Any, model: dict[str, Any]) -> None:
    """Raise an error for a damaged state, or one of another classifier than `model` describes."""
    if not isinstance(state, dict) or state.get("format") != FORMAT:
        raise InvalidInputError(
            "The state must be a dict as `DriftMonitor.to_dict` returns it; this is no state of a "
            "drift monitor."
        )
    if state.get("version") != VERSION:
        raise InvalidInputError(
            f"The state must be of version {VERSION}, got {state.get('version')!r}."
        )
    _check_fields(state, FIELDS, "")
    for name in ("rows", "labels"):
        _check_fields(state.get(name), STREAM_FIELDS, f"{name}.")
    is_same = np.allclose(state["answers"], model["answers"], rtol=TOLERANCE, atol=TOLERANCE)
    if state["entries"] != model["entries"] or not is_same:
        raise InvalidInputError(
            "The state is of another classifier, or of this one before it was edited or fitted "
            "again. Start a new monitor without the state."
        )


def _check_fields(part: Any, fields: dict[str, Callable[[Any], bool]], where: str) -> None:
    for name, is_valid in fields.items():
        if not isinstance(part, dict) or name not in part or not is_valid(part[name]):
            raise InvalidInputError(f"The state of the monitor is damaged: `{where}{name}`.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e308


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_number, value))


def _is_sorted(value: Any) -> bool:
    return _is_numbers(value) and value == sorted(value)


def _is_shares(value: Any) -> bool:
    is_valid = _is_numbers(value) and len(value) == len(ON_SMALL) and min(value) > 0
    return is_valid and abs(sum(value) - 1.0) < TOLERANCE


def _is_alarm(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and isinstance(value[0], str)
        and isinstance(value[2], bool)
        and (value[0], value[2]) in ALARMS
        and _is_count(value[1])
    )


FIELDS: dict[str, Callable[[Any], bool]] = {
    "entries": lambda value: isinstance(value, str),
    "answers": lambda value: _is_numbers(value) and len(value) == 2,
    "false_alarm_rate": lambda value: _is_number(value) and 0 < value < 1,
    "seed": _is_count,
    "n_rows": _is_count,
    "alarms": lambda value: isinstance(value, list) and all(map(_is_alarm, value)),
}
STREAM_FIELDS: dict[str, Callable[[Any], bool]] = {
    "calibration": _is_sorted,
    "known": _is_sorted,
    "n_drawn": _is_count,
    "n_bets": _is_count,
    "log_staked": _is_number,
    "shares": _is_shares,
    "has_alarmed": lambda value: isinstance(value, bool),
}
