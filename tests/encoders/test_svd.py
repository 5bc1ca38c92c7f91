"""The encoder of wide rows: main axes, lengths, storage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from attnknn.encoders import SvdEncoder, encoder_from_settings
from attnknn.errors import InvalidSettingError, ModelFolderError, TooLargeError
from attnknn.testing import check_encoder


@pytest.fixture
def rows(rng):
    return rng.normal(size=(20, 50)) * (rng.random((20, 50)) < 0.3)


def test_the_encoder_keeps_the_contract(rows):
    check_encoder(SvdEncoder(8), rows)


def test_all_axes_keep_all_distances(rows):
    found = SvdEncoder().fit_transform(rows)
    assert np.allclose(found @ found.T, rows @ rows.T)


def test_few_axes_keep_the_lengths_of_rows_and_a_row_of_zeros(rows):
    rows[3] = 0
    found = SvdEncoder(4).fit_transform(sparse.csr_array(rows))
    assert found.shape == (20, 4)
    assert np.allclose(np.linalg.norm(found, axis=1), np.linalg.norm(rows, axis=1))


def test_sparse_and_dense_rows_have_the_same_embeddings(rows):
    encoder = SvdEncoder(8).fit(sparse.csr_array(rows))
    assert np.allclose(encoder.transform(rows), encoder.transform(sparse.coo_array(rows)))


@pytest.mark.parametrize("dim", [0, 5000, 2.5])
def test_an_impossible_number_of_axes_is_refused(rows, dim):
    with pytest.raises(InvalidSettingError, match="`dim` must be"):
        SvdEncoder(dim).fit(rows)


@pytest.mark.parametrize(
    "change", [{"width": 3}, {"width": "8"}, {"n_features_in": 0}, {"dim": -1}, {"dim": None}]
)
def test_damaged_settings_are_refused(rows, change):
    settings, arrays = SvdEncoder(8).fit(rows).to_settings()
    with pytest.raises(ModelFolderError, match="'svd' cannot be read"):
        encoder_from_settings({**settings, **change}, arrays)
    with pytest.raises(ModelFolderError, match="finite"):
        encoder_from_settings(settings, {"axes": np.full_like(arrays["axes"], np.nan)})


def test_axes_that_do_not_fit_in_memory_are_refused():
    with pytest.raises(TooLargeError, match=r"main axes of `X`.*Reduce `dim`"):
        SvdEncoder(2).fit(sparse.csr_array(([1.0], ([0], [0])), shape=(3, 10**12)))
