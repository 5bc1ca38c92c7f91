"""Settings of claims that people write: kinds, ranges and doubles are checked before data load."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from attnknn._validation import Limits, check_at_least, check_choice
from attnknn.attention import LearnedAttention
from attnknn.errors import InvalidSettingError, unknown_name
from attnknn.research.evaluation.shift import SEVERITIES, SHIFTS
from attnknn.research.evaluation.stress import NOISES
from attnknn.research.experiments.methods import METHODS, learned_attention
from attnknn.research.experiments.stresses import Stress

FINITE = Limits()
ANSWERED = ("CNN head", "CNN head, noise model", "adaptive K")  # what tables call some methods
VIEWS = ", views"
KINDS: dict[str, Collection[str]] = {
    "noise": tuple(NOISES),
    "imbalance": ("imbalance",),
    "shots": ("shots",),
    "shift": tuple(SHIFTS),
}


def check_settings(claim: str, settings: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """An error for the first setting of a claim that cannot be.

    Parameters
    ----------
    usual : the claim's own, which say whether one number is asked for or several
    """
    if "kind" in settings:
        check_choice(f"kind of {claim}", settings["kind"], KINDS[claim])
    for name, value in settings.items():
        if name == "levels":
            _check_levels(value, settings["kind"])
        elif name == "neighbors" and isinstance(usual[name], list):
            _check_numbers(value)
        elif name in CHECKS:
            CHECKS[name](value)


def _check_list(name: str, value: Any, of: str) -> None:
    if not isinstance(value, list | tuple) or not value:
        raise InvalidSettingError(f"`{name}` must be a list of {of}, at least one, got {value!r}.")
    written = [f"{part:g}" if isinstance(part, float) else str(part) for part in value]
    if len(set(written)) < len(written):
        raise InvalidSettingError(f"`{name}` must hold each of its {of} once, got {value!r}.")


def _check_title(value: Any) -> None:
    if not isinstance(value, str):
        raise InvalidSettingError(f"`title` must be a text, got {value!r}.")


def _check_methods(value: Any) -> None:
    _check_list("methods", value, "methods")
    for name in value:
        if name not in METHODS:
            raise unknown_name("method", name, METHODS)


def _check_numbers(value: Any) -> None:
    _check_list("neighbors", value, "integers")
    for k in value:
        check_at_least("neighbors", k, 1)


def _check_number(name: str, value: Any) -> None:
    check_at_least(name, value, 1)


def _check_levels(value: Any, kind: Any) -> None:
    _check_list("levels", value, "numbers")
    for level in value:
        if not FINITE.allow(level):
            raise InvalidSettingError(f"`levels` must hold finite numbers only, got {level!r}.")
        Stress(kind, level)  # which knows the range of its level


def _check_severities(value: Any) -> None:
    _check_list("severities", value, "integers")
    for severity in value:
        if type(severity) is not int or severity not in (0, *SEVERITIES):
            raise InvalidSettingError(
                f"`severities` must hold integers from 0 to {max(SEVERITIES)}, got {severity!r}."
            )


def _check_variants(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise InvalidSettingError(
            f"`variants` must be a table of settings of learned attention by names, got {value!r}."
        )
    for name, changed in value.items():
        _check_variant(name, changed)


def _check_variant(name: str, changed: Any) -> None:
    if name in (*METHODS, *ANSWERED) or name.endswith(VIEWS):
        raise InvalidSettingError(
            f"A variant must not have the name of a method, nor end with {VIEWS!r}, got {name!r}."
        )
    if not isinstance(changed, Mapping):
        raise InvalidSettingError(f"The variant {name!r} must be a table, got {changed!r}.")
    known = LearnedAttention().get_params()
    for setting in changed:
        if setting not in known:
            raise unknown_name("setting of learned attention", setting, known)
    learned_attention(changed).prepare_fit(1)


CHECKS: dict[str, Callable[[Any], Any]] = {
    "title": _check_title,
    "methods": _check_methods,
    "severities": _check_severities,
    "variants": _check_variants,
    **{name: partial(_check_number, name) for name in ("neighbors", "queries", "repeats")},
}
