"""A folder is replaced whole or not at all, and found again after a crash.

The new folder is written beside the old one, every file and the folder itself synced to disk.
Then the old one is renamed to *previous*, the new one takes its place, and *previous* is removed.
A process that is killed leaves one of three states:

- before the first rename: the old folder in place, and perhaps an unfinished one beside it;
- between the two renames: no folder in place, the old one whole under the name *previous*;
- after the second: the new folder in place, and perhaps a part of *previous* beside it.

So a folder in place is always whole, and *previous* counts only where there is none. The next save
clears away what is left over.

Where the new folder is an edit of the old one, *previous* is not removed but renamed once more, to
a name that holds the version of the new one: only while that is in place can it be taken back.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

from attnknn.errors import ModelFolderError

FORMAT = "attnknn-model"
VERSION = 1
MANIFEST = "manifest.json"
LARGEST_MANIFEST = 1 << 20


def previous_of(path: Path) -> Path:
    """Where the old folder is while a new one takes its place."""
    return path.with_name(f".{path.name}.attnknn-previous")


def version_of(path: Path) -> str:
    """What tells the model in the folder `path` from others; empty where there is none."""
    try:
        text = (path / MANIFEST).read_bytes()[:LARGEST_MANIFEST]
    except OSError:
        return ""
    return hashlib.sha256(text).hexdigest()[:16]


def before_of(path: Path) -> Path:
    """Where the model is kept that an edit made into the one at `path`."""
    return path.with_name(f".{path.name}.attnknn-before-{version_of(path)}")


def is_model(path: Path) -> bool:
    """Whether the folder `path` says that it is a model of ours, whole or damaged."""
    return manifest_names(path) is not None


def manifest_names(path: Path) -> set[str] | None:
    """The names of the files of a model, its manifest's too, or None for another folder."""
    try:
        text = (path / MANIFEST).read_bytes()[:LARGEST_MANIFEST]
        manifest = json.loads(text)
        return {MANIFEST, *manifest["files"]} if manifest["format"] == FORMAT else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


@contextlib.contextmanager
def replace_folder(path: Path, *, edits: str | None = None) -> Iterator[Path]:
    """A new, empty folder to fill; it takes the place of `path` when the block ends well.

    Parameters
    ----------
    edits : the version that the new folder is an edit of. It must still be in place, and is kept
        until the next save, for `undo_edit`
    """
    path = path.resolve()
    refuse_foreign(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.parent):
        _clear_leftovers(path)
        if edits is not None and version_of(path) != edits:
            raise ModelFolderError(
                f"The model at {path} was replaced while it was being edited. It is left as it is; "
                "make the edit again."
            )
        new = path.with_name(f".{path.name}.attnknn-saving-{secrets.token_hex(4)}")
        new.mkdir()
        try:
            yield new
            sync(new)
            _swap(new, path, keeps_old=edits is not None)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise


@contextlib.contextmanager
def locked(parent: Path, *, to_read: bool = False) -> Iterator[None]:
    """Saves into `parent` wait for each other, and reads for saves, where the system can lock."""
    with contextlib.ExitStack() as held:
        with contextlib.suppress(ImportError, OSError):  # Windows, some network drives
            import fcntl

            handle = os.open(parent, os.O_RDONLY)
            held.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_SH if to_read else fcntl.LOCK_EX)
        yield


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
    strangers = held - (names or set())
    if strangers:
        raise ModelFolderError(
            f"The model folder {path} also holds {_listed(strangers)}, which saving would remove. "
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


def undo_edit(path: Path) -> None:
    """Put the model from before the last edit back in the place of `path`, whole or not at all."""
    path = path.resolve()
    refuse_foreign(path)
    with locked(path.parent):
        _clear_leftovers(path)
        if not is_model(path):
            raise ModelFolderError(f"There is no model folder at {path}.")
        before = before_of(path)
        if not is_model(before):
            raise ModelFolderError(
                f"There is no edit of {path} to take back: only the last one can be, until the "
                "model is saved again."
            )
        _swap(before, path)


def _swap(new: Path, path: Path, *, keeps_old: bool = False) -> None:
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
    if keeps_old:
        _keep(previous, before_of(path))
    _clear_leftovers(path)


def _keep(previous: Path, kept: Path) -> None:
    shutil.rmtree(kept, ignore_errors=True)  # of an edit that changed nothing
    try:
        os.rename(previous, kept)
    except OSError as error:
        warnings.warn(
            f"The edit is saved, but cannot be taken back: the model from before it could not be "
            f"kept ({error}).",
            stacklevel=2,
        )


def _clear_leftovers(path: Path) -> None:
    """Put things in order after a save, also one that was killed."""
    previous = previous_of(path)
    if previous.exists() and not path.exists():
        os.rename(previous, path)
    beside = path.parent.glob(f".{_plain(path.name)}.attnknn-*")
    kept = before_of(path)
    for leftover in beside:
        is_ours = leftover.name.startswith(
            (previous.name, f".{path.name}.attnknn-saving-", f".{path.name}.attnknn-before-")
        )
        if is_ours and leftover != kept:
            shutil.rmtree(leftover, ignore_errors=True)


def _plain(name: str) -> str:
    """A name with what `glob` would read as a pattern taken literally."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _listed(names: set[str]) -> str:
    shown = ", ".join(repr(name) for name in sorted(names)[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
