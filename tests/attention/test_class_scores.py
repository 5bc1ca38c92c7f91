"""Votes among class scores: distance attention with the query's own scores of the classes."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import log_loss
from strategies import batch

from attnknn import AttnKNNClassifier
from attnknn.attention import ClassScoreAttention, DistanceAttention
from attnknn.attention.class_scores import UNKNOWN, columns_of
from attnknn.encoders import NgramEncoder
from attnknn.errors import InvalidSettingError, ModelFolderError

WORDS = ("card", "fee", "rate", "limit", "loan")


def intents(n: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts of five intents: mostly common words, and now and then a word of another intent."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(len(WORDS), size=n)
    texts = []
    for label in labels:
        others = generator.choice(["my", "the", "please", "what", "is", "a"], size=5).tolist()
        spoken = label if generator.random() < 0.8 else generator.integers(len(WORDS))
        texts.append(" ".join([*others, WORDS[spoken], *generator.choice(WORDS, 1)]))
    return texts, [WORDS[label] for label in labels]


def with_columns(weight: float, columns: list[int]) -> ClassScoreAttention:
    attention = ClassScoreAttention()
    attention.temperature_, attention.prior_score_ = 0.7, -1.5
    attention.gap_weight_, attention.columns_ = weight, np.array(columns)
    return attention


def test_scores_are_those_of_the_formula():
    seen = batch(n_entries=12, k=9)
    columns = [1, 0, 2]
    found = with_columns(0.4, columns).scores(seen).neighbors[:, 0]
    for row, place in zip(*np.nonzero(seen.neighbors.mask), strict=True):
        query = seen.queries[row]
        gap = query.max() - query[columns[seen.neighbors.labels[row, place]]]
        assert found[row, place] == pytest.approx(-(seen.squared[row, place] + 0.4 * gap), abs=1e-5)


def test_without_a_gap_weight_it_is_distance_attention():
    seen = batch(n_entries=12, k=9)
    distance = DistanceAttention()
    distance.temperature_, distance.prior_score_ = 0.7, -1.5
    expected = distance.weigh(seen)
    weights = with_columns(0.0, [0, 1, 2]).weigh(seen)
    np.testing.assert_array_equal(weights.neighbors, expected.neighbors)


def test_entries_of_a_class_without_a_column_count_for_their_own_highest_score():
    seen = batch(n_entries=12, k=9)
    found = with_columns(0.4, [UNKNOWN] * 3).scores(seen).neighbors[:, 0]
    for row, place in zip(*np.nonzero(seen.neighbors.mask), strict=True):
        query, entry = seen.queries[row], seen.vectors[seen.neighbors.positions[row, place]]
        gap = query.max() - query[entry.argmax()]
        assert found[row, place] == pytest.approx(-(seen.squared[row, place] + 0.4 * gap), abs=1e-5)


def test_columns_follow_the_scores_and_not_the_codes():
    generator = np.random.default_rng(0)
    labels = generator.integers(3, size=60)
    scores = generator.normal(size=(60, 4))
    scores[:, 0] += 5.0  # a column that is always high
    scores[np.arange(60), np.array([3, 0, 1])[labels]] += 6.0
    assert columns_of(scores.astype(np.float32), labels, 4).tolist() == [3, 0, 1, UNKNOWN]


def test_the_scores_of_a_query_help_where_words_decide():
    (texts, labels), (new, truth) = intents(600), intents(600, seed=1)
    losses = {}
    for attention in ("distance", "class-scores"):
        clf = AttnKNNClassifier(encoder="ngrams", attention=attention, random_state=0)
        losses[attention] = log_loss(truth, clf.fit(texts, labels).predict_proba(new))
    assert clf.attention_.gap_weight_ > 0
    assert clf.attention_.columns_.tolist() == [0, 1, 2, 3, 4]
    assert losses["class-scores"] < losses["distance"]


def test_the_scale_of_the_scores_does_not_matter():
    texts, labels = intents(400)
    scores = NgramEncoder().fit_transform(texts, labels)
    clf = AttnKNNClassifier(encoder="identity", attention="class-scores", random_state=0)
    small, large = (clf.fit(scores * s, labels).leave_one_out_proba() for s in (0.25, 16.0))
    np.testing.assert_allclose(small, large, atol=0.02)


def test_classes_can_be_added_and_codes_may_change():
    texts, labels = intents(400)
    clf = AttnKNNClassifier(encoder="ngrams", attention="class-scores", random_state=0)
    clf.fit(texts, labels)
    clf.add(["where is my bicycle"] * 60, ["bicycle"] * 60)  # the first in the order of classes
    assert clf.classes_[0] == "bicycle"
    assert clf.attention_.columns_.tolist() == [UNKNOWN, 0, 1, 2, 3, 4]
    assert clf.predict(["where is my bicycle", "card please"]).tolist() == ["bicycle", "card"]


def test_a_stored_attention_predicts_the_same_bytes(tmp_path):
    texts, labels = intents(300)
    clf = AttnKNNClassifier(encoder="ngrams", attention="class-scores", random_state=0)
    clf.fit(texts, labels).save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    new, _ = intents(50, seed=1)
    assert loaded.predict_proba(new).tobytes() == clf.predict_proba(new).tobytes()


@pytest.mark.parametrize("columns", [[0, 1, 5], [0, 1, -2], [0, 1, 0.5], [0, 1]], ids=str)
def test_stored_columns_that_do_not_fit_are_refused(columns):
    values = {"gap_weight": 1.0, "columns": columns}
    with pytest.raises(ModelFolderError, match="columns"):
        ClassScoreAttention().restore(values, {}, dim=5, n_classes=3)


def test_a_negative_gap_weight_is_refused():
    with pytest.raises(InvalidSettingError, match="gap_weight"):
        AttnKNNClassifier(attention=ClassScoreAttention(gap_weight=-1.0)).fit(
            np.arange(8.0)[:, None], [0, 1] * 4
        )


def test_a_given_gap_weight_is_used():
    texts, labels = intents(300)
    attention = ClassScoreAttention(gap_weight=1e4)
    clf = AttnKNNClassifier(encoder="ngrams", attention=attention, random_state=0)
    new, _ = intents(50, seed=1)
    scores = clf.fit(texts, labels).embed(new)
    same = clf.predict(new) == clf.classes_[(scores - clf.embed(texts).mean(axis=0)).argmax(axis=1)]
    assert same.mean() > 0.9  # the classes vote by the scores of the query
