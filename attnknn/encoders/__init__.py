"""Encoders turn rows into embeddings.

================== ======================================================== ========================
name               class                                                    rows
================== ======================================================== ========================
identity           `IdentityEncoder`: vectors as they are                   vectors, numeric tables
scaled             `ScaledEncoder`: columns of mean 0 and variance 1        vectors, numeric tables
tabular            `TableEncoder`: scaled numbers, one-hot categories       tables
learned-tabular    `LearnedTableEncoder`: a network trained for the vote    tables of 300+ rows
svd                `SvdEncoder`: wide rows on their main axes               vectors, sparse rows
ngrams             `NgramEncoder`: words and letters that tell the class    texts
tfidf              `TfidfEncoder`: shared words and letters                 texts
text               `TextEncoder`: a pretrained sentence-transformers model  texts
union              `UnionEncoder`: several encoders side by side            those of the encoders
image              `ImageEncoder`: a network trained for the vote           images
================== ======================================================== ========================

`make_encoder` builds one by name; any scikit-learn transformer or function serves as well, through
`WrappedEncoder`. To write your own, subclass `Encoder` and register it.
"""

from __future__ import annotations

from attnknn.encoders.base import Encoder, WrappedEncoder, encoder_from_settings, make_encoder
from attnknn.encoders.identity import IdentityEncoder, NumericEncoder, ScaledEncoder
from attnknn.encoders.image import ImageEncoder
from attnknn.encoders.learned_table import LearnedTableEncoder
from attnknn.encoders.ngrams import NgramEncoder
from attnknn.encoders.svd import SvdEncoder
from attnknn.encoders.tabular import TableEncoder
from attnknn.encoders.text import TextEncoder
from attnknn.encoders.text_cache import clear_text_cache, forget_texts, text_cache_file
from attnknn.encoders.tfidf import TfidfEncoder
from attnknn.encoders.union import UnionEncoder

__all__ = [
    "Encoder",
    "IdentityEncoder",
    "ImageEncoder",
    "LearnedTableEncoder",
    "NgramEncoder",
    "NumericEncoder",
    "ScaledEncoder",
    "SvdEncoder",
    "TableEncoder",
    "TextEncoder",
    "TfidfEncoder",
    "UnionEncoder",
    "WrappedEncoder",
    "clear_text_cache",
    "encoder_from_settings",
    "forget_texts",
    "make_encoder",
    "text_cache_file",
]
