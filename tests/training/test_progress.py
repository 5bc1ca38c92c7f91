"""Progress: silent unless asked, and then on the error stream."""

from __future__ import annotations

from attnknn.training.progress import progress_bar, tell


def test_progress_is_silent_unless_asked(capsys):
    with progress_bar("Work", 2, verbose=0) as advance:
        advance("a note")
    assert capsys.readouterr() == ("", "")


def test_progress_never_touches_the_output(capsys):
    with progress_bar("Work", 2, verbose=1) as advance:
        advance("a note")
    assert capsys.readouterr().out == ""


def test_a_log_gets_lines_where_a_terminal_gets_a_bar(capsys, monkeypatch):
    tell("epoch 1 of 2", verbose=0)
    tell("epoch 2 of 2", verbose=1)
    assert capsys.readouterr() == ("", "epoch 2 of 2\n")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    tell("epoch 3 of 2", verbose=1)
    assert capsys.readouterr().err == ""
