"""The identity encoder: numbers as they are, and text refused with the name of its column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from attnknn.encoders import IdentityEncoder, encoder_from_settings
from attnknn.errors import InvalidInputError, ModelFolderError, NotFittedYetError
from attnknn.testing.encoder import check_encoder


@parametrize_with_checks([IdentityEncoder()])
def test_the_identity_encoder_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, bool, object])
def test_the_identity_encoder_keeps_the_contract(dtype):
    check_encoder("identity", np.arange(12).reshape(4, 3).astype(dtype))


def test_tables_of_numbers_keep_their_values():
    table = pd.DataFrame({"a": [1, 2, 3], "b": [True, False, True], "c": [0.5, 1.5, 2.5]})
    check_encoder("identity", table)
    assert IdentityEncoder().fit_transform(table).tolist()[0] == [1.0, 1.0, 0.5]


def test_float32_stays_float32():
    rows = np.ones((2, 2), dtype=np.float32)
    assert IdentityEncoder().fit_transform(rows).dtype == np.float32


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": [1.0], "job": ["cook"]}),
        pd.DataFrame({"a": [1.0], "job": pd.Categorical(["cook"])}),
        pd.DataFrame({"a": [1.0], "job": pd.to_datetime(["2024-01-01"])}),
    ],
)
def test_columns_that_are_no_numbers_are_named_with_the_way_out(table):
    with pytest.raises(InvalidInputError, match=r"Column 'job' .*`encoder='tabular'`"):
        IdentityEncoder().fit(table)


def test_text_in_arrays_is_named_by_position():
    with pytest.raises(InvalidInputError, match=r"Column 1 .*'cook'.*`encoder='tabular'`"):
        IdentityEncoder().fit(np.array([[1.0, "cook"]], dtype=object))


@pytest.mark.parametrize(
    ("rows", "column"),
    [
        (np.array([[1.0, 2.0], [3.0, np.nan]]), "1"),
        ([[1.0, 2.0], [3.0, None]], "1"),
        (pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, np.nan]}), "'b'"),
    ],
)
def test_gaps_are_named_with_the_way_out(rows, column):
    with pytest.raises(
        InvalidInputError, match=rf"Column {column} .*row 1 is NaN.*`encoder='tabular'`"
    ):
        IdentityEncoder().fit(rows)


def test_another_width_or_no_fit_is_an_error():
    with pytest.raises(NotFittedYetError):
        IdentityEncoder().transform([[1.0]])
    with pytest.raises(ValueError, match="2 features"):
        IdentityEncoder().fit([[1.0]]).transform([[1.0, 2.0]])


def test_damaged_settings_are_an_error_of_the_folder():
    with pytest.raises(ModelFolderError, match="'identity' cannot be read"):
        encoder_from_settings({"encoder": "identity"}, {})


@pytest.mark.parametrize("dtype", ["datetime64[D]", "timedelta64[s]"])
def test_arrays_of_dates_are_refused(dtype):
    rows = np.arange(6).reshape(3, 2).astype(dtype)
    with pytest.raises(InvalidInputError, match="Column 0 must be numeric"):
        IdentityEncoder().fit(rows)
