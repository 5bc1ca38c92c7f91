"""Write a page of the API reference for every public package, from its `__all__`.

`docs/conf.py` calls `write_api_pages` before Sphinx reads the sources, so that the reference always
lists what the packages export.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

from tools.check_docstrings import public_objects, public_packages

# What users need first; the other packages follow in alphabetical order.
FIRST = ("attnknn", "attnknn.encoders", "attnknn.memory", "attnknn.attention", "attnknn.conformal")
HEADER = """API reference
=============

Look up a class or function here: its parameters, defaults, return values and examples. Most
programs need only the names of the first page, `attnknn`.

.. toctree::
   :maxdepth: 1

"""


def write_api_pages(folder: Path) -> None:
    """Write `index.rst` and a page per package into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    canonical = {id(public.thing): public.name for public in public_objects()}
    pages = [package for package in public_packages() if _exports(package, canonical)]
    pages.sort(key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
    _remove_old(folder, {"index", *pages})
    _remove_old(folder / "generated", set(canonical.values()))
    _write(folder / "index.rst", HEADER + "".join(f"   {page}\n" for page in pages))
    for page in pages:
        _write(folder / f"{page}.rst", _page(page, _exports(page, canonical)))


def _exports(package: str, canonical: dict[int, str]) -> dict[str, list[str]]:
    """Names of classes and of functions that a package exports, by kind."""
    module = importlib.import_module(package)
    things = [getattr(module, name) for name in getattr(module, "__all__", ())]
    kinds: dict[str, list[str]] = {}
    for thing in things:
        if id(thing) in canonical:
            kind = "Classes" if inspect.isclass(thing) else "Functions"
            kinds.setdefault(kind, []).append(canonical[id(thing)])
    return kinds


def _page(package: str, exports: dict[str, list[str]]) -> str:
    lines = [package, "=" * len(package), "", f".. automodule:: {package}", "   :no-members:", ""]
    lines += [".. currentmodule:: attnknn", ""]  # the names below start there
    for kind, names in sorted(exports.items()):
        lines += [kind, "-" * len(kind), "", ".. autosummary::", "   :toctree: generated"]
        lines += [
            "   :nosignatures:",
            "",
            *(f"   ~{name.removeprefix('attnknn.')}" for name in names),
            "",
        ]
    return "\n".join(lines) + "\n"


def _remove_old(folder: Path, names: set[str]) -> None:
    """Remove pages of an earlier build whose subject no longer exists."""
    for path in folder.glob("*.rst"):
        if path.stem not in names:
            path.unlink()


def _write(path: Path, text: str) -> None:
    """Write only what differs, so that Sphinx reads again only what changed."""
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
