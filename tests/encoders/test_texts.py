"""Columns of texts as people have them, and what is no text."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix

from attnknn.encoders.text import texts_of
from attnknn.errors import InvalidInputError


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
        ("\ud800", "is no valid Unicode"),
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
