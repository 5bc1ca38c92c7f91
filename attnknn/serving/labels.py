"""Labels and ids of requests, as the model has them."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from attnknn.classifier import AttnKNNClassifier
from attnknn.errors import InvalidInputError
from attnknn.serving.schemas import Relabeled

KINDS = {"b": (bool,), "i": (int,), "u": (int,), "f": (int, float), "U": (str,), "O": (str,)}
WORDS = {"b": "booleans", "i": "integers", "u": "integers", "f": "numbers"}


def read_label(classifier: AttnKNNClassifier, given: Any, *, allows_new: bool) -> Any:
    """A label of a request; it must be a class, unless it may be a new one.

    A class may be given as text, as in files.
    """
    classes = classifier.classes_
    known = {str(label): label for label in classes.tolist()}
    if str(given) in known:
        return known[str(given)]
    if not allows_new:
        close = get_close_matches(str(given), known, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        raise InvalidInputError(
            f"{given!r} is not a class of this model.{guess} Allow it with `new_classes`."
        )
    kind = classes.dtype.kind
    is_bool = isinstance(given, bool)
    if not isinstance(given, KINDS.get(kind, (str,))) or is_bool != (kind == "b"):
        raise InvalidInputError(
            f"The classes of this model are {WORDS.get(kind, 'texts')}, a new one cannot be "
            f"{given!r}."
        )
    if isinstance(given, str) and not given.strip():
        raise InvalidInputError("A new class must have a name.")
    return given


def read_new_labels(
    classifier: AttnKNNClassifier, given: Sequence[Relabeled], *, allows_new: bool
) -> dict[Any, Any]:
    """New labels by the ids of entries; an id may be given once."""
    labels: dict[Any, Any] = {}
    for one in given:
        if one.id in labels:
            raise InvalidInputError(f"The id {one.id!r} is given twice.")
        labels[one.id] = read_label(classifier, one.label, allows_new=allows_new)
    return labels
