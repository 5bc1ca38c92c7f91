"""Users' transformers and functions as encoders, and what `make_encoder` makes of its input."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import OneHotEncoder

from attnknn.encoders import IdentityEncoder, TableEncoder, WrappedEncoder, make_encoder
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.testing.encoder import check_encoder

ROWS = np.random.default_rng(0).normal(size=(30, 4))
LABELS = np.arange(30) % 3


@pytest.mark.parametrize("inner", [PCA(2), LinearDiscriminantAnalysis(), np.tanh])
def test_wrapped_code_keeps_the_contract(inner):
    check_encoder(inner, ROWS, LABELS)


def test_sparse_output_becomes_dense():
    encoded = make_encoder(OneHotEncoder()).fit([["a"], ["b"]]).transform([["b"]])
    assert encoded.tolist() == [[0.0, 1.0]]


def test_the_users_object_stays_unfitted():
    inner = PCA(2)
    make_encoder(inner).fit(ROWS)
    table = TableEncoder()
    make_encoder(table).fit(ROWS)
    assert not hasattr(inner, "components_")
    assert not hasattr(table, "columns_")


def test_names_give_encoders_with_defaults():
    assert isinstance(make_encoder("identity"), IdentityEncoder)
    assert isinstance(make_encoder("tabular"), TableEncoder)
    assert make_encoder(PCA()).name == "PCA"
    assert make_encoder(np.tanh).name == "tanh"


def test_unknown_names_classes_and_things_are_refused():
    with pytest.raises(InvalidSettingError, match="Did you mean 'tabular'"):
        make_encoder("tabluar")
    with pytest.raises(InvalidSettingError, match=r"Write `PCA\(\)`"):
        make_encoder(PCA)
    with pytest.raises(InvalidSettingError, match="a transformer or a function, got 3"):
        make_encoder(3)


def test_a_wrapped_encoder_says_why_it_cannot_be_stored():
    with pytest.raises(InvalidSettingError, match=r"`PCA` is your own code.*encoder='identity'"):
        make_encoder(PCA()).fit(ROWS).to_settings()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda X: X[:1], "one embedding per row"),
        (lambda X: X[:, 0], "one embedding per row"),
        (lambda X: X * np.nan, "row 0 has NaN or inf"),
    ],
)
def test_output_that_is_no_embedding_is_refused(function, message):
    with pytest.raises(InvalidInputError, match=message):
        make_encoder(function).fit(ROWS).transform(ROWS)


class Centered(TransformerMixin, BaseEstimator):
    """Breaks the contract: a row's embedding depends on the others."""

    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X - X.mean(axis=0)


def test_the_contract_finds_an_encoder_that_mixes_rows():
    with pytest.raises(AssertionError, match="same embedding alone and in a batch"):
        check_encoder(WrappedEncoder(Centered()), ROWS)
