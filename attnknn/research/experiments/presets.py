"""The set-ups of the research's experiments, and what differs from its documents."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from attnknn.errors import unknown_name
from attnknn.research.experiments.methods import MethodSettings
from attnknn.research.experiments.networks import Network


def _stored(name: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads((files(__package__) / name).read_text(encoding="utf-8"))


PRESETS, DOCUMENTS = _stored("presets.toml"), _stored("documents.toml")
SEEDS = (0, 1, 2, 3, 4)
UNKNOWN = "none"  # what a document does not have, or a preset leaves out


@dataclass(frozen=True)
class Preset:
    """The setup of an experiment of the research."""

    name: str
    options: MethodSettings
    network: Network
    n_rows: int | None  # number of training rows; None takes all
    seeds: tuple[int, ...]
    claims: tuple[str, ...]  # the claims that it measured

    @property
    def document(self) -> Mapping[str, Any]:
        """The settings that the document states."""
        return DOCUMENTS[PRESETS[self.name].get("like", self.name)]


def preset_of(name: str, *, is_full: bool = False) -> Preset:
    """A preset by name; `is_full` takes the original network.

    >>> preset_of("experiment-5").network.description
    'resnet9 24/96/96, 256 numbers, 4 epochs'
    """
    if name not in PRESETS:
        raise unknown_name("preset", name, PRESETS)
    stored = PRESETS[name]
    stored = {**PRESETS.get(stored.get("like", ""), {}), **stored}
    sizes = stored.get("sizes")
    return Preset(
        name=name,
        options=MethodSettings(
            stored["n_neighbors"],
            None if sizes is None else tuple(sizes),
            {k: tuple(v) if isinstance(v, list) else v for k, v in stored["attention"].items()},
        ),
        network=_network(name, stored, is_full),
        n_rows=None if is_full else stored["cut"]["rows"],
        seeds=tuple(stored.get("seeds", SEEDS)),
        claims=tuple(stored["claims"]),
    )


def _network(name: str, stored: dict[str, Any], is_full: bool) -> Network:
    network = Network(name=f"{name}-full" if is_full else name, **stored["network"])
    if is_full:
        return network
    return network.changed({k: v for k, v in stored["cut"].items() if k != "rows"})


def values_of(preset: Preset) -> dict[str, Any]:
    """The settings of a preset in the words of documents.toml."""
    from attnknn.fitting.images import SCALAR_LR_SCALES

    network, attention = preset.network, preset.options.attention
    training = network.image_training(Path())
    config, loss, voters = training.config, training.loss, training.voters
    augmentation, views = training.augmentation, network.views
    epochs = int(config.epochs or 0)
    return {
        "network": network.description.split(",")[0],
        "pretrained": network.weights is not None,
        "embed_dim": network.embed_dim,
        "n_heads": attention.get("n_heads", 1),
        "temperature_init": attention.get("temperature"),
        "temperature_bounds": list(attention.get("temperature_bounds", ())),
        "score": "distance of one projection",
        "epochs": epochs,
        "warmup_epochs": round(float(config.warmup or 0.0) * epochs, 3),
        "batch_size": config.batch_size,
        "optimizer": config.optimizer,
        "learning_rate": config.learning_rate,
        "backbone_lr_scale": 1.0 if network.weights is None else training.backbone_lr_scale,
        "attention_lr_scale": SCALAR_LR_SCALES[str(config.optimizer)],
        "weight_decay": config.weight_decay,
        "schedule": _schedule(config.schedule),
        "clip": config.clip,
        "k_train": voters.k_train,
        "k_eval": preset.options.n_neighbors,
        "memory_refresh_epochs": 1 if voters.bank and voters.refresh_steps is None else None,
        "mixup_alpha": training.mixing.strength if training.mixing.mixup else None,
        "label_smoothing": loss.vote_label_smoothing,
        "contrastive_weight": loss.contrastive_weight,
        "contrastive_margin": loss.contrastive_margin,
        "contrastive_temperature": loss.contrastive_temperature,
        "vote_weight": loss.vote_weight,
        "head_weight": loss.head_weight,
        "entropy_weight": loss.entropy_weight,
        "hard_negative_weight": voters.negatives_weight,
        "flip": augmentation.horizontal_flip,
        "crop": augmentation.crop,
        "brightness": augmentation.brightness,
        "contrast": augmentation.contrast,
        "saturation": augmentation.saturation,
        "views": len(views),
        "view_pixels": views.pixels,
        "ensemble_sizes": list(preset.options.sizes or ()),
        "rows": "all" if preset.n_rows is None else preset.n_rows,
        "trained_jointly": True,
        "cnn_trained_apart": True,
    }


def _schedule(schedule: Any) -> Any:
    if hasattr(schedule, "first_cycle"):
        first, factor = schedule.first_cycle, schedule.cycle_factor
        return f"restarts after {first} epochs, each cycle {factor:g} times as long"
    return schedule


def differences(preset: Preset) -> list[tuple[str, str, str]]:
    """What differs from the document: the setting, its value there and its value here.

    >>> [row for row in differences(preset_of("experiment-5", is_full=True)) if row[0] == "epochs"]
    []
    >>> [row for row in differences(preset_of("experiment-5")) if row[0] == "epochs"]
    [('epochs', '20', '4')]
    """
    here = values_of(preset)
    return [
        (name, _text(wanted), _text(here[name]))
        for name, wanted in preset.document.items()
        if here[name] != wanted
    ]


def _text(value: Any) -> str:
    if value is None or (isinstance(value, Sequence) and not value):
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
