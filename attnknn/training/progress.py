"""A progress bar on the terminal's error stream, or none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def tell(text: str, verbose: int) -> None:
    """A line on the error stream where it is no terminal, and so shows no bar."""
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
