"""Which cells a claim has: what is done to the training rows, and which methods are compared."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from typing import Any

from attnknn.errors import unknown_name
from attnknn.research.experiments.claim_settings import check_settings
from attnknn.research.experiments.methods import Choices
from attnknn.research.experiments.stresses import NO_SHIFT, Shift, Stress

CLAIMS: dict[str, dict[str, Any]] = tomllib.loads(
    (files("attnknn.research.experiments") / "claims.toml").read_text(encoding="utf-8")
)
MEASURED = ("index", "theory", "overhead")  # claims of numbers, not of answers


@dataclass(frozen=True)
class Ask:
    """A method with its choices; `name` replaces the method's own in tables."""

    method: str
    choices: Choices
    name: str | None = None


@dataclass(frozen=True)
class Cell:
    """One table of a claim.

    Parameters
    ----------
    name : its folder; '' where the claim has one table only
    place : where it stands on the axis of a sweep
    stress, shift : what is done to training rows, and to test images
    """

    name: str
    place: float | None
    stress: Stress
    asks: tuple[Ask, ...]
    shift: Shift = NO_SHIFT

    @property
    def damage(self) -> str:
        """What is done to rows, for people; cells of the same damage share a scene."""
        return "; ".join(filter(None, [self.stress.words, self.shift.words]))

    @property
    def settings(self) -> dict[str, Any]:
        """The same for reports."""
        return {"stress": asdict(self.stress), "shift": asdict(self.shift)}

    def methods(self, asks: Sequence[Ask] | None = None) -> dict[str, str]:
        """Which choices its methods, or some of them, are asked for with, for reports."""
        asks = self.asks if asks is None else asks
        return {ask.name or ask.method: repr(ask.choices) for ask in asks}


def settings_of(claim: str, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The settings of a claim, some of them changed; names and values that cannot be are errors.

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


def cells_of(claim: str, settings: Mapping[str, Any], choices: Choices) -> list[Cell]:
    """The tables of a claim, in the order of its axis.

    >>> [cell.name for cell in cells_of("noise", settings_of("noise"), Choices())]
    ['rate-0', 'rate-0.1', 'rate-0.2', 'rate-0.3']
    """
    asks = _asks(settings["methods"], choices)
    if claim == "k-sweep":
        return [
            Cell(f"K-{k}", k, Stress(), _asks(settings["methods"], replace(choices, n_neighbors=k)))
            for k in settings["neighbors"]
        ]
    if "levels" in settings:
        kind = settings["kind"]
        word = {"imbalance": "ratio", "shots": "shots"}.get(kind, "rate")
        return [
            Cell(f"{word}-{level:g}", level, Stress(kind, level), asks)
            for level in settings["levels"]
        ]
    if "severities" in settings:
        return [
            Cell(f"severity-{level}", level, Stress(), asks, Shift(settings["kind"], level))
            for level in settings["severities"]
        ]
    return [Cell("", None, Stress(), asks + _variants(settings.get("variants", {}), choices))]


def _asks(names: Sequence[str], choices: Choices) -> tuple[Ask, ...]:
    return tuple(Ask(name, choices) for name in names)


def _variants(variants: Mapping[str, Mapping[str, Any]], choices: Choices) -> tuple[Ask, ...]:
    """Learned attention, each time with one thing changed."""
    return tuple(
        Ask("learned", replace(choices, attention={**choices.attention, **changed}), name)
        for name, changed in variants.items()
    )
