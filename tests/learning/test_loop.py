"""The training loop: best state kept, weight decay and rates at work, stopped by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from attnknn.learning.loop import Course, train


class Point(nn.Module):
    """Two numbers to be moved."""

    def __init__(self) -> None:
        super().__init__()
        self.place = nn.Parameter(torch.tensor([2.0, 2.0]))


def run(point, loss_of=None, judge=None, *, n_rows=8, **settings):
    rate, decay = settings.pop("lr", 0.1), settings.pop("weight_decay", 0.0)
    groups = [{"params": [point.place], "lr": rate, "weight_decay": decay}]
    course = Course(**({"epochs": 4, "batch_size": 4} | settings), groups=groups)
    loss_of = loss_of or (lambda rows: point.place.square().sum() + 0 * rows.sum())
    judge = judge or (lambda: point.place.square().sum().item())
    return train(point, loss_of, judge, n_rows, course, torch.Generator().manual_seed(0))


def test_training_goes_downhill_and_counts_its_epochs():
    point = Point()
    outcome = run(point)
    assert point.place.square().sum() < 8.0
    assert len(outcome.train_losses) == 4
    assert len(outcome.judged_losses) == 5
    assert outcome.best_epoch == 4
    assert outcome.seconds > 0


def test_the_state_that_was_judged_best_is_kept():
    point = Point()
    losses = iter([5.0, 1.0, 3.0, 4.0, 9.0])
    seen = []

    def judge():
        seen.append(point.place.detach().clone())
        return next(losses)

    outcome = run(point, judge=judge)
    assert outcome.best_epoch == 1
    assert torch.equal(point.place.detach(), seen[1])


def test_a_training_that_only_harms_changes_nothing():
    point = Point()
    losses = iter([1.0, 2.0, 3.0, 4.0, 5.0])
    run(point, judge=lambda: next(losses))
    assert point.place.tolist() == [2.0, 2.0]


def test_every_row_is_seen_once_in_each_epoch():
    point, seen = Point(), []

    def loss_of(rows):
        seen.extend(rows.tolist())
        return point.place.sum()

    run(point, loss_of, n_rows=10, batch_size=4, epochs=3)
    assert [sorted(seen[i : i + 10]) for i in (0, 10, 20)] == [list(range(10))] * 3
    assert seen[:10] != seen[10:20]


def test_weight_decay_pulls_what_no_loss_moves():
    point = Point()
    run(point, lambda rows: point.place[0] * 0, judge=Falling(), weight_decay=0.5)
    assert (point.place < 2.0).all()
    point = Point()
    run(point, lambda rows: point.place[0] * 0, judge=Falling())
    assert point.place.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("setting", [{"lr": 0.01}, {"epochs": 1}, {"batch_size": 8}])
def test_every_setting_of_a_course_moves_the_outcome(setting):
    plain, moved = Point(), Point()
    run(plain)
    run(moved, **setting)
    assert not torch.allclose(plain.place, moved.place)


class Falling:
    """A judge that likes each state better than the one before."""

    def __init__(self) -> None:
        self.value = 0.0

    def __call__(self) -> float:
        self.value -= 1.0
        return self.value


def test_a_stop_by_hand_keeps_the_best_and_says_so():
    point, calls = Point(), []

    def loss_of(rows):
        calls.append(point.place.detach().clone())
        if len(calls) == 4:  # in the second step of the second epoch
            raise KeyboardInterrupt
        return point.place.square().sum()

    outcome = run(point, loss_of)
    assert outcome.was_interrupted
    assert len(outcome.judged_losses) == 2
    assert torch.equal(point.place.detach(), calls[2])


def test_a_loss_that_is_not_a_number_never_becomes_the_best():
    point = Point()
    losses = iter([1.0, math.nan, math.nan, 0.5, math.nan])
    outcome = run(point, judge=lambda: next(losses))
    assert torch.isfinite(point.place).all()
    assert outcome.judged_losses[outcome.best_epoch] == 0.5
