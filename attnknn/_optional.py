"""Import optional packages when they are used; name the extra to install if one is missing."""

from __future__ import annotations

import importlib
from typing import Any

from attnknn.errors import MissingExtraError


def require(package: str, *, extra: str, needed_by: str, instead: str = "") -> Any:
    """Import `package`, or raise an error that names the extra to install.

    >>> require("json", extra="none", needed_by="this example").__name__
    'json'
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        hint = f", or use {instead}" if instead else ""
        raise MissingExtraError(
            f"{needed_by} needs {package}, which is not installed. "
            f"Install `attnknn[{extra}]`{hint}."
        ) from error
