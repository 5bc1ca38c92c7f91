"""The folder for files that can be downloaded or computed again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Locate the cache folder of this package, by the convention of the platform.

    Returns
    -------
    Path
        The folder, which may not exist yet.

    Examples
    --------
    >>> "attnknn" in str(cache_folder())
    True
    """
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "attnknn"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "attnknn" / "Cache"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "attnknn"
