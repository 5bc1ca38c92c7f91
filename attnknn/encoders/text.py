"""Texts become embeddings by a sentence-transformers model."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from attnknn._validation import check_at_least, check_choice
from attnknn.encoders.base import Arrays, Settings, as_embeddings, damaged
from attnknn.encoders.cache import TextCache, Vectors
from attnknn.encoders.text_model import Encode, TextModel
from attnknn.encoders.texts import TextRows
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.records import Booleans
from attnknn.registry import Option, register
from attnknn.training.progress import progress_bar

DEVICES = ("auto", "cpu", "cuda", "mps")
BATCHES_AT_ONCE = 8  # then the cache is written, and the progress bar moves
LARGEST_WIDTH = 1 << 16
STORED = ("batch_size", "normalize", "device", "cache", "verbose")


@register("encoder", "text")
class TextEncoder(TextRows):
    """A column of texts as embeddings of a pretrained model; nothing is trained.

    Needs the extra `text`. Rows are a list, an array or a Series of texts, or a table of one
    column. What a model cannot hold (often more than 256 or 512 tokens) it does not read.

    Parameters
    ----------
    model : a folder that sentence-transformers saved, or a model's name on the Hugging Face hub,
        which is downloaded on first use. Only safetensors weights are read, and no code
    batch_size : texts per step; more is faster on a GPU and needs more memory
    normalize : whether embeddings get unit length, which makes Euclidean and cosine order alike
    device : 'auto', 'cpu', 'cuda' or 'mps'
    cache : whether to keep embeddings in the user's cache folder by content hash, see
        `attnknn.encoders.cache`; forgetting an entry does not erase it there, `forget_texts` does
    verbose : 1 shows a progress bar

    Attributes
    ----------
    model_ : which model was found, with its fingerprint
    width_ : numbers per embedding

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

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  (scikit-learn's signature)
        """Find the model and its width; the texts of `X` are checked, not learned from."""
        self._check_settings()
        texts = self._learn_rows(X)
        for learned in ("_encode", "width_"):
            self.__dict__.pop(learned, None)
        self.model_ = TextModel.find(os.fspath(self.model))
        self.width_ = self._embed(texts[:1]).shape[1]
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """The embeddings (n, D) of the texts of `X`, float32; the same text has the same one."""
        texts = self._rows(X)
        place = {text: position for position, text in enumerate(dict.fromkeys(texts))}
        distinct = self._embed(list(place))
        embeddings = distinct[[place[text] for text in texts]]
        return unit_length(embeddings) if self.normalize else embeddings

    def forget_embeddings(self, is_erased: Callable[[Vectors], Booleans]) -> int:
        """Erase those embeddings from the cache for which `is_erased`; says how many."""

        def as_given(vectors: Vectors) -> Booleans:
            return is_erased(unit_length(vectors) if self.normalize else vectors)

        return TextCache(self.model_.fingerprint).erase(as_given)

    def to_settings(self) -> tuple[Settings, Arrays]:
        """What `from_settings` needs: which model it is, not its weights."""
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
        """The fitted encoder that `to_settings` described; its model is not loaded yet.

        Raises `ModelFolderError` if the folder of the model holds another one by now.
        """
        try:
            chosen = {name: settings["settings"][name] for name in STORED}
            encoder = cls(settings["model"]["given"], **chosen)
            encoder._check_settings()
            encoder._restore_column(settings, LARGEST_WIDTH)
            encoder.model_ = TextModel.from_settings(settings["model"])
        except ModelFolderError:
            raise
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise damaged(cls.registered_name, error) from error
        return encoder

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_encode"}

    def _embed(self, texts: list[str]) -> Vectors:
        """Embeddings of distinct texts: from the cache, else from the model."""
        cache = TextCache(self.model_.fingerprint) if self.cache else None
        known = cache.find(texts) if cache else {}
        # Texts of like length share a batch: a short one need not be padded to a long one.
        missing = sorted((t for t in texts if t not in known), key=len, reverse=True)
        n_at_once = self.batch_size * BATCHES_AT_ONCE
        blocks = [missing[i : i + n_at_once] for i in range(0, len(missing), n_at_once)]
        with progress_bar("Encoding texts", len(blocks), self.verbose) as advance:
            for block in blocks:
                vectors = self._run(block)
                if cache:
                    cache.keep(block, vectors)
                known.update(zip(block, vectors, strict=True))
                advance(f"{len(known):,} of {len(texts):,}")
        if not texts:
            return np.zeros((0, self.width_), dtype=np.float32)
        return np.stack([known[text] for text in texts])

    def _run(self, texts: list[str]) -> Vectors:
        if not hasattr(self, "_encode"):
            self._encode: Encode = self.model_.load(self.device)
        maker = f"The text model {self.model_.given}"
        vectors = as_embeddings(self._encode(texts, self.batch_size), len(texts), maker)
        width = getattr(self, "width_", vectors.shape[1])
        if vectors.shape[1] != width:
            raise ModelFolderError(f"{maker} must give {width} numbers, got {vectors.shape[1]}.")
        return vectors

    def _check_settings(self) -> None:
        if not isinstance(self.model, str | os.PathLike) or not os.fspath(self.model):
            raise InvalidSettingError(f"`model` must be a name or a path, got {self.model!r}.")
        check_at_least("batch_size", self.batch_size, 1)
        check_at_least("verbose", self.verbose, 0)
        check_choice("device", self.device, DEVICES)
        for name in ("normalize", "cache"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidSettingError(
                    f"`{name}` must be True or False, got {getattr(self, name)!r}."
                )


def unit_length(vectors: NDArray[Any]) -> NDArray[Any]:
    """Rows divided by their length; a row of zeros stays one.

    >>> unit_length(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1)
