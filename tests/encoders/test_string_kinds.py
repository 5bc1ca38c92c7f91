"""Categories, free texts and ids: the rule, its borders, and what the table encoder does."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from attnknn import AttnKNNClassifier, TableEncoder
from attnknn.encoders import LearnedTableEncoder
from attnknn.encoders.string_kinds import n_words, string_kind
from attnknn.errors import InvalidInputError

THINGS = ["card", "app", "account", "transfer", "pin"]
MESSAGES = [f"my {thing} is lost since day{day} now" for thing in THINGS for day in range(6)]
THREE_WORDS = [f"lost {thing} again{'s' * i}" for i in range(6) for thing in THINGS]
COLUMNS = {
    "text": {
        "messages": MESSAGES,
        "a few messages": MESSAGES[:5],
        "messages, some of them twice": MESSAGES[:20] + MESSAGES[:10],
        "messages with gaps": [*MESSAGES, None, np.nan],
        "messages and a number": [*MESSAGES, 7],
        "three words": THREE_WORDS,
        "messages, each of them three times": MESSAGES * 3,
        "Chinese": [f"我的银行卡丢了{c}怎么办" for c in "一二三四五六七八"],
        "Thai": [f"บัตรของฉันหาย{c}" for c in "กขคงจฉ"],
    },
    "id": {
        "tokens": [f"user-{i:03d}" for i in range(20)],
        "unique city names": [f"Newtown{'a' * i} Bay" for i in range(25)],
        "nearly unique": [f"u{i}" for i in range(18)] + ["u0", "u1"],
        "dates in words": [f"{i} January 2020 at 10:30" for i in range(25)],
        "initials and numbers": [f"A. B. C. {i}" for i in range(25)],
    },
    "category": {
        "cities": ["New York", "Rome", "San Jose", "Los Angeles"] * 6,
        "two words": ["red wine", "white wine", "sparkling wine"] * 10,
        "answers of a survey": ["I strongly agree with it", "I do not agree with it"] * 10,
        "zip codes": [f"{i % 17:05d}" for i in range(60)],
        "numbers": list(range(50)),
        "booleans": [True, False] * 20,
        "too few to tell": MESSAGES[:4],
        "fewer than 20 tokens": [f"user-{i}" for i in range(19)],
        "below nine of ten distinct": [f"u{i}" for i in range(17)] + ["u0", "u1", "u2"],
        "three words, each of them twice": THREE_WORDS[:25] * 2,
        "a few long names, each of them twice": MESSAGES[:19] * 2,
        "long names, each of them four times": MESSAGES * 4,
        "missing": [None] * 30,
        "nothing": [],
    },
}
CASES = [(kind, name) for kind, columns in COLUMNS.items() for name in columns]


@pytest.mark.parametrize(("kind", "name"), CASES, ids=[name for _, name in CASES])
def test_a_column_of_strings_is_recognized(kind, name):
    values = COLUMNS[kind][name]
    assert string_kind(pd.Series(values, dtype=object)) == kind


def test_dtypes_of_pandas_are_respected():
    assert string_kind(pd.Series(MESSAGES, dtype="string")) == "text"
    assert string_kind(pd.Series(MESSAGES, dtype="category")) == "category"
    assert string_kind(pd.Series(range(30))) == "category"


def test_large_columns_are_sampled():
    assert string_kind(pd.Series([f"where is card number {i}" for i in range(5000)])) == "text"
    assert n_words("") == 0


def mixed() -> pd.DataFrame:
    n = len(MESSAGES)
    return pd.DataFrame(
        {"amount": np.arange(n) % 7, "message": MESSAGES, "city": ["New York", "Rome"] * (n // 2)}
    )


def test_free_text_is_ignored_with_a_warning_that_names_it():
    with pytest.warns(UserWarning, match=r"Free text is ignored: 'message', such as 'my card is"):
        encoder = TableEncoder().fit(mixed())
    assert encoder.dropped_ == {"message": "free text"}
    assert encoder.get_feature_names_out().tolist() == ["amount", "city=New York", "city=Rome"]
    assert len(encoder.transform(mixed().drop(columns="message"))) == len(MESSAGES)
    with pytest.warns(UserWarning, match=r"'x1'.*astype\('category'\)"):
        TableEncoder().fit(mixed().to_numpy(dtype=object))


def test_free_text_that_is_said_to_be_categories_is_encoded():
    encoder = TableEncoder().fit(mixed().astype({"message": "category"}))
    assert not encoder.dropped_
    assert encoder.transform(mixed()).shape == (30, 33)


@pytest.mark.parametrize("encoder", [TableEncoder(), LearnedTableEncoder()])
def test_a_table_of_nothing_but_free_text_names_the_encoders_of_texts(encoder):
    with pytest.raises(InvalidInputError, match=r"only free text: 'message'.*encoder='tfidf'"):
        encoder.fit(mixed()[["message"]])


def test_ids_are_named_and_encoded():
    table = mixed().drop(columns="message").assign(user=[f"u{i}" for i in range(30)])
    with pytest.warns(UserWarning, match="like an id: 'user'"):
        encoder = TableEncoder().fit(table)
    assert "user=u3" in encoder.get_feature_names_out()


def test_the_classifier_warns_of_free_text_and_answers_without_it(tmp_path):
    y = np.arange(len(MESSAGES)) % 2
    clf = AttnKNNClassifier(encoder="tabular", calibration=None, random_state=0)
    with pytest.warns(UserWarning, match=re.escape("Free text is ignored: 'message'")):
        clf.fit(mixed(), y)
    clf.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert loaded.encoder_.dropped_ == {"message": "free text"}
    assert (loaded.predict_proba(mixed()) == clf.predict_proba(mixed())).all()
