"""The base class of encoders, and encoders made of other code."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, TransformerMixin, clone

from attnknn._limits import check_fits
from attnknn.errors import (
    InvalidInputError,
    InvalidSettingError,
    ModelFolderError,
    NotFittedYetError,
)
from attnknn.records import Integers
from attnknn.registry import Option, find, registered

Arrays = dict[str, NDArray[Any]]
Settings = dict[str, Any]

# Options that several encoders share; the command line shows a flag once.
EMBED_DIM = Option("--embed-dim", "embed_dim", "Size of a trained embedding.", int, minimum=1)
EPOCHS = Option("--epochs", "epochs", "Maximum number of training epochs.", int, minimum=1)
BATCH_SIZE = Option("--batch-size", "batch_size", "Rows per training step.", int, minimum=2)


class Encoder(ABC, TransformerMixin, BaseEstimator):
    """Base class of encoders: scikit-learn transformers that can be stored without pickle.

    A subclass decorated with `@register("encoder", name)` is known to `make_encoder`, to the
    command line and to model folders. The constructor stores its arguments and does nothing else.
    `attnknn.testing.check_encoder` checks a subclass.

    Attributes
    ----------
    accepts : frozenset of {'table', 'vectors', 'texts', 'images', 'sparse'}
        Kinds of rows that the encoder takes; 'sparse' are matrices and arrays of scipy.sparse.
    allows_missing : bool
        Whether values of the rows may be missing.
    is_trained : bool
        Whether the encoder is trained on labels: the classifier calls `train` after `fit`.
    is_trained_jointly : bool
        Whether `train` can train attention with the encoder (`LearnedAttention(joint=True)`).
    is_cross_fitted : bool
        Whether `fit_transform(X, y, groups)` returns embeddings of the training rows that are held
        out, each made without the labels of its own row and of the rows of its group (-1 is no
        group), as with scikit-learn's `TargetEncoder`. They differ from `fit(X, y).transform(X)`.
        The classifier remembers them; rows that are added later are embedded by `transform`.
    options : tuple of Option
        Options of `attnknn fit` that the encoder reads.
    n_features_in_ : int
        Number of columns of the rows; set by `fit`.
    width_ : int
        Size of the embedding; set by `fit`.

    Examples
    --------
    >>> class Squares(Encoder):
    ...     def fit(self, X, y=None):
    ...         self.n_features_in_ = self.width_ = X.shape[1]
    ...         return self
    ...
    ...     def transform(self, X):
    ...         return np.square(X)
    ...
    ...     def to_settings(self):
    ...         return {"encoder": self.name, "width": self.width_}, {}
    >>> Squares().fit_transform(np.array([[1.0, 2.0]]))
    array([[1., 4.]])
    """

    registered_name: ClassVar[str]
    accepts: ClassVar[frozenset[str]] = frozenset({"table", "vectors"})
    allows_missing: ClassVar[bool] = False
    is_trained: ClassVar[bool] = False
    is_trained_jointly: ClassVar[bool] = False
    is_cross_fitted: ClassVar[bool] = False
    options: ClassVar[tuple[Option, ...]] = ()
    n_features_in_: int
    width_: int

    @property
    def name(self) -> str:
        """Name under which the class is registered."""
        return self.registered_name

    @property
    def has_views(self) -> bool:
        """Whether queries are encoded in several views (test-time augmentation)."""
        return getattr(self, "views", None) is not None

    @abstractmethod
    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the encoder to training rows.

        Parameters
        ----------
        X : array-like, DataFrame or list
            Training rows, of a kind in `accepts`.
        y : array-like of shape (n_rows,), default=None
            Labels. Most encoders ignore them.

        Returns
        -------
        Encoder
            The encoder itself.
        """

    @abstractmethod
    def transform(self, X: Any) -> NDArray[Any]:
        """Encode rows.

        Parameters
        ----------
        X : array-like, DataFrame or list
            Rows as in `fit`.

        Returns
        -------
        ndarray of shape (n_rows, width_)
            Embeddings, floats. A row's embedding does not depend on the other rows.
        """

    @abstractmethod
    def to_settings(self) -> tuple[Settings, Arrays]:
        """Describe the fitted encoder, so that `from_settings` can rebuild it.

        Returns
        -------
        settings : dict
            Values that JSON can hold, with `name` under the key "encoder".
        arrays : dict of str to ndarray
            Arrays of numbers.

        Raises
        ------
        InvalidSettingError
            If the encoder cannot be stored.
        """

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:  # noqa: ARG003
        """Rebuild a fitted encoder.

        Parameters
        ----------
        settings : dict
            Settings that `to_settings` returned; they may come from a hostile file.
        arrays : dict of str to ndarray
            Arrays that `to_settings` returned.

        Returns
        -------
        Encoder
            An encoder with the same embeddings, to the last bit.

        Raises
        ------
        KeyError, TypeError, ValueError
            If a value is missing or impossible. The model folder is then refused as damaged.
        """
        raise ModelFolderError(f"Encoder `{cls.__name__}` cannot be restored from settings.")

    def train(self, X: Any, labels: Integers, **context: Any) -> Any:  # noqa: ARG002
        """Train the fitted encoder on labels, in place; called if `is_trained` is True.

        Parameters
        ----------
        X : array-like, DataFrame or list
            Rows as in `fit`.
        labels : ndarray of shape (n_rows,)
            Label codes from 0 to `n_classes` - 1.
        **context : dict
            `n_classes` (int); `groups` (ndarray of shape (n_rows,): rows of one group must not
            vote for each other, -1 is no group); `is_trained_on` (ndarray of shape (n_rows,):
            False marks held-out rows, which may be used for validation only); `random_state`
            (int); `verbose` (int); `joint` (`attnknn.fitting.joint.JointVote`), only if
            `is_trained_jointly` and the user asks for it.

        Returns
        -------
        TrainResult or None
            History of the training, kept as `encoder_training_` of the classifier.

        Raises
        ------
        InvalidSettingError
            If the class does not implement it.
        """
        raise InvalidSettingError(
            f"Encoder {self.name!r} has no trainer: implement `train`, or set `is_trained` to "
            "False."
        )

    @classmethod
    def from_options(cls, **given: Any) -> Self:
        """Build an unfitted encoder from command-line options.

        Parameters
        ----------
        **given : dict
            Values of the options that were given, by `Option.parameter`.

        Returns
        -------
        Encoder
            By default `cls(**given)`.
        """
        return cls(**given)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        """Name the columns of the embedding.

        Parameters
        ----------
        input_features : None
            Ignored; a parameter of scikit-learn.

        Returns
        -------
        ndarray of shape (width_,)
            By default the name of the encoder and a number.
        """
        self.check_fitted()
        return np.array([f"{self.name}{place}" for place in range(self.width_)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = "sparse" in self.accepts
        return tags

    def check_fitted(self) -> None:
        """Raise `NotFittedYetError` unless `fit` was called."""
        if not hasattr(self, "n_features_in_"):
            raise NotFittedYetError("Call `fit` before `transform`: the columns are not known yet.")

    def _set_names(self, names: Any) -> None:
        """Set or remove `feature_names_in_`, scikit-learn's names of the columns."""
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.array(list(names), dtype=object)

    def _names(self) -> list[str] | None:
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else list(names)


class WrappedEncoder(Encoder):
    """Use a scikit-learn transformer or a function as an encoder; its output is checked.

    It cannot be stored in a model folder, which contains no code.

    Parameters
    ----------
    inner : transformer or callable
        A transformer is cloned and fitted on the training rows and labels. A function maps rows
        to embeddings.

    Examples
    --------
    >>> from sklearn.preprocessing import StandardScaler
    >>> WrappedEncoder(StandardScaler()).fit_transform([[1.0], [3.0]]).tolist()
    [[-1.0], [1.0]]
    """

    accepts: ClassVar[frozenset[str]] = frozenset({"table", "vectors", "sparse"})

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    @property
    def name(self) -> str:
        """Name of the wrapped class or function."""
        return getattr(self.inner, "__name__", type(self.inner).__name__)

    def fit(self, X: Any, y: Any = None) -> Self:
        if hasattr(self.inner, "transform"):
            self.inner_ = clone(self.inner, safe=False).fit(X, y)
        else:
            self.inner_ = self.inner
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        if not hasattr(self, "inner_"):
            raise NotFittedYetError("Call `fit` before `transform`.")
        encode: Callable[[Any], Any] = getattr(self.inner_, "transform", self.inner_)
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        return as_embeddings(encode(X), n_rows, f"`{self.name}`")

    def to_settings(self) -> tuple[Settings, Arrays]:
        raise InvalidSettingError(
            f"The encoder `{self.name}` is your own code, which a model folder cannot hold. "
            "Register it, see `attnknn.encoders.Encoder`, or encode the rows yourself and fit with "
            "`encoder='identity'`."
        )


def make_encoder(encoder: Any) -> Encoder:
    """Build an unfitted encoder from a name, an encoder, a transformer or a function.

    Parameters
    ----------
    encoder : str, Encoder, scikit-learn transformer or callable
        A registered name or an object. Objects are cloned, so that the one given never changes.

    Returns
    -------
    Encoder
        The unfitted encoder.

    Examples
    --------
    >>> make_encoder("tabular")
    TableEncoder()
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
        return clone(encoder)
    if callable(encoder) or (hasattr(encoder, "fit") and hasattr(encoder, "transform")):
        return WrappedEncoder(encoder)
    raise InvalidSettingError(
        f"`encoder` must be one of {', '.join(registered('encoder'))}, a transformer or a "
        f"function, got {encoder!r}."
    )


def refuse_sparse(X: Any, encoder: Encoder) -> None:
    """Raise if rows are sparse and the encoder takes dense ones only."""
    if issparse(X) and "sparse" not in encoder.accepts:
        raise InvalidInputError(
            f"`encoder={encoder.name!r}` needs dense rows, got a sparse matrix of shape "
            f"{X.shape}. Use `encoder='svd'` or 'identity', which do."
        )


def encoder_from_settings(settings: Settings, arrays: Arrays) -> Encoder:
    """Rebuild the fitted encoder that `to_settings` described.

    Parameters
    ----------
    settings : dict
        Settings with the name of a registered encoder under the key "encoder".
    arrays : dict of str to ndarray
        Arrays that `to_settings` returned.

    Returns
    -------
    Encoder
        The fitted encoder.

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
    try:
        return known[name].from_settings(settings, arrays)
    except ModelFolderError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, OSError) as error:
        raise ModelFolderError(
            f"The stored settings of encoder {name!r} cannot be read: {error!r}."
        ) from error


def as_embeddings(output: Any, n_rows: int, source: str) -> NDArray[Any]:
    """The output of a user's code as a float array (n_rows, D), or an error that names it."""
    if issparse(output):
        check_fits(f"The output of {source}", 8 * math.prod(output.shape), "Reduce it by an SVD.")
        output = output.toarray()
    array = np.asarray(output)
    if array.dtype not in (np.float32, np.float64):
        array = array.astype(np.float64)
    if array.ndim != 2 or len(array) != n_rows:
        raise InvalidInputError(
            f"{source} must return one embedding per row, ({n_rows}, D), got shape {array.shape}."
        )
    if not np.isfinite(array).all():
        row = int(np.flatnonzero(~np.isfinite(array).all(axis=1))[0])
        raise InvalidInputError(f"{source} must return finite numbers; row {row} has NaN or inf.")
    return array
