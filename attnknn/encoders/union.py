"""The union encoder: embeddings of several encoders side by side, in named blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from attnknn.encoders.base import (
    Arrays,
    Encoder,
    Settings,
    encoder_from_settings,
    make_encoder,
)
from attnknn.errors import InvalidSettingError
from attnknn.registry import register


@register("encoder", "union")
class UnionEncoder(Encoder):
    """Join the embeddings of several encoders, each a named block of columns.

    Every block is divided by the square root of its total variance, so that all weigh alike in
    distances of whole embeddings. `BlockAttention` votes in one of the blocks;
    `attention='auto'` mixes the votes of all.

    Parameters
    ----------
    encoders : sequence of (str, encoder), default=()
        Names of the blocks and their encoders, as objects or by name. They must take the same
        rows, and must not be trained networks. Sentence embeddings are not cached.

    Attributes
    ----------
    encoders_ : list of (str, Encoder)
        The fitted encoders.
    blocks_ : dict of str to tuple of int
        First column of each block, and one past its last.
    score_blocks_ : frozenset of str
        Blocks that are class scores of a cross-fitted classifier.

    Examples
    --------
    >>> union = UnionEncoder([("raw", "identity"), ("scaled", "scaled")])
    >>> union.fit_transform(np.array([[0.0, 2.0], [2.0, 2.0]])).shape
    (2, 4)
    >>> union.blocks_
    {'raw': (0, 2), 'scaled': (2, 4)}
    """

    accepts: ClassVar[frozenset[str]] = frozenset()  # those of its encoders
    is_cross_fitted: ClassVar[bool] = True

    encoders_: list[tuple[str, Encoder]]

    def __init__(self, encoders: Sequence[tuple[str, Any]] = ()) -> None:
        self.encoders = encoders

    def fit(self, X: Any, y: Any = None, groups: Any = None) -> Self:
        self.fit_transform(X, y, groups=groups)
        return self

    def fit_transform(self, X: Any, y: Any = None, groups: Any = None) -> NDArray[Any]:
        """Fit all encoders and embed the training rows.

        Parameters
        ----------
        X : array-like, DataFrame or list
            Training rows.
        y : array-like of shape (n_rows,), default=None
            Labels.
        groups : array-like of shape (n_rows,), default=None
            Groups of rows that share a fold; -1 is no group.

        Returns
        -------
        ndarray of shape (n_rows, width_)
            Embeddings; those of cross-fitted encoders are held out.
        """
        self.encoders_ = self._unfitted()
        parts, scales = [], []
        for _, encoder in self.encoders_:
            if encoder.is_cross_fitted:
                part = encoder.fit_transform(X, y, groups=groups)
            else:
                part = encoder.fit(X, y).transform(X)
            spread = float(np.sqrt(part.var(axis=0, dtype=np.float64).sum()))
            scales.append(spread if spread > 0 else 1.0)
            parts.append(part)
        self._set_blocks([part.shape[1] for part in parts], scales)
        return self._joined(parts)

    def transform(self, X: Any) -> NDArray[Any]:
        self.check_fitted()
        return self._joined([encoder.transform(X) for _, encoder in self.encoders_])

    def to_settings(self) -> tuple[Settings, Arrays]:
        described = [(name, *encoder.to_settings()) for name, encoder in self.encoders_]
        settings = {
            "encoder": self.name,
            "parts": [{"name": name, "settings": part} for name, part, _ in described],
            "widths": [stop - start for start, stop in self.blocks_.values()],
            "scales": self.scales_,
        }
        arrays = {
            f"{place}_{name}": array
            for place, (_, _, of_part) in enumerate(described)
            for name, array in of_part.items()
        }
        return settings, arrays

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:
        parts, widths, scales = settings["parts"], settings["widths"], settings["scales"]
        fitted = []
        for place, part in enumerate(parts):
            start = f"{place}_"
            own = {n.removeprefix(start): a for n, a in arrays.items() if n.startswith(start)}
            fitted.append((str(part["name"]), encoder_from_settings(part["settings"], own)))
        names = {name for name, _ in fitted}
        are_right = all(type(s) is float and np.isfinite(s) and s > 0 for s in scales)
        are_right = are_right and widths == [len(e.get_feature_names_out()) for _, e in fitted]
        if not fitted or not len(fitted) == len(names) == len(scales) or not are_right:
            raise ValueError("each block needs a name, an encoder, its width and a positive scale")
        encoder = cls([(name, part.name) for name, part in fitted])
        encoder.encoders_ = fitted
        encoder._set_blocks(widths, scales)
        return encoder

    def _unfitted(self) -> list[tuple[str, Encoder]]:
        made = [(name, make_encoder(encoder)) for name, encoder in self.encoders]
        for _, part in made:
            if hasattr(part, "cache"):
                part.set_params(cache=False)  # an erased row could not be found in it
        names = [name for name, _ in made]
        if not made or len(set(names)) < len(names) or any(part.is_trained for _, part in made):
            raise InvalidSettingError(
                "`encoders` must be pairs of distinct names and encoders that are not trained "
                f"networks, got {names}."
            )
        return made

    def _set_blocks(self, widths: Sequence[int], scales: list[float]) -> None:
        stops = np.cumsum(widths).tolist()
        names = [name for name, _ in self.encoders_]
        starts = [0, *stops[:-1]]
        pairs = zip(starts, stops, strict=True)
        self.blocks_ = dict(zip(names, pairs, strict=True))
        self.score_blocks_ = frozenset(n for n, part in self.encoders_ if part.is_cross_fitted)
        self.scales_, self.width_ = scales, stops[-1]
        first = self.encoders_[0][1]
        self.n_features_in_ = first.n_features_in_
        self._set_names(getattr(first, "feature_names_in_", None))

    def _joined(self, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        scaled = [part / scale for part, scale in zip(parts, self.scales_, strict=True)]
        return np.hstack(scaled).astype(np.float32)


def words_and(sentence: Any) -> UnionEncoder:
    """N-grams beside a sentence model: words decide some texts, and meanings others.

    `sentence` is an encoder of texts, as an object or a function.

    >>> [name for name, _ in words_and("tfidf").encoders]
    ['words', 'sentence']
    """
    return UnionEncoder((("words", "ngrams"), ("sentence", sentence)))
