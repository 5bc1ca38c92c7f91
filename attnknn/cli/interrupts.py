"""Ctrl-C and SIGTERM: a command ends at once, or after a training has kept its best state.

Trainings answer a `KeyboardInterrupt` by keeping the best epoch and going on. A command that did
not ask for this must not mistake such a model for a complete one, so by default signals raise
`Interrupted`, which no training catches.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import click

SIGNALS = f"{__name__}.signals"  # key in `Context.meta`


class Interrupted(BaseException):
    """A signal that ends the command."""


class Signals:
    """The signals that a command received, and whether the first one only ends a training."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self.ends_training = False

    @property
    def exit_code(self) -> int:
        """128 and the number of the signal, as of shells: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + (self.received[0] if self.received else signal.SIGINT)

    def receive(self, number: int, _: FrameType | None) -> None:
        """Handle a signal."""
        self.received.append(number)
        if self.ends_training and len(self.received) == 1:
            raise KeyboardInterrupt
        raise Interrupted


@contextmanager
def received_signals(ctx: click.Context) -> Iterator[Signals]:
    """Handle signals during a command; those that the caller ignores stay ignored."""
    signals = ctx.meta[SIGNALS] = Signals()
    usual: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    is_main = threading.current_thread() is threading.main_thread()
    ours = [number for number, by in usual.items() if is_main and signal.getsignal(number) == by]
    for number in ours:
        signal.signal(number, signals.receive)
    try:
        yield signals
    finally:
        for number in ours:
            signal.signal(number, usual[number])


def end_training_first() -> Signals:
    """Let the first signal only end a training, which keeps its best state."""
    signals: Signals = click.get_current_context().meta.setdefault(SIGNALS, Signals())
    signals.ends_training = True
    return signals
