"""Votes in one block of the embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import blobs, swap

from attnknn import AttnKNNClassifier
from attnknn.attention import (
    BlockAttention,
    DistanceAttention,
    ForestAttention,
    MixtureAttention,
    UniformAttention,
)
from attnknn.encoders import UnionEncoder
from attnknn.errors import InvalidSettingError, ModelFolderError

ROWS, LABELS = blobs(90)
TEST, _ = blobs(30, seed=1)


def union() -> UnionEncoder:
    return UnionEncoder([("raw", "identity"), ("scaled", "scaled")])


def fitted(attention, encoder=None) -> AttnKNNClassifier:
    clf = AttnKNNClassifier(16, encoder=encoder or union(), attention=attention, random_state=0)
    return clf.fit(ROWS, LABELS)


@pytest.mark.parametrize(("block", "columns"), [("", (0, 4)), ("raw", (0, 4)), ("scaled", (4, 8))])
def test_a_block_votes_as_its_encoder_alone(block, columns):
    clf = fitted(BlockAttention(block))
    assert (clf.attention_.map_.start, clf.attention_.map_.stop) == columns
    scale = clf.encoder_.scales_[columns[0] // 4]
    whole = clf.encoder_.transform(ROWS)[:, slice(*columns)] * scale
    alone = AttnKNNClassifier(16, encoder="identity", attention="distance", random_state=0)
    alone.fit(whole, LABELS)
    assert clf.attention_.n_neighbors_ == alone.n_neighbors_
    queries = clf.encoder_.transform(TEST)[:, slice(*columns)] * scale
    prepared = clf.memory_.prepare(clf.encoder_.transform(TEST))
    found = clf.attention_.part(clf.model_).vote_shares(prepared[:, slice(*columns)])
    expected = alone.model_.vote_shares(alone.memory_.prepare(queries))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


def test_a_block_sees_none_of_the_other_columns():
    clf = fitted(BlockAttention("scaled"))
    model = clf.model_
    queries = model.queries(TEST)
    moved = queries.copy()
    moved[:, :4] += 100.0
    np.testing.assert_array_equal(
        clf.attention_.shares(model, moved), clf.attention_.shares(model, queries)
    )


def test_the_whole_embedding_is_the_only_block_of_other_encoders():
    clf = fitted(BlockAttention(), "identity")
    assert (clf.attention_.map_.start, clf.attention_.map_.stop) == (0, 4)
    with pytest.raises(InvalidSettingError, match="`block` must be one of all, got 'words'"):
        fitted(BlockAttention("words"), "identity")


def test_a_block_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(InvalidSettingError, match="one of raw, scaled, got 'words'"):
        fitted(BlockAttention("words"))


def test_the_given_attention_stays_unfitted():
    inner = ForestAttention(5)
    clf = fitted(BlockAttention("raw", inner))
    assert not hasattr(inner, "trees_")
    assert clf.attention_.inner_ is not inner


def test_blocks_are_mixed_with_weights_that_are_fitted():
    rows = np.hstack([ROWS, 50 * np.random.default_rng(0).normal(size=(len(ROWS), 3))])
    attention = MixtureAttention((BlockAttention("raw"), BlockAttention("scaled")))
    clf = AttnKNNClassifier(16, encoder=union(), attention=attention, random_state=0)
    clf.fit(rows, LABELS)
    weights = dict(zip(clf.attention_.kept_, clf.attention_.mixing_, strict=True))
    assert weights[1] > 0.8
    assert len(clf.attention_.heads_) == len(clf.attention_.n_neighbors_) == len(weights)


def mixture_of_two() -> AttnKNNClassifier:
    """Three heads, of which the one in the middle has weight 0."""
    heads = (DistanceAttention(), UniformAttention(), ForestAttention(7))
    clf = fitted(MixtureAttention(heads), "identity")
    distance = fitted("distance", "identity").attention_
    forest = fitted(heads[2], "identity").attention_
    clf.attention_.set_heads(
        [distance, UniformAttention(), forest], [3, 4, 5], np.array([0.25, 0.0, 0.75])
    )
    return swap(clf)


def test_heads_of_weight_zero_are_dropped_and_are_not_stored(tmp_path):
    clf = mixture_of_two()
    attention = clf.attention_
    assert (attention.kept_, attention.n_neighbors_) == ([0, 2], [3, 5])
    assert attention.mixing_.tolist() == [0.25, 0.75]
    assert [type(head) for head in attention.heads_] == [DistanceAttention, ForestAttention]
    clf.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    again = loaded.attention_
    assert (again.kept_, again.n_neighbors_, len(again.heads)) == ([0, 2], [3, 5], 3)
    assert loaded.predict_proba(TEST).tobytes() == clf.predict_proba(TEST).tobytes()


@pytest.mark.parametrize(
    "change",
    [
        {"kept": []},
        {"kept": [1, 0]},
        {"kept": [0, 0]},
        {"kept": [0, 3]},
        {"kept": [-1, 0]},
        {"kept": [0, 1e300]},
        {"kept": "01"},
        {"mixing": [0.5]},
        {"mixing": [1.5, -0.5]},
        {"mixing": [0.5, 0.4]},
        {"mixing": [1.0, 0.0]},
        {"heads": []},
    ],
    ids=str,
)
def test_stored_mixtures_that_are_none_are_refused(change):
    attention = mixture_of_two().attention_
    values, tensors = attention.state()
    again = MixtureAttention(attention.heads)
    again.restore(values, tensors, 4, 3)
    with pytest.raises((ModelFolderError, KeyError, TypeError, ValueError)):
        again.restore({**values, **change}, tensors, 4, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"start": 4},
        {"stop": 9},
        {"start": -1},
        {"stop": 2.0},
        {"n_neighbors": 0},
        {"temperature": 0.0},
        {"inner_prior_score": "0"},
        {"inner": None},
    ],
    ids=str,
)
def test_stored_blocks_that_do_not_fit_are_refused(change):
    values, tensors = fitted(BlockAttention("raw")).attention_.state()
    with pytest.raises(ModelFolderError):
        BlockAttention("raw").restore({**values, **change}, tensors, 8, 3)
