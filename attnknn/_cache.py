"""Where this package keeps what can be downloaded or computed again."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """This user's cache of this package, by the custom of the platform."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "attnknn"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else Path.home() / "AppData" / "Local") / "attnknn" / "Cache"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "attnknn"
