"""Write files for users: whole or not at all, and never into a model folder.

Every report, table and figure is written with `replace_file` or `write_file`. The content goes to a
temporary file in the same folder, which is synced to disk and then renamed, so that a crash or a
full disk leaves the old file as it was.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnknn.errors import InvalidSettingError

MANIFEST, MODEL_MARK = "manifest.json", b'"attnknn-model"'
MAX_MANIFEST_BYTES = 1 << 20
STREAMS, STREAM_FOLDERS = {"/dev/stdout", "/dev/stderr"}, {"/dev/fd", "/proc/self/fd"}
# Errors of writing that do not name a file.
WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


def check_output(path: str | Path, *, force: bool = False) -> None:
    """Raise an error unless a file may be written at `path`; an existing one only with `force`.

    >>> check_output("missing/report.html")
    Traceback (most recent call last):
    attnknn.errors.InvalidSettingError: Folder not found: missing. Create it to write report.html.
    """
    path = Path(path)
    if is_special(path):
        return
    refuse_model_folder(path)
    target = _target(path)
    if target.is_dir():
        raise InvalidSettingError(f"The output must be a file, but {path} is a folder.")
    if target.exists() and not target.is_file():
        raise InvalidSettingError(f"The output must be a regular file or a stream, not {path}.")
    if not target.parent.is_dir():
        raise InvalidSettingError(
            f"Folder not found: {path.parent}. Create it to write {path.name}."
        )
    if target.exists() and not force:
        raise InvalidSettingError(
            f"{path} exists. Give `force=True` to replace it, or another name.", parameter="force"
        )


def refuse_model_folder(path: str | Path) -> None:
    """Raise an error if `path` is a model folder or inside one, also through links."""
    target = _target(path)
    for folder in (target, *target.parents):
        if _is_model(folder):
            raise InvalidSettingError(
                f"{path} is inside the model folder {folder}. Output must be written elsewhere; "
                "choose another path."
            )


def _target(path: str | Path) -> Path:
    """The file that a path means, without links and `..`."""
    return Path(os.path.realpath(path))


def _is_model(folder: Path) -> bool:
    manifest = folder / MANIFEST
    try:
        if not stat.S_ISREG(manifest.stat().st_mode):
            return False
        with manifest.open("rb") as file:
            return MODEL_MARK in file.read(MAX_MANIFEST_BYTES)
    except OSError:
        return False


def is_special(path: Path) -> bool:
    """Whether `path` is a stream such as /dev/stdout or /dev/null, which is written directly.

    A named pipe is not: without a reader, it would block for ever.
    """
    given = os.path.abspath(path)
    if given in STREAMS or os.path.dirname(given) in STREAM_FOLDERS:
        return True  # also if it is redirected to a regular file
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False


@contextmanager
def replace_file(path: str | Path, *, force: bool = False) -> Iterator[Path]:
    """A temporary file that takes the place of `path` when the block succeeds, else is deleted.

    It has the same ending. The errors are those of `check_output`, and come before the block.
    """
    path = Path(path)
    check_output(path, force=force)
    if is_special(path):
        with _naming(path, path):
            yield path
        return
    target = _target(path)
    temporary = target.with_name(f".attnknn-{secrets.token_hex(8)}{target.suffix}")
    with _naming(path, temporary):
        try:
            _create(temporary, like=target)
            yield temporary
            check_output(path, force=force)  # it may have appeared in the meantime
            publish(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def write_file(path: str | Path, content: str | bytes, *, force: bool = False) -> None:
    """Write a text (as UTF-8) or bytes to a file; see `replace_file`."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    with replace_file(path, force=force) as temporary:
        temporary.write_bytes(data)


def publish(temporary: Path, path: Path) -> None:
    """Rename a finished file; its content is on the disk before, its new name after."""
    sync(temporary)
    if path.exists():
        shutil.copymode(path, temporary)
    os.replace(temporary, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open folders
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _create(temporary: Path, *, like: Path) -> None:
    """Create a file that nobody may read who may not read the file that it replaces."""
    mode = like.stat().st_mode & 0o666 | 0o600 if like.exists() else 0o666
    os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))


@contextmanager
def _naming(path: Path, temporary: Path) -> Iterator[None]:
    """Errors of writing name the file that the user gave."""
    try:
        yield
    except OSError as error:
        is_unnamed = error.filename is None and error.errno in WRITE_ERRORS
        if is_unnamed or str(error.filename) == str(temporary):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise
