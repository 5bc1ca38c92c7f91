"""Label noise: as much as asked for, where asked for, and never in place."""

from __future__ import annotations

import numpy as np
import pytest

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.research.evaluation.stress import (
    LabelNoise,
    asymmetric_noise,
    long_tail,
    symmetric_noise,
)

Y = np.arange(30_000) % 5


@pytest.mark.parametrize("noise", [symmetric_noise, asymmetric_noise])
def test_noise_hits_the_asked_share_and_leaves_the_input_alone(noise):
    before = Y.copy()
    noisy = noise(Y, 0.3, random_state=0)
    assert (noisy != Y).mean() == pytest.approx(0.3, abs=0.01)
    assert (before == Y).all()
    assert noisy is not Y
    assert noise(Y, 0.0) is not Y


def test_symmetric_noise_goes_to_all_other_classes_alike():
    noisy = symmetric_noise(Y, 0.5, random_state=0)
    steps = np.bincount((noisy - Y)[noisy != Y] % 5, minlength=5) / (noisy != Y).sum()
    assert steps[1:] == pytest.approx(np.full(4, 0.25), abs=0.02)


def test_asymmetric_noise_goes_to_the_next_class():
    noisy = asymmetric_noise(Y, 0.5, random_state=0)
    assert set((noisy - Y)[noisy != Y] % 5) == {1}


def test_the_same_seed_gives_the_same_noise_and_another_one_does_not():
    noise = LabelNoise(0.3)
    assert (noise(Y, 1) == noise(Y, 1)).all()
    assert (noise(Y, 1) != noise(Y, 2)).any()


def test_unusable_input_is_refused():
    with pytest.raises(InvalidSettingError, match="`rate` must lie between 0 and 1, got 30"):
        symmetric_noise(Y, 30)
    with pytest.raises(InvalidSettingError, match="`n_classes` must be at least 5"):
        symmetric_noise(Y, 0.3, n_classes=3)
    with pytest.raises(InvalidSettingError, match="at least 2"):
        symmetric_noise([0, 0], 0.3)
    with pytest.raises(InvalidInputError, match="label codes"):
        symmetric_noise(["a", "b"], 0.3)
    with pytest.raises(InvalidSettingError, match="Did you mean 'symmetric'"):
        LabelNoise(0.1, "symetric")(Y, 0)


def test_a_long_tail_keeps_other_rows_for_other_seeds():
    kept = long_tail(Y, 100, random_state=0)
    assert np.bincount(Y[kept]).tolist() == [6000, 1897, 600, 190, 60]
    assert (np.diff(kept) > 0).all()
    assert not np.array_equal(kept, long_tail(Y, 100, random_state=1))
    assert len(long_tail(Y, 1)) == len(Y)
    assert np.bincount(Y[long_tail(Y, 1e9, random_state=0)]).min() == 1
    with pytest.raises(InvalidSettingError, match="`ratio` must be at least 1"):
        long_tail(Y, 0.5)


def test_a_long_tail_of_classes_without_rows_is_refused():
    with pytest.raises(InvalidInputError, match="code 1 has none"):
        long_tail([0, 0, 2, 2], 2)
    with pytest.raises(InvalidInputError, match="code 3 has none"):
        long_tail([0, 1, 2], 2, n_classes=4)
