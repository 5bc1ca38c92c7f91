"""Pictures of entries, from the folders that the operator allowed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnknn.serving.errors import Refusal

TYPES = {".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg"}
BEGINNINGS = {"image/png": b"\x89PNG\r\n\x1a\n", "image/jpeg": b"\xff\xd8\xff"}
MAX_BYTES = 20_000_000
MAX_PATH = 1000  # characters


class EntryImages:
    """Finds the pictures that payloads name.

    A payload names a picture if it is the path of a PNG or JPEG file below one of the folders.

    Parameters
    ----------
    folders : that may be shown
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = [folder.resolve() for folder in folders]

    def has(self, payload: Any) -> bool:
        """Whether a payload names a picture that may be shown."""
        return bool(self._folders) and self._find(payload) is not None

    def read(self, payload: Any) -> tuple[bytes, str]:
        """The bytes and the type of a picture."""
        path = self._find(payload)
        if path is not None and path.stat().st_size <= MAX_BYTES:
            content, kind = path.read_bytes(), TYPES[path.suffix.lower()]
            if content.startswith(BEGINNINGS[kind]):
                return content, kind
        raise Refusal(404, "NoImageError", "This entry has no picture that may be shown.")

    def _find(self, payload: Any) -> Path | None:
        if not isinstance(payload, str) or len(payload) > MAX_PATH or "\0" in payload:
            return None
        if Path(payload).suffix.lower() not in TYPES:
            return None
        for folder in self._folders:
            try:
                path = (folder / payload).resolve()
                if path.is_relative_to(folder) and path.is_file():
                    return path
            except OSError:  # a name that is too long, a link to itself
                continue
        return None
