"""What an encoder must do: turn rows into embeddings, the way a scikit-learn transformer does."""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError, ModelFolderError

Arrays = dict[str, NDArray[Any]]
Settings = dict[str, Any]


@runtime_checkable
class Encoder(Protocol):
    """Rows in, embeddings out.

    `fit` learns from the training rows only and returns the encoder; `transform` gives one float
    embedding per row, (n, D), each row by itself and the same on every call. `name` is what
    reports and model folders call it. `to_settings` gives what `from_settings` needs to build the
    same fitted encoder: a dict that JSON can hold and named arrays, so that nothing is pickled; an
    encoder that cannot be stored raises `InvalidSettingError` there, and says why.

    `attnknn.testing.encoder.check_encoder` checks all of this.
    """

    name: str

    def fit(self, X: Any, y: Any = None) -> Self: ...

    def transform(self, X: Any) -> NDArray[Any]: ...

    def to_settings(self) -> tuple[Settings, Arrays]: ...


def learns(encoder: Encoder) -> bool:
    """Whether an encoder is trained on labels: `training/` teaches it, `fit` alone does not."""
    return bool(getattr(encoder, "is_trained", False))


def has_views(encoder: Encoder) -> bool:
    """Whether an encoder shows each query in several views, whose votes are averaged."""
    return getattr(encoder, "views", None) is not None


def as_embeddings(output: Any, n_rows: int, maker: str) -> NDArray[Any]:
    """What a user's code gave, as a float array (n_rows, D), or an error that names the maker."""
    if hasattr(output, "toarray"):  # a sparse matrix
        output = output.toarray()
    array = np.asarray(output)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    if array.ndim != 2 or len(array) != n_rows:
        raise InvalidInputError(
            f"{maker} must give one embedding per row, ({n_rows}, D), got shape {array.shape}."
        )
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise InvalidInputError(f"{maker} must give finite numbers; row {row} has NaN or inf.")
    return array


def damaged(name: str, error: Exception) -> ModelFolderError:
    """The error for stored settings that `from_settings` cannot read."""
    return ModelFolderError(f"The stored settings of encoder {name!r} cannot be read: {error!r}.")
