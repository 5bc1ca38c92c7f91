"""Progress on the terminal, and Ctrl-C that waits for the end of a block."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from threading import Timer
from types import FrameType
from typing import Any, TypeVar

from attnknn._escape import visible

DELAY = 2.0  # seconds before progress is shown
Report = Callable[..., None]  # takes a note, and how many steps were done
Item = TypeVar("Item")


def print_line(text: str, verbose: int) -> None:
    """Print to stderr where it is not a terminal and so shows no progress bar."""
    if verbose and not sys.stderr.isatty():
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()


class _Display:
    """Lines of progress on stderr, one for each task that runs; they appear after `DELAY`."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        description = TextColumn("{task.description}", markup=False)
        columns = (SpinnerColumn(), description, _bar_column(), TimeElapsedColumn())
        note = TextColumn("{task.fields[note]}", markup=False)
        self._bar = Progress(*columns, note, console=Console(stderr=True), transient=True)
        self._timer = Timer(DELAY, self._bar.start)
        self._timer.daemon = True

    def __enter__(self) -> _Display:
        self._timer.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        self._timer.join()
        self._bar.stop()

    @contextmanager
    def task(self, title: str, total: int | None) -> Iterator[Report]:
        """A line that is removed at the end of the block."""
        line = self._bar.add_task(visible(title), total=total, note="")

        def report(note: str = "", n_done: int = 1) -> None:
            self._bar.update(line, advance=n_done, note=visible(note))

        try:
            yield report
        finally:
            self._bar.remove_task(line)


def _bar_column() -> Any:
    """A bar for tasks of a known length; the others have the spinner."""
    from rich.progress import BarColumn, ProgressColumn
    from rich.text import Text

    class Column(ProgressColumn):
        def __init__(self) -> None:
            super().__init__()
            self._bar = BarColumn(bar_width=30)

        def render(self, task: Any) -> Any:
            return Text("") if task.total is None else self._bar.render(task)

    return Column()


_display: ContextVar[_Display | None] = ContextVar("display", default=None)


@contextmanager
def show_progress(title: str, *, is_wanted: bool = True) -> Iterator[Report]:
    """Show the block on the terminal, and what it tracks, if it takes longer than two seconds.

    Yields a function to call with a short note. Nothing is shown unless stderr is a terminal.

    >>> with show_progress("Reading rows.csv") as report:
    ...     report("20 rows")
    """
    display = _display.get()
    if display is not None:
        with display.task(title, None) as report:
            yield report
    elif not is_wanted or not is_terminal():
        yield _ignore
    else:
        with _Display() as display, display.task(title, None) as report:
            outer = _display.set(display)
            try:
                yield report
            finally:
                _display.reset(outer)


@contextmanager
def progress_bar(title: str, total: int, verbose: int = 0) -> Iterator[Report]:
    """A function to call after each of `total` steps with a short note.

    The bar is part of the progress that is shown; without it there is one only if `verbose`.

    >>> with progress_bar("Nothing", 3) as advance:
    ...     advance("done")
    """
    with ExitStack() as stack:
        display = _display.get()
        if display is None and verbose and is_terminal():
            display = stack.enter_context(_Display())
        if display is None:
            yield _ignore
        else:
            yield stack.enter_context(display.task(title, total))


def track(items: Sequence[Item], title: str) -> Iterable[Item]:
    """The items; how many are done is part of the progress, where that is shown.

    >>> list(track([1, 2], "Counting"))
    [1, 2]
    """
    return items if _display.get() is None or len(items) < 2 else _tracked(items, title)


def _tracked(items: Sequence[Item], title: str) -> Iterator[Item]:
    with progress_bar(title, len(items)) as advance:
        for item in items:
            yield item
            advance("")


def is_terminal() -> bool:
    """Whether stderr is a terminal, or is to be taken for one."""
    return sys.stderr.isatty() or bool(os.environ.get("FORCE_COLOR"))


def _ignore(note: str = "", n_done: int = 1) -> None:
    pass


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
