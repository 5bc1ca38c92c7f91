"""Texts become embeddings of a pretrained sentence-transformers model."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from attnknn._validation import check_at_least, check_choice, check_flag
from attnknn.encoders.base import Arrays, Encoder, Settings, as_embeddings
from attnknn.encoders.text_cache import TextCache, Vectors
from attnknn.encoders.text_model import Encode, TextModel
from attnknn.errors import (
    InvalidInputError,
    InvalidSettingError,
    ModelFolderError,
    NotFittedYetError,
)
from attnknn.records import Booleans
from attnknn.registry import Option, register
from attnknn.training.terminal import progress_bar


class TextRows(Encoder):
    """Base class of encoders of one column of texts."""

    accepts: ClassVar[frozenset[str]] = frozenset({"texts"})

    def check_fitted(self) -> None:
        if not hasattr(self, "width_"):
            raise NotFittedYetError("Call `fit` before `transform`: the width is not known yet.")

    def _training_texts(self, X: Any) -> list[str]:
        """The texts of training rows; sets the name of their column."""
        texts = texts_of(X)
        if not texts:
            raise InvalidInputError("`X` must have at least one text, got none.")
        self._set_column(X.columns[0] if isinstance(X, pd.DataFrame) else None)
        return texts

    def _rows(self, X: Any) -> list[str]:
        """The texts of rows to encode; a table may have other columns beside the one of `fit`."""
        self.check_fitted()
        names = self._names()
        if isinstance(X, pd.DataFrame) and names is not None:
            if names[0] not in X.columns:
                raise InvalidInputError(
                    f"`X` must have the column {names[0]!r}, as in `fit`. "
                    f"Got: {', '.join(map(str, X.columns))}."
                )
            X = X[[names[0]]]
        return texts_of(X)

    def _set_column(self, name: Any) -> None:
        self.n_features_in_ = 1
        self._set_names([name] if isinstance(name, str) else None)

    def _column_settings(self) -> Settings:
        self.check_fitted()
        names = self._names()
        return {"column": None if names is None else names[0], "width": self.width_}

    def _restore_column(self, settings: Settings, max_width: int) -> None:
        """Restore `_column_settings`, which may hold anything."""
        column, width = settings["column"], settings["width"]
        if not (column is None or isinstance(column, str)):
            raise ValueError(f"`column` cannot be {str(column)[:40]!r}")
        if type(width) is not int or not 1 <= width <= max_width:
            raise ValueError(f"`width` must be from 1 to {max_width}, got {str(width)[:40]}")
        self._set_column(column)
        self.width_ = width


def texts_of(X: Any) -> list[str]:
    """The texts in a list, an array, a Series or a table of one column.

    A missing or blank text, or a value of another type, is an error that names its row.

    >>> texts_of(pd.DataFrame({"question": ["how?", "why?"]}))
    ['how?', 'why?']
    >>> texts_of(["how?", " "])
    Traceback (most recent call last):
    attnknn.errors.InvalidInputError: Every row must hold a text, row 1 is empty: ' '. Fill it or
    leave the row out.
    """
    values = _column_of(X)
    for row, value in enumerate(values):
        problem = _problem(value)
        if problem:
            raise InvalidInputError(
                f"Every row must hold a text, row {row} {problem}. Fill it or leave the row out."
            )
    return [str(value) for value in values]


def _column_of(X: Any) -> list[Any]:
    if isinstance(X, str | bytes):
        raise InvalidInputError("`X` must be a column of texts, got one text. Write `[text]`.")
    if hasattr(X, "toarray"):
        raise InvalidInputError("`X` must be a column of texts, got a sparse matrix.")
    array = np.asarray(X, dtype=object)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        names = f" ({', '.join(map(str, X.columns))})" if isinstance(X, pd.DataFrame) else ""
        raise InvalidInputError(
            f"`X` must be one column of texts, got the shape {array.shape}{names}. "
            "Choose the column to read."
        )
    return array.tolist()


def _problem(value: Any) -> str:
    """What is wrong with a value that must be a text; "" if nothing is."""
    if not isinstance(value, str):
        is_nan = isinstance(value, float | np.floating) and bool(np.isnan(value))
        is_missing = is_nan or value is None or value is pd.NA or value is pd.NaT
        return "is missing" if is_missing else f"holds {str(value)[:40]} ({type(value).__name__})"
    if not value.strip():
        return f"is empty: {value[:40]!r}"
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return f"is not valid Unicode: {value[:40]!r}"
    return ""


DEVICES = ("auto", "cpu", "cuda", "mps")
BATCHES_AT_ONCE = 8  # then the cache is written, and the progress bar moves
MAX_WIDTH = 1 << 16
STORED = ("batch_size", "normalize", "device", "cache", "verbose")


@register("encoder", "text")
class TextEncoder(TextRows):
    """Embed texts with a pretrained sentence-transformers model, which is not trained further.

    Rows are a list, an array or a Series of texts, or a table of one column. A model ignores
    the part of a text beyond its maximum length (often 256 or 512 tokens). Needs the extra `text`.

    Parameters
    ----------
    model : str or Path, default='sentence-transformers/all-MiniLM-L6-v2'
        A folder that sentence-transformers saved, or the name of a model on the Hugging Face hub,
        which is downloaded on first use. Only safetensors weights are read, and no code is run.
    batch_size : int, default=32
        Texts per step; more is faster on a GPU and needs more memory.
    normalize : bool, default=True
        Whether embeddings get unit length, so that Euclidean and cosine distance agree.
    device : {'auto', 'cpu', 'cuda', 'mps'}, default='auto'
        Device of the model.
    cache : bool, default=False
        Whether to store embeddings in the user's cache folder, by content hash. Forgetting an
        entry does not erase its embedding there; `forget_texts` does.
    verbose : int, default=0
        1 shows a progress bar.

    Attributes
    ----------
    model_ : TextModel
        The model that was found, with its fingerprint.
    width_ : int
        Size of the embedding.

    Examples
    --------
    >>> TextEncoder("no/such/folder").fit(["how do I pay?"])
    Traceback (most recent call last):
    attnknn.errors.InvalidSettingError: `model` must name a folder or a model, no/such/folder is
    neither.
    """

    options: ClassVar[tuple[Option, ...]] = (
        Option(
            "--text-model",
            "model",
            "Sentence-transformers model for texts: a folder, or a name on the Hugging Face hub.",
        ),
    )

    def __init__(
        self,
        model: str | Path = "sentence-transformers/all-MiniLM-L6-v2",
        *,
        batch_size: int = 32,
        normalize: bool = True,
        device: str = "auto",
        cache: bool = False,
        verbose: int = 0,
    ) -> None:
        self.model = model
        self.batch_size = batch_size
        self.normalize = normalize
        self.device = device
        self.cache = cache
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        self._check_settings()
        texts = self._training_texts(X)
        for learned in ("_encode", "width_"):
            self.__dict__.pop(learned, None)
        self.model_ = TextModel.find(os.fspath(self.model))
        self.width_ = self._embed(texts[:1]).shape[1]
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        texts = self._rows(X)
        place = {text: position for position, text in enumerate(dict.fromkeys(texts))}
        distinct = self._embed(list(place))
        embeddings = distinct[[place[text] for text in texts]]
        return unit_length(embeddings) if self.normalize else embeddings

    def forget_embeddings(self, is_erased: Callable[[Vectors], Booleans]) -> int:
        """Erase embeddings of this model from the cache.

        Parameters
        ----------
        is_erased : callable
            Takes embeddings (n, width_) and returns booleans (n,).

        Returns
        -------
        int
            Number of erased embeddings.
        """

        def as_given(vectors: Vectors) -> Booleans:
            return is_erased(unit_length(vectors) if self.normalize else vectors)

        return TextCache(self.model_.fingerprint).erase(as_given)

    def to_settings(self) -> tuple[Settings, Arrays]:
        column = self._column_settings()
        chosen = {name: getattr(self, name) for name in STORED}
        return {
            "encoder": self.name,
            "model": self.model_.to_settings(),
            "settings": chosen,
            **column,
        }, {}

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:  # noqa: ARG003
        chosen = {name: settings["settings"][name] for name in STORED}
        encoder = cls(settings["model"]["given"], **chosen)
        encoder._check_settings()
        encoder._restore_column(settings, MAX_WIDTH)
        encoder.model_ = TextModel.from_settings(settings["model"])
        return encoder

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        return {name: value for name, value in state.items() if name != "_encode"}

    def _embed(self, texts: list[str]) -> Vectors:
        """Embeddings of distinct texts, from the cache or from the model."""
        cache = TextCache(self.model_.fingerprint) if self.cache else None
        known = cache.find(texts) if cache else {}
        # Texts of similar length share a batch, so that little padding is needed.
        missing = sorted((t for t in texts if t not in known), key=len, reverse=True)
        n_at_once = self.batch_size * BATCHES_AT_ONCE
        blocks = [missing[i : i + n_at_once] for i in range(0, len(missing), n_at_once)]
        with progress_bar("Encoding texts", len(blocks), self.verbose) as advance:
            for block in blocks:
                vectors = self._run(block)
                if cache:
                    cache.store(block, vectors)
                known.update(zip(block, vectors, strict=True))
                advance(f"{len(known):,} of {len(texts):,}")
        if not texts:
            return np.zeros((0, self.width_), dtype=np.float32)
        return np.stack([known[text] for text in texts])

    def _run(self, texts: list[str]) -> Vectors:
        if not hasattr(self, "_encode"):
            self._encode: Encode = self.model_.load(self.device)
        source = f"The text model {self.model_.given}"
        vectors = as_embeddings(self._encode(texts, self.batch_size), len(texts), source)
        width = getattr(self, "width_", vectors.shape[1])
        if vectors.shape[1] != width:
            raise ModelFolderError(f"{source} must return {width} numbers, got {vectors.shape[1]}.")
        return vectors

    def _check_settings(self) -> None:
        if not isinstance(self.model, str | os.PathLike) or not os.fspath(self.model):
            raise InvalidSettingError(f"`model` must be a name or a path, got {self.model!r}.")
        check_at_least("batch_size", self.batch_size, 1)
        check_at_least("verbose", self.verbose, 0)
        check_choice("device", self.device, DEVICES)
        check_flag("normalize", self.normalize)
        check_flag("cache", self.cache)


def unit_length(vectors: NDArray[Any]) -> NDArray[Any]:
    """Rows scaled to unit length; a row of zeros stays.

    >>> unit_length(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
