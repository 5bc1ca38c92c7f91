"""Replace a model folder as a whole or not at all, and recover it after a crash.

The new folder is written beside the old one, and every file and the folder itself are synced to
disk. Then the old folder is renamed to *previous*, the new one takes its place, and *previous* is
removed. A process that is killed leaves one of three states:

- before the first rename: the old folder in place, and perhaps an unfinished one beside it;
- between the two renames: no folder in place, the complete old one under the name *previous*;
- after the second rename: the new folder in place, and perhaps a part of *previous* beside it.

So a folder in place is always complete, and *previous* counts only if no folder is in place. The
next save removes leftovers.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from attnknn._output_files import sync
from attnknn._stored import open_regular
from attnknn.errors import ModelFolderError
from attnknn.storage.locking import LOCK, WriterLock, folder_lock

FORMAT = "attnknn-model"
VERSION = 4  # of a folder of files
STORE_VERSION = 5  # of a folder with a store, whose model is edited
ADDRESS = re.compile(r"(postgres(?:ql)?):/{1,2}(?=[^/])")
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 1 << 20
STORE = "entries.sqlite"
HEAD = "head.jsonl"  # the last acknowledged commit of the store
STORE_FILES = frozenset({STORE, f"{STORE}-wal", f"{STORE}-shm", HEAD, LOCK})


def previous_path(path: Path) -> Path:
    """Where the old folder is while a new one takes its place."""
    return path.with_name(f".{path.name}.attnknn-previous")


def fingerprint(path: Path) -> str:
    """A hash of the manifest, different for every model; empty if there is no manifest."""
    try:
        return hashlib.sha256(read_manifest(path)).hexdigest()
    except OSError:
        return ""


def is_model(path: Path) -> bool:
    """Whether a folder is a model folder, which may be damaged.

    Parameters
    ----------
    path : Path
        The folder; it may be missing.

    Returns
    -------
    bool
        True if the folder has a manifest of this format.

    Examples
    --------
    >>> is_model(Path("no such folder"))
    False
    """
    return _our_manifest(path) is not None


def has_store(path: Path) -> bool:
    """Whether a folder is a model that was opened for editing.

    Parameters
    ----------
    path : Path
        The folder; it may be missing.

    Returns
    -------
    bool
        True if the entries are in a store (SQLite), False if they are in files.

    Examples
    --------
    >>> has_store(Path("no such folder"))
    False
    """
    manifest = _our_manifest(path)
    return manifest is not None and manifest["version"] == STORE_VERSION


def _our_manifest(path: Path) -> dict[str, Any] | None:
    """Version and file names of a model folder of any version; None for other folders."""
    try:
        manifest = json.loads(read_manifest(path))
        found = {"version": manifest["version"], "files": set(manifest["files"])}
        return found if manifest["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def read_manifest(path: Path) -> bytes:
    """The content of the manifest of a folder."""
    with open_regular(path / MANIFEST) as file:
        return file.read(MAX_MANIFEST_BYTES)


def clear_leftovers(path: Path) -> None:
    """Remove what killed saves left beside a folder, and restore what they moved aside."""
    with folder_lock(path.parent):
        _clear_leftovers(path)


@contextlib.contextmanager
def replace_folder(
    path: Path, *, expected: str | None = None, check: Callable[[Path], None] | None = None
) -> Iterator[Path]:
    """Yield a new, empty folder that takes the place of `path` when the block ends without error.

    Parameters
    ----------
    expected : the `fingerprint` of the folder to replace, which the caller has locked; another one
        is kept, with an error
    check : raises an error if the folder must stay; called while nobody else may write
    """
    path = path.resolve()
    check_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack, folder_lock(path.parent):
        if expected is None and (has_store(path) or (path / LOCK).exists()):  # no edit may be lost
            stack.callback(WriterLock(path).release)
        _clear_leftovers(path)
        if check is not None:
            check(path)
        if expected is not None and fingerprint(path) != expected:
            raise ModelFolderError(
                f"The model at {path} was replaced while it was being opened. It was not changed; "
                "try again."
            )
        new = path.with_name(f".{path.name}.attnknn-saving-{secrets.token_hex(4)}")
        try:
            new.mkdir()
        except PermissionError as error:
            raise ModelFolderError(
                f"This user may not write to {path.parent}, where the model {path.name} is saved."
            ) from error
        try:
            yield new
            sync(new)
            _swap(new, path)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise


def check_replaceable(path: Path) -> None:
    """Raise an error if `path` holds anything that is not part of a model."""
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise ModelFolderError(f"{path} is a file; a model is saved to a folder of its own.")
    held = {item.name for item in path.iterdir()}
    manifest = _our_manifest(path)
    if held and manifest is None:
        raise ModelFolderError(
            f"{path} is not a model folder (it holds {_listed(held)}) and was not changed. "
            "Save to another path."
        )
    others = held - {MANIFEST, *STORE_FILES} - (manifest["files"] if manifest else set())
    if others:
        raise ModelFolderError(
            f"The model folder {path} also holds {_listed(others)}, which saving would remove. "
            "Move these files, or save to another path."
        )


def _swap(new: Path, path: Path) -> None:
    previous, has_old = previous_path(path), path.exists()
    if has_old:
        os.rename(path, previous)
    try:
        os.rename(new, path)
        sync(path.parent)  # else the old folder might be removed before the new one is on the disk
    except BaseException:
        if path.exists():
            os.rename(path, new)
        if has_old:
            os.rename(previous, path)
        raise
    _clear_leftovers(path)


def _clear_leftovers(path: Path) -> None:
    previous = previous_path(path)
    if previous.exists() and not path.exists():
        os.rename(previous, path)
    unfinished = re.compile(rf"\.{re.escape(path.name)}\.attnknn-saving-[0-9a-f]{{8}}")
    with contextlib.suppress(OSError):  # no folder, or one that may not be listed
        for name in os.listdir(path.parent):
            if name == previous.name or unfinished.fullmatch(name):
                shutil.rmtree(path.with_name(name), ignore_errors=True)


def _listed(names: set[str]) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def as_address(path: str | Path) -> str | None:
    """The address of a database that a path stands for, or None; `Path` merges its two slashes.

    >>> as_address(Path("postgres://ann@host/db?model=churn")), as_address("folder/model")
    ('postgres://ann@host/db?model=churn', None)
    """
    text = str(path)
    return ADDRESS.sub(r"\1://", text) if ADDRESS.match(text) else None
