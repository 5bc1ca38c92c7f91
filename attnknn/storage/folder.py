"""A folder is replaced whole or not at all, and found again after a crash.

The new folder is written beside the old one, every file and the folder itself synced to disk.
Then the old one is renamed to *previous*, the new one takes its place, and *previous* is removed.
A process that is killed leaves one of three states:

- before the first rename: the old folder in place, and perhaps an unfinished one beside it;
- between the two renames: no folder in place, the old one whole under the name *previous*;
- after the second: the new folder in place, and perhaps a part of *previous* beside it.

So a folder in place is always whole, and *previous* counts only where there is none. The next save
clears away what is left over.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from attnknn.errors import ModelFolderError
from attnknn.storage.locking import LOCK, WriterLock, locked

FORMAT = "attnknn-model"
VERSION = 1
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 1 << 20
STORE_VERSION = 3  # of a folder whose model is edited: its contents are in a store
STORE = "entries.sqlite"
STORE_FILES = frozenset({STORE, f"{STORE}-wal", f"{STORE}-shm", LOCK})


def previous_of(path: Path) -> Path:
    """Where the old folder is while a new one takes its place."""
    return path.with_name(f".{path.name}.attnknn-previous")


def version_of(path: Path) -> str:
    """What tells the model in the folder `path` from others; empty where there is none."""
    try:
        text = read_manifest(path)
    except OSError:
        return ""
    return hashlib.sha256(text).hexdigest()


def is_model(path: Path) -> bool:
    """Whether the folder `path` says that it is a model of ours, whole or damaged."""
    return manifest_names(path) is not None


def manifest_names(path: Path) -> set[str] | None:
    """The names of the files of a model, its manifest's too, or None for another folder."""
    try:
        manifest = json.loads(read_manifest(path))
        held = STORE_FILES if manifest["version"] == STORE_VERSION else frozenset({LOCK})
        return {MANIFEST, *manifest["files"], *held} if manifest["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def has_store(path: Path) -> bool:
    """Whether the folder `path` is a model that was opened for editing."""
    names = manifest_names(path)
    return names is not None and STORE in names


def read_manifest(path: Path) -> bytes:
    """What the manifest of a folder says."""
    with open_regular(path / MANIFEST) as file:
        return file.read(LARGEST_MANIFEST)


def open_regular(path: Path) -> BinaryIO:
    """A file that is neither a link nor a device nor a pipe, which might never end."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise OSError("not a regular file")
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError("not a regular file")
    return file


def clear_leftovers(path: Path) -> None:
    """Remove what killed saves left beside a folder, and put back what they moved aside."""
    with locked(path.parent):
        _clear_leftovers(path)


@contextlib.contextmanager
def replace_folder(
    path: Path, *, version: str | None = None, refuse: Callable[[Path], None] | None = None
) -> Iterator[Path]:
    """A new, empty folder to fill; it takes the place of `path` when the block ends well.

    Parameters
    ----------
    version : the `version_of` the folder to replace; another one is left as it is, with an error
    refuse : raises an error where the folder must stay; called when nobody else may write
    """
    path = path.resolve()
    refuse_foreign(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held, locked(path.parent):
        if has_store(path):  # whoever edits it must not lose an edit
            held.callback(WriterLock(path).release)
        _clear_leftovers(path)
        if refuse is not None:
            refuse(path)
        if version is not None and version_of(path) != version:
            raise ModelFolderError(
                f"The model at {path} was replaced while it was being opened. It is left as it is; "
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


def refuse_foreign(path: Path) -> None:
    """An error where `path` holds anything that is not a part of a model."""
    if not os.path.lexists(path):
        return
    if not path.is_dir():
        raise ModelFolderError(f"{path} is a file; a model is saved to a folder of its own.")
    held = {item.name for item in path.iterdir()}
    names = manifest_names(path)
    if held and names is None:
        raise ModelFolderError(
            f"{path} is not a model folder (it holds {_listed(held)}) and is left as it is. "
            "Save to another path."
        )
    novel = held - (names or set())
    if novel:
        raise ModelFolderError(
            f"The model folder {path} also holds {_listed(novel)}, which saving would remove. "
            "Move that away, or save to another path."
        )


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open folders
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _swap(new: Path, path: Path) -> None:
    previous = previous_of(path)
    has_old = path.exists()
    if has_old:
        os.rename(path, previous)
    try:
        os.rename(new, path)
        sync(path.parent)  # else the old folder might be gone before the new one is there
    except BaseException:
        if path.exists():
            os.rename(path, new)
        if has_old:
            os.rename(previous, path)
        raise
    _clear_leftovers(path)


def _clear_leftovers(path: Path) -> None:
    """Put things in order after a save, also one that was killed."""
    previous = previous_of(path)
    if previous.exists() and not path.exists():
        os.rename(previous, path)
    beside = path.parent.glob(f".{_plain(path.name)}.attnknn-*")
    for leftover in beside:
        if leftover.name.startswith((previous.name, f".{path.name}.attnknn-saving-")):
            shutil.rmtree(leftover, ignore_errors=True)


def _plain(name: str) -> str:
    """A name with what `glob` would read as a pattern taken literally."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _listed(names: set[str]) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
