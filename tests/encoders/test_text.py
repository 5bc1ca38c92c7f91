"""The text encoder: its contract, with a stand-in for the network and with a real one."""

from __future__ import annotations

import json
import pickle
import sys
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from attnknn import AttnKNNClassifier
from attnknn.encoders import TextEncoder, encoder_from_settings, make_encoder
from attnknn.encoders.text import STORED, texts_of
from attnknn.errors import (
    InvalidInputError,
    InvalidSettingError,
    MissingExtraError,
    ModelFolderError,
    NotFittedYetError,
)
from attnknn.testing.encoder import check_encoder

from .conftest import TEXTS

LABELS = ["lost", "lost", "fee", "fee", "close", "close"]


def test_a_stand_in_keeps_the_contract(plain_folder, counter):
    check_encoder(TextEncoder(plain_folder), np.array(TEXTS, dtype=object))
    check_encoder(TextEncoder(str(plain_folder), cache=True), pd.DataFrame({"text": TEXTS}))


def test_each_distinct_text_is_encoded_once_in_batches(plain_folder, counter):
    encoder = TextEncoder(plain_folder, batch_size=2).fit(TEXTS)
    counter.asked.clear()
    embeddings = encoder.transform(TEXTS * 3)
    assert sorted(counter.asked) == sorted(TEXTS)
    assert counter.batch_sizes == {2}
    assert np.array_equal(embeddings[:6], embeddings[6:12])


def test_more_texts_than_one_block_keep_their_order(plain_folder, counter):
    texts = [f"{'x' * (i % 7)} {i}" for i in range(100)]
    encoder = TextEncoder(plain_folder, batch_size=1, normalize=False).fit(texts)
    one_by_one = np.concatenate([counter([text], 1) for text in texts])
    assert np.array_equal(encoder.transform(texts), one_by_one)


def test_embeddings_have_unit_length_by_default(plain_folder, counter):
    unit = TextEncoder(plain_folder).fit_transform(TEXTS)
    raw = TextEncoder(plain_folder, normalize=False).fit_transform(TEXTS)
    assert unit.dtype == np.float32
    assert np.linalg.norm(unit, axis=1) == pytest.approx(1, abs=1e-6)
    assert np.allclose(raw / np.linalg.norm(raw, axis=1, keepdims=True), unit)


@pytest.mark.parametrize("hold", [list, tuple, np.array, pd.Series, pd.array])
def test_a_column_of_texts_may_come_in_anything(hold, plain_folder, counter):
    encoder = TextEncoder(plain_folder).fit(TEXTS)
    assert np.array_equal(encoder.transform(hold(TEXTS)), encoder.transform(TEXTS))


def test_a_table_is_read_by_the_name_of_its_column(plain_folder, counter):
    table = pd.DataFrame({"question": TEXTS})
    encoder = TextEncoder(plain_folder).fit(table)
    wider = table.assign(other=1)[["other", "question"]]
    assert np.array_equal(encoder.transform(wider), encoder.transform(TEXTS))
    assert encoder.get_feature_names_out().tolist()[:2] == ["text0", "text1"]
    with pytest.raises(InvalidInputError, match=r"must have the column 'question'.*Got: other"):
        encoder.transform(wider[["other"]])


def test_no_rows_give_no_embeddings(plain_folder, counter):
    assert TextEncoder(plain_folder).fit(TEXTS).transform([]).shape == (0, 8)
    with pytest.raises(InvalidInputError, match="at least one text"):
        TextEncoder(plain_folder).fit([])


def test_a_cached_text_needs_no_model(plain_folder, counter):
    first = TextEncoder(plain_folder, cache=True).fit_transform(TEXTS)
    counter.asked.clear()
    again = TextEncoder(plain_folder, cache=True).fit_transform(TEXTS[::-1])
    assert counter.asked == []
    assert np.array_equal(again[::-1], first)
    TextEncoder(plain_folder).fit_transform(TEXTS)  # without the cache they are asked for
    assert set(counter.asked) == set(TEXTS)


def test_the_cache_is_not_shared_by_other_models(plain_folder, counter):
    TextEncoder(plain_folder, cache=True).fit_transform(TEXTS)
    (plain_folder / "config.json").write_text("{}")
    counter.asked.clear()
    TextEncoder(plain_folder, cache=True).fit_transform(TEXTS)
    assert set(counter.asked) == set(TEXTS)


def test_without_the_cache_nothing_is_written(plain_folder, counter, cache_home):
    TextEncoder(plain_folder).fit_transform(TEXTS)
    assert not cache_home.exists()


def test_settings_survive_json_and_name_the_model(plain_folder, counter):
    encoder = TextEncoder(plain_folder, batch_size=3, normalize=False).fit(TEXTS)
    stored, arrays = encoder.to_settings()
    loaded = encoder_from_settings(json.loads(json.dumps(stored)), arrays)
    assert loaded.model_ == encoder.model_
    assert loaded.get_params() == {**encoder.get_params(), "model": str(plain_folder)}
    assert loaded.transform(TEXTS).tobytes() == encoder.transform(TEXTS).tobytes()


def test_every_setting_is_stored():
    assert {"model", *STORED} == set(TextEncoder().get_params())


def test_another_model_in_the_same_folder_is_refused_on_loading(plain_folder, counter):
    stored = TextEncoder(plain_folder).fit(TEXTS).to_settings()
    (plain_folder / "1_Pooling" / "config.json").write_text('{"embedding_dimension": 9}')
    with pytest.raises(ModelFolderError, match=r"must be the one that `fit` used.*fit again"):
        encoder_from_settings(*stored)


def test_a_model_that_is_gone_is_missed_when_it_is_needed(plain_folder, counter):
    stored = TextEncoder(plain_folder).fit(TEXTS).to_settings()
    plain_folder.rename(plain_folder.parent / "elsewhere")
    loaded = encoder_from_settings(*stored)  # entries can still be listed and forgotten
    with pytest.raises(ModelFolderError, match="is missing"):
        loaded.model_.folder()


HARMFUL = [
    ("width", 0),
    ("width", 10**9),
    ("width", True),
    ("column", ["text"]),
    ("settings", {}),
    ("settings", None),
    ("model", {}),
    ("model", []),
]
HARMFUL_MODELS = [
    ("given", 7),
    ("given", ""),
    ("given", "//evil.example/share"),
    ("given", "\\\\evil.example\\share"),
    ("given", "a\0b"),
    ("source", "code"),
    ("source", "hub"),
    ("revision", "main"),
    ("fingerprint", "0"),
    ("fingerprint", None),
]


@pytest.mark.parametrize(("key", "value"), HARMFUL)
def test_stored_settings_that_make_no_sense_are_refused(key, value, plain_folder, counter):
    stored, arrays = TextEncoder(plain_folder).fit(TEXTS).to_settings()
    with pytest.raises(ModelFolderError, match="'text' cannot be read"):
        encoder_from_settings({**stored, key: value}, arrays)


@pytest.mark.parametrize(("key", "value"), HARMFUL_MODELS)
def test_a_stored_model_that_makes_no_sense_is_refused(key, value, plain_folder, counter):
    stored, arrays = TextEncoder(plain_folder).fit(TEXTS).to_settings()
    with pytest.raises(ModelFolderError, match="'text' cannot be read"):
        encoder_from_settings({**stored, "model": {**stored["model"], key: value}}, arrays)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"model": 3}, "`model` must be a name or a path"),
        ({"model": ""}, "`model` must be a name or a path"),
        ({"model": "./nothing"}, r"\./nothing is neither"),
        ({"batch_size": 0}, "`batch_size`"),
        ({"device": "gpu"}, "No device is called 'gpu'"),
        ({"normalize": 1}, "`normalize` must be True or False"),
        ({"cache": "here"}, "`cache` must be True or False"),
        ({"verbose": -1}, "`verbose`"),
    ],
)
def test_wrong_settings_are_refused(setting, message):
    with pytest.raises(InvalidSettingError, match=message):
        TextEncoder(**setting).fit(TEXTS)


def test_transform_before_fit_says_so():
    with pytest.raises(NotFittedYetError):
        TextEncoder().transform(TEXTS)


def test_a_missing_extra_is_named(plain_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(MissingExtraError, match=r"attnknn\[text\].*encoder='tfidf'"):
        TextEncoder(plain_folder).fit(TEXTS)


def test_a_progress_bar_is_shown_on_request(plain_folder, counter, monkeypatch):
    shown = []

    @contextmanager
    def progress_bar(title, total, verbose):
        yield lambda *_: shown.append((title, total, verbose))

    monkeypatch.setattr("attnknn.encoders.text.progress_bar", progress_bar)
    for verbose in (0, 1):
        TextEncoder(plain_folder, verbose=verbose, cache=False).fit_transform(TEXTS)
    assert {verbose for *_, verbose in shown} == {0, 1}


def test_a_real_model_keeps_the_contract(bert_folder):
    check_encoder(TextEncoder(bert_folder), np.array(TEXTS, dtype=object))


def test_a_real_model_gives_what_the_library_gives(bert_folder):
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(bert_folder), device="cpu")
    expected = model.encode(TEXTS, normalize_embeddings=True)
    embeddings = TextEncoder(bert_folder, device="cpu").fit_transform(TEXTS)
    assert np.allclose(embeddings, expected, atol=1e-6)
    assert np.linalg.norm(embeddings[0] - embeddings[2]) > 0.01  # texts are told apart


def test_the_batch_size_changes_rounding_only(bert_folder):
    texts = [f"text {i} {'long ' * (i % 9)}" for i in range(30)]
    one = TextEncoder(bert_folder, batch_size=1).fit_transform(texts)
    many = TextEncoder(bert_folder, batch_size=16).fit_transform(texts)
    assert np.allclose(one, many, atol=1e-5)


def test_a_loaded_network_is_neither_pickled_nor_cloned(bert_folder):
    encoder = TextEncoder(bert_folder).fit(TEXTS)
    before = encoder.transform(TEXTS)
    assert hasattr(encoder, "_encode")
    again = pickle.loads(pickle.dumps(encoder))
    assert not hasattr(again, "_encode")
    assert np.array_equal(again.transform(TEXTS), before)
    assert not hasattr(make_encoder(encoder), "width_")


@pytest.mark.parametrize("hold", [list, lambda texts: pd.DataFrame({"text": texts})])
def test_a_classifier_of_texts_survives_its_folder(hold, bert_folder, tmp_path):
    encoder = TextEncoder(bert_folder)
    classifier = AttnKNNClassifier(encoder=encoder, attention="distance", random_state=0)
    classifier.fit(hold(TEXTS * 4), LABELS * 4)
    classifier.save(tmp_path / "saved")
    loaded = AttnKNNClassifier.load(tmp_path / "saved")
    queries = hold(["where is my card?", TEXTS[4]])
    expected = classifier.predict_proba(queries)
    assert loaded.predict_proba(queries).tobytes() == expected.tobytes()
    assert loaded.predict(queries)[1] == "close"
    assert loaded.encoder.model == str(bert_folder)
    stored = "".join(p.read_text() for p in (tmp_path / "saved").glob("*.json"))
    assert "my card is lost" not in stored


@pytest.mark.parametrize(
    "column",
    [
        ["a", "b"],
        ("a", "b"),
        np.array(["a", "b"]),
        np.array([["a"], ["b"]], dtype=object),
        [["a"], ["b"]],
        pd.Series(["a", "b"], index=[7, 7]),
        pd.Series(["a", "b"], dtype="category"),
        pd.array(["a", "b"], dtype="string"),
        pd.DataFrame({"x": ["a", "b"]}),
    ],
)
def test_texts_come_out_of_anything_that_holds_one_column(column):
    texts = texts_of(column)
    assert texts == ["a", "b"]
    assert {type(text) for text in texts} == {str}


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "is missing"),
        (np.nan, "is missing"),
        (pd.NA, "is missing"),
        (pd.NaT, "is missing"),
        ("", "is empty"),
        (" \n\t", "is empty"),
        (7, r"holds 7 \(int\)"),
        (b"bytes", r"holds b'bytes' \(bytes\)"),
        (["x", "y"], r"holds \['x', 'y'\] \(list\)"),
        ("\ud800", "is not valid Unicode"),
    ],
)
def test_what_is_no_text_is_named_with_its_row(value, problem):
    with pytest.raises(InvalidInputError, match=f"Every row must hold a text, row 2 {problem}"):
        texts_of(["fine", "fine too", value])


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("one text", r"got one text\. Write `\[text\]`"),
        (pd.DataFrame({"a": ["x"], "b": ["y"]}), r"shape \(1, 2\) \(a, b\)"),
        (csr_matrix((2, 2)), "sparse"),
        (7, "one column"),
        ({"a": 1}, "one column"),
    ],
)
def test_what_is_no_column_is_refused(X, message):
    with pytest.raises(InvalidInputError, match=message):
        texts_of(X)
