"""The scaled encoder: numbers of mean 0 and variance 1, of any size, and stored to the bit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from attnknn import AttnKNNClassifier
from attnknn.encoders import IdentityEncoder, ScaledEncoder, encoder_from_settings
from attnknn.errors import InvalidInputError, ModelFolderError
from attnknn.testing.encoder import check_encoder

ROWS = np.random.default_rng(0).normal(size=(30, 3)) * [1.0, 1e3, 1e-3] + [5.0, 0.0, 1.0]


@parametrize_with_checks([ScaledEncoder()])
def test_the_scaled_encoder_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, object])
def test_the_scaled_encoder_keeps_the_contract(dtype):
    check_encoder("scaled", (10 * ROWS).astype(dtype))
    check_encoder("scaled", pd.DataFrame(ROWS, columns=["a", "b", "c"]))


def test_columns_are_scaled_as_by_scikit_learn():
    expected = StandardScaler().fit_transform(ROWS)
    np.testing.assert_allclose(ScaledEncoder().fit_transform(ROWS), expected, rtol=0, atol=1e-9)


def test_columns_of_equal_values_become_zero():
    rows = np.column_stack([np.full(9, 0.1), np.arange(9)])
    encoder = ScaledEncoder().fit(rows)
    assert not encoder.transform(rows)[:, 0].any()
    assert encoder.scale_[0] == 1.0
    assert not ScaledEncoder().fit_transform([[3.0, 4.0]]).any()


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e160, 1e300])
def test_large_and_small_numbers_are_scaled_alike(size):
    expected = ScaledEncoder().fit_transform(ROWS)
    found = ScaledEncoder().fit_transform(ROWS * size)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_sparse_rows_are_scaled_as_dense_ones():
    rows = np.where(np.abs(ROWS) < 1.0, 0.0, ROWS)
    sparse = ScaledEncoder().fit(csr_array(rows))
    np.testing.assert_array_equal(sparse.transform(csr_array(rows)), sparse.transform(rows))
    np.testing.assert_array_equal(sparse.center_, ScaledEncoder().fit(rows).center_)


@pytest.mark.parametrize("name", ["scaled", "identity"])
def test_gaps_and_texts_are_named_with_the_encoder_and_the_way_out(name):
    encoder = {"scaled": ScaledEncoder, "identity": IdentityEncoder}[name]
    with pytest.raises(InvalidInputError, match=f"'{name}'.*row 1 is NaN.*'tabular'"):
        encoder().fit([[1.0], [np.nan]])
    with pytest.raises(InvalidInputError, match=f"'b' must be numeric for `encoder='{name}'`"):
        encoder().fit(pd.DataFrame({"a": [1.0], "b": ["x"]}))


DAMAGES = {
    "center": (np.zeros(2), np.ones(3)),
    "scale": (np.zeros(3), np.ones((3, 1))),
    "nan": (np.full(3, np.nan), np.ones(3)),
    "zero": (np.zeros(3), np.zeros(3)),
    "negative": (np.zeros(3), -np.ones(3)),
    "infinite": (np.zeros(3), np.full(3, np.inf)),
    "no scale": (np.zeros(3), np.full(3, np.nan)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_arrays_are_refused(damage):
    settings, _ = ScaledEncoder().fit(ROWS).to_settings()
    center, scale = DAMAGES[damage]
    with pytest.raises(ModelFolderError, match="'scaled' cannot be read"):
        encoder_from_settings(settings, {"center": center, "scale": scale})
    with pytest.raises(ModelFolderError, match="'scaled' cannot be read"):
        encoder_from_settings(settings, {"center": center})


# ---- columns beside those of `fit`


TABLE = pd.DataFrame(ROWS, columns=["a", "b", "c"])
LABELS = np.arange(30) % 2


@pytest.mark.parametrize("encoder", ["identity", "scaled"])
def test_other_columns_beside_those_of_fit_are_ignored(encoder):
    clf = AttnKNNClassifier(5, encoder=encoder, attention="distance", random_state=0)
    clf.fit(TABLE, LABELS)
    expected = clf.predict_proba(TABLE)
    more = TABLE.assign(name="x", gap=np.nan)
    np.testing.assert_array_equal(clf.predict_proba(more), expected)
    np.testing.assert_array_equal(clf.predict_proba(more[["gap", "c", "name", "a", "b"]]), expected)
    clf.add(more.iloc[:1], [1])
    assert len(clf.memory_) == 31


@pytest.mark.parametrize("encoder", ["identity", "scaled"])
def test_missing_and_unnamed_columns_are_still_errors(encoder):
    clf = AttnKNNClassifier(5, encoder=encoder, attention="distance").fit(TABLE, LABELS)
    with pytest.raises(ValueError, match="b"):
        clf.predict(TABLE.drop(columns="b").assign(d=0.0, e=0.0))
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(TABLE.drop(columns="b"))
    unnamed = AttnKNNClassifier(5, encoder=encoder, attention="distance").fit(ROWS, LABELS)
    with pytest.raises(ValueError, match="4 features"):
        unnamed.predict(np.hstack([ROWS, ROWS[:, :1]]))
