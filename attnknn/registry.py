"""Find encoders, memories and attentions by name.

A class becomes known to Python, the command line and model folders by one decorator::

    @register("attention", "nearest-only")
    class NearestOnly(Attention): ...

Other packages add theirs through entry points of the groups `attnknn.attentions`,
`attnknn.encoders` and `attnknn.memories`; each entry point names such a class.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from typing import Any, Literal, TypeVar

from attnknn.errors import InvalidSettingError, unknown_name

Kind = Literal["attention", "encoder", "memory"]
_Class = TypeVar("_Class", bound=type)

BUILT_IN = {
    "attention": "attnknn.attention",
    "encoder": "attnknn.encoders",
    "memory": "attnknn.memory",
}
ENTRY_POINTS = {
    "attention": "attnknn.attentions",
    "encoder": "attnknn.encoders",
    "memory": "attnknn.memories",
}
_CLASSES: dict[str, dict[str, type]] = {kind: {} for kind in BUILT_IN}


@dataclass(frozen=True)
class Option:
    """A command-line option of `attnknn fit` that a registered class reads.

    A class lists its options in the class attribute `options`; the command line passes those that
    were given, by `parameter`, to the classmethod `from_options`, or to the constructor.

    Parameters
    ----------
    flag : str
        Name on the command line, such as `--embed-dim`.
    parameter : str
        Name of the argument that receives the value.
    help : str
        One sentence for `attnknn fit --help`.
    type : type, default=str
        `str`, `int`, `float` or `bool`; a `bool` is a flag without a value.
    choices : tuple of str, default=()
        The values allowed; empty allows any.
    minimum : float, default=None
        The smallest number allowed.
    """

    flag: str
    parameter: str
    help: str
    type: type = str
    choices: tuple[str, ...] = ()
    minimum: float | None = None


def register(kind: Kind, name: str) -> Callable[[_Class], _Class]:
    """Class decorator that makes a class known by a short name.

    Parameters
    ----------
    kind : {'attention', 'encoder', 'memory'}
    name : str
        The short name, as in `AttnKNNClassifier(attention=name)` and `--attention name`.

    Returns
    -------
    callable
        A decorator that returns the class itself, with the attribute `registered_name`.
    """

    def decorate(cls: _Class) -> _Class:
        known = _CLASSES[kind].get(name)
        if known is not None and known.__qualname__ != cls.__qualname__:
            raise InvalidSettingError(
                f"The {kind} name {name!r} is taken by {known.__module__}.{known.__qualname__}. "
                "Register the class under another name."
            )
        cls.registered_name = name  # type: ignore[attr-defined]
        _CLASSES[kind][name] = cls
        return cls

    return decorate


def registered(kind: Kind) -> dict[str, type[Any]]:
    """All classes of a kind by name: built-in ones, and those of installed packages.

    >>> sorted(registered("memory"))
    ['auto', 'faiss', 'numpy', 'postgres', 'torch']
    """
    importlib.import_module(BUILT_IN[kind])
    _load_entry_points(kind)
    return dict(_CLASSES[kind])


def find(kind: Kind, name: str, *also: str) -> type[Any]:
    """The class registered under `name`; an unknown name is an error that lists the known ones.

    Names in `also` are listed there too, such as `'auto'` where the caller handles it.
    """
    known = registered(kind)
    if name not in known:
        raise unknown_name(kind, name, [*known, *also])
    return known[name]


@cache
def _load_entry_points(kind: Kind) -> None:
    for point in entry_points(group=ENTRY_POINTS[kind]):
        register(kind, point.name)(point.load())
