"""The stated error of a float32 product is never exceeded."""

from __future__ import annotations

import numpy as np
import pytest

from attnknn.memory.distances import keys_between
from attnknn.memory.error_bounds import ErrorBounds


@pytest.mark.parametrize("metric", ["euclidean", "inner_product"])
@pytest.mark.parametrize("width", [1, 7, 300])
@pytest.mark.parametrize("scale", [1e-15, 1.0, 1e15])
def test_no_entry_as_near_as_the_kth_is_ruled_out(metric, width, scale, rng) -> None:
    vectors = (rng.standard_normal((400, width)) * scale * rng.random((400, 1))).astype(np.float32)
    queries = (vectors[:50] * 1.001).astype(np.float32)
    bounds = ErrorBounds(vectors, metric)
    penalties = 0 if metric == "inner_product" else bounds.penalties
    similarities = queries @ vectors.T - penalties
    keys = keys_between(queries[:, None], vectors[None], metric)
    for k in (1, 5, 50):
        kth_key = np.sort(keys, axis=1)[:, k - 1]
        is_near = keys <= kth_key[:, None]
        assert (similarities >= bounds.threshold(queries, kth_key)[:, None])[is_near].all()


def test_a_far_outlier_does_not_widen_the_bound_of_others(rng) -> None:
    vectors = rng.standard_normal((100, 8)).astype(np.float32)
    far = np.concatenate([vectors, np.full((1, 8), 1e6, np.float32)])
    for entries in (vectors, far):
        threshold = ErrorBounds(entries, "euclidean").threshold(vectors[:5], np.ones(5))
        expected = (np.square(vectors[:5]).sum(axis=1) - 1) / 2
        np.testing.assert_allclose(threshold, expected, atol=1e-4)
