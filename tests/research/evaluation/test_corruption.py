"""Label noise, imbalance and damaged images: as much as asked for, and never in place."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.research.evaluation.corruption import (
    SEVERITIES,
    SHIFTS,
    Corruption,
    LabelNoise,
    Shift,
    asymmetric_noise,
    few_shots,
    long_tail,
    shifted,
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


IMAGES = np.random.default_rng(0).integers(40, 200, (6, 32, 32, 3)).astype(np.uint8)


@pytest.mark.parametrize("kind", SHIFTS)
@pytest.mark.parametrize("shape", ["gray", "last", "first"])
def test_shape_and_type_are_kept_and_damage_grows(kind, shape):
    images = {"gray": IMAGES[..., 0], "last": IMAGES, "first": IMAGES.transpose(0, 3, 1, 2)}[shape]
    before = images.copy()
    damage = []
    for severity in SEVERITIES:
        found = shifted(images, kind, severity, random_state=0)
        assert found.shape == images.shape
        assert found.dtype == np.uint8
        damage.append(np.abs(found.astype(float) - images).mean())
    assert damage == sorted(damage)
    assert damage[0] > 0
    assert (images == before).all()


@pytest.mark.parametrize("kind", ["blur", "contrast"])
def test_layouts_of_the_same_images_are_damaged_alike(kind):
    last = shifted(IMAGES, kind, 3)
    first = shifted(IMAGES.transpose(0, 3, 1, 2), kind, 3)
    assert (last == first.transpose(0, 2, 3, 1)).all()


def test_images_do_not_mix():
    alone = shifted(IMAGES[:1], "blur", 5)
    assert (alone[0] == shifted(IMAGES, "blur", 5)[0]).all()
    flat = np.full((1, 8, 8, 3), (10, 100, 200), dtype=np.uint8)
    assert (shifted(flat, "blur", 5) == flat).all()  # neither do channels


def test_noise_is_by_the_seed():
    first, same, other = (shifted(IMAGES, "noise", 2, random_state=seed) for seed in (0, 0, 1))
    assert (first == same).all()
    assert (first != other).any()


@pytest.mark.parametrize(
    ("images", "kind", "severity", "error", "message"),
    [
        (IMAGES / 255, "noise", 1, InvalidInputError, "`images` must be uint8"),
        (IMAGES[0, 0], "noise", 1, InvalidInputError, "`images` must be uint8"),
        (IMAGES, "fog", 1, InvalidSettingError, "No kind is called 'fog'"),
        (IMAGES, "blur", 6, InvalidSettingError, "from 1 to 5, got 6"),
        (IMAGES, "blur", 0, InvalidSettingError, "from 1 to 5, got 0"),
    ],
)
def test_bad_input_is_named(images, kind, severity, error, message):
    with pytest.raises(error, match=message):
        shifted(images, kind, severity)


def test_few_shots_are_drawn_of_every_class():
    y = np.random.default_rng(0).integers(0, 4, 200)
    first, same, other = (few_shots(y, 7, random_state=seed) for seed in (0, 0, 1))
    assert (first == same).all()
    assert (first != other).any()
    assert np.bincount(y[first]).tolist() == [7] * 4
    assert (np.diff(first) > 0).all()
    with pytest.raises(InvalidSettingError, match="`n_shots`"):
        few_shots(y, 0)


CODES = np.repeat([0, 1, 2], 40)


def test_damage_is_that_of_the_functions_on_labels():
    noisy = Corruption("symmetric", 0.3).apply(CODES, 3, seed=1)
    assert np.array_equal(noisy.codes, symmetric_noise(CODES, 0.3, random_state=1))
    assert len(noisy.rows) == len(CODES)
    rare = Corruption("imbalance", 10).apply(CODES, 3, seed=1)
    assert np.array_equal(rare.rows, long_tail(CODES, 10, random_state=1))
    assert np.array_equal(rare.codes, CODES[rare.rows])
    few = Corruption("shots", 5).apply(CODES, 3, seed=1)
    assert np.array_equal(few.rows, few_shots(CODES, 5, random_state=1))


def test_no_damage_leaves_rows_and_says_nothing():
    for corruption in (Corruption(), Corruption("symmetric", 0.0)):
        assert np.array_equal(corruption.apply(CODES, 3, seed=0).codes, CODES)
        assert corruption.description == ""
        assert corruption.name == ""
    assert not Corruption().is_label_noise
    assert Corruption("symmetric", 0.0).is_label_noise


def test_rows_that_stay_are_taken_from_tables_and_arrays():
    few = Corruption("shots", 2).apply(CODES, 3, seed=0)
    values = np.arange(len(CODES))
    assert np.array_equal(few.take(values), few.rows)
    assert few.take(pd.DataFrame({"a": values}))["a"].tolist() == few.rows.tolist()


@pytest.mark.parametrize(
    ("corruption", "words"),
    [
        (("asymmetric", 0.2), "20 % asymmetric noise"),
        (("imbalance", 100), "the last class 100 times rarer than the first"),
        (("shots", 5), "5 rows of each class"),
    ],
)
def test_damage_says_what_it_does(corruption, words):
    assert Corruption(*corruption).description == words


def test_images_are_shifted_or_stay(rng):
    images = rng.integers(0, 256, (3, 8, 8), dtype=np.uint8)
    assert Shift("blur", 0).apply(images, 0) is images
    assert Shift("blur", 0).description == ""
    found = Shift("blur", 4).apply(images, 0)
    assert np.array_equal(found, shifted(images, "blur", 4, random_state=0))


def test_impossible_damage_is_refused():
    with pytest.raises(InvalidSettingError, match="from 0 to 5, got 6"):
        Shift("noise", 6)
    with pytest.raises(InvalidSettingError, match="fog"):
        Shift("fog", 1)
    with pytest.raises(InvalidSettingError, match=r"must lie in 0\.\.1, got 1\.5"):
        Corruption("symmetric", 1.5)
    with pytest.raises(InvalidSettingError, match="'imbalance' must be at least 1, got 0"):
        Corruption("imbalance", 0.01)
    with pytest.raises(InvalidSettingError, match="symetric"):
        Corruption("symetric", 0.1)
    with pytest.raises(InvalidSettingError, match=r"whole number of rows, got 5\.5"):
        Corruption("shots", 5.5)
    with pytest.raises(InvalidInputError, match="code 3 has none"):
        Corruption("imbalance", 10).apply(CODES, 4, seed=0)
