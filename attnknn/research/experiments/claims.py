"""Claims: their settings, and the cells (corruption and methods) that each of them measures."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from attnknn._validation import Limits, check_at_least, check_choice
from attnknn.attention import LearnedAttention
from attnknn.errors import InvalidSettingError, unknown_name
from attnknn.research.evaluation.corruption import (
    NO_SHIFT,
    NOISES,
    SEVERITIES,
    SHIFTS,
    Corruption,
    Shift,
)
from attnknn.research.experiments.methods import METHODS, MethodSettings, learned_attention
from attnknn.research.experiments.networks import Network, network_of
from attnknn.training import LossTerms

FINITE = Limits()
ANSWERED = (
    "CNN",
    "CNN head",
    "CNN head, noise model",
    "CNN, noise model",
    "adaptive K",
)  # what tables call some methods
VIEWS = ", views"
KINDS: dict[str, Collection[str]] = {
    "noise": tuple(NOISES),
    "imbalance": ("imbalance",),
    "shots": ("shots",),
    "shift": tuple(SHIFTS),
}


def check_settings(claim: str, settings: Mapping[str, Any], usual: Mapping[str, Any]) -> None:
    """Raise an error for the first invalid setting of a claim.

    `usual`: the claim's own, which say whether one number is asked for or several.
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
        Corruption(kind, level)  # which knows the range of its level


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


def _check_trainings(value: Any) -> None:
    if not isinstance(value, Mapping):
        raise InvalidSettingError(
            f"`trainings` must be a table of settings of the encoder by names, got {value!r}."
        )
    known = [f.name for f in fields(Network) if f.name != "name"]
    for name, changed in value.items():
        _check_name(name, changed)
        for setting in changed:
            if setting not in known:
                raise unknown_name("setting of an encoder's training", setting, known)
        network_of("others").changed(changed).image_training(Path())  # which knows its settings


def _check_name(name: str, changed: Any) -> None:
    if name in (*METHODS, *ANSWERED) or name.endswith(VIEWS):
        raise InvalidSettingError(
            f"A variant must not have the name of a method, nor end with {VIEWS!r}, got {name!r}."
        )
    if not isinstance(changed, Mapping):
        raise InvalidSettingError(f"The variant {name!r} must be a table, got {changed!r}.")


def _check_variant(name: str, changed: Any) -> None:
    _check_name(name, changed)
    known = [*LearnedAttention().get_params(), *(term.name for term in fields(LossTerms))]
    for setting in changed:
        if setting not in known:
            raise unknown_name("setting of learned attention", setting, known)
    learned_attention(changed).prepare_fit(1)


CHECKS: dict[str, Callable[[Any], Any]] = {
    "title": _check_title,
    "methods": _check_methods,
    "severities": _check_severities,
    "variants": _check_variants,
    "trainings": _check_trainings,
    **{name: partial(_check_number, name) for name in ("neighbors", "queries", "repeats")},
}


CLAIMS: dict[str, dict[str, Any]] = tomllib.loads(
    (files("attnknn.research.experiments") / "claims.toml").read_text(encoding="utf-8")
)
MEASURED = ("index", "theory", "overhead")  # claims of numbers, not of answers


@dataclass(frozen=True)
class MethodSpec:
    """A method with its settings; `name` replaces that of the method in tables."""

    method: str
    options: MethodSettings
    name: str | None = None

    @property
    def settings(self) -> dict[str, str]:
        """The settings as reports write them."""
        return self.options.written


@dataclass(frozen=True)
class Cell:
    """One table of a claim."""

    name: str  # name in the report; '' where the claim has one table only
    place: float | None  # position on the axis of a sweep
    corruption: Corruption  # of the training rows; `shift` is that of the test images
    specs: tuple[MethodSpec, ...]
    shift: Shift = NO_SHIFT

    @property
    def damage(self) -> str:
        """Description of corruption and shift; cells with the same one share embeddings."""
        return "; ".join(filter(None, [self.corruption.description, self.shift.description]))

    @property
    def settings(self) -> dict[str, Any]:
        """Corruption and shift for reports."""
        return {"corruption": asdict(self.corruption), "shift": asdict(self.shift)}

    def methods(self, specs: Sequence[MethodSpec] | None = None) -> dict[str, dict[str, str]]:
        """The settings of all methods, or of some of them, for reports."""
        specs = self.specs if specs is None else specs
        return {spec.name or spec.method: spec.settings for spec in specs}


def settings_of(claim: str, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The settings of a claim with some of them changed; unknown names and values are errors.

    >>> settings_of("k-sweep", {"neighbors": [1, 8]})["neighbors"]
    [1, 8]
    """
    if claim not in CLAIMS:
        raise unknown_name("claim", claim, CLAIMS)
    known = CLAIMS[claim]
    for name in changes or {}:
        if name not in known:
            raise unknown_name(f"setting of the claim {claim!r}", name, known)
    settings = {**known, **(changes or {})}
    check_settings(claim, settings, known)
    return settings


def cells_of(claim: str, settings: Mapping[str, Any], options: MethodSettings) -> list[Cell]:
    """The tables of a claim, in the order of its axis.

    >>> [cell.name for cell in cells_of("noise", settings_of("noise"), MethodSettings())]
    ['rate-0', 'rate-0.1', 'rate-0.2', 'rate-0.3']
    """
    specs = _specs(settings["methods"], options)
    if claim == "k-sweep":
        return [
            Cell(
                f"K-{k}",
                k,
                Corruption(),
                _specs(settings["methods"], replace(options, n_neighbors=k)),
            )
            for k in settings["neighbors"]
        ]
    if "levels" in settings:
        kind = settings["kind"]
        word = {"imbalance": "ratio", "shots": "shots"}.get(kind, "rate")
        return [
            Cell(f"{word}-{level:g}", level, Corruption(kind, level), specs)
            for level in settings["levels"]
        ]
    if "severities" in settings:
        return [
            Cell(f"severity-{level}", level, Corruption(), specs, Shift(settings["kind"], level))
            for level in settings["severities"]
        ]
    specs += _variants(settings.get("variants", {}), options)
    specs += tuple(
        MethodSpec("trained", replace(options, training=name, network=changed), name)
        for name, changed in settings.get("trainings", {}).items()
    )
    return [Cell("", None, Corruption(), specs)]


def _specs(names: Sequence[str], options: MethodSettings) -> tuple[MethodSpec, ...]:
    return tuple(MethodSpec(name, options) for name in names)


def _variants(
    variants: Mapping[str, Mapping[str, Any]], options: MethodSettings
) -> tuple[MethodSpec, ...]:
    """Learned attention with one setting changed in each."""
    return tuple(
        MethodSpec(
            "learned",
            replace(options, attention={**options.attention, **changed}),
            name,
        )
        for name, changed in variants.items()
    )
