"""Contents become files, with a manifest of their checksums."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.storage.contents import SETTINGS, Contents
from attnknn.storage.folder import FORMAT, MANIFEST, VERSION

LINES_AT_ONCE = 4096


def write_files(contents: Contents, folder: Path) -> None:
    """Write everything to an empty folder, each file synced; the manifest comes last."""
    files = {name: _write(folder / name, parts) for name, parts in files_of(contents)}
    write_manifest(folder, {"version": VERSION, "files": files})


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Say what the folder holds."""
    _write(folder / MANIFEST, [_as_json({"format": FORMAT, **manifest})])


def files_of(contents: Contents) -> Iterator[tuple[str, Iterable[Any]]]:
    """Each file's name and its bytes in parts."""
    yield SETTINGS, [_as_json(contents.settings)]
    for name, array in contents.arrays.items():
        yield f"{name}.npy", npy(array)
    for name, lines in contents.lines.items():
        yield f"{name}.jsonl", _joined(lines)
    for name, tensors in contents.tensors.items():
        from safetensors.torch import save

        yield f"{name}.safetensors", [save(tensors)]


def _write(path: Path, parts: Iterable[Any]) -> dict[str, Any]:
    digest, size = hashlib.sha256(), 0
    with open(path, "xb") as file:
        for part in parts:
            digest.update(part)
            size += file.write(part)
        file.flush()
        os.fsync(file.fileno())
    return {"bytes": size, "sha256": digest.hexdigest()}


def npy(array: NDArray[Any]) -> Iterable[Any]:
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
