"""The interface of encoders: turn rows into embeddings, as a scikit-learn transformer does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone

from attnknn.errors import (
    InvalidInputError,
    InvalidSettingError,
    ModelFolderError,
    NotFittedYetError,
)
from attnknn.registry import Option, find, registered

if TYPE_CHECKING:
    from attnknn.records import Booleans, Integers

Arrays = dict[str, NDArray[Any]]
Settings = dict[str, Any]

# Options that several encoders share; the command line shows a flag once.
EMBED_DIM = Option("--embed-dim", "embed_dim", "Size of a trained embedding.", int, minimum=1)
EPOCHS = Option("--epochs", "epochs", "Maximum number of training epochs.", int, minimum=1)
BATCH_SIZE = Option("--batch-size", "batch_size", "Rows per training step.", int, minimum=2)


@runtime_checkable
class Encoder(Protocol):
    """The methods that every encoder has; `BaseEncoder` has defaults for what is optional.

    `fit` learns from the training rows only and returns the encoder. `transform` returns one
    float embedding per row, (n, D); a row's embedding depends neither on the other rows nor on
    the call. `to_settings` returns what `from_settings` needs to rebuild the fitted encoder: a
    dict that JSON can hold and named arrays, so that nothing is pickled. An encoder that cannot
    be stored raises `InvalidSettingError` there.

    An encoder with `is_trained = True` learns from labels. The classifier then calls its method
    `train`, see `TrainableEncoder`, instead of `fit` alone.

    `attnknn.testing.check_encoder` checks all of this.
    """

    name: str

    def fit(self, X: Any, y: Any = None) -> Self: ...

    def transform(self, X: Any) -> NDArray[Any]: ...

    def to_settings(self) -> tuple[Settings, Arrays]: ...


class TrainableEncoder(Encoder, Protocol):
    """An encoder that is trained on labels: it has `is_trained = True` and brings its trainer.

    Attributes
    ----------
    holdout : float
        Share of the rows that must not be trained on. They are used to validate and to calibrate.
    """

    is_trained: ClassVar[bool]
    holdout: float

    def train(
        self,
        X: Any,
        labels: Integers,
        *,
        n_classes: int,
        groups: Integers,
        is_trained_on: Booleans,
        random_state: int,
        verbose: int = 0,
    ) -> Any:
        """Train the fitted encoder in place.

        Parameters
        ----------
        X : rows as `transform` takes them
        labels : ndarray of shape (n,)
            Label codes from 0 to `n_classes` - 1.
        n_classes : int
        groups : ndarray of shape (n,)
            Rows of one group must not vote for each other; -1 is no group.
        is_trained_on : ndarray of shape (n,)
            False marks held-out rows, whose labels may be used for validation only.
        random_state : int
            Seed; the same seed must give the same encoder.
        verbose : int, default=0
            1 shows progress.

        Returns
        -------
        TrainResult or None
            History of the training, kept as `encoder_training_` of the classifier.
        """


class BaseEncoder(TransformerMixin, BaseEstimator):
    """Base class of encoders that are found by name.

    A subclass decorated with `@register("encoder", name)` is known to `make_encoder`, to the
    command line and to model folders. It defines `fit`, `transform`, `to_settings` and the
    classmethod `from_settings`; the constructor stores its arguments and does nothing else.

    Attributes
    ----------
    accepts : frozenset of {'table', 'vectors', 'texts', 'images'}
        Kinds of rows that the encoder takes.
    allows_missing : bool
        Whether values of the rows may be missing.
    is_trained : bool
        Whether the encoder is trained on labels, see `TrainableEncoder`.
    options : tuple of Option
        Options of `attnknn fit` that the encoder reads.
    n_features_in_ : int
        Number of columns of the rows; set by `fit`.
    width_ : int
        Size of the embedding; set by `fit`.
    """

    registered_name: ClassVar[str]
    accepts: ClassVar[frozenset[str]] = frozenset({"table", "vectors"})
    allows_missing: ClassVar[bool] = False
    is_trained: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = ()
    n_features_in_: int
    width_: int

    @property
    def name(self) -> str:
        """Name under which the class is registered."""
        return self.registered_name

    @classmethod
    def from_options(cls, **given: Any) -> Self:
        """Build an unfitted encoder from the command-line options that were given.

        Parameters
        ----------
        **given : dict
            Values by `Option.parameter`.

        Returns
        -------
        BaseEncoder
        """
        return cls(**given)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        """Name the columns of the embedding.

        Parameters
        ----------
        input_features : None
            Ignored; the parameter of scikit-learn.

        Returns
        -------
        ndarray of shape (width_,)
            By default the name of the encoder and a number.
        """
        self.check_fitted()
        return np.array([f"{self.name}{place}" for place in range(self.width_)], dtype=object)

    def check_fitted(self) -> None:
        """Raise `NotFittedYetError` unless `fit` was called; it sets `n_features_in_`."""
        if not hasattr(self, "n_features_in_"):
            raise NotFittedYetError(f"Call `fit` of the encoder {self.name!r} first.")


def make_encoder(encoder: Any) -> Encoder:
    """Build an unfitted encoder from a name, an encoder, a transformer or a function.

    Parameters
    ----------
    encoder : str, Encoder, scikit-learn transformer or callable
        Objects are cloned, so that the object given never changes.

    Returns
    -------
    Encoder

    Examples
    --------
    >>> make_encoder("tabular")
    TableEncoder()
    >>> import numpy as np
    >>> make_encoder(np.sqrt).fit([[4.0]]).transform([[4.0]])
    array([[2.]])
    """
    if isinstance(encoder, str):
        return find("encoder", encoder)()
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
        f"`encoder` must be one of {', '.join(registered('encoder'))}, a transformer or a "
        f"function, got {encoder!r}."
    )


def encoder_from_settings(settings: Settings, arrays: Arrays) -> Encoder:
    """Rebuild the fitted encoder that `to_settings` described.

    Parameters
    ----------
    settings : dict
    arrays : dict of str to ndarray

    Returns
    -------
    Encoder

    Raises
    ------
    ModelFolderError
        If the settings name no registered encoder or cannot be read.

    Examples
    --------
    >>> stored = make_encoder("identity").fit([[1.0, 2.0]]).to_settings()
    >>> encoder_from_settings(*stored).transform([[3.0, 4.0]])
    array([[3., 4.]])
    """
    name, known = settings.get("encoder"), registered("encoder")
    if name not in known:
        raise ModelFolderError(
            f"The stored encoder must be one of {', '.join(known)}, got {name!r}."
        )
    return known[name].from_settings(settings, arrays)


def learns(encoder: Encoder) -> bool:
    """Whether an encoder is trained on labels."""
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


class WrappedEncoder(TransformerMixin, BaseEstimator):
    """A scikit-learn transformer or a function of rows, with its output checked.

    It cannot be stored in a model folder, which holds no code: `to_settings` says what to do.

    Parameters
    ----------
    inner : a transformer, fitted as a copy on the training rows and labels; or a function that
        turns rows into embeddings and learns nothing

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> WrappedEncoder(StandardScaler()).fit_transform([[1.0], [3.0]]).tolist()
    [[-1.0], [1.0]]
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        """The name of the wrapped class or function."""
        return getattr(self.inner, "__name__", type(self.inner).__name__)

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit a copy of the transformer; a function is taken as it is."""
        if hasattr(self.inner, "transform"):
            self.inner_ = clone(self.inner, safe=False).fit(X, y)
        else:
            self.inner_ = self.inner
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """The embeddings (n, D) that the wrapped code gives."""
        if not hasattr(self, "inner_"):
            raise NotFittedYetError("Call `fit` before `transform`.")
        encode: Callable[[Any], Any] = getattr(self.inner_, "transform", self.inner_)
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        return as_embeddings(encode(X), n_rows, f"`{self.name}`")

    def to_settings(self) -> tuple[Settings, Arrays]:
        """Always an error: a model folder holds no code."""
        raise InvalidSettingError(
            f"The encoder `{self.name}` is your own code, which a model folder cannot hold. "
            "Encode the rows yourself and fit with `encoder='identity'` to store the classifier."
        )
