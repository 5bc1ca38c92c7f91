"""Ctrl-C waits, and is not lost."""

from __future__ import annotations

import signal

import pytest

from attnknn.training.interrupts import held_back


def test_an_interrupt_counts_after_the_block():
    done = []

    def work():
        with held_back():
            signal.raise_signal(signal.SIGINT)
            done.append(True)

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_error_in_the_block_comes_first():
    usual = signal.getsignal(signal.SIGINT)

    def work():
        with held_back():
            signal.raise_signal(signal.SIGINT)
            raise RuntimeError("disk is full")

    with pytest.raises(RuntimeError, match="disk"):
        work()
    assert signal.getsignal(signal.SIGINT) is usual


def test_other_threads_get_none():
    import threading

    done = []

    def work():
        with held_back():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
