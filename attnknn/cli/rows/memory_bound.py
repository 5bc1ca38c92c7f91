"""How much memory the rows of a file may take: `--max-memory`, or what the system has left."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

import click

from attnknn._limits import available_bytes, check_fits
from attnknn.errors import InvalidInputError

if TYPE_CHECKING:
    from attnknn.cli.rows.sources import Chunk

MAX_MEMORY = f"{__name__}.max_memory"  # key in `Context.meta`
_LIMIT: ContextVar[int | None] = ContextVar("limit", default=None)
REMEDY = "Give a smaller file, or allow more with --max-memory."
SPECIAL = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def memory_bound() -> int:
    """Bytes that may be used from now on."""
    context = click.get_current_context(silent=True)
    given = _LIMIT.get() if context is None else context.meta.get(MAX_MEMORY)
    return available_bytes(given)


@contextmanager
def limited_memory(n_bytes: int) -> Iterator[None]:
    """Let files that are read in this block take at most `n_bytes`, where no command runs.

    >>> with limited_memory(1000):
    ...     memory_bound()
    1000
    """
    before = _LIMIT.set(min(n_bytes, available_bytes()))
    try:
        yield
    finally:
        _LIMIT.reset(before)


def check_size(path: Path, n_bytes: int, bound: int | None = None) -> None:
    """Raise an error if rows that need `n_bytes` do not fit."""
    check_fits(f"{path}", n_bytes, REMEDY, limit=memory_bound() if bound is None else bound)


def bytes_of(chunk: Chunk) -> int:
    """The memory of a chunk."""
    items = 0 if chunk.items is None else chunk.items.nbytes
    return items + int(chunk.table.memory_usage(deep=True).sum())


def refuse_special(path: Path) -> None:
    """Raise an error for a pipe or device, which might never end."""
    kind = SPECIAL.get(stat.S_IFMT(path.stat().st_mode))
    if kind is not None:
        raise InvalidInputError(
            f"{path} must be a regular file, but it is {kind}. Write its content to a file first."
        )


def parse_size(text: str) -> int | None:
    """The bytes of a size such as 2GB, 500 MB or 1.5GiB; None if it is no size.

    >>> parse_size("2GB"), parse_size("1.5 KiB"), parse_size("much")
    (2000000000, 1536, None)
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?)b?|b)?", text.strip().lower())
    if found is None:
        return None
    number, unit, is_binary = found.groups()
    power = " kmgt".index(unit or " ")
    return int(float(number) * (1024 if is_binary else 1000) ** power)
