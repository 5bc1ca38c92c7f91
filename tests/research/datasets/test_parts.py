"""Every data set has fixed training, calibration and test rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnknn.errors import InvalidInputError
from attnknn.research import datasets
from attnknn.research.datasets import Dataset

LABELS = st.lists(st.integers(0, 5), min_size=13, max_size=80)  # some class has three rows
NAMES = st.text(max_size=8)


def dataset_of(labels, name="made", *, X_train=None):
    """Each row is its own place, test rows are negative."""
    y = np.array(labels, dtype=np.int64)
    X = np.arange(len(y))[:, None] if X_train is None else X_train
    y_test = np.array([0, 1])
    return Dataset(X, y, -1 - y_test[:, None], y_test, tuple("abcdef"), name=name)


@given(LABELS, NAMES)
@settings(max_examples=100)
def test_every_training_row_is_in_one_of_two_parts_and_test_rows_in_none(labels, name):
    data = dataset_of(labels, name)
    parts = data.parts()
    rows = np.concatenate([parts.train_rows, parts.calibration_rows])
    assert sorted(rows.tolist()) == list(range(len(labels)))
    assert (parts.X_train[:, 0] == parts.train_rows).all()
    assert (parts.X_calibration[:, 0] == parts.calibration_rows).all()
    assert (parts.y_train == data.y_train[parts.train_rows]).all()
    assert (parts.y_calibration == data.y_train[parts.calibration_rows]).all()
    assert parts.X_test is data.X_test
    assert parts.y_test is data.y_test
    assert len(data.y_train) == len(labels)


@given(LABELS, NAMES)
@settings(max_examples=100)
def test_each_class_gives_the_rounded_fifth_of_its_rows(labels, name):
    parts = dataset_of(labels, name).parts()
    counts = np.bincount(labels, minlength=6)
    taken = np.bincount(parts.y_calibration, minlength=6)
    assert taken.tolist() == [round(count / 5) for count in counts.tolist()]
    assert (taken < counts)[counts > 0].all()


@given(LABELS, NAMES)
def test_the_split_depends_on_name_and_labels_alone(labels, name):
    first = dataset_of(labels, name).parts()
    other = dataset_of(labels, name, X_train=np.ones((len(labels), 3))).parts()
    assert (first.calibration_rows == other.calibration_rows).all()


def test_names_have_splits_of_their_own():
    labels = np.arange(200) % 2
    one, other = (dataset_of(labels, name).parts().calibration_rows for name in ("one", "other"))
    assert len(one) == len(other) == 40
    assert not (one == other).all()
    assert 0 < len(set(one) & set(other)) < 25


def test_the_split_is_the_same_for_good():
    """Reports that were made with it would mean something else."""
    rows = datasets.load("iris").parts().calibration_rows
    assert rows.tolist() == [
        *(1, 9, 10, 13, 17, 21, 30, 32, 35, 48, 51, 57),
        *(62, 69, 72, 84, 86, 87, 100, 103, 110, 113, 116, 119),
    ]


def test_a_class_that_takes_turns_is_drawn_from_all_places():
    rows = dataset_of(np.arange(6000) % 6).parts().calibration_rows
    per_thousand = np.bincount(rows // 1000, minlength=6)
    assert (np.abs(per_thousand - 200) < 60).all()


def test_tables_keep_columns_and_types_and_have_a_new_index():
    wine = datasets.load("wine")
    parts = wine.parts()
    for X, rows in (
        (parts.X_train, parts.train_rows),
        (parts.X_calibration, parts.calibration_rows),
    ):
        assert X.index.tolist() == list(range(len(rows)))
        expected = wine.X_train.iloc[rows].reset_index(drop=True)
        pd.testing.assert_frame_equal(X, expected)
    assert parts.X_test is wine.X_test


@pytest.mark.parametrize("name", ["iris", "wine", "breast-cancer", "digits"])
def test_calibration_rows_have_the_shares_of_the_classes(name):
    data = datasets.load(name)
    parts = data.parts()
    counts, taken = np.bincount(data.y_train), np.bincount(parts.y_calibration)
    assert np.abs(taken - counts / 5).max() <= 0.5


def test_classes_too_small_to_give_a_row_are_named():
    with pytest.raises(InvalidInputError, match="must have at least three training rows"):
        dataset_of([0, 0, 1, 1]).parts()
