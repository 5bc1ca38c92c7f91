"""Curves and areas of each class against all others."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.metrics import auc, roc_auc_score

from attnknn.research.evaluation.one_vs_rest import N_POINTS, OneVsRest, one_vs_rest


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    codes = rng.integers(12, size=3000)
    probabilities = rng.dirichlet(np.ones(12), size=3000)
    probabilities[np.arange(3000), codes] += rng.uniform(0, 0.1 * (1 + codes))  # later are easier
    return codes, probabilities / probabilities.sum(axis=1, keepdims=True)


def test_curves_are_those_of_the_classes_with_the_lowest_average_precision(rows):
    found = one_vs_rest(*rows, n_curves=4)
    kept = [curves.code for curves in found.curves]
    assert kept == sorted(np.argsort(found.average_precision)[:4].tolist())
    assert found.roc_auc[5] == pytest.approx(roc_auc_score(rows[0] == 5, rows[1][:, 5]))


def test_curves_are_thinned_without_a_visible_difference(rows):
    found = one_vs_rest(*rows)
    for curves in found.curves:
        assert curves.roc.shape[1] <= N_POINTS
        assert auc(*curves.roc) == pytest.approx(found.roc_auc[curves.code], abs=0.005)
        assert curves.roc[:, [0, -1]].tolist() == [[0, 1], [0, 1]]
        assert (np.diff(curves.precision_recall[0]) >= 0).all()


def test_json_gives_back_what_was_stored(rows):
    codes, probabilities = rows
    found = one_vs_rest(np.where(codes == 7, 6, codes), probabilities)
    assert np.isnan(found.roc_auc[7])
    back = OneVsRest.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert np.allclose(back.roc_auc, found.roc_auc, atol=1e-6, equal_nan=True)
    for ours, theirs in zip(back.curves, found.curves, strict=True):
        assert ours.code == theirs.code
        assert np.allclose(ours.roc, theirs.roc, atol=1e-5)
        assert np.allclose(ours.precision_recall, theirs.precision_recall, atol=1e-5)
