"""Schedules: factors from 0 to 1, up within the warmup and down afterward."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnknn.errors import InvalidSettingError
from attnknn.training.config import SCHEDULES
from attnknn.training.schedules import make_schedule, warm_restarts


@pytest.mark.parametrize("name", SCHEDULES)
@given(n_steps=st.integers(1, 300), warmup=st.floats(0.0, 0.9))
def test_factors_stay_between_zero_and_one(name, n_steps, warmup):
    factor = make_schedule(name, n_steps, warmup)
    factors = [factor(step) for step in range(n_steps + 1)]
    assert all(0.0 <= value <= 1.0 for value in factors)
    assert all(value > 0.0 for value in factors[:-1]) or n_steps == 1
    assert factors[-1] == pytest.approx(1.0 if name == "constant" else 0.0, abs=1e-12)


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "restarts"])
@given(n_steps=st.integers(10, 300), warmup=st.floats(0.0, 0.9))
def test_one_rise_and_one_fall(name, n_steps, warmup):
    factor, top = make_schedule(name, n_steps, warmup), int(warmup * n_steps)
    factors = [factor(step) for step in range(n_steps + 1)]
    assert factors[top] == 1.0
    assert factors[: top + 1] == sorted(factors[: top + 1])
    assert factors[top:] == sorted(factors[top:], reverse=True)


def tops(factor, n_steps):
    return [step for step in range(n_steps + 1) if factor(step) == 1.0]


@given(n_steps=st.integers(12, 300))
def test_restarts_are_three_cycles_of_one_length(n_steps):
    length = math.ceil(n_steps / 3)
    assert tops(make_schedule("restarts", n_steps, 0.0), n_steps) == [0, length, 2 * length]


@pytest.mark.parametrize(
    ("n_steps", "first", "factor", "starts"),
    [
        (35, 5, 2.0, [0, 5, 15]),
        (60, 5, 2.0, [0, 5, 15, 35]),
        (30, 10, 1.1, [0, 10, 21]),
        (12, 5, 1.0, [0, 5, 10]),
        (4, 5, 2.0, [0]),
        (35, None, 2.0, [0, 5, 15]),
    ],
)
def test_each_cycle_is_longer_than_the_last_by_the_factor(n_steps, first, factor, starts):
    found = warm_restarts(n_steps, 0.0, first, factor)
    assert tops(found, n_steps) == starts
    assert found(n_steps) == pytest.approx(0.0, abs=1e-12)


@given(n_steps=st.integers(1, 300), first=st.integers(1, 40), factor=st.floats(1.0, 4.0))
def test_every_cycle_is_a_cosine_of_its_own_length(n_steps, first, factor):
    found = warm_restarts(n_steps, 0.2, first, factor)
    cycle = make_schedule("cosine", min(first, n_steps), 0.2)
    assert [found(step) for step in range(min(first, n_steps))] == [
        cycle(step) for step in range(min(first, n_steps))
    ]
    assert all(0.0 < found(step) <= 1.0 for step in range(n_steps))


def test_the_shapes_are_what_they_are_called():
    def middle(name, share):
        return make_schedule(name, 100, 0.2)(20 + int(share * 80))

    assert middle("linear", 0.25) == pytest.approx(0.75)
    assert middle("cosine", 0.25) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert middle("constant", 0.25) == 1.0
    assert make_schedule("one_cycle", 100, 0.2)(0) == pytest.approx(1 / 25)
    assert make_schedule("one_cycle", 100, 0.2)(10) == pytest.approx((1 + 1 / 25) / 2)


def test_an_unknown_name_is_refused():
    with pytest.raises(InvalidSettingError, match="Did you mean 'cosine'"):
        make_schedule("cosin", 10, 0.1)
