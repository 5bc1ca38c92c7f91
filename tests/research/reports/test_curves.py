"""Curves: the losses of trainings, the epochs that were kept, and what is said of them."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("matplotlib")

from attnknn.errors import InvalidInputError
from attnknn.research.reports.curves import curve_section
from attnknn.research.reports.page import html_page
from attnknn.training.config import TrainResult

RUNS = {
    "narrow": TrainResult([0.9, 0.6, 0.5], [1.2, 0.8, 0.7, 0.9]),
    "wide, long": TrainResult([0.5], [1.1, 0.6], was_interrupted=True),
}


@pytest.fixture
def section():
    return curve_section(RUNS, "Training", "training")


def test_losses_stand_at_their_epochs(section):
    left, right = section.drawings[0].figure.axes
    trained = [(line.get_xdata()[0], list(line.get_ydata())) for line in left.lines]
    assert trained == [(1, run.train_losses) for run in RUNS.values()]
    held_out = [line for line in right.lines if line.get_marker() == "."]
    assert [list(line.get_ydata()) for line in held_out] == [
        run.validation_losses for run in RUNS.values()
    ]
    assert {line.get_xdata()[0] for line in held_out} == {0}
    for panel in (left, right):
        assert panel.get_ylim()[0] == panel.get_xlim()[0] == 0
    assert [text.get_text() for text in left.get_legend().get_texts()] == list(RUNS)


def test_a_ring_is_the_epoch_that_was_kept(section):
    rings = [line for line in section.drawings[0].figure.axes[1].lines if line.get_marker() == "o"]
    assert [(ring.get_xdata()[0], ring.get_ydata()[0]) for ring in rings] == [(2, 0.7), (1, 0.6)]


def test_sentences_follow_the_losses(section):
    first, rise, stopped = section.sentences
    assert first == ("Of 2 runs, “wide, long” has the lowest validation loss: 0.6000 in epoch 1.")
    assert rise.startswith("The validation loss of narrow was higher at the end (0.9000) than")
    assert stopped == "“wide, long” was interrupted after epoch 1."


def test_there_is_a_row_for_each_run(section):
    (grid,) = section.tables
    assert [list(row) for row in grid.rows] == [
        ["narrow", "3", "2", "1.2000", "0.7000", "0.5000"],
        ["wide, long", "1", "1", "1.1000", "0.6000", "0.5000"],
    ]
    assert grid.are_numbers() == [False, *[True] * 5]


def test_the_state_that_was_kept_counts_not_the_lowest_loss():
    run = TrainResult([0.9, 0.6], [1.2, 0.700, 0.701], tolerance=0.02)
    section = curve_section({"a": run}, "Training", "training")
    assert section.sentences == ["a has a validation loss of 0.7010 in epoch 2."]


def test_a_run_may_end_before_its_first_epoch_or_diverge():
    runs = {
        "none": TrainResult([], [1.2]),
        "wild": TrainResult([0.5, math.nan], [1.0, math.inf, 0.9]),
    }
    section = curve_section(runs, "Training", "training")
    assert section.tables[0].rows[0][-1] == "–"
    assert html_page("Training", [section]).count("<img") == 1


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(InvalidInputError, match="at least one run"):
        curve_section({}, "Training", "training")
    with pytest.raises(InvalidInputError, match="The run 'a' has no validation losses"):
        curve_section({"a": TrainResult([0.5], [])}, "Training", "training")


def test_a_training_that_experiments_share_is_shown_once():
    shared, other = TrainResult([0.9], [1.2, 0.8]), TrainResult([0.7], [1.1, 0.9])
    section = curve_section({"a": shared, "b": shared, "c": other}, "Trainings", "t")
    assert [row[0] for row in section.tables[0].rows] == ["a", "c"]


def test_many_losses_that_rise_share_a_sentence():
    runs = {str(n): TrainResult([0.9, 0.8], [1.2, 0.5 + n / 10, 0.9 + n / 10]) for n in range(5)}
    said = curve_section(runs, "Trainings", "t").sentences
    assert len(said) == 2
    assert "In 5 of 5 runs the validation loss was higher at the end" in said[1]


def test_terms_of_the_loss_have_panels_and_a_table():
    terms = {"vote": [0.6, 0.4], "attention entropy": [3.0, 2.0]}
    whole = TrainResult([0.9, 0.5], [1.2, 0.8, 0.7], components={**terms, "head": [0.3, 0.1]})
    resumed = TrainResult([0.8, 0.4], [1.1, 0.7, 0.6], components={"vote": [0.4]})
    plain = TrainResult([0.7], [1.0, 0.9])
    runs = {"whole": whole, "resumed": resumed, "plain": plain}
    section = curve_section(runs, "Trainings", "t")
    _, drawing = section.drawings
    shown = [panel for panel in drawing.figure.axes if panel.get_visible()]
    assert [panel.get_title() for panel in shown] == ["vote", "attention entropy", "head"]
    first, second = shown[0].lines
    assert first.get_ydata().tolist() == [0.6, 0.4]
    assert list(second.get_xdata()) == [2]  # the first epoch was not recorded
    assert section.tables[1].rows == [
        ["whole", "0.4000", "2.0000", "0.1000"],
        ["resumed", "0.4000", "–", "–"],
    ]
    assert len(curve_section({"plain": plain}, "Trainings", "t").drawings) == 1
