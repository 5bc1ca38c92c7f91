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


@given(n_steps=st.integers(12, 300), n_cycles=st.integers(1, 4))
def test_restarts_reach_the_height_once_in_each_cycle(n_steps, n_cycles):
    factor = warm_restarts(n_steps, 0.0, n_cycles)
    factors = [factor(step) for step in range(n_steps + 1)]
    tops = [step for step, value in enumerate(factors) if value == 1.0]
    length = math.ceil(n_steps / n_cycles)
    assert tops == list(range(0, n_steps, length))


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
