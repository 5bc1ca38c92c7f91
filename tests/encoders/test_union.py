"""The union encoder: blocks side by side, of equal variance, stored with the encoders in it."""

from __future__ import annotations

import json
from copy import deepcopy

import numpy as np
import pandas as pd
import pytest

from attnknn import AttnKNNClassifier
from attnknn.encoders import (
    ImageEncoder,
    LearnedTableEncoder,
    NgramEncoder,
    ScaledEncoder,
    UnionEncoder,
    encoder_from_settings,
)
from attnknn.errors import InvalidSettingError, ModelFolderError, NotFittedYetError
from attnknn.testing.encoder import check_encoder

WORDS = ("good", "nice", "fine", "bad", "awful", "poor")
THINGS = ("film", "day", "food", "song", "book")
TEXTS = np.array([f"a {word} {thing}" for word in WORDS for thing in THINGS])
LABELS = np.arange(len(TEXTS)) // 15
ROWS = np.random.default_rng(0).normal(size=(20, 3)) * [1.0, 50.0, 3.0]


def texts() -> UnionEncoder:
    return UnionEncoder([("words", "ngrams"), ("parts", "tfidf")])


def numbers() -> UnionEncoder:
    return UnionEncoder((("raw", "identity"), ("scaled", ScaledEncoder())))


def test_a_union_of_texts_keeps_the_contract():
    check_encoder(texts(), TEXTS, LABELS)


def test_blocks_are_those_of_the_encoders_divided_by_their_spread():
    union = numbers()
    found = union.fit_transform(ROWS)
    assert (found.dtype, found.shape) == (np.float32, (20, 6))
    assert union.blocks_ == {"raw": (0, 3), "scaled": (3, 6)}
    assert (union.width_, union.n_features_in_, union.score_blocks_) == (6, 3, frozenset())
    for name, expected in (("raw", ROWS), ("scaled", ScaledEncoder().fit_transform(ROWS))):
        block = found[:, slice(*union.blocks_[name])]
        assert block.var(axis=0).sum() == pytest.approx(1, rel=1e-4)
        spread = np.sqrt(expected.var(axis=0).sum())
        np.testing.assert_allclose(block, expected / spread, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(union.transform(ROWS), found)


def test_a_block_of_equal_rows_stays_finite():
    union = numbers()
    assert np.isfinite(union.fit_transform(np.ones((4, 2)))).all()
    assert union.scales_ == [1.0, 1.0]


def test_class_scores_are_a_block_of_scores_and_training_rows_are_held_out():
    union = texts()
    held_out = union.fit_transform(TEXTS, LABELS)
    assert union.score_blocks_ == {"words"}
    start, stop = union.blocks_["words"]
    alone = NgramEncoder()
    scale = union.scales_[0]
    expected = alone.fit_transform(TEXTS, LABELS) / scale
    np.testing.assert_allclose(held_out[:, start:stop], expected, rtol=1e-5, atol=1e-6)
    assert not np.allclose(union.transform(TEXTS)[:, start:stop], held_out[:, start:stop])
    assert np.allclose(union.transform(TEXTS)[:, stop:], held_out[:, stop:])


def test_groups_reach_the_encoders():
    groups = np.arange(len(TEXTS)) % 5
    found = texts().fit_transform(TEXTS, LABELS, groups=groups)
    alone = NgramEncoder().fit_transform(TEXTS, LABELS, groups=groups)
    ratio = found[:, : alone.shape[1]] / np.where(alone == 0, 1, alone)
    assert np.ptp(ratio[alone != 0]) < 1e-5


def test_names_of_columns_are_kept():
    table = pd.DataFrame(ROWS, columns=["a", "b", "c"])
    union = numbers().fit(table)
    assert union.feature_names_in_.tolist() == ["a", "b", "c"]
    assert len(union.get_feature_names_out()) == 6
    np.testing.assert_array_equal(union.transform(table), numbers().fit(ROWS).transform(ROWS))


@pytest.mark.parametrize(
    "encoders",
    [
        (),
        [("a", "identity"), ("a", "scaled")],
        [("a", LearnedTableEncoder())],
        [("a", "identity"), ("b", ImageEncoder())],
    ],
    ids=["none", "repeated", "trained table", "trained image"],
)
def test_encoders_that_cannot_be_joined_are_refused(encoders):
    with pytest.raises(InvalidSettingError, match="`encoders` must be pairs of distinct names"):
        UnionEncoder(encoders).fit(ROWS, np.arange(20) % 2)


def test_it_must_be_fitted():
    with pytest.raises(NotFittedYetError):
        numbers().transform(ROWS)


def test_a_union_is_stored_with_the_settings_of_its_encoders(tmp_path):
    encoder = UnionEncoder([("words", NgramEncoder()), ("parts", "tfidf")])
    clf = AttnKNNClassifier(5, encoder=encoder, attention="distance", random_state=0)
    clf.fit(TEXTS, LABELS)
    clf.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert loaded.predict_proba(TEXTS).tobytes() == clf.predict_proba(TEXTS).tobytes()
    (first, ngrams), (second, tfidf) = loaded.encoder.encoders
    assert (first, second, tfidf) == ("words", "parts", "tfidf")
    assert isinstance(ngrams, NgramEncoder)
    assert ngrams.get_params() == NgramEncoder().get_params()
    assert loaded.encoder_.blocks_ == clf.encoder_.blocks_
    again = loaded.set_params(attention="uniform").fit(TEXTS, LABELS)
    assert again.predict(TEXTS).shape == LABELS.shape


def nested(depth: int) -> dict:
    settings, _ = numbers().fit(ROWS).to_settings()
    for _ in range(depth):
        part = {"name": "a", "settings": settings}
        settings = {"encoder": "union", "parts": [part], "widths": [6], "scales": [1.0]}
    return settings


def test_unions_may_be_nested():
    union = UnionEncoder([("both", numbers()), ("raw", "identity")]).fit(ROWS)
    settings, arrays = union.to_settings()
    again = encoder_from_settings(json.loads(json.dumps(settings)), arrays)
    np.testing.assert_array_equal(again.transform(ROWS), union.transform(ROWS))


DAMAGES = {
    "no parts": lambda s: s.update(parts=[]),
    "other parts": lambda s: s.update(parts={"name": "a"}),
    "a part less": lambda s: s["parts"].pop(),
    "no name": lambda s: s["parts"][0].pop("name"),
    "unknown encoder": lambda s: s["parts"][0]["settings"].update(encoder="nothing"),
    "no settings": lambda s: s["parts"][0].update(settings=None),
    "zero width": lambda s: s.update(widths=[0, 6]),
    "other widths": lambda s: s.update(widths=[2, 4]),
    "a width more": lambda s: s["widths"].append(1),
    "a flag": lambda s: s.update(widths=[True, 5]),
    "no scale": lambda s: s.update(scales=[1.0, 0.0]),
    "infinite": lambda s: s.update(scales=[1.0, float("inf")]),
    "text": lambda s: s.update(scales=["1", 1.0]),
    "no list": lambda s: s.update(scales=5),
    "same names": lambda s: s["parts"][1].update(name="raw"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_settings_are_refused(damage):
    settings, arrays = numbers().fit(ROWS).to_settings()
    settings = deepcopy(settings)
    DAMAGES[damage](settings)
    with pytest.raises(ModelFolderError):
        encoder_from_settings(settings, arrays)


def test_settings_with_too_many_levels_do_not_crash():
    with pytest.raises((ModelFolderError, RecursionError)):
        encoder_from_settings(nested(3_000), {})
