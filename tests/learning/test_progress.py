"""Progress: silent unless asked, and then on the error stream."""

from __future__ import annotations

from attnknn.learning.progress import progress_bar


def test_progress_is_silent_unless_asked(capsys):
    with progress_bar("Work", 2, verbose=0) as advance:
        advance("a note")
    assert capsys.readouterr() == ("", "")


def test_progress_never_touches_the_output(capsys):
    with progress_bar("Work", 2, verbose=1) as advance:
        advance("a note")
    assert capsys.readouterr().out == ""
