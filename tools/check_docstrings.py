"""Validate the docstrings of everything public with numpydoc; `make check` runs this.

Public is what `__all__` of `attnknn` and of its packages names: functions, and classes with their
public methods. Every summary, parameter and return value must be described, and every function and
class must have an example.

    python -m tools.check_docstrings                    # what `make check` demands
    python -m tools.check_docstrings attnknn.memory     # every problem below one name
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from numpydoc.docscrape import get_doc_object
from numpydoc.validate import validate

# Codes of numpydoc. Left out: matters of taste (capitals, blank lines, "See Also").
CHECKS = {
    *("GL03", "GL05", "GL06", "GL07", "GL08", "GL10"),  # docstring exists, sections are well formed
    *("SS01", "SS02", "SS03", "SS04", "SS06"),  # one-line summary that is a sentence
    *("PR01", "PR02", "PR03", "PR04", "PR05", "PR06", "PR07", "PR10"),  # parameters, with types
    *("RT01", "RT03", "YD01"),  # return and yield values
    "EX01",  # examples; of classes and functions, not of methods
}
FOR_METHODS = CHECKS - {"EX01"}
FOR_PROPERTIES = {"GL08", "SS01", "SS02", "SS03", "SS04", "SS06"}
SKIPPED_PACKAGES = ("attnknn.cli",)  # its interface is `attnknn --help`


@dataclass(frozen=True)
class Public:
    """One documented object: its name, the module that defines it, and the checks it must pass."""

    name: str
    module: str
    thing: Any
    checks: frozenset[str]

    def problems(self) -> list[str]:
        """One line per numpydoc error."""
        if inspect.isclass(self.thing) and not (self.thing.__doc__ or "").strip():
            return [f"{self.name}: GL08 The object does not have a docstring"]
        found = validate(_doc_object(self.thing))["errors"]
        return [
            f"{self.name}: {code} {message}"
            for code, message in found
            if code in self.checks and not self._is_excused(code)
        ]

    def _is_excused(self, code: str) -> bool:
        """Fields of a dataclass may stand under Attributes; protocols have no parameters."""
        if code == "PR01" and getattr(self.thing, "_is_protocol", False):
            return True
        if code not in ("PR01", "PR02", "PR03") or not dataclasses.is_dataclass(self.thing):
            return False
        documented = _doc_object(self.thing)
        names = {p.name for part in ("Parameters", "Attributes") for p in documented[part]}
        fields = {f.name for f in dataclasses.fields(self.thing) if f.init}
        return fields <= {part.strip() for name in names for part in name.split(",")}


def _doc_object(thing: Any) -> Any:
    # The list of methods that numpydoc adds to classes would be searched for a docstring each.
    return get_doc_object(thing, config={"show_class_members": False})


def public_packages() -> Iterator[str]:
    """`attnknn` and its packages that name what is public."""
    package = importlib.import_module("attnknn")
    yield package.__name__
    for found in pkgutil.walk_packages(package.__path__, "attnknn."):
        if found.ispkg and not found.name.startswith(SKIPPED_PACKAGES):
            yield found.name


def public_objects() -> list[Public]:
    """Everything public, each object once."""
    seen: dict[int, Public] = {}
    for package in public_packages():
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if _is_ours(thing) and id(thing) not in seen:
                where = f"{package}.{name}"
                seen[id(thing)] = Public(where, thing.__module__, thing, frozenset(CHECKS))
    exported = [p.thing for p in seen.values() if inspect.isclass(p.thing)]
    methods = [
        method
        for public in list(seen.values())
        if inspect.isclass(public.thing)
        for method in _methods_of(public, exported)
    ]
    return [*seen.values(), *methods]


def _is_ours(thing: Any) -> bool:
    is_code = inspect.isclass(thing) or inspect.isfunction(thing)
    return is_code and thing.__module__.startswith("attnknn")


def _methods_of(public: Public, exported: list[Any]) -> Iterator[Public]:
    """Public methods and properties that the class defines itself or takes from a private base."""
    cls = public.thing
    owners = [cls, *(b for b in cls.__mro__[1:] if _is_ours(b) and b not in exported)]
    done: set[str] = set()
    for owner in owners:
        for name, value in vars(owner).items():
            if name.startswith("_") or name in done:
                continue
            done.add(name)
            if isinstance(value, staticmethod | classmethod):
                value = value.__func__
            is_property = isinstance(value, property | functools.cached_property)
            if not (is_property or inspect.isfunction(value)):
                continue
            if not value.__doc__ and _inherits_docstring(cls, name):
                continue
            checks = FOR_PROPERTIES if is_property else FOR_METHODS
            yield Public(f"{public.name}.{name}", owner.__module__, value, frozenset(checks))


def _inherits_docstring(cls: Any, name: str) -> bool:
    return any(getattr(vars(base).get(name), "__doc__", None) for base in cls.__mro__[1:])


def is_below(name: str, prefix: str) -> bool:
    """Whether a dotted name is `prefix` or inside it."""
    return name == prefix or name.startswith(f"{prefix}.")


def main(prefixes: list[str]) -> int:
    """Print the problems; 1 if there are any."""
    objects = [
        public
        for public in public_objects()
        if not prefixes
        or any(is_below(n, p) for p in prefixes for n in (public.name, public.module))
    ]
    lines = [problem for public in objects for problem in public.problems()]
    print("\n".join(lines) or f"{len(objects)} public docstrings: no problems.")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
