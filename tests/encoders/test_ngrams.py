"""The n-gram encoder: its contract, honest held-out embeddings, edits and storage."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from attnknn import AttnKNNClassifier
from attnknn.encoders import NgramEncoder, encoder_from_settings
from attnknn.encoders.ngrams import fold_numbers
from attnknn.errors import InvalidInputError, InvalidSettingError, ModelFolderError
from attnknn.testing.encoder import check_encoder

from .conftest import TEXTS

LABELS = ["lost", "lost", "fee", "fee", "close", "close"]
WORDS = {
    "fruit": ["apple", "pear", "plum", "cherry"],
    "tool": ["hammer", "saw", "drill", "pliers"],
}
FILLER = ["the", "a", "my", "with", "and", "some", "this", "was", "very", "much"]


def sentences(n_rows, seed=0):
    """Texts of filler words and two words of their class."""
    generator = np.random.default_rng(seed)
    labels = generator.choice(list(WORDS), n_rows)
    texts = [
        " ".join(
            generator.permutation([*generator.choice(FILLER, 6), *generator.choice(WORDS[y], 2)])
        )
        for y in labels
    ]
    return texts, labels


def test_the_ngram_encoder_keeps_the_contract():
    check_encoder("ngrams", np.array(TEXTS * 2, dtype=object), LABELS * 2)
    check_encoder(NgramEncoder(n_folds=2), pd.DataFrame({"text": TEXTS}), LABELS)


def test_scores_tell_the_classes_of_new_texts():
    texts, labels = sentences(200)
    queries, expected = sentences(50, seed=1)
    scores = NgramEncoder().fit(texts, labels).transform(queries)
    assert scores.shape == (50, 2)
    assert np.allclose(scores.sum(axis=1), 0, atol=1e-4)
    assert (np.array(["fruit", "tool"])[scores.argmax(axis=1)] == expected).mean() > 0.95


def test_held_out_embeddings_know_nothing_of_random_labels():
    texts, _ = sentences(300)
    labels = np.random.default_rng(3).integers(2, size=300)
    held_out = NgramEncoder().fit_transform(texts, labels)
    assert (held_out.argmax(axis=1) == labels).mean() < 0.6
    classifier = AttnKNNClassifier(encoder="ngrams", attention="distance", random_state=0)
    found = classifier.fit(texts, labels).leave_one_out_proba()
    assert -np.log(found[np.arange(300), labels]).mean() > 0.65


def test_a_row_is_embedded_without_its_group():
    texts = ["alpha beta", "alpha beta", "gamma delta", "gamma delta", "one two", "three four"]
    labels, groups = [0, 0, 1, 1, 0, 1], [5, 5, 6, 6, -1, -1]
    alone = NgramEncoder(n_folds=3).fit_transform(texts, labels)
    together = NgramEncoder(n_folds=3).fit_transform(texts, labels, groups=groups)
    assert not np.allclose(alone, together)
    folds = fold_numbers(np.array(labels), groups, 3)
    assert folds[0] == folds[1]
    assert folds[2] == folds[3]


def test_folds_are_stratified():
    codes = np.repeat([0, 1, 2], [10, 5, 20])
    folds = fold_numbers(codes, None, 5)
    for code, size in enumerate((2, 1, 4)):
        assert np.bincount(folds[codes == code], minlength=5).tolist() == [size] * 5


def test_rows_of_one_group_only_are_refused():
    with pytest.raises(InvalidInputError, match="one group"):
        NgramEncoder().fit_transform(TEXTS, LABELS, groups=[1] * 6)


def test_one_row_one_class_and_texts_that_share_nothing():
    assert NgramEncoder().fit_transform(["a"], ["x"]).shape == (1, 1)
    assert not NgramEncoder().fit_transform(["a b", "a c"], ["x", "x"]).any()
    scores = NgramEncoder().fit(["aaa", "bbb"], [0, 1]).transform(["zzz", "a"])
    assert np.allclose(scores, 0)
    assert NgramEncoder().fit(TEXTS, LABELS).transform([]).shape == (0, 3)


def test_labels_are_needed():
    with pytest.raises(InvalidInputError, match="`y` must hold the label"):
        NgramEncoder().fit(TEXTS)
    with pytest.raises(InvalidInputError, match="one label for each of 6 texts"):
        NgramEncoder().fit(TEXTS, LABELS[:-1])
    with pytest.raises(InvalidSettingError, match="`n_folds`"):
        NgramEncoder(n_folds=1).fit(TEXTS, LABELS)


def test_many_classes_have_fewer_ngrams(monkeypatch):
    monkeypatch.setattr("attnknn.encoders.ngrams.MAX_NUMBERS", 60)
    encoder = NgramEncoder().fit(TEXTS * 2, LABELS * 2)
    assert len(encoder.words_) == len(encoder.characters_) == 10


def test_every_entry_is_held_out_and_edits_keep_the_encoder():
    texts, labels = sentences(120)
    classifier = AttnKNNClassifier(encoder="ngrams", attention="distance", random_state=0)
    classifier.fit(texts, labels)
    assert classifier.held_out_.all()
    before = classifier.encoder_.map_
    classifier.partial_fit(["a red rose", "my rose and a tulip"], ["flower", "flower"])
    assert classifier.classes_.tolist() == ["flower", "fruit", "tool"]
    assert classifier.embed(["a red rose"]).shape == (1, 2)
    assert classifier.refit().encoder_.map_ is before
    assert classifier.predict(["the hammer and my saw", "this plum was a pear"]).tolist() == [
        "tool",
        "fruit",
    ]


@pytest.mark.parametrize("hold", [list, lambda texts: pd.DataFrame({"text": texts})])
def test_a_classifier_of_ngrams_survives_its_folder(hold, tmp_path):
    classifier = AttnKNNClassifier(encoder="ngrams", attention="distance", random_state=0)
    classifier.fit(hold(TEXTS * 4), LABELS * 4)
    classifier.save(tmp_path / "saved")
    loaded = AttnKNNClassifier.load(tmp_path / "saved")
    queries = hold(["where is my card?", "closing an account"])
    assert loaded.predict_proba(queries).tobytes() == classifier.predict_proba(queries).tobytes()


@pytest.mark.parametrize(
    ("settings", "arrays"),
    [
        ({"width": 7}, {}),
        ({"width": 0}, {}),
        ({"n_folds": 1}, {}),
        ({"column": 3}, {}),
        ({"strength": "high"}, {}),
        ({}, {"idf": np.zeros(3)}),
        ({}, {"words": np.array([1.5, 2.5])}),
        ({}, {"words": np.array([3.0, 2.0])}),
        ({}, {"characters": np.array([-1.0, 2.0])}),
        ({}, {"characters": np.array([1.0, 2.0**20])}),
        ({}, {"map": np.full(9, np.nan)}),
    ],
)
def test_stored_settings_that_make_no_sense_are_refused(settings, arrays):
    stored, kept = NgramEncoder().fit(TEXTS, LABELS).to_settings()
    with pytest.raises(ModelFolderError, match="'ngrams' cannot be read"):
        encoder_from_settings(json.loads(json.dumps({**stored, **settings})), {**kept, **arrays})
