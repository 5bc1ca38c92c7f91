"""Contents become files, with a manifest of their checksums."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.storage.contents import SETTINGS, Contents
from attnknn.storage.folder import FORMAT, MANIFEST, VERSION

LINES_AT_ONCE = 4096


def write_files(contents: Contents, folder: Path) -> None:
    """Write everything to an empty folder, each file synced; the manifest comes last."""
    files = {SETTINGS: _write(folder / SETTINGS, [_as_json(contents.settings)])}
    for name, array in contents.arrays.items():
        files[f"{name}.npy"] = _write(folder / f"{name}.npy", _npy(array))
    for name, lines in contents.lines.items():
        files[f"{name}.jsonl"] = _write(folder / f"{name}.jsonl", _joined(lines))
    for name, tensors in contents.tensors.items():
        from safetensors.torch import save

        path = folder / f"{name}.safetensors"
        files[path.name] = _write(path, [save(tensors)])
    manifest = {"format": FORMAT, "version": VERSION, "files": files}
    _write(folder / MANIFEST, [_as_json(manifest)])


def _write(path: Path, parts: Iterable[Any]) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with open(path, "xb") as file:
        for part in parts:
            digest.update(part)
            size += file.write(part)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def _npy(array: NDArray[Any]) -> Iterable[Any]:
    """The bytes of a .npy file: its header, then the numbers, which are not copied."""
    array = np.ascontiguousarray(array)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(array))
    yield header.getvalue()
    if array.size:
        yield array.data.cast("B")


def _joined(lines: list[str]) -> Iterable[bytes]:
    for start in range(0, len(lines), LINES_AT_ONCE):
        yield "".join(f"{line}\n" for line in lines[start : start + LINES_AT_ONCE]).encode()


def _as_json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n").encode()
