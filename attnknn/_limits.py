"""How much RAM this process may still use, and an error for what would need more.

These functions check sizes that a file declares before its content is read: the shape in a header,
the pixels of an image, the rows of an archive. The operating system may grant more memory than
exists and kill the process when it uses it, so declared sizes are compared with the limit first.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from attnknn.errors import TooLargeError

UNKNOWN = 4 << 30  # where the system says nothing (Windows)


def available_bytes(limit: int | None = None) -> int:
    """Number of bytes of RAM that this process may still use.

    Parameters
    ----------
    limit : int, default=None
        An explicit number of bytes, which is returned instead of asking the system.

    Returns
    -------
    int
        The least of the available memory of the machine, the limits of the control groups (of
        Docker, Slurm and systemd) and the limit of the address space (`ulimit -v`).

    Examples
    --------
    >>> available_bytes(limit=1_000_000)
    1000000
    >>> available_bytes() > 0
    True
    """
    if limit is not None:
        return limit
    return max(0, min([_machine(), *_control_groups(), *_address_space()]))


def check_fits(what: str, n_bytes: int, remedy: str, *, limit: int | None = None) -> None:
    """Raise `TooLargeError` if something needs more RAM than this process may use.

    Parameters
    ----------
    what : str
        What needs the memory; the subject of the message.
    n_bytes : int
        Its size.
    remedy : str
        What the user can do; a sentence.
    limit : int, default=None
        An explicit bound; see `available_bytes`.

    Examples
    --------
    >>> check_fits("The table", 5_300_000_000, "Read fewer rows.", limit=2_000_000_000)
    Traceback (most recent call last):
    attnknn.errors.TooLargeError: The table would need 5.3 GB of memory, but only 2.0 GB are
    available. Read fewer rows.
    """
    available = available_bytes(limit)
    if n_bytes > available:
        raise TooLargeError(
            f"{what} would need {_shown(n_bytes)} of memory, but only {_shown(available)} are "
            f"available. {remedy}"
        )


def _shown(n_bytes: int) -> str:
    if n_bytes < 1e5:
        return f"{n_bytes / 1e3:,.1f} kB"
    return f"{n_bytes / 1e9:,.1f} GB" if n_bytes >= 1e8 else f"{n_bytes / 1e6:,.1f} MB"


def _machine() -> int:
    found = _proc_value("/proc/meminfo", "MemAvailable:")
    if found is not None:
        return found * 1024
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return UNKNOWN


def _control_groups() -> Iterator[int]:
    """Memory that the control groups of this process (v1 and v2) still allow."""
    for line in _lines("/proc/self/cgroup"):
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            root, names = "/sys/fs/cgroup", ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            root, names = (
                "/sys/fs/cgroup/memory",
                ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            )
        else:
            continue
        group = Path(root, place.strip("/"))
        for folder in (group, *group.parents):  # a group is bound by those above it
            if folder.is_relative_to(root):
                yield from _left(folder, *names)


def _left(folder: Path, limit_name: str, usage_name: str) -> Iterator[int]:
    limit, usage = (_lines(folder / name) for name in (limit_name, usage_name))
    if limit and usage and limit[0].isdigit() and usage[0].isdigit():
        # Pages of files that were read count as used, but are given back on demand.
        stat = folder / "memory.stat"
        cached = _proc_value(stat, "total_inactive_file") or _proc_value(stat, "inactive_file") or 0
        yield int(limit[0]) - int(usage[0]) + cached


def _address_space() -> Iterator[int]:
    if sys.platform == "win32":
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        pages = _lines("/proc/self/statm")
        used = int(pages[0].split()[0]) * resource.getpagesize() if pages else 0
        yield limit - used


def _proc_value(path: str | Path, name: str) -> int | None:
    """The number after `name` in a file of lines such as "MemAvailable: 24684100 kB"."""
    values = (line.split() for line in _lines(path))
    return next((int(words[1]) for words in values if words[0] == name), None)


def _lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
