"""A vote and a value head that share the training of their encoder.

Training an encoder twice with one seed gives the same encoder. So the value head takes the encoder
and memory of the vote that was fitted before it. A test checks that it predicts the same as a
classifier that was fitted from scratch.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from attnknn import AttnKNNClassifier

_last: dict[str, Any] = {}  # the vote that was fitted last, with its rows and labels


class VoteOfLearned(AttnKNNClassifier):
    """A vote with a learned encoder, whose training a value head may take."""

    def fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        super().fit(X, y, **metadata)
        _last.update(X=X, y=np.asarray(y), vote=self)
        return self


class HeadOfLearned(AttnKNNClassifier):
    """A value head that takes the encoder of the last vote, if that has the same rows and seed."""

    def fit(self, X: Any, y: Any, **metadata: Any) -> Self:
        if metadata or not self._has_rows_of_last(X, y):
            super().fit(X, y, **metadata)
            return self
        fitted = vars(_last["vote"]).items()
        self.__dict__.update({name: value for name, value in fitted if name.endswith("_")})
        return self.refit()  # of the same encoder; fitted models do not change

    def _has_rows_of_last(self, X: Any, y: Any) -> bool:
        if not _last or _last["X"] is not X or not np.array_equal(_last["y"], y):
            return False
        vote, own = _last["vote"].get_params(deep=False), self.get_params(deep=False)
        return bool({**vote, "value_head": True} == own)
