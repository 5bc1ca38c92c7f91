"""Progress on the terminal; Ctrl-C waits for the end of a block and is not lost."""

from __future__ import annotations

import signal

import pytest

from attnknn.training.terminal import delay_interrupts, print_line, progress_bar


def test_progress_is_silent_unless_asked(capsys):
    with progress_bar("Work", 2, verbose=0) as advance:
        advance("a note")
    assert capsys.readouterr() == ("", "")


def test_progress_never_touches_the_output(capsys):
    with progress_bar("Work", 2, verbose=1) as advance:
        advance("a note")
    assert capsys.readouterr().out == ""


def test_a_log_gets_lines_where_a_terminal_gets_a_bar(capsys, monkeypatch):
    print_line("epoch 1 of 2", verbose=0)
    print_line("epoch 2 of 2", verbose=1)
    assert capsys.readouterr() == ("", "epoch 2 of 2\n")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    print_line("epoch 3 of 2", verbose=1)
    assert capsys.readouterr().err == ""


def test_an_interrupt_counts_after_the_block():
    done = []

    def work():
        with delay_interrupts():
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
        with delay_interrupts():
            signal.raise_signal(signal.SIGINT)
            raise RuntimeError("disk is full")

    with pytest.raises(RuntimeError, match="disk"):
        work()
    assert signal.getsignal(signal.SIGINT) is usual


def test_other_threads_get_none():
    import threading

    done = []

    def work():
        with delay_interrupts():
            done.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert done
