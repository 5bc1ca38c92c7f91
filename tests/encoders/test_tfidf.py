"""The TF-IDF encoder: its contract, what it finds near, and its storage."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from attnknn import AttnKNNClassifier
from attnknn.encoders import TfidfEncoder, encoder_from_settings
from attnknn.errors import InvalidInputError, InvalidSettingError, ModelFolderError
from attnknn.testing.encoder import check_encoder

from .conftest import TEXTS

LABELS = ["lost", "lost", "fee", "fee", "close", "close"]


def test_the_tfidf_encoder_keeps_the_contract():
    check_encoder("tfidf", np.array(TEXTS, dtype=object))
    check_encoder(TfidfEncoder(dim=2), pd.DataFrame({"text": TEXTS}))


def test_embeddings_have_unit_length_and_the_asked_width():
    embeddings = TfidfEncoder(dim=3).fit_transform(TEXTS)
    assert embeddings.shape == (6, 3)
    assert np.linalg.norm(embeddings, axis=1) == pytest.approx(1)
    assert TfidfEncoder(dim=100).fit_transform(TEXTS).shape == (6, 6)  # no more than texts


def test_all_axes_keep_the_products_of_weighted_counts():
    encoder = TfidfEncoder().fit(TEXTS)
    embeddings = encoder.transform(TEXTS)
    from attnknn.encoders.tfidf import _counts

    weighed = encoder._weighted(_counts(TEXTS))
    assert np.allclose(embeddings @ embeddings.T, (weighed @ weighed.T).toarray(), atol=1e-8)


def test_weights_are_those_of_scikit_learn():
    from sklearn.feature_extraction.text import TfidfTransformer

    from attnknn.encoders.tfidf import _counts

    counts = _counts(TEXTS)
    expected = TfidfTransformer(sublinear_tf=True).fit_transform(counts)
    assert np.allclose(TfidfEncoder().fit(TEXTS)._weighted(counts).toarray(), expected.toarray())


def test_a_typing_error_stays_near():
    encoder = TfidfEncoder().fit(TEXTS)
    nearness = encoder.transform(["my crad is lsot"]) @ encoder.transform(TEXTS).T
    assert nearness.argmax() == 0


def test_a_text_that_shares_nothing_is_zero():
    encoder = TfidfEncoder().fit(["aaaa"])
    assert not encoder.transform(["zzzz"]).any()


def test_no_rows_one_row_and_equal_rows():
    assert TfidfEncoder().fit(TEXTS).transform([]).shape == (0, 6)
    assert TfidfEncoder().fit_transform(["a"]).shape == (1, 1)
    assert np.allclose(np.ptp(TfidfEncoder().fit_transform(["a", "a", "a"]), axis=0), 0)
    with pytest.raises(InvalidInputError, match="at least one text"):
        TfidfEncoder().fit([])


@pytest.mark.parametrize("dim", [0, 5000, 2.5])
def test_a_wrong_width_is_refused(dim):
    with pytest.raises(InvalidSettingError, match="`dim`"):
        TfidfEncoder(dim=dim).fit(TEXTS)


@pytest.mark.parametrize("hold", [list, lambda texts: pd.DataFrame({"text": texts})])
def test_a_classifier_of_texts_survives_its_folder(hold, tmp_path):
    classifier = AttnKNNClassifier(encoder=TfidfEncoder(8), attention="distance", random_state=0)
    classifier.fit(hold(TEXTS * 4), LABELS * 4)
    classifier.save(tmp_path / "saved")
    loaded = AttnKNNClassifier.load(tmp_path / "saved")
    queries = hold(["where is my card?", "closing an account"])
    assert loaded.predict(queries).tolist() == ["lost", "close"]
    assert loaded.predict_proba(queries).tobytes() == classifier.predict_proba(queries).tobytes()


@pytest.mark.parametrize(
    ("settings", "arrays"),
    [
        ({"width": 7}, {}),
        ({"width": 0}, {}),
        ({"dim": -1}, {}),
        ({"column": 3}, {}),
        ({}, {"idf": np.zeros(3)}),
        ({}, {"idf": np.full(8192, np.nan)}),
    ],
)
def test_stored_settings_that_make_no_sense_are_refused(settings, arrays):
    stored, kept = TfidfEncoder().fit(TEXTS).to_settings()
    with pytest.raises(ModelFolderError, match="'tfidf' cannot be read"):
        encoder_from_settings(json.loads(json.dumps({**stored, **settings})), {**kept, **arrays})


def test_a_missing_array_is_an_error_of_the_folder():
    stored, _ = TfidfEncoder().fit(TEXTS).to_settings()
    with pytest.raises(ModelFolderError, match="'tfidf' cannot be read"):
        encoder_from_settings(stored, {})
