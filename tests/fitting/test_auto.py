"""The choice of encoder and attention: bounded, reported, deterministic and not fooled."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits, load_wine
from strategies import blobs

from attnknn import AttnKNNClassifier
from attnknn.attention import (
    BlockAttention,
    BoostingAttention,
    DistanceAttention,
    ForestAttention,
    LearnedAttention,
    MixtureAttention,
    MLPAttention,
)
from attnknn.encoders import IdentityEncoder, ScaledEncoder, UnionEncoder
from attnknn.errors import InvalidSettingError
from attnknn.fitting import auto
from attnknn.fitting.encoders import choose_scale, default_encoder
from attnknn.research.evaluation.corruption import symmetric_noise
from attnknn.training import TrainConfig

ALONE = -1  # no group
NAMES = ["distance", "projection", "forest", "extra trees", "boosting", "mlp", "learned"]


@pytest.fixture(autouse=True)
def small_candidates(monkeypatch):
    """Few trees, and a short training."""
    forests, extra = ForestAttention(20), ForestAttention(20, kind="extra_trees")
    monkeypatch.setattr(
        auto, "_forests", lambda *_: [("forest", forests, 0.1), ("extra trees", extra, 0.1)]
    )
    boosting = BoostingAttention(n_folds=3, max_iterations=5)
    monkeypatch.setattr(auto, "_boosting", lambda *_: (boosting, 0.5))
    mlp = MLPAttention(n_folds=3, hidden_size=16, max_epochs=8, learning_rate=0.02)
    monkeypatch.setattr(auto, "_mlp", lambda *_: (mlp, 0.5))
    monkeypatch.setattr(auto, "LearnedAttention", short_training)


def short_training() -> LearnedAttention:
    return LearnedAttention(training=TrainConfig(epochs=6))


def fitted(X, y, **settings) -> AttnKNNClassifier:
    settings = {"random_state": 0, "label_noise": None, **settings}
    return AttnKNNClassifier(**settings).fit(X, y)


def candidates(clf: AttnKNNClassifier) -> dict:
    return {candidate.name: candidate for candidate in clf.fit_report_.candidates}


@cache
def xor(n: int = 400, width: int = 10, seed: int = 0):
    """The signs of two directions decide together, and are hidden among directions of noise."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=(n, width))
    turned, _ = np.linalg.qr(np.random.default_rng(9).normal(size=(width, width)))
    return hidden @ turned, ((hidden[:, 0] > 0) ^ (hidden[:, 1] > 0)).astype(int)


# ---- the budget


def test_a_tiny_budget_leaves_distance_attention_alone():
    clf = fitted(*blobs(90), budget=1e-9)
    assert isinstance(clf.attention_, DistanceAttention)
    found = candidates(clf)
    assert set(found) == set(NAMES)
    assert found["distance"].weight == 1.0
    for name in set(NAMES) - {"distance"}:
        assert found[name].note.startswith("not tried: ")
        assert math.isnan(found[name].log_loss)
        assert (found[name].weight, found[name].seconds) == (0.0, 0.0)
    assert "of the 0.0 s left" in found["forest"].note
    assert "candidate 3       forest: not tried" in str(clf.fit_report_)


def test_candidates_are_tried_while_their_estimate_is_within_the_budget(monkeypatch):
    forests = [("forest", ForestAttention(5), 1.0), ("extra trees", ForestAttention(5), 90.0)]
    monkeypatch.setattr(auto, "_forests", lambda *_: forests)
    found = candidates(fitted(*blobs(90), budget=40.0))
    assert not found["forest"].note
    assert found["extra trees"].note.startswith("not tried: would take about 90.0 s of the ")


def test_without_a_budget_the_slowest_candidates_are_not_tried(monkeypatch):
    slow = [("forest", ForestAttention(5), auto.MAX_SECONDS + 1)]
    monkeypatch.setattr(auto, "_forests", lambda *_: slow)
    found = candidates(fitted(*blobs(60)))
    assert found["forest"].note == "not tried: would take about 61 s; give a `budget` to allow it"


@pytest.mark.parametrize("budget", [0, -1.0, np.nan, "fast", True])
def test_a_budget_must_be_positive(budget):
    with pytest.raises(InvalidSettingError, match="`budget`"):
        fitted(*blobs(60), budget=budget)


# ---- the choice


def test_the_report_lists_every_candidate_and_the_weights_of_the_mixture():
    clf = fitted(*blobs(150, spread=2.0))
    found = candidates(clf)
    assert set(found) == set(NAMES)
    assert sum(candidate.weight for candidate in found.values()) == pytest.approx(1)
    tried = [c for c in clf.fit_report_.candidates if not c.note]
    assert [candidate.name for candidate in tried] == NAMES[:5]
    assert all(0 < c.log_loss < 2 and c.seconds > 0 for c in tried)
    if isinstance(clf.attention_, MixtureAttention):
        used = [candidate.weight for candidate in tried if candidate.weight]
        np.testing.assert_array_equal(clf.attention_.mixing_, used)
        assert clf.attention_.kept_ == list(range(len(used)))
    assert clf.fit_report_.log_loss <= 1.05 * min(c.log_loss for c in tried)
    assert clf.held_out_.all()


def test_the_choice_is_the_same_for_one_random_state():
    X, y = blobs(90, spread=1.5)
    one, again, other = (fitted(X, y, random_state=seed) for seed in (3, 3, 4))
    assert one.predict_proba(X).tobytes() == again.predict_proba(X).tobytes()
    weights, same = ([c.weight for c in clf.fit_report_.candidates] for clf in (one, again))
    assert weights == same
    assert not np.array_equal(one.predict_proba(X), other.predict_proba(X))


def test_random_labels_get_probabilities_near_their_frequencies():
    distances, losses = [], []
    for seed in range(3):
        generator = np.random.default_rng(seed)
        X, y = generator.normal(size=(150, 5)), (generator.random(150) < 0.3).astype(int)
        clf = fitted(X, y)
        found = clf.predict_proba(generator.normal(size=(200, 5)))[:, 1]
        distances.append(np.abs(found - y.mean()).mean())
        frequency = y.mean()
        entropy = -np.log([1 - frequency, frequency]) @ [1 - frequency, frequency]
        losses.append(entropy - clf.fit_report_.log_loss)
    assert np.mean(distances) < 0.1
    assert np.mean(losses) < 0.03


@pytest.mark.parametrize(("n_rows", "settings"), [(39, {}), (90, {"calibration": None})])
def test_where_candidates_cannot_be_compared_there_are_none(n_rows, settings):
    report = fitted(*blobs(n_rows), **settings).fit_report_
    assert (report.attention, report.candidates) == ("distance", ())
    assert report.reason.startswith("fewer than 300 rows")


def test_one_class_and_one_group_have_no_candidates():
    X, y = blobs(60)
    assert AttnKNNClassifier(random_state=0).fit(X, y * 0).fit_report_.candidates == ()
    clf = AttnKNNClassifier(random_state=0).fit(X, y, groups=np.zeros(60, dtype=int))
    assert clf.fit_report_.candidates == ()
    assert clf.fit_report_.reason == "all rows are of one group"


def test_rows_of_a_group_are_left_out_together():
    generator = np.random.default_rng(0)
    X = np.repeat(generator.normal(size=(40, 4)), 3, axis=0) + 1e-3 * generator.normal(
        size=(120, 4)
    )
    y, groups = np.repeat(generator.integers(2, size=40), 3), np.repeat(np.arange(40), 3)
    losses = [
        AttnKNNClassifier(random_state=0, label_noise=None).fit(X, y, groups=g).fit_report_.log_loss
        for g in (None, groups)
    ]
    assert losses[0] < 0.1 < 0.4 < losses[1]  # copies tell the label, unless they are left out


# ---- networks


def test_a_network_is_tried_where_smooth_boundaries_are_about_as_good_as_trees(monkeypatch):
    monkeypatch.setattr(auto, "MIN_ROWS_FOR_NETWORK", 100)
    found = candidates(fitted(*blobs(200, spread=1.5)))["mlp"]
    assert np.isfinite(found.log_loss)
    rows = np.random.default_rng(0).normal(size=(200, 8))
    labels = (rows[:, 0] > 0) ^ (rows[:, 1] > 0.5)  # steps that only trees see
    note = candidates(fitted(rows, labels))["mlp"].note
    assert note == "not tried: distance attention and projection are worse than trees"


def test_a_network_is_not_tried_on_few_rows():
    note = candidates(fitted(*blobs(100, spread=1.0)))["mlp"].note
    assert note == "not tried: fewer than 1,000 rows"


# ---- learned attention


def test_learned_attention_is_kept_where_it_helps_and_its_rows_are_not_held_out(monkeypatch):
    monkeypatch.setattr(auto, "MIN_ROWS_TO_HOLD_OUT", 300)
    X, y = xor()
    clf = fitted(X, y, encoder="identity")
    learned = candidates(clf)["learned"]
    assert learned.weight > 0.2
    assert not learned.note
    assert 0 < clf.held_out_.sum() < len(X) / 2
    assert clf.fit_report_.n_rows == clf.held_out_.sum()
    assert clf.fit_report_.log_loss < 0.9 * candidates(clf)["distance"].log_loss
    new, truth = xor(seed=1)
    without = fitted(X, y, encoder="identity", attention="distance")
    assert (clf.predict(new) == truth).mean() > (without.predict(new) == truth).mean()


def test_learned_attention_that_does_not_help_leaves_all_rows_held_out():
    X, y = blobs(320, spread=0.9)
    clf = fitted(X, y, encoder="identity")
    learned = candidates(clf)["learned"]
    assert learned.weight == 0.0
    assert "not " in learned.note
    assert clf.held_out_.all()


def test_distance_attention_alone_is_calibrated_as_ever_after_learning(monkeypatch):
    """Whatever was tried, the model of one candidate is that candidate's."""
    X, y = xor()
    monkeypatch.setattr(
        "attnknn.fitting.fitting.fit_mixing", lambda shares, *_: np.eye(len(shares))[0]
    )
    monkeypatch.setattr(auto, "STANDARD_ERRORS", -1e9)
    monkeypatch.setattr(auto, "MAX_RATIO_TO_BOOST", 0.0)
    monkeypatch.setattr(auto._Choice, "first_candidates", lambda _: [distance()])
    shares = auto._Choice._shares
    monkeypatch.setattr(
        auto._Choice,
        "_shares",
        lambda self, head, *rest: (
            shares(self, head, *rest)
            if isinstance(head, DistanceAttention)
            else np.full((len(rest[-1]), 2), 0.5)
        ),
    )
    clf = fitted(X, y, encoder="identity")
    expected = fitted(X, y, encoder="identity", attention="distance")
    assert isinstance(clf.attention_, DistanceAttention)
    assert np.isfinite(clf.attention_.prior_score_)
    np.testing.assert_allclose(clf.predict_proba(X), expected.predict_proba(X), atol=1e-9)


def distance():
    return "distance", DistanceAttention(), 0.0


def test_learned_attention_sees_its_own_block_of_a_union(monkeypatch):
    monkeypatch.setattr(auto, "MIN_ROWS_TO_HOLD_OUT", 300)
    X, y = xor()
    monkeypatch.setattr(auto, "STANDARD_ERRORS", -1e9)
    monkeypatch.setattr(auto, "MIN_WEIGHT_TO_LEARN", 0.0)
    encoder = UnionEncoder([("raw", "identity"), ("scaled", "scaled")])
    clf = fitted(X, y, encoder=encoder)
    assert "learned of raw" in candidates(clf)
    heads = getattr(clf.attention_, "heads_", [clf.attention_])
    learned = [
        head for head in heads if isinstance(getattr(head, "inner_", head), LearnedAttention)
    ]
    assert all(isinstance(head, BlockAttention) for head in learned)
    assert [head.inner_.module_.shape.dim for head in learned] == [X.shape[1]]


# ---- a union


def test_blocks_of_a_union_are_candidates_of_their_own():
    X, y = blobs(120)
    X = np.hstack([X, 30 * np.random.default_rng(0).normal(size=(120, 2))])
    encoder = UnionEncoder([("raw", "identity"), ("scaled", "scaled")])
    clf = fitted(X, y, encoder=encoder)
    found = candidates(clf)
    assert {f"{a} of {b}" for a in ("distance", "projection") for b in ("raw", "scaled")} <= set(
        found
    )
    assert found["distance of scaled"].log_loss < found["distance of raw"].log_loss
    assert clf.fit_report_.encoder == "union: requested"


def test_class_scores_are_not_projected_once_more():
    texts = [f"{a} {b}" for a in ("good", "nice", "bad", "awful") for b in "abcdefghijklmno"]
    labels = np.repeat([0, 0, 1, 1], 15)
    encoder = UnionEncoder([("words", "ngrams"), ("parts", "tfidf")])
    found = candidates(fitted(texts, labels, encoder=encoder))
    assert {"class-scores of words", "distance of parts", "projection of parts"} <= set(found)
    assert "projection of words" not in found
    assert not {"forest", "extra trees", "boosting"} & set(found)


# ---- the encoder


def test_wine_is_scaled_and_digits_are_not():
    for load, expected in ((load_wine, ScaledEncoder), (load_digits, IdentityEncoder)):
        X, y = load(return_X_y=True)
        X, y = X[::4] if len(X) > 500 else X, y[::4] if len(y) > 500 else y
        encoder, words = choose_scale(X, y, np.full(len(y), ALONE), 0)
        assert type(encoder) is expected
        assert words.startswith("log-loss by distance is ")


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (np.arange(10.0)[:, None] * [1, 100], np.arange(10) % 2, "too few rows"),
        (np.arange(40.0)[:, None] * [1, 100], np.zeros(40, int), "too few rows or classes"),
        (np.arange(40.0)[:, None], np.arange(40) % 2, "same scale"),
        (np.arange(40.0)[:, None] * [1, -1], np.arange(40) % 2, "same scale"),
    ],
)
def test_where_scales_cannot_be_compared_rows_stay_as_they_are(X, y, words):
    encoder, reason = choose_scale(X, y, np.full(len(y), ALONE), 0)
    assert isinstance(encoder, IdentityEncoder)
    assert words in reason


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_columns_that_float32_cannot_hold_are_scaled(size):
    X, y = blobs(60)
    X = X * [size, 1.0, 1.0, 1.0]
    clf = fitted(X, y, attention="distance")
    assert isinstance(clf.encoder_, ScaledEncoder)
    expected = fitted(blobs(60)[0], y, attention="distance", encoder="scaled")
    np.testing.assert_allclose(
        clf.predict_proba(X), expected.predict_proba(blobs(60)[0]), atol=1e-4
    )


def test_other_metrics_leave_the_rows_as_they_are():
    X, y = load_wine(return_X_y=True)
    clf = fitted(X, y, attention="distance", metric="cosine")
    assert isinstance(clf.encoder_, IdentityEncoder)


def test_the_sample_that_scales_are_compared_on_follows_the_random_state(monkeypatch):
    monkeypatch.setattr("attnknn.fitting.encoders.MAX_ROWS_TO_COMPARE", 40)
    X, y = blobs(120)
    X = X * [1, 2, 3, 4]
    words = [choose_scale(X, y, np.full(120, ALONE), seed)[1] for seed in (0, 0, 1)]
    assert words[0] == words[1] != words[2]


TEXTS = [f"{a} {b}" for a in ("good", "nice", "bad", "awful") for b in ("film", "day", "food")]
GAPS = pd.DataFrame({"a": [1.0, np.nan, 3.0], "b": [1, 2, 3]})


@pytest.mark.parametrize(
    ("X", "encoder"),
    [
        (np.ones((3, 2)), "identity"),
        (np.ones((3, 2), dtype=bool), "identity"),
        ([[1, 2], [3, 4]], "identity"),
        (csr_array(np.eye(3)), "identity"),
        (np.array([[1.0, np.nan]]), "tabular"),
        (np.array([[1.0, "x"]], dtype=object), "tabular"),
        (np.array([[1.0, None]], dtype=object), "tabular"),
        (np.array([[1.0, 2.0]], dtype=object), "identity"),
        (np.array([["a", "b"]]), "tabular"),
        (GAPS, "tabular"),
        (GAPS.dropna(), "identity"),
        (GAPS.fillna(0).assign(c=True), "identity"),
        (GAPS.fillna(0).assign(c="x"), "tabular"),
        (GAPS.fillna(0).assign(c=pd.array([1, None, 2], dtype="Int64")), "tabular"),
        (pd.DataFrame({"d": pd.to_datetime(["2024-01-01"])}), "tabular"),
        (TEXTS, "ngrams"),
        (np.array(TEXTS), "ngrams"),
        (pd.Series(TEXTS), "ngrams"),
        (
            pd.DataFrame({"text": [f"a long text of many words, number {n}" for n in range(40)]}),
            "ngrams",
        ),
        (np.zeros((2, 8, 8)), "image"),
        (np.zeros((2, 8, 8, 3), dtype=np.uint8), "image"),
        (np.zeros(3), "identity"),  # which says what is wrong
    ],
)
def test_rows_get_the_encoder_that_reads_them(X, encoder):
    assert default_encoder(X)[0] == encoder


def test_rows_with_gaps_can_be_fitted_and_predicted():
    X, y = blobs(60)
    X[::7, 1] = np.nan
    for rows in (X, pd.DataFrame(X, columns=list("abcd"))):
        clf = fitted(rows, y, attention="distance")
        assert clf.encoder_.name == "tabular"
        assert clf.fit_report_.encoder == "tabular: a table of several types"
        assert (clf.predict(rows) == y).mean() > 0.6


def test_sparse_rows_and_texts_are_fitted():
    X, y = blobs(60)
    X = np.where(np.abs(X) < 0.3, 0.0, X)
    dense, sparse = (fitted(rows, y, attention="distance") for rows in (X, csr_array(X)))
    np.testing.assert_array_equal(dense.predict_proba(X), sparse.predict_proba(csr_array(X)))
    texts = [f"{a} {b}" for a in ("good", "nice", "bad", "awful") for b in "abcdefghijklmno"]
    clf = fitted(texts, np.repeat([0, 0, 1, 1], 15), label_noise="auto")
    assert clf.encoder_.name == "ngrams"
    assert clf.predict(["a good song", "an awful song"]).tolist() == [0, 1]
    assert not {"forest", "projection"} & set(candidates(clf))


def test_extra_columns_of_a_table_are_ignored_by_the_chosen_encoder():
    X, y = load_wine(return_X_y=True, as_frame=True)
    clf = fitted(X, y, attention="distance")
    expected = clf.predict_proba(X)
    np.testing.assert_array_equal(clf.predict_proba(X.assign(target=y, note="x")), expected)


# ---- storage of the choice


def test_the_choice_and_its_report_are_stored(tmp_path):
    X, y = blobs(90, spread=1.5)
    clf = fitted(X, y)
    clf.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert str(loaded.fit_report_) == str(clf.fit_report_)
    for found, expected in zip(
        loaded.fit_report_.candidates, clf.fit_report_.candidates, strict=True
    ):
        assert repr(found) == repr(expected)  # NaN is not equal to itself
    assert loaded.attention == "auto"
    assert loaded.predict_proba(X).tobytes() == clf.predict_proba(X).tobytes()


# ---- label noise, and the mixture beside its best part


def test_label_noise_is_the_most_certain_estimate_of_the_candidates(monkeypatch):
    X, y = blobs(600, spread=1.0)
    observed = symmetric_noise(y, 0.15, random_state=0)
    seen = []
    original = auto._Choice.estimate_noise
    monkeypatch.setattr(
        auto._Choice, "estimate_noise", lambda self: seen.append(original(self)) or seen[0]
    )
    clf = fitted(X, observed, label_noise="auto")
    error = clf.fit_report_.label_noise_error
    assert abs(clf.label_noise_ - np.mean(observed != y)) < 0.03 + 2 * error
    if isinstance(clf.attention_, MixtureAttention):
        assert clf.label_noise_ == seen[0].label_noise
        assert clf.fit_report_.label_noise_error == seen[0].noise_error


def test_label_noise_that_the_mixture_contradicts_is_not_used(monkeypatch):
    X, y = blobs(600, spread=1.0)
    observed = symmetric_noise(y, 0.15, random_state=0)
    monkeypatch.setattr(auto, "MAX_FALL_BY_NOISE", -math.inf)
    found = []
    original = auto._Choice.estimate_noise
    monkeypatch.setattr(
        auto._Choice, "estimate_noise", lambda self: found.append(original(self)) or found[0]
    )
    fitted(X, observed, label_noise="auto")
    assert found == [None]


def test_a_clean_table_has_no_label_noise():
    assert fitted(*load_wine(return_X_y=True), label_noise="auto").label_noise_ == 0.0


def test_one_candidate_is_used_alone_only_if_it_is_significantly_better(monkeypatch):
    X, y = blobs(150, spread=2.0)
    monkeypatch.setattr(auto, "N_STANDARD_ERRORS", 100.0)
    assert isinstance(fitted(X, y).attention_, MixtureAttention)
    monkeypatch.setattr(auto, "N_STANDARD_ERRORS", -100.0)
    assert not isinstance(fitted(X, y).attention_, MixtureAttention)
