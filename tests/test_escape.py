"""Texts from data that are shown, written to spreadsheets and to Markdown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnknn._escape import guard_formula, markdown_text, unguard_formula, visible, visible_lines

STARTS = tuple("=+-@\t\r\n＝＋－＠")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J\x07", r"\x1b[2J\x07"),
        ("\x1b]0;title\x9c", r"\x1b]0;title\x9c"),
        ("\x7f\x85\u2028\u2029", r"\x7f\x85\u2028\u2029"),
        ("\u202etxt\u2066\u200b\ufeff", r"\u202etxt\u2066\u200b\ufeff"),
        ("\U000e0041", r"\U000e0041"),
        ("a\r\n\tb", r"a\r\n\tb"),
        ("\udc80", r"\udc80"),
        ("naïve 日本 🙂\u00a0x", "naïve 日本 🙂\u00a0x"),
    ],
)
def test_control_characters_are_shown_as_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert visible(shown) == shown


def test_a_text_of_several_lines_keeps_its_line_breaks() -> None:
    assert visible_lines("a\nb\x1b\r\n") == "a\nb\\x1b\\r\n"


@given(st.text())
def test_every_text_comes_back_from_a_cell_and_none_begins_like_a_formula(text: str) -> None:
    cell = guard_formula(text)
    assert unguard_formula(cell) == text
    assert not cell.startswith(STARTS)


@given(st.sampled_from(STARTS), st.text("'=+a"))
def test_apostrophes_before_a_formula_come_back(start: str, text: str) -> None:
    for whole in (f"{start}{text}", f"'{start}{text}", f"''{start}", f"'{text}"):
        assert unguard_formula(guard_formula(whole)) == whole


def test_markdown_has_no_markup_of_the_data() -> None:
    escaped = markdown_text("<script>alert(1)</script>[x](javascript:y)|`a`*b*&lt;\n# c")
    assert "<s" not in escaped.replace("\\<", "")
    assert escaped.endswith(r"\&lt; # c")
    assert "\n" not in escaped
    assert "](" not in escaped.replace("\\](", "")
