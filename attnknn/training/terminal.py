"""Progress on the terminal, and Ctrl-C that waits for the end of a block."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


def print_line(text: str, verbose: int) -> None:
    """Print to stderr where it is not a terminal and so shows no progress bar."""
    if verbose and not sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


@contextmanager
def progress_bar(title: str, total: int, verbose: int) -> Iterator[Callable[[str], None]]:
    """A function to call after each step with a short note; silent unless `verbose`.

    >>> with progress_bar("Nothing", 3, verbose=0) as advance:
    ...     advance("done")
    """
    if not verbose:
        yield lambda note: None  # noqa: ARG005
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    note_column = TextColumn("{task.fields[note]}")
    with Progress(*columns, note_column, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total, note="")

        def advance(note: str) -> None:
            bar.update(task, advance=1, note=note)

        yield advance


@contextmanager
def delay_interrupts() -> Iterator[None]:
    """Handle a Ctrl-C that arrives during the block after it.

    Only the main thread receives signals; a handler that is not Python's stays in place.
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    received: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: received.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if received:
        usual(*received[0])
