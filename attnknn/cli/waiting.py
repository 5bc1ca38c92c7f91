"""A sign of life on the error stream for anything that takes longer than two seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer

PATIENCE = 2.0  # seconds


@contextmanager
def patience(doing: str) -> Iterator[Callable[[str], None]]:
    """Show what is being done, and for how long, once it has taken two seconds.

    Gives a function that changes the text. Silent where nobody watches a terminal.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None  # noqa: ARG005
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(doing)
    timer = Timer(PATIENCE, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda text: bar.update(task, description=text)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
