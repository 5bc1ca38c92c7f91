"""Ids and payloads that the rows of a DataFrame bring along."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn._validation import is_missing
from attnknn.errors import InvalidInputError
from attnknn.memory.entries import MAX_ID, EntryColumns, IdLookup

MAX_COLUMNS = 6  # as many as the command line shows
MAX_TEXT = 200  # characters


def ids_of_table(X: Any, n_rows: int, known: EntryColumns | None = None) -> NDArray[Any] | None:
    """The index of a DataFrame or Series, if it can serve as ids; otherwise None.

    It must hold distinct integers or strings. Beside `known` entries, ids must be like theirs and
    new; consecutive numbers (a `RangeIndex`) then say nothing, because every table begins with 0.

    >>> ids_of_table(pd.DataFrame({"age": [20, 40]}, index=["ann", "bob"]), 2).tolist()
    ['ann', 'bob']
    >>> ids_of_table(pd.DataFrame({"age": [20, 40]}, index=["ann", "ann"]), 2)
    """
    if not isinstance(X, pd.DataFrame | pd.Series) or len(X) != n_rows or not X.index.is_unique:
        return None
    kind = pd.api.types.infer_dtype(X.index, skipna=False)
    if kind not in ("integer", "string") or isinstance(X.index, pd.MultiIndex):
        return None
    if kind == "integer" and not (X.index.min() >= -MAX_ID and X.index.max() <= MAX_ID):
        return None
    ids = X.index.to_numpy(dtype=np.int64 if kind == "integer" else object)
    if known is None or not len(known):
        return ids
    is_alike = not isinstance(X.index, pd.RangeIndex) and known.ids.dtype == ids.dtype
    return ids if is_alike and not IdLookup(known.ids).are_known(ids).any() else None


def payloads_of_table(X: Any) -> list[dict[str, Any]]:
    """Each row of a DataFrame as a dict of its first columns, with values that JSON can hold.

    >>> payloads_of_table(pd.DataFrame({"age": [20, None], "job": ["cook", "nurse"]}))
    [{'age': 20.0, 'job': 'cook'}, {'age': None, 'job': 'nurse'}]
    """
    if not isinstance(X, pd.DataFrame):
        raise InvalidInputError(
            f"`payloads=True` shows the rows of a DataFrame, got a {type(X).__name__}. Give a "
            "sequence with one payload for each row."
        )
    columns = [
        [_plain(value) for value in X.iloc[:, position].astype(object)]
        for position in range(min(MAX_COLUMNS, X.shape[1]))
    ]
    names = [str(name) for name in X.columns]
    return [dict(zip(names, row, strict=False)) for row in zip(*columns, strict=True)]


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    if is_missing(value):
        return None
    if isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    text = str(value)
    return text if len(text) <= MAX_TEXT else f"{text[: MAX_TEXT - 1]}…"
