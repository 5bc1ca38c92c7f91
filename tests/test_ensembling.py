"""How the votes over several sizes are mixed: fitted leave-one-out, before the temperature."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad
from strategies import blobs

from attnknn import AdaptiveAttention, AttnKNNClassifier, KEnsembleAttention
from attnknn.attention.several import mixed_by_model
from attnknn.ensembling import best_threshold, fit_mixing, mixture_model, mixture_weights


def regions(n=600, seed=0):
    """Points on a line: left stretches of ten with one label each, right a coin of two to one.

    The nearest three tell the label on the left, only many tell the chances on the right.
    """
    generator = np.random.default_rng(seed)
    place = np.sort(generator.uniform(0, n, size=n))
    stretches = (place // 10) % 2
    coin = generator.random(n) < 1 / 3
    return place[:, None], np.where(place < n / 2, stretches, coin).astype(int)


def test_the_weights_of_a_mixture_are_recovered(rng):
    components = rng.uniform(0.05, 1, size=(4000, 3))
    drawn = rng.choice(3, size=4000, p=[0.6, 0.4, 0.0])
    # Rows seen in proportion to the density of the component they came from.
    kept = rng.random(4000) < components[np.arange(4000), drawn]
    assert np.abs(mixture_weights(components[kept]) - [0.6, 0.4, 0.0]).max() < 0.12


def test_mixing_is_never_worse_than_equal_weights(rng):
    likely = rng.uniform(0.01, 1, size=(200, 4)) * [1, 0.5, 0.3, 0.9]
    weights = mixture_weights(likely)
    assert weights.sum() == pytest.approx(1)
    assert np.log(likely @ weights).mean() >= np.log(likely.mean(axis=1)).mean()


def test_the_best_threshold_is_the_best_of_those_tried(rng):
    entropy = np.sort(rng.uniform(0, 1, size=(300, 3)), axis=1)
    likely = np.column_stack([1 - entropy[:, 0] ** 2, np.full(300, 0.6), np.full(300, 0.7)])
    found = best_threshold(entropy, likely)
    assert 0.3 < found < 0.8


def test_the_learned_mixture_follows_its_features(rng):
    features = rng.normal(size=(800, 2))
    is_first = features[:, 0] > 0
    likely = np.where(is_first[:, None], [0.9, 0.2], [0.2, 0.9])
    mixing = mixed_by_model(features, mixture_model(features, likely))
    assert (mixing.argmax(axis=1) == 1 - is_first).mean() > 0.95


def test_the_gradient_of_the_mixture_is_right(rng, monkeypatch):
    import scipy.optimize

    asked = {}

    def caught(function, start, **_):
        asked["error"] = check_grad(
            lambda v: function(v)[0], lambda v: function(v)[1], rng.normal(size=start.shape)
        )
        return scipy.optimize.OptimizeResult(x=start)

    monkeypatch.setattr(scipy.optimize, "minimize", caught)
    mixture_model(rng.normal(size=(30, 4)), rng.uniform(0.1, 1, size=(30, 3)))
    assert asked["error"] < 1e-5


def losses(attention, X, y, test_X, test_y):
    clf = AttnKNNClassifier(64, attention=attention, random_state=0).fit(X, y)
    return -np.log(clf.predict_proba(test_X)[np.arange(len(test_y)), test_y]).mean(), clf


def test_adaptive_attention_looks_at_few_where_few_can_tell():
    X, y = regions()
    _, clf = losses(AdaptiveAttention(sizes=(3, 64), rule="learned"), X, y, X, y)
    left_out = clf._everyone()
    few = clf.attention_.mixing(left_out.batch)[:, 0]
    is_left = X[:, 0] < 300
    assert few[is_left].mean() > few[~is_left].mean() + 0.02


def test_every_way_of_mixing_reaches_the_answer():
    X, y = regions(400)
    test_X, test_y = regions(400, seed=1)
    answers = {}
    for name, attention in {
        "equal": KEnsembleAttention((3, 64)),
        "fitted": KEnsembleAttention((3, 64), weighting="fitted"),
        "entropy": AdaptiveAttention((3, 64)),
        "threshold": AdaptiveAttention((3, 64), threshold=9.0),
        "learned": AdaptiveAttention((3, 64), rule="learned"),
        "other sizes": KEnsembleAttention((8, 32)),
    }.items():
        loss, clf = losses(attention, X, y, test_X, test_y)
        assert loss < np.log(2)
        answers[name] = clf.predict_proba(test_X)
    names = sorted(answers)
    for i, one in enumerate(names):
        for two in names[i + 1 :]:
            assert np.abs(answers[one] - answers[two]).max() > 1e-4, (one, two)


def test_the_temperature_is_fitted_after_averaging():
    X, y = blobs(200)
    clf = AttnKNNClassifier(32, attention=KEnsembleAttention((2, 32)), random_state=0).fit(X, y)
    left_out = clf._everyone()
    calibration_batch = left_out.calibration_batch(clf.attention_)
    assert calibration_batch.scores.mixing.shape == (200, 2)
    from attnknn.calibration import fit

    assert clf.attention_.temperature_ == pytest.approx(
        fit(calibration_batch).temperature, rel=1e-3
    )


def test_mixing_by_hand_is_left_alone():
    X, y = blobs(60)
    clf = AttnKNNClassifier(16, attention=KEnsembleAttention((2, 16)), random_state=0).fit(X, y)
    left_out = clf._everyone()
    fit_mixing(clf.attention_, left_out.batch, left_out.own, left_out.prior)
    assert clf.attention_.weights_.tolist() == [0.5, 0.5]
    adaptive = AdaptiveAttention((2, 16), threshold=0.25)
    clf = AttnKNNClassifier(16, attention=adaptive, random_state=0).fit(X, y)
    assert clf.attention_.threshold_ == 0.25


def test_a_refit_starts_its_mixing_anew():
    X, y = regions(200)
    clf = AttnKNNClassifier(32, attention=KEnsembleAttention((2, 32), "fitted"), random_state=0)
    first = clf.fit(X, y).attention_.weights_.copy()
    clf.refit()
    assert np.allclose(clf.attention_.weights_, first)
