"""Who may write: saves wait for each other, and a model that is edited has one writer."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from attnknn.errors import ModelBusyError, ModelFolderError

LOCK = "writer.lock"


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


class WriterLock:
    """The right to edit the model in a folder, until it is released or the process ends.

    Parameters
    ----------
    wait : seconds to wait for another writer
    """

    def __init__(self, folder: Path, *, wait: float = 0.0) -> None:
        until = time.monotonic() + wait
        while True:
            self._handle = _opened(folder)
            try:
                self._wait(folder, until)
            except BaseException:
                os.close(self._handle)
                raise
            if self._is_of(folder):
                return
            os.close(self._handle)  # the folder was replaced while we waited

    def _wait(self, folder: Path, until: float) -> None:
        while not _try_to_lock(self._handle):
            if time.monotonic() >= until:
                raise ModelBusyError(
                    f"The model {folder} is being edited by another process. Wait until it is done."
                )
            time.sleep(0.02)

    def _is_of(self, folder: Path) -> bool:
        try:
            there, ours = os.stat(folder / LOCK), os.fstat(self._handle)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)

    def release(self) -> None:
        """Let others write."""
        os.close(self._handle)


def _opened(folder: Path) -> int:
    try:
        return os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    except PermissionError as error:
        raise ModelFolderError(f"This user may not edit the model {folder}.") from error


def _try_to_lock(handle: int) -> bool:
    """True also where the system cannot lock: every commit looks whether others have edited."""
    try:
        import fcntl
    except ImportError:  # Windows
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # some network drives
        return True
    return True
