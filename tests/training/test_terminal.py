"""Progress on the terminal; Ctrl-C waits for the end of a block and is not lost."""

from __future__ import annotations

import signal
import time

import pytest

from attnknn import AttnKNNClassifier
from attnknn.training import terminal
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


@pytest.fixture
def terminal_at_once(monkeypatch):
    """A terminal on which progress is shown without delay."""
    monkeypatch.setattr(terminal, "DELAY", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")


def shown_until(text, capsys):
    until, shown = time.monotonic() + 5, ""
    while text not in shown and time.monotonic() < until:
        shown += capsys.readouterr().err
        time.sleep(0.01)
    return shown


@pytest.mark.usefixtures("terminal_at_once")
def test_long_work_and_what_it_tracks_are_shown_together(capsys):
    with terminal.show_progress("Fitting 400 rows"):
        for _ in terminal.track([1, 2], "Searching neighbors"):
            assert "Fitting 400 rows" in shown_until("Searching neighbors", capsys)
        with progress_bar("Learning the embedding", 3, verbose=1) as advance:
            advance("loss [0.5]")
            assert "loss [0.5]" in shown_until("loss [0.5]", capsys)


@pytest.mark.usefixtures("terminal_at_once")
def test_short_work_is_not_shown(capsys, monkeypatch):
    monkeypatch.setattr(terminal, "DELAY", 60.0)
    with terminal.show_progress("Fitting 3 rows") as report:
        report("soon done")
        list(terminal.track([1, 2], "Searching neighbors"))
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("terminal_at_once")
def test_nothing_is_shown_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.delenv("FORCE_COLOR")
    with terminal.show_progress("Fitting"), progress_bar("Steps", 2, verbose=1) as advance:
        advance("note")
        time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


def test_what_is_tracked_is_unchanged_without_progress():
    items = [3, 1]
    assert terminal.track(items, "Counting") is items


@pytest.mark.usefixtures("terminal_at_once")
def test_a_fit_shows_progress_only_if_it_is_asked_to(monkeypatch):
    shown = []
    monkeypatch.setattr(terminal._Display, "__enter__", lambda self: shown.append(1) or self)
    monkeypatch.setattr(terminal._Display, "__exit__", lambda *_: None)
    X, y = [[0.0], [1.0], [4.0], [5.0]], [0, 0, 1, 1]
    AttnKNNClassifier(attention="distance").fit(X, y)
    assert not shown
    AttnKNNClassifier(attention="distance", verbose=1).fit(X, y)
    assert shown == [1]
