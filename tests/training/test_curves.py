"""The curves of a training are drawn from its outcome, whole, and from zero."""

from __future__ import annotations

import pytest

from attnknn.training.course import Outcome
from attnknn.training.curves import draw_curves

pytest.importorskip("matplotlib")


def test_curves_show_every_epoch_and_the_one_that_was_kept(tmp_path):
    outcome = Outcome([0.9, 0.5, 0.4], [1.2, 0.8, 0.6, 0.7])
    draw_curves(outcome, tmp_path / "curves.svg", "Learning")
    text = (tmp_path / "curves.svg").read_text()
    for words in ("trained rows", "held-out rows", "kept: epoch 2", "Learning"):
        assert words in text
    draw_curves(outcome, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
