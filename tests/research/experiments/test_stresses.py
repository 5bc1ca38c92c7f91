"""Damage to training rows as a setting."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.research.evaluation.shift import shifted
from attnknn.research.evaluation.stress import few_shots, long_tail, symmetric_noise
from attnknn.research.experiments.stresses import Shift, Stress

CODES = np.repeat([0, 1, 2], 40)


def test_damage_is_that_of_the_room_of_stress():
    noisy = Stress("symmetric", 0.3).apply(CODES, 3, seed=1)
    assert np.array_equal(noisy.codes, symmetric_noise(CODES, 0.3, random_state=1))
    assert len(noisy.rows) == len(CODES)
    rare = Stress("imbalance", 10).apply(CODES, 3, seed=1)
    assert np.array_equal(rare.rows, long_tail(CODES, 10, random_state=1))
    assert np.array_equal(rare.codes, CODES[rare.rows])
    few = Stress("shots", 5).apply(CODES, 3, seed=1)
    assert np.array_equal(few.rows, few_shots(CODES, 5, random_state=1))


def test_no_damage_leaves_rows_and_says_nothing():
    for stress in (Stress(), Stress("symmetric", 0.0)):
        assert np.array_equal(stress.apply(CODES, 3, seed=0).codes, CODES)
        assert stress.words == ""
        assert stress.name == ""
    assert not Stress().is_about_noise
    assert Stress("symmetric", 0.0).is_about_noise


def test_rows_that_stay_are_taken_from_tables_and_arrays():
    few = Stress("shots", 2).apply(CODES, 3, seed=0)
    values = np.arange(len(CODES))
    assert np.array_equal(few.take(values), few.rows)
    assert few.take(pd.DataFrame({"a": values}))["a"].tolist() == few.rows.tolist()


@pytest.mark.parametrize(
    ("stress", "words"),
    [
        (("asymmetric", 0.2), "20 % asymmetric noise"),
        (("imbalance", 100), "the last class 100 times rarer than the first"),
        (("shots", 5), "5 rows of each class"),
    ],
)
def test_damage_says_what_it_does(stress, words):
    assert Stress(*stress).words == words


def test_images_are_shifted_or_stay(rng):
    images = rng.integers(0, 256, (3, 8, 8), dtype=np.uint8)
    assert Shift("blur", 0).apply(images, 0) is images
    assert Shift("blur", 0).words == ""
    found = Shift("blur", 4).apply(images, 0)
    assert np.array_equal(found, shifted(images, "blur", 4, random_state=0))


def test_impossible_damage_is_refused():
    with pytest.raises(InvalidSettingError, match="from 0 to 5, got 6"):
        Shift("noise", 6)
    with pytest.raises(InvalidSettingError, match="fog"):
        Shift("fog", 1)
    with pytest.raises(InvalidSettingError, match=r"must lie in 0\.\.1, got 1\.5"):
        Stress("symmetric", 1.5)
    with pytest.raises(InvalidSettingError, match="'imbalance' must be at least 1, got 0"):
        Stress("imbalance", 0.01)
    with pytest.raises(InvalidSettingError, match="symetric"):
        Stress("symetric", 0.1)
    with pytest.raises(InvalidSettingError, match=r"whole number of rows, got 5\.5"):
        Stress("shots", 5.5)
    with pytest.raises(InvalidInputError, match="code 3 has none"):
        Stress("imbalance", 10).apply(CODES, 4, seed=0)
