"""Thresholds and sets agree with MAPIE and crepes on the same probabilities, where defined.

Where they differ on purpose: MAPIE's unrandomized APS takes the threshold of randomized scores,
and ours that of unrandomized ones; crepes keeps a label whose p-value equals
1 − coverage, so the numbers of examples here make (n + 1)(1 − coverage) no whole number. Of equal
probabilities MAPIE ranks the last column first.
"""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin

from attnknn.conformal import Aps, Lac, members, thresholds

pytestmark = pytest.mark.slow
N_EXAMPLES, N_CLASSES = 333, 5


class AsGiven(ClassifierMixin, BaseEstimator):
    """A classifier whose rows are the probabilities that it answers."""

    def fit(self, X, y):
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        return self

    def predict_proba(self, X):
        return X

    def predict(self, X):
        return self.classes_[X.argmax(axis=1)]


def answers(seed: int):
    generator = np.random.default_rng(seed)
    p = generator.dirichlet(np.full(N_CLASSES, 0.4), N_EXAMPLES + 200)
    p = 0.9 * p + 0.1 / N_CLASSES  # no labels of nearly no probability: rounding would decide
    own = (p.cumsum(axis=1) > generator.random((len(p), 1))).argmax(axis=1)
    return p[:N_EXAMPLES], own[:N_EXAMPLES], p[N_EXAMPLES:]


def mapie_sets(score, p, own, test, coverage, **how):
    mapie = pytest.importorskip("mapie.classification")
    split = mapie.SplitConformalClassifier(
        AsGiven().fit(p, own), confidence_level=coverage, conformity_score=score, random_state=7
    )
    split.conformalize(p, own)
    _, sets = split.predict_set(test, conformity_score_params=how)
    return sets[:, :, 0], split._mapie_classifier.conformity_score_function_.quantiles_[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("coverage", [0.55, 0.8, 0.9, 0.97])
def test_lac_is_that_of_mapie(seed, coverage):
    p, own, test = answers(seed)
    expected, quantile = mapie_sets("lac", p, own, test, coverage)
    found = thresholds(Lac().of_all(p), own, coverage)
    assert found == pytest.approx(quantile, abs=1e-12)
    assert (members(Lac().of_all(test), found) == expected).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("coverage", [0.55, 0.8, 0.9, 0.97])
def test_randomized_aps_is_that_of_mapie(seed, coverage):
    p, own, test = answers(seed)
    expected, quantile = mapie_sets("aps", p, own, test, coverage, include_last_label="randomized")
    # It draws again from the same seed for examples and for queries, and takes the part u off.
    drawn = np.random.RandomState(7).uniform(size=N_EXAMPLES)
    found = thresholds(Aps().of_all(p, 1 - drawn), own, coverage)
    assert found == pytest.approx(quantile, abs=1e-12)
    ours = members(Aps().of_all(test, 1 - drawn[: len(test)]), found)
    assert (ours == expected).all()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("coverage", [0.55, 0.8, 0.9, 0.97])
@pytest.mark.parametrize("score", [Lac(), Aps()])
@pytest.mark.parametrize("by_class", [False, True])
def test_sets_are_those_of_crepes(seed, coverage, score, by_class):
    crepes = pytest.importorskip("crepes")
    p, own, test = answers(seed)
    scores, asked = score.of_all(p), score.of_all(test)
    own_scores = scores[np.arange(len(own)), own]
    found = members(asked, thresholds(scores, own, coverage, by_class=by_class))
    for c in range(N_CLASSES):
        chosen = own == c if by_class else np.ones(len(own), dtype=bool)
        left = (chosen.sum() + 1) * (1 - coverage)
        if abs(left - round(left)) < 1e-6:
            continue
        theirs = crepes.ConformalClassifier().fit(own_scores[chosen])
        expected = theirs.predict_set(asked, confidence=coverage, smoothing=False)
        assert (found[:, c] == expected[:, c].astype(bool)).all()
