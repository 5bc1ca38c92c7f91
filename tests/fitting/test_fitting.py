"""Fitting: which attention, which K, what is fresh, and what the report says."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from strategies import blobs

from attnknn import (
    AttnKNNClassifier,
    DistanceAttention,
    LearnedAttention,
    MixtureAttention,
    PowerDistanceAttention,
)
from attnknn.calibration import fit
from attnknn.calibration.fitting import MAX_NEIGHBORS_FOR_NOISE, UNCERTAIN
from attnknn.encoders import ImageEncoder, LearnedTableEncoder, TfidfEncoder
from attnknn.encoders.image import ImageTraining
from attnknn.fitting.fitting import MAX_NEIGHBORS_TO_LEARN, FitSettings, Fitting, _halvings
from attnknn.model import FittedModel
from attnknn.research.evaluation.corruption import symmetric_noise
from attnknn.training import TrainConfig

from .shapes import shapes


def stretches(n=400):
    """Points on a line with a new label every ten: the far ones know nothing."""
    place = np.random.default_rng(0).uniform(0, n, size=n)
    return place[:, None], ((place // 10) % 3).astype(int)


def test_few_neighbors_are_used_where_the_far_ones_know_nothing():
    flat = DistanceAttention(temperature=1e9)
    clf = AttnKNNClassifier(64, attention=flat, random_state=0).fit(*stretches())
    assert clf.n_neighbors_ < 10


def copied(seed=0):
    """Rows of which half come twice: a copy knows the label, all others what is likely."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 3))
    y = (rng.random(300) < 0.15 + 0.7 * (X[:, 0] > 0)).astype(int)
    return np.vstack([X, X[:150]]), np.concatenate([y, y[:150]])


def test_a_power_kernel_takes_the_word_of_copies_and_asks_many_elsewhere():
    X, y = copied()
    losses = {}
    for attention in ("distance", "power"):
        clf = AttnKNNClassifier(64, attention=attention, random_state=0).fit(X, y)
        losses[attention] = clf.fit_report_.log_loss
    assert losses["power"] < losses["distance"] - 0.05
    assert clf.attention_.power_ < 0.5


def test_the_power_stays_where_it_is_set_and_where_nothing_asks_for_another():
    X, y = copied()
    by_hand = PowerDistanceAttention(power=0.3)
    clf = AttnKNNClassifier(64, attention=by_hand, random_state=0).fit(X, y)
    assert (clf.attention_.power, clf.attention_.power_) == (0.3, 1.0)
    for calibration in ("auto", None):
        clf = AttnKNNClassifier(attention="power", calibration=calibration, random_state=0)
        assert clf.fit(*blobs(200)).attention_.power_ == 1.0


def test_the_sizes_tried_are_halvings():
    assert _halvings(64) == [64, 32, 16, 8, 4]
    assert _halvings(3) == [3]


def test_the_temperature_fits_better_than_its_neighbors():
    X, y = stretches()
    clf = AttnKNNClassifier(32, attention="distance", random_state=0).fit(X, y)
    best = clf.fit_report_.log_loss
    for factor in (0.3, 3.0):
        by_hand = DistanceAttention(clf.attention_.temperature_ * factor)
        other = AttnKNNClassifier(32, attention=by_hand, random_state=0).fit(X, y)
        assert other.fit_report_.log_loss > best


def test_auto_says_why_it_does_not_learn():
    def reason(*data, **settings):
        return AttnKNNClassifier(8, random_state=0, **settings).fit(*data).fit_report_.reason

    X, y = blobs(39)
    assert "fewer than 300 rows" in reason(X, y)
    assert "one class" in reason(X, np.zeros(39))
    groups = np.zeros(310, dtype=int)
    one_group = AttnKNNClassifier(8, random_state=0).fit(*blobs(310), groups=groups)
    assert "of one group" in one_group.fit_report_.reason
    assert "without calibration" in reason(*blobs(310), calibration=None)


def test_without_calibration_nothing_is_fitted_for_distances():
    X, y = blobs(60)
    clf = AttnKNNClassifier(8, attention="distance", calibration=None).fit(X, y)
    assert clf.calibration_.exponent == 1.0
    assert clf.calibration_.label_noise == 0.0
    assert clf.fit_report_.no_estimate == "not estimated: nothing is calibrated"
    assert clf.n_neighbors_ == 8


def test_held_out_rows_are_held_out_and_the_share_is_the_one_asked_for():
    X, y = blobs(100)
    attention = LearnedAttention(holdout=0.25, training=TrainConfig(epochs=1))
    clf = AttnKNNClassifier(8, attention=attention, random_state=0).fit(X, y)
    assert clf.held_out_.sum() == 25
    assert clf.fit_report_.n_rows == 25


@pytest.mark.parametrize("seed", [100, 103, 111, 112, 113])
def test_rare_classes_that_nothing_tells_apart_are_not_taken_for_noise(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(500, 5)), (rng.random(500) < 0.2).astype(int)
    clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X, y)
    assert clf.calibration_.label_noise == 0.0
    assert np.isnan(clf.label_noise_)
    confidence = clf.predict_proba(rng.normal(size=(300, 5))).max(axis=1).mean()
    assert confidence == pytest.approx(0.8, abs=0.06)


def test_a_report_of_a_learned_encoder_counts_held_out_rows_only_where_distance_is_kept(rng):
    X = rng.normal(size=(310, 3))
    encoder = LearnedTableEncoder(
        holdout=0.2, network="waves", width=32, training=TrainConfig(epochs=1)
    )
    clf = AttnKNNClassifier(8, encoder=encoder, random_state=0).fit(X, rng.integers(2, size=310))
    assert "not significantly better" in clf.fit_report_.reason
    assert clf.fit_report_.n_rows == clf.held_out_.sum() == 62


def test_rows_beyond_the_most_are_held_out_and_still_vote():
    X, y = blobs(100)
    attention = LearnedAttention(max_rows=40, holdout=0.25, training=TrainConfig(epochs=1))
    clf = AttnKNNClassifier(8, attention=attention, random_state=0).fit(X, y)
    assert (~clf.held_out_).sum() == 40
    assert set(clf.kneighbors(X, 1)[1].ravel()) == set(range(100))


def test_noise_of_labels_is_found_through_the_whole_classifier(rng):
    X, y = blobs(900, 6, 10, spread=0.7)
    wrong = rng.random(900) < 0.3
    noisy = np.where(wrong, (y + rng.integers(1, 10, 900)) % 10, y)
    settings = {"n_neighbors": 32, "attention": "distance", "random_state": 0}
    test_X, test_y = blobs(900, 6, 10, spread=0.7, seed=1)

    def log_loss(clf):
        return -np.log(clf.predict_proba(test_X)[np.arange(900), test_y]).mean()

    knowing = AttnKNNClassifier(**settings).fit(X, noisy)
    trusting = AttnKNNClassifier(**settings, label_noise=None).fit(X, noisy)
    assert knowing.label_noise_ == pytest.approx(wrong.mean(), abs=0.03)
    assert trusting.calibration_.label_noise == 0.0
    assert np.isnan(trusting.label_noise_)
    assert log_loss(knowing) < log_loss(trusting) - 0.1
    assert AttnKNNClassifier(**settings).fit(X, y).label_noise_ == 0.0


@pytest.mark.parametrize("label_noise", ["auto", "by_class"])
def test_many_neighbors_vote_under_the_noise_that_few_have_seen(label_noise, rng):
    X, y = blobs(1200, 6, 10, spread=1.5)
    noisy = np.where(rng.random(1200) < 0.3, rng.integers(0, 10, 1200), y)
    clf = AttnKNNClassifier(
        400, encoder="identity", attention="distance", label_noise=label_noise
    ).fit(X, noisy)
    settings = FitSettings(400, "auto", label_noise, 0)
    fitting = Fitting(clf.encoder_, clf.memory_, clf.classes_, settings, None)
    few = (
        fitting.left_out(None)
        .nearest(MAX_NEIGHBORS_FOR_NOISE)
        .calibration_batch(DistanceAttention())
    )
    assert clf.fit_report_.n_neighbors > MAX_NEIGHBORS_FOR_NOISE
    seen = fit(few, label_noise=label_noise).calibration
    assert seen.label_noise > 0.2
    if label_noise == "auto":
        assert clf.label_noise_ == pytest.approx(seen.label_noise, abs=1e-9)
    else:
        np.testing.assert_allclose(clf.calibration_.transition, seen.transition, atol=1e-9)


@pytest.mark.parametrize(
    "attention", ["forest", "projection", MixtureAttention(("distance", "projection", "forest"))]
)
def test_attentions_that_find_their_voters_estimate_the_noise(attention):
    X, y = blobs(400, 6, 3, spread=0.4)
    noisy = symmetric_noise(y, 0.15, random_state=0)
    clf = AttnKNNClassifier(attention=attention, random_state=0).fit(X, noisy)
    error = clf.fit_report_.label_noise_error
    assert 0.01 < error < 0.04
    assert clf.label_noise_ == pytest.approx((noisy != y).mean(), abs=2 * error)
    assert clf.calibration_.noise_error == clf.fit_report_.label_noise_error


def test_noise_of_texts_is_estimated(rng):
    y = np.arange(400) % 4
    words = np.array([["cat", "paw"], ["boat", "sea"], ["tax", "bank"], ["snow", "ski"]])
    fill = np.array(["the", "of", "and", "some", "many"])
    texts = [
        " ".join([*words[code], *rng.choice(fill, 3), *rng.choice(words.ravel(), 1)]) for code in y
    ]
    noisy = symmetric_noise(y, 0.15, random_state=0)
    clf = AttnKNNClassifier(encoder=TfidfEncoder(16), attention="distance", random_state=0)
    clf.fit(texts, noisy)
    error = clf.fit_report_.label_noise_error
    assert clf.label_noise_ == pytest.approx((noisy != y).mean(), abs=2 * error)


def test_few_held_out_rows_of_a_trained_encoder_do_not_tell_the_noise():
    images, codes = shapes(60)
    training = ImageTraining.of(epochs=1)
    encoder = ImageEncoder(widths=(4, 4, 4), image_size=16, training=training)
    clf = AttnKNNClassifier(8, encoder=encoder, random_state=0).fit(images, codes)
    assert clf.fit_report_.n_rows < 20
    assert np.isnan(clf.label_noise_)
    assert "label noise       not estimable: wrong labels" in str(clf.fit_report_)


def test_few_neighbors_show_the_noise_that_smooth_votes_hide():
    X, y = blobs(600, 6, 3, spread=0.3)
    noisy = symmetric_noise(y, 0.15, random_state=0)
    clf = AttnKNNClassifier(64, attention="distance", random_state=0).fit(X, noisy)
    fitting = Fitting(
        clf.encoder_, clf.memory_, clf.classes_, FitSettings(64, "auto", "auto", 0), None
    )
    batch = fitting.left_out(None).calibration_batch(DistanceAttention())
    assert fit(batch).calibration.no_estimate == UNCERTAIN
    assert clf.label_noise_ == pytest.approx((noisy != y).mean(), abs=0.02)


@pytest.mark.parametrize("n_better", [0, 1, 200])
def test_weights_given_the_noise_in_use_need_to_be_significantly_better(monkeypatch, rng, n_better):
    good = rng.dirichlet(np.full(3, 0.3), 400) * 0.9 + 0.1 / 3
    labels = (good.cumsum(axis=1) > rng.random((400, 1))).argmax(axis=1)
    robust = good.copy()
    robust[:n_better] = rng.dirichlet(np.full(3, 5.0), n_better)
    clf = AttnKNNClassifier(8, attention="distance").fit(rng.normal(size=(400, 2)), labels)
    settings = FitSettings(8, "auto", "auto", 0)
    fitting = Fitting(clf.encoder_, clf.memory_, clf.classes_, settings, None)
    given = []

    def fit_mixing(_shares, _own, _prior, noise=None):
        given.append(noise)
        return np.eye(2)[int(noise is not None)]

    monkeypatch.setattr("attnknn.fitting.fitting.fit_mixing", fit_mixing)
    left_out = fitting.left_out(None)
    mixing, fitted = fitting.mixed(MixtureAttention(), [robust, good], left_out)
    is_better = n_better > 1
    assert given == [None, 0.0]
    assert mixing.tolist() == [1 - is_better, is_better]
    expected = fitting.fit_shares(MixtureAttention(), good if is_better else robust, left_out)
    assert fitted.loss == pytest.approx(expected.loss)


def test_learned_attention_keeps_the_error_and_the_reason_of_what_distance_saw(rng):
    X, y = blobs(400, 6, 4, spread=0.5)
    noisy = symmetric_noise(y, 0.25, random_state=0)
    attention = LearnedAttention(training=TrainConfig(epochs=1))
    found = AttnKNNClassifier(8, attention=attention, random_state=0).fit(X, noisy)
    error = found.calibration_.noise_error
    assert 0.01 < error < 0.05
    assert found.label_noise_ == pytest.approx((noisy != y).mean(), abs=2 * error)
    random = AttnKNNClassifier(8, attention=attention, random_state=0)
    random.fit(X, rng.integers(0, 4, 400))
    assert np.isnan(random.label_noise_)
    assert random.fit_report_.no_estimate.startswith("not estimable")


@pytest.mark.parametrize(
    ("rows", "settings"),
    [(blobs(60), {"attention": "uniform"}), (([[0.0]], ["a"]), {"attention": "distance"})],
    ids=["uniform", "one row"],
)
@pytest.mark.filterwarnings("ignore:.*one class")
def test_where_nothing_is_fitted_no_noise_is_estimated(rows, settings):
    clf = AttnKNNClassifier(**settings).fit(*rows)
    assert np.isnan(clf.label_noise_)
    assert "label noise       not estimated: nothing is calibrated" in str(clf.fit_report_)


def test_without_calibration_learned_attention_stays_as_training_left_it():
    clf = AttnKNNClassifier(
        attention=LearnedAttention(training=TrainConfig(epochs=1)), calibration=None, random_state=0
    ).fit(*stretches())
    assert (clf.attention_.temperature_, clf.attention_.prior_score_) == (1.0, 0.0)
    assert clf.calibration_.exponent == 1.0


def test_more_neighbors_vote_by_learned_weights_than_they_were_trained_on(rng):
    X = rng.normal(size=(1500, 4))
    y = (rng.random(1500) < 0.3 + 0.4 * (X[:, 0] > 0)).astype(int)  # each half is a mixture
    reports = []
    for n_neighbors in (MAX_NEIGHBORS_TO_LEARN, 600):
        attention = LearnedAttention(terms=(), trust=False, training=TrainConfig(epochs=2))
        clf = AttnKNNClassifier(n_neighbors, attention=attention, random_state=0).fit(X, y)
        reports.append(clf.fit_report_)
    assert clf.n_neighbors_ > MAX_NEIGHBORS_TO_LEARN
    assert reports[1].log_loss < reports[0].log_loss
    assert 0.1 < clf.held_out_.mean() < 0.2


def test_distance_is_compared_with_all_the_neighbors_that_it_chose(rng, monkeypatch):
    X = rng.normal(size=(800, 3))
    y = (rng.random(800) < 0.3 + 0.4 * (X[:, 0] > 0)).astype(int)
    seen = []
    answer = FittedModel.answer_left_out

    def noted(model, left_out):
        seen.append((model.n_neighbors, left_out.batch.neighbors.mask.shape[1]))
        return answer(model, left_out)

    monkeypatch.setattr(FittedModel, "answer_left_out", noted)
    monkeypatch.setattr(Fitting, "_best_k", lambda _, a, __: 8 if "Learned" in str(a) else 400)
    attention = LearnedAttention(terms=(), trust=False, training=TrainConfig(epochs=1))
    clf = AttnKNNClassifier(400, encoder="identity", attention=attention, random_state=0)
    clf.fit(X, y)
    assert clf.n_neighbors_ == 8
    assert seen[0] == (400, 400)


@pytest.mark.parametrize("n_neighbors", [64, 400])
def test_learned_attention_over_many_neighbors_finds_the_noise(n_neighbors, rng):
    X, y = blobs(1200, 6, 4, spread=0.5)
    noisy = symmetric_noise(y, 0.2, random_state=0)
    attention = LearnedAttention(training=TrainConfig(epochs=2))
    clf = AttnKNNClassifier(n_neighbors, attention=attention, random_state=0).fit(X, noisy)
    assert clf.label_noise_ == pytest.approx((noisy != y).mean(), abs=0.07)


def test_groups_are_trained_on_whole_or_held_out_whole():
    groups = np.repeat(np.arange(40), 8)
    kept = []
    for seed in range(3):  # six groups judge: about one time in six chance alone looks better
        rng = np.random.default_rng(seed)
        centers = rng.normal(size=(40, 6))
        X = centers[groups] + 0.01 * rng.normal(size=(320, 6))
        y = rng.integers(0, 3, 40)[groups]  # a label per group, at random: nothing can be learned
        clf = AttnKNNClassifier(random_state=0, value_head=True, encoder="identity")
        kept.append(clf.fit(X, y, groups=groups).fit_report_)
    assert sum(report.attention == "distance" for report in kept) >= 2
    learned = AttnKNNClassifier(
        attention=LearnedAttention(training=TrainConfig(epochs=2)), random_state=0
    )
    held_out = learned.fit(X, y, groups=groups).held_out_
    assert 0.05 < held_out.mean() < 0.3
    assert not set(groups[held_out]) & set(groups[~held_out])


@cache
def answers_in_unit(metric, scale):
    X, y = blobs(200)
    clf = AttnKNNClassifier(16, attention="distance", metric=metric, random_state=0)
    return clf.fit(X * scale, y).predict_proba(X[:50] * scale)


@pytest.mark.parametrize("scale", [1e-14, 1e-2, 1.0, 1e3, 1e14])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner_product"])
def test_the_unit_of_the_rows_changes_nothing_and_no_class_is_impossible(metric, scale):
    scaled = answers_in_unit(metric, scale)
    assert scaled.min() > 0
    assert scaled == pytest.approx(answers_in_unit(metric, 1.0), abs=0.02)
