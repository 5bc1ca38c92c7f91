"""Locks between processes: saves wait for each other, and an edited model has one writer."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from filelock import lock_descriptor

from attnknn.errors import ModelBusyError, ModelFolderError

LOCK = "writer.lock"
POLL_INTERVAL = 0.02  # seconds


@contextlib.contextmanager
def folder_lock(parent: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold a lock on the directory `parent`: exclusive for saves, shared for reads.

    File systems that cannot lock are used without a lock.
    """
    with contextlib.ExitStack() as stack:
        # Not by `filelock`: its locks are exclusive and leave a file beside the models.
        with contextlib.suppress(ImportError, OSError):  # Windows, some network drives
            import fcntl

            handle = os.open(parent, os.O_RDONLY)
            stack.callback(os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield


class WriterLock:
    """The exclusive right to edit the model in a folder, until release or the process ends.

    Parameters
    ----------
    wait : seconds to wait for another writer
    """

    # `filelock.FileLock` creates a missing folder, also while another process is swapping it. So
    # the file is opened here, and `filelock` only locks it.
    def __init__(self, folder: Path, *, wait: float = 0.0) -> None:
        self._folder, deadline = folder, time.monotonic() + wait
        while True:
            self._handle = _open_lock(folder)
            try:
                self._acquire(folder, deadline)
            except BaseException:
                os.close(self._handle)
                raise
            if self._is_current(folder):
                return
            os.close(self._handle)  # the folder was replaced while this process waited

    def release(self, *, remove_file: bool = False) -> None:
        """Let others write.

        Parameters
        ----------
        remove_file : whether to leave the folder as it was without the lock
        """
        if remove_file and self._is_current(self._folder):
            with contextlib.suppress(OSError):  # Windows cannot remove an open file
                os.unlink(self._folder / LOCK)  # while it is locked: whoever waits tries again
        os.close(self._handle)

    def _acquire(self, folder: Path, deadline: float) -> None:
        # Some network drives cannot lock; each commit checks for edits by other processes.
        with contextlib.suppress(OSError):
            while not lock_descriptor(self._handle, blocking=False):
                if time.monotonic() >= deadline:
                    raise ModelBusyError(
                        f"The model {folder} is being edited by another process. "
                        "Wait until it has finished."
                    )
                time.sleep(POLL_INTERVAL)

    def _is_current(self, folder: Path) -> bool:
        try:
            return os.path.samestat(os.stat(folder / LOCK), os.fstat(self._handle))
        except OSError:
            return False


def _open_lock(folder: Path) -> int:
    """Open or create the lock file, which must not be a link to another file."""
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(folder / LOCK, flags, 0o600)
    except PermissionError as error:
        raise ModelFolderError(
            f"You may not edit the model {folder}: no permission to write {LOCK} in it."
        ) from error
    except FileNotFoundError:
        raise
    except OSError as error:  # a link, a folder, a device
        raise _not_a_lock(folder) from error
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_a_lock(folder)
    return handle


def _not_a_lock(folder: Path) -> ModelFolderError:
    return ModelFolderError(f"The model folder {folder} cannot be edited: {LOCK} must be a file.")
