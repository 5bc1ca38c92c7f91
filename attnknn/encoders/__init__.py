"""Rows become embeddings: base · identity · tabular · text · tfidf · wrapped."""

from __future__ import annotations

from typing import Any, Protocol

from sklearn.base import clone

from attnknn.encoders.base import Arrays, Encoder, Settings, has_views, learns
from attnknn.encoders.cache import clear_text_cache, forget_texts, text_cache_file
from attnknn.encoders.identity import IdentityEncoder
from attnknn.encoders.image import ImageEncoder
from attnknn.encoders.learned_table import LearnedTableEncoder
from attnknn.encoders.tabular import TableEncoder
from attnknn.encoders.text import TextEncoder
from attnknn.encoders.tfidf import TfidfEncoder
from attnknn.encoders.wrapped import WrappedEncoder
from attnknn.errors import InvalidSettingError, ModelFolderError, unknown_name

__all__ = [
    "ENCODERS",
    "Encoder",
    "IdentityEncoder",
    "ImageEncoder",
    "LearnedTableEncoder",
    "TableEncoder",
    "TextEncoder",
    "TfidfEncoder",
    "WrappedEncoder",
    "clear_text_cache",
    "encoder_from_settings",
    "forget_texts",
    "has_views",
    "learns",
    "make_encoder",
    "text_cache_file",
]


class _Storable(Protocol):
    """A class of encoders that model folders can hold."""

    def __call__(self) -> Encoder: ...

    def from_settings(self, settings: Settings, arrays: Arrays) -> Encoder: ...


ENCODERS: dict[str, _Storable] = {
    "identity": IdentityEncoder,
    "image": ImageEncoder,
    "learned-tabular": LearnedTableEncoder,
    "tabular": TableEncoder,
    "text": TextEncoder,
    "tfidf": TfidfEncoder,
}


def make_encoder(encoder: Any) -> Encoder:
    """A fresh encoder from a name, an encoder, a scikit-learn transformer or a function.

    Objects are copied unfitted, so that what the user holds never changes.

    >>> make_encoder("tabular")
    TableEncoder()
    >>> import numpy as np
    >>> make_encoder(np.sqrt).fit([[4.0]]).transform([[4.0]])
    array([[2.]])
    """
    if isinstance(encoder, str):
        if encoder not in ENCODERS:
            raise unknown_name("encoder", encoder, ENCODERS)
        return ENCODERS[encoder]()
    if isinstance(encoder, type):
        raise InvalidSettingError(
            f"`encoder` must be an object, got the class {encoder.__name__}. "
            f"Write `{encoder.__name__}()`."
        )
    if isinstance(encoder, Encoder):
        return clone(encoder, safe=False)
    is_transformer = hasattr(encoder, "fit") and hasattr(encoder, "transform")
    if is_transformer or callable(encoder):
        return WrappedEncoder(encoder)
    raise InvalidSettingError(
        f"`encoder` must be one of {', '.join(ENCODERS)}, a transformer or a function, "
        f"got {encoder!r}."
    )


def encoder_from_settings(settings: Settings, arrays: Arrays) -> Encoder:
    """The fitted encoder that its `to_settings` described.

    >>> stored = make_encoder("identity").fit([[1.0, 2.0]]).to_settings()
    >>> encoder_from_settings(*stored).transform([[3.0, 4.0]])
    array([[3., 4.]])
    """
    name = settings.get("encoder")
    if name not in ENCODERS:
        raise ModelFolderError(
            f"The stored encoder must be one of {', '.join(ENCODERS)}, got {name!r}."
        )
    return ENCODERS[name].from_settings(settings, arrays)
