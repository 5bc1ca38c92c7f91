"""The set-ups of the research's experiments, as they were or cut to two cores."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from attnknn.errors import unknown_name
from attnknn.research.experiments.methods import Choices
from attnknn.research.experiments.networks import Network

PRESETS: dict[str, dict[str, Any]] = tomllib.loads(
    (files("attnknn.research.experiments") / "presets.toml").read_text(encoding="utf-8")
)
SEEDS = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Preset:
    """What an experiment of the research sets.

    Parameters
    ----------
    claims : those that it measured
    n_rows : training rows that are taken; None takes all
    """

    name: str
    choices: Choices
    network: Network
    n_rows: int | None
    seeds: tuple[int, ...]
    claims: tuple[str, ...]


def preset_of(name: str, *, is_full: bool = False) -> Preset:
    """An experiment of the research by name; `is_full` leaves its network as it was.

    >>> preset_of("experiment-5").network.words
    'resnet9 24/96/96, 256 numbers, 4 epochs (for resnet18, 20 epochs and a learning rate ...)'
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    stored = PRESETS[name]
    stored = {**PRESETS.get(stored.get("like", ""), {}), **stored}
    sizes = stored.get("sizes")
    return Preset(
        name=name,
        choices=Choices(
            stored["n_neighbors"],
            None if sizes is None else tuple(sizes),
            _attention(stored["attention"]),
        ),
        network=_network(name, stored, is_full),
        n_rows=None if is_full else stored["cut"]["rows"],
        seeds=tuple(stored.get("seeds", SEEDS)),
        claims=tuple(stored["claims"]),
    )


def _network(name: str, stored: dict[str, Any], is_full: bool) -> Network:
    asked = dict(stored["network"])
    if is_full:
        return Network(name=f"{name}-full", **asked)
    cut = dict(stored["cut"])
    words = cut.pop("words")
    cut.pop("rows")
    training = {**asked["training"], **cut.pop("training", {})}
    asked = {**asked, **cut, "training": training, "cut": words}
    return Network(name=name, **{**asked, "widths": tuple(asked["widths"])})


def _attention(stored: dict[str, Any]) -> dict[str, Any]:
    """Settings of learned attention; TOML knows lists where Python has pairs."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in stored.items()}
