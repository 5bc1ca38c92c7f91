"""Sparse multinomial logistic regression beside scikit-learn's."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array

from attnknn.encoders import softmax_regression
from attnknn.encoders.softmax_regression import fit_softmax_regression


def test_weights_are_those_of_scikit_learn(monkeypatch):
    from sklearn.linear_model import LogisticRegression

    monkeypatch.setattr(softmax_regression, "MAX_STEPS", 200)
    monkeypatch.setattr(softmax_regression, "TOLERANCE", 0.0)
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(80, 6)).astype(np.float32)
    labels = (rows[:, :3] + generator.normal(size=(80, 3))).argmax(axis=1)
    model = LogisticRegression(C=1 / (0.05 * 80), fit_intercept=False, tol=1e-8).fit(rows, labels)
    weights = fit_softmax_regression(
        csr_array(rows), labels, np.zeros(3, np.float32), 0.05, np.zeros((6, 3), np.float32)
    )
    assert np.abs(weights.T - model.coef_).max() < 2e-3


def test_the_start_is_not_changed_and_the_minimum_stays():
    rows, labels = csr_array(np.ones((4, 1), dtype=np.float32)), np.array([0, 1, 0, 1])
    start = np.zeros((1, 2), dtype=np.float32)
    found = fit_softmax_regression(rows, labels, np.zeros(2, np.float32), 0.1, start)
    assert not start.any()
    assert np.allclose(found, 0, atol=1e-6)
