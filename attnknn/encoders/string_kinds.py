"""Whether a column of strings holds categories, free texts or ids.

One-hot encoding is for categories. Free texts and ids differ in nearly every row, so that two rows
never agree, and what the texts say is lost.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Literal

import pandas as pd

StringKind = Literal["category", "text", "id"]

MIN_TEXTS = 5  # with fewer values, there is no way to tell
MIN_SINGLE = 0.5  # share of rows of a column of texts whose value no other row has
MIN_WORDS = 3  # of a text, on average
LONG = 6  # words of texts that may be repeated
MIN_REPEATED = 1 / 3  # distinct values of repeated texts, as a share of the rows
MIN_DISTINCT = 20  # with fewer values, categories may all be distinct
MIN_UNIQUE = 0.9  # distinct values of an id column, as a share of the rows
N_SAMPLED = 1000  # values whose words are counted
# A word has two letters in a row: dates, initials and codes are no words.
WORD = re.compile(r"[^\W\d_]{2}")
# Thai, Lao, Burmese, Khmer, Japanese and Chinese are written without spaces: two letters count as
# a word.
UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]{2}")


def string_kind(values: pd.Series[Any]) -> StringKind:
    """Whether a column holds categories, free texts or ids.

    - "text": at least half of the rows have a value that no other row has, and the distinct values
      have three words on average. If they have six words, and there are at least 20, a third of
      the values distinct is enough. A word has two adjacent letters.
    - "id": of at least 20 values, 90 % are distinct.
    - "category": all others, and every column of fewer than five values, with a categorical dtype,
      or without strings.

    Parameters
    ----------
    values : pandas.Series
        A column; missing values are ignored.

    Returns
    -------
    {'category', 'text', 'id'}
        What the column holds.

    Examples
    --------
    >>> messages = ["my card is lost", "what is the fee", "where is it", "the app is slow", "hi"]
    >>> string_kind(pd.Series(messages)), string_kind(pd.Series(["New York", "Rome"] * 9))
    ('text', 'category')
    >>> string_kind(pd.Series([f"user-{number}" for number in range(20)]))
    'id'
    """
    if not (values.dtype == object or isinstance(values.dtype, pd.StringDtype)):
        return "category"
    strings = [value for value in values if isinstance(value, str)]
    if len(strings) < MIN_TEXTS:
        return "category"
    counts = Counter(strings)
    share_single = sum(count == 1 for count in counts.values()) / len(strings)
    share_distinct = len(counts) / len(strings)
    are_many = len(counts) >= MIN_DISTINCT
    mean_words = _mean_words(list(counts))
    if mean_words >= MIN_WORDS and share_single >= MIN_SINGLE:
        return "text"
    if mean_words >= LONG and are_many and share_distinct >= MIN_REPEATED:
        return "text"
    is_unique = len(strings) >= MIN_DISTINCT and share_distinct >= MIN_UNIQUE
    return "id" if is_unique else "category"


def _mean_words(distinct: list[str]) -> float:
    sample = distinct[:: -(-len(distinct) // N_SAMPLED)]
    return sum(n_words(text) for text in sample) / len(sample)


def n_words(text: str) -> int:
    """Number of words with two adjacent letters.

    >>> n_words("at 10 pm on 5 May"), n_words("A-17")
    (4, 0)
    """
    n_spaced = sum(WORD.search(part) is not None for part in text.split())
    return max(n_spaced, len(UNSPACED.findall(text)))
