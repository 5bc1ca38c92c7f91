"""Errors of this package; each is also the built-in error that a scikit-learn user expects.

AttnKNNError
├── InvalidInputError (ValueError)      rows, labels or files that cannot be used
├── TooLargeError (MemoryError)         something that needs more memory than there is
├── InvalidSettingError (ValueError)    a setting outside its range, or an unknown name
├── NotFittedYetError (NotFittedError)  a method called before `fit`
├── UnknownEntryError (KeyError)        an id that is not in the memory
├── MissingExtraError (ImportError)     an optional package that is not installed
├── MissingDataError (FileNotFoundError)  a named data set that is not on this machine
├── ModelFolderError (ValueError)       a model folder that is damaged, foreign or hostile
│   └── ModelBusyError (ModelFolderError)  a model that another process is editing
├── DivergedError (ArithmeticError)     a training whose loss became NaN
├── CacheError (OSError)                a cache that cannot be read, written or erased
├── MemoryServerError (ConnectionError)  a database of a memory that fails or cannot be reached
│   └── UnknownOutcomeError (MemoryServerError)  an edit that may or may not have been made
└── ReceiptError (OSError)              an erasure that is done, with a receipt that was not written
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from sklearn.exceptions import NotFittedError


class AttnKNNError(Exception):
    """The parent of every error of this package.

    Parameters
    ----------
    *args : object
        The message.
    parameter : str, default=None
        Name of the parameter that the error is about, from which the command line finds the
        option. By default the name in backticks with which the message begins.

    Examples
    --------
    >>> AttnKNNError("`n_neighbors` must be at least 1, got 0.").parameter
    'n_neighbors'
    """

    def __init__(self, *args: object, parameter: str | None = None) -> None:
        super().__init__(*args)
        named = re.match(r"`(\w+)[`=]", str(args[0])) if args else None
        self.parameter = named[1] if parameter is None and named else parameter


class InvalidInputError(AttnKNNError, ValueError):
    """Rows, labels or files that cannot be used."""


class TooLargeError(AttnKNNError, MemoryError):
    """Something that needs more memory than this process may use."""


class InvalidSettingError(AttnKNNError, ValueError):
    """A setting outside its range, or an unknown name."""


class NotFittedYetError(AttnKNNError, NotFittedError):
    """A method called before `fit`."""


class UnknownEntryError(AttnKNNError, KeyError):
    """An id that is not in the memory."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the quotes of repr


class MissingExtraError(AttnKNNError, ImportError):
    """An optional package that is not installed."""


class MissingDataError(AttnKNNError, FileNotFoundError):
    """A named data set that is not on this machine."""


class ModelFolderError(AttnKNNError, ValueError):
    """A model folder that is damaged, foreign or hostile."""


class ModelBusyError(ModelFolderError):
    """A model that another process is editing."""


class DivergedError(AttnKNNError, ArithmeticError):
    """A training whose loss became NaN."""


class CacheError(AttnKNNError, OSError):
    """A cache that cannot be read, written or erased."""


class MemoryServerError(AttnKNNError, ConnectionError):
    """A database of a memory that refuses a statement or cannot be reached.

    Parameters
    ----------
    *args : object
        The message.
    is_lost : bool, default=False
        Whether the connection was lost, so that reading may be tried again.

    Examples
    --------
    >>> MemoryServerError("The database is gone.", is_lost=True).is_lost
    True
    """

    def __init__(self, *args: object, is_lost: bool = False) -> None:
        super().__init__(*args)
        self.is_lost = is_lost


class UnknownOutcomeError(MemoryServerError):
    """An edit whose connection was cut during the commit: it may or may not have been made."""


class ReceiptError(AttnKNNError, OSError):
    """An erasure that is done, with a receipt that could not be written to its file."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> InvalidSettingError:
    """The error for an unknown name, with the closest known one.

    >>> print(unknown_name("attention", "distnace", ["distance", "uniform"]))
    No attention is called 'distnace'. Did you mean 'distance'? Known: distance, uniform.
    """
    known = sorted(known)
    guesses = difflib.get_close_matches(str(name), known, n=1)
    guess = f" Did you mean {guesses[0]!r}?" if guesses else ""
    return InvalidSettingError(f"No {kind} is called {name!r}.{guess} Known: {', '.join(known)}.")
