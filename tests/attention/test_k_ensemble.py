"""Votes over several numbers of neighbors: the average of separate votes, or the one chosen."""

from __future__ import annotations

from itertools import combinations
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.optimize import check_grad
from strategies import batch, blobs

from attnknn import AttnKNNClassifier
from attnknn.attention import (
    AdaptiveAttention,
    DistanceAttention,
    KEnsembleAttention,
    LearnedAttention,
    Scores,
)
from attnknn.attention.k_ensemble import (
    MEASURES,
    best_threshold,
    distance_increases,
    fit_softmax_mixture,
    mixture_weights,
    softmax_mixture,
    vote_entropies,
)
from attnknn.encoders import LearnedTableEncoder
from attnknn.errors import InvalidSettingError
from attnknn.training import TrainConfig
from attnknn.vote import vote

PRIOR = np.array([0.2, 0.3, 0.5])


def votes_apart(seen, sizes, temperature, prior_score):
    """(H, B, C): the vote of distance attention over each size by itself."""
    attention = DistanceAttention()
    attention.temperature_, attention.prior_score_ = temperature, prior_score
    nearest = [seen.nearest(size) for size in sizes]
    return np.array([vote(s.neighbors.labels, attention.weigh(s), PRIOR) for s in nearest])


def prepared(attention, n_neighbors=64, temperature=0.8, prior_score=-2.0):
    attention.prepare_fit(n_neighbors)
    attention.temperature_, attention.prior_score_ = temperature, prior_score
    return attention


@pytest.mark.parametrize("leaves_out", [False, True])
def test_the_ensemble_is_the_plain_average_of_separate_votes(leaves_out):
    seen = batch(n_entries=14, k=12, leaves_out=leaves_out)
    ensemble = prepared(KEnsembleAttention(sizes=(1, 4, 12)))
    ours = vote(seen.neighbors.labels, ensemble.weigh(seen), PRIOR)
    assert np.allclose(ours, votes_apart(seen, (1, 4, 12), 0.8, -2.0).mean(axis=0), atol=1e-12)


def test_a_weighted_ensemble_is_the_weighted_average_of_separate_votes():
    seen = batch(k=12)
    ensemble = prepared(KEnsembleAttention(sizes=(2, 12)))
    ensemble.weights_ = np.array([0.3, 0.7])
    apart = votes_apart(seen, (2, 12), 0.8, -2.0)
    ours = vote(seen.neighbors.labels, ensemble.weigh(seen), PRIOR)
    assert np.allclose(ours, 0.3 * apart[0] + 0.7 * apart[1], atol=1e-12)


@pytest.mark.parametrize("threshold", [0.0, 0.5, 5.0])
def test_adaptive_attention_is_the_vote_over_the_size_it_chose(threshold):
    seen = batch(k=12, n_queries=30)
    adaptive = prepared(AdaptiveAttention(sizes=(2, 5, 12)))
    adaptive.threshold_ = threshold
    apart = votes_apart(seen, (2, 5, 12), 0.8, -2.0)
    ours = vote(seen.neighbors.labels, adaptive.weigh(seen), PRIOR)
    chosen = adaptive.scores(seen).mixing.argmax(axis=1)
    assert np.allclose(ours, apart[chosen, np.arange(30)], atol=1e-12)


def test_small_sizes_are_chosen_where_neighbors_agree_and_large_ones_where_not():
    seen = batch(k=12, n_queries=40, n_entries=200)
    adaptive = prepared(AdaptiveAttention(sizes=(2, 5, 12)))
    adaptive.threshold_ = 0.1
    chosen = adaptive.scores(seen).mixing.argmax(axis=1)
    labels = seen.neighbors.labels
    for row in range(40):
        is_pure = [len(set(labels[row, :size])) == 1 for size in (2, 5, 12)]
        assert chosen[row] == (is_pure.index(True) if any(is_pure) else 2)
    assert set(chosen) >= {0, 2}


def test_a_higher_threshold_is_content_with_fewer_neighbors():
    seen = batch(k=12, n_queries=40, n_entries=200)
    adaptive = prepared(AdaptiveAttention(sizes=(2, 5, 12)))
    means = []
    for threshold in (0.0, 0.6, 9.0):
        adaptive.threshold_ = threshold
        means.append(adaptive.scores(seen).mixing.argmax(axis=1).mean())
    assert means == sorted(means, reverse=True)
    assert means[-1] == 0


def test_entropy_is_that_of_the_plain_vote():
    seen = batch(k=8)
    found = vote_entropies(seen, (3, 8))
    for row in range(len(seen.queries)):
        for column, size in enumerate((3, 8)):
            say, labels = seen.sample_weight[row, :size], seen.neighbors.labels[row, :size]
            shares = np.array([say[labels == c].sum() for c in range(3)]) / say.sum()
            shares = shares[shares > 0]
            assert found[row, column] == pytest.approx(-(shares * np.log(shares)).sum(), abs=1e-12)


def test_what_the_mixture_looks_at_has_no_unit():
    seen = batch(k=8)
    before = distance_increases(seen, (2, 8))
    seen.squared[:] *= 1e6
    assert np.allclose(distance_increases(seen, (2, 8)), before)
    assert before.shape == (7, 2)
    assert np.allclose(before[:, 1], 1)


def test_default_sizes_are_parts_of_the_largest():
    assert prepared(KEnsembleAttention(), 64).sizes_ == (4, 16, 64)
    assert prepared(KEnsembleAttention(), 3).sizes_ == (1, 3)


# How the votes over several sizes are mixed


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
    likelihood = rng.uniform(0.01, 1, size=(200, 4)) * [1, 0.5, 0.3, 0.9]
    weights = mixture_weights(likelihood)
    assert weights.sum() == pytest.approx(1)
    assert np.log(likelihood @ weights).mean() >= np.log(likelihood.mean(axis=1)).mean()


def test_the_best_threshold_is_the_best_of_those_tried(rng):
    entropy = np.sort(rng.uniform(0, 1, size=(300, 3)), axis=1)
    likelihood = np.column_stack([1 - entropy[:, 0] ** 2, np.full(300, 0.6), np.full(300, 0.7)])
    found = best_threshold(entropy, likelihood)
    assert 0.3 < found < 0.8


def test_the_learned_mixture_follows_its_features(rng):
    features = rng.normal(size=(800, 2))
    is_first = features[:, 0] > 0
    likelihood = np.where(is_first[:, None], [0.9, 0.2], [0.2, 0.9])
    mixing = softmax_mixture(features, fit_softmax_mixture(features, likelihood))
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
    fit_softmax_mixture(rng.normal(size=(30, 4)), rng.uniform(0.1, 1, size=(30, 3)))
    assert asked["error"] < 1e-5


def losses(attention, X, y, test_X, test_y):
    clf = AttnKNNClassifier(64, attention=attention, random_state=0).fit(X, y)
    return -np.log(clf.predict_proba(test_X)[np.arange(len(test_y)), test_y]).mean(), clf


def test_adaptive_attention_looks_at_few_where_few_can_tell():
    X, y = regions()
    _, clf = losses(AdaptiveAttention(sizes=(3, 64), rule="learned"), X, y, X, y)
    left_out = clf.model_.leave_one_out()
    few = clf.attention_.scores(left_out.batch).mixing[:, 0]
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
    left_out = clf.model_.leave_one_out()
    calibration_batch = left_out.calibration_batch(clf.attention_)
    assert calibration_batch.scores.mixing.shape == (200, 2)
    from attnknn.calibration import fit

    assert clf.attention_.temperature_ == pytest.approx(
        fit(calibration_batch).temperature, rel=1e-3
    )


def test_mixing_by_hand_is_left_alone():
    X, y = blobs(60)
    clf = AttnKNNClassifier(16, attention=KEnsembleAttention((2, 16)), random_state=0).fit(X, y)
    left_out = clf.model_.leave_one_out()
    rows = {"batch": left_out.batch, "labels": left_out.own, "prior": left_out.prior}
    clf.attention_.fit_parameters(SimpleNamespace(**rows, set_scalars=lambda: None))
    assert clf.attention_.weights_.tolist() == [0.5, 0.5]
    adaptive = AdaptiveAttention((2, 16), threshold=0.25)
    clf = AttnKNNClassifier(16, attention=adaptive, random_state=0).fit(X, y)
    assert clf.attention_.threshold_ == 0.25


def test_a_refit_resets_the_mixing():
    X, y = regions(200)
    clf = AttnKNNClassifier(32, attention=KEnsembleAttention((2, 32), "fitted"), random_state=0)
    first = clf.fit(X, y).attention_.weights_.copy()
    clf.refit()
    assert np.allclose(clf.attention_.weights_, first)


# Learned attention over several sizes

BRIEF = LearnedAttention(n_heads=2, training=TrainConfig(epochs=1))


def learned_over(attention, n_rows=200):
    X, y = blobs(n_rows, spread=1.0)
    return AttnKNNClassifier(16, attention=attention, random_state=0).fit(X, y), X, y


def test_an_ensemble_of_learned_attention_is_the_average_of_its_votes_over_each_size():
    clf, _, _ = learned_over(KEnsembleAttention((2, 16), attention=BRIEF))
    batch, ensemble = clf.model_.leave_one_out().batch, clf.attention_
    inner = ensemble.inner_
    inner.temperature_, inner.prior_score_ = ensemble.temperature_, ensemble.prior_score_
    scores, apart = inner.scores(batch), []
    for size in (2, 16):
        cut = np.where(np.arange(scores.neighbors.shape[2]) < size, scores.neighbors, -np.inf)
        apart.append(inner.weights(Scores(cut, scores.prior), batch).neighbors)
    assert np.allclose(ensemble.weigh(batch).neighbors, np.mean(apart, axis=0), atol=1e-12)


def test_one_size_of_all_neighbors_is_learned_attention():
    clf, X, _ = learned_over(KEnsembleAttention((16,), attention=BRIEF))
    plain, _, _ = learned_over(BRIEF)
    assert np.allclose(clf.predict_proba(X), plain.predict_proba(X), atol=1e-6)
    assert np.array_equal(clf.held_out_, plain.held_out_)


@pytest.mark.parametrize("rule", ["threshold", "learned"])
@pytest.mark.parametrize("by", MEASURES)
def test_the_measure_and_the_attention_reach_the_answer(by, rule):
    settings = {"sizes": (2, 16), "rule": rule, "by": by}
    found, X, _ = learned_over(AdaptiveAttention(**settings, attention=BRIEF))
    by_distance, _, _ = learned_over(AdaptiveAttention(**settings))
    assert np.abs(found.predict_proba(X) - by_distance.predict_proba(X)).max() > 1e-4
    assert found.score(X, blobs(200, spread=1.0)[1]) > 0.5
    evidence = found.explain(X[:1])[0]
    assert evidence.weights.sum() + evidence.prior_weight == pytest.approx(1)


def test_every_measure_chooses_in_its_own_way():
    chosen = {}
    for by in MEASURES:
        clf, _, _ = learned_over(AdaptiveAttention((2, 16), "learned", by=by))
        chosen[by] = clf.attention_.scores(clf.model_.leave_one_out().batch).mixing[:, 0]
    for one, two in combinations(MEASURES, 2):
        assert np.abs(chosen[one] - chosen[two]).max() > 1e-3, (one, two)


@pytest.mark.parametrize(("by", "threshold"), [("attention_entropy", 0.8), ("confidence", 0.4)])
def test_the_choice_does_not_move_with_the_temperature_of_the_vote(by, threshold):
    seen = batch(k=12, n_queries=40, n_entries=200)
    adaptive = prepared(AdaptiveAttention(sizes=(2, 5, 12), by=by))
    adaptive.threshold_, adaptive.choice_temperature_ = threshold, 0.5
    before = adaptive.scores(seen).mixing
    assert len(set(before.argmax(axis=1))) > 1
    adaptive.temperature_ *= 7
    assert np.array_equal(adaptive.scores(seen).mixing, before)
    adaptive.choice_temperature_ *= 7
    assert not np.array_equal(adaptive.scores(seen).mixing, before)


def test_uncertainties_are_those_of_distance_attention_over_each_size():
    seen = batch(k=12)
    weights = DistanceAttention()
    weights.temperature_, weights.prior_score_ = 0.5, -np.inf
    for by in ("attention_entropy", "confidence"):
        adaptive = prepared(AdaptiveAttention(sizes=(3, 12), by=by))
        adaptive.choice_temperature_ = 0.5
        found = adaptive._uncertainties(seen, adaptive._scores_by_size(seen))
        for place, size in enumerate((3, 12)):
            near = seen.nearest(size)
            shares = vote(near.neighbors.labels, weights.weigh(near), PRIOR)
            own = weights.weigh(near).neighbors
            entropy = -(own * np.log(np.maximum(own, 1e-300))).sum(axis=1) / np.log(size)
            expected = entropy if by == "attention_entropy" else 1 - shares.max(axis=1)
            assert np.allclose(found[:, place], expected, atol=1e-12)


@pytest.mark.parametrize("attention", ["power", DistanceAttention()])
def test_other_attentions_inside_are_refused(attention):
    with pytest.raises(InvalidSettingError, match="`attention` must be 'distance', 'learned' or"):
        learned_over(KEnsembleAttention(attention=attention))


def test_an_unknown_measure_is_refused():
    with pytest.raises(InvalidSettingError, match="Did you mean 'confidence'"):
        learned_over(AdaptiveAttention(by="confidense"))


def test_edits_and_refit_reach_learned_attention_over_several_sizes():
    clf, X, _ = learned_over(AdaptiveAttention((2, 16), by="confidence", attention=BRIEF))
    before = clf.attention_
    clf.add(X[:4] + 20.0, [9] * 4)
    assert clf.predict(X[:1] + 20.0).tolist() == [9]
    assert before.inner_.module_.shape.n_classes == len(clf.classes_) - 1
    clf.refit()
    assert clf.attention_.inner_.module_.shape.n_classes == len(clf.classes_)


def test_learned_attention_over_several_sizes_is_trained_with_the_encoder():
    X, y = blobs(80)
    encoder = LearnedTableEncoder(
        embed_dim=4, width=8, network="deep", training=TrainConfig(epochs=1, batch_size=32)
    )
    inner = LearnedAttention(joint=True, training=TrainConfig(epochs=1))
    ensemble = KEnsembleAttention((2, 8), attention=inner)
    embedded = [
        AttnKNNClassifier(8, encoder=encoder, attention=a, random_state=0).fit(X, y).embed(X)
        for a in (ensemble, inner)
    ]
    assert np.array_equal(*embedded)
