"""`--set KIND.NAME=VALUE`: settings of encoders, attentions and memories that have no flag."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import click

from attnknn.errors import InvalidSettingError, unknown_name
from attnknn.registry import Kind, registered

KINDS: tuple[Kind, ...] = ("encoder", "attention", "memory")
NOTHING = "none"


@dataclass(frozen=True)
class Setting:
    """One `--set`: which part, the names that lead to the setting, and its value."""

    kind: Kind
    path: tuple[str, ...]
    value: Any
    text: str  # as it was given

    @classmethod
    def parse(cls, text: str) -> Setting:
        """The setting that `text` describes.

        >>> Setting.parse("attention.n_heads=4").value
        4
        >>> Setting.parse("encoder.network=deep").value
        'deep'
        """
        name, equals, value = text.partition("=")
        kind, *path = name.strip().split(".")
        if not equals or not path or kind not in KINDS or not all(path):
            raise click.UsageError(
                f"--set must be KIND.NAME=VALUE with encoder, attention or memory as KIND, such as "
                f"attention.n_heads=4, got {text!r}."
            )
        return cls(kind, tuple(path), _value(value.strip()), text)


def _value(text: str) -> Any:
    """A number, truth value, list or text as TOML writes it; quotes may be left out.

    >>> [_value(text) for text in ("0.5", "true", "[1, 2]", "cosine", "none")]
    [0.5, True, (1, 2), 'cosine', None]
    """
    if text == NOTHING:
        return None
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    return tuple(value) if isinstance(value, list) else value


def with_settings(kind: Kind, part: Any, name: str, settings: Sequence[Setting]) -> Any:
    """The encoder, attention or memory with these settings.

    `part` is an object, or its registered `name`.
    """
    own = [setting for setting in settings if setting.kind == kind]
    if not own:
        return part
    cls = registered(kind).get(name)
    if cls is None or (name == "auto" and isinstance(part, str)):
        raise click.UsageError(
            f"--set {own[0].text} needs `--{kind}` by name: add --{kind} "
            f"{_example(kind, own[0].path[0])}."
        )
    made = cls() if isinstance(part, str) else part
    for setting in own:
        made.set_params(**{setting.path[0]: _set(made, setting.path, setting.value)})
    return made


def _example(kind: Kind, setting: str) -> str:
    """The name of a class that has the setting."""
    for name, cls in registered(kind).items():
        if name != "auto" and setting in names_of(cls):
            return name
    return next(name for name in registered(kind) if name != "auto")


def _set(owner: Any, path: tuple[str, ...], value: Any) -> Any:
    """What the first setting of `path` becomes if the last one takes the value."""
    name, *rest = path
    known = names_of(type(owner))
    if name not in known:
        raise click.UsageError(f"--set: {unknown_name('setting', name, known)}")
    if not rest:
        return value
    inner = getattr(owner, name)
    inner = _record(owner, name) if inner is None else inner
    if not is_dataclass(inner) or isinstance(inner, type):
        raise click.UsageError(f"--set: {name!r} has no settings of its own, got {'.'.join(path)}.")
    try:
        return replace(inner, **{rest[0]: _set(inner, tuple(rest), value)})
    except (InvalidSettingError, TypeError) as error:
        raise click.UsageError(f"--set {'.'.join(path)}: {error}") from error


def on_device(encoder: Any, device: str | None) -> Any:
    """The encoder, trained and computed on the device if its network can be; None changes nothing.

    `encoder` is an object or a registered name.
    """
    cls = registered("encoder").get(encoder) if isinstance(encoder, str) else type(encoder)
    if device is None or "images" not in getattr(cls, "accepts", ()):
        return encoder
    made = cls() if isinstance(encoder, str) and cls is not None else encoder
    for name in ("training", "inference"):
        value = getattr(made, name) or _record(made, name)
        made.set_params(**{name: replace(value, device=device)})
    return made


def names_of(cls: type[Any]) -> list[str]:
    """Names of the settings of a part or of a record."""
    if is_dataclass(cls):
        return [field.name for field in fields(cls)]
    return list(cls._get_param_names())


def _record(owner: Any, name: str) -> Any:
    """The record with default settings that a setting takes; None for other settings."""
    from attnknn.encoders.image import ImageInference, ImageTraining
    from attnknn.encoders.learned_table import TableLayers
    from attnknn.training.config import LossTerms, TrainConfig
    from attnknn.training.views import Views

    has_images = "images" in getattr(owner, "accepts", ())
    records: dict[str, type[Any]] = {
        "training": ImageTraining if has_images else TrainConfig,
        "inference": ImageInference,
        "layers": TableLayers,
        "loss": LossTerms,
        "views": Views,
    }
    return records[name]() if name in records else None


def listed() -> list[tuple[str, str]]:
    """All encoders, attentions and memories with the names of their settings, for the help."""
    found = []
    for kind in KINDS:
        for name, cls in registered(kind).items():
            if hasattr(cls, "_get_param_names") and names_of(cls):
                found.append((f"{kind} {name}", ", ".join(names_of(cls))))
    return [*found, *_listed_records()]


def _listed_records() -> list[tuple[str, str]]:
    """Settings that have settings, by the path that leads to them."""
    from attnknn.encoders import ImageEncoder, LearnedTableEncoder

    found = []
    for part, title in ((LearnedTableEncoder(), ""), (ImageEncoder(), " of images")):
        for name in names_of(type(part)):
            record = _record(part, name)
            if record is not None:
                found.append((f"….{name}{title}", ", ".join(names_of(type(record)))))
            for inner in names_of(type(record)) if record is not None else ():
                value = getattr(record, inner)
                if is_dataclass(value) and not isinstance(value, type):
                    found.append((f"….{name}.{inner}{title}", ", ".join(names_of(type(value)))))
    return found
