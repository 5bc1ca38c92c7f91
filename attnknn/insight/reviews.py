"""Labels that reviewers gave, as edits of a classifier."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError
from attnknn.model import require_model
from attnknn.records import Integers

if TYPE_CHECKING:
    import pandas as pd

    from attnknn.classifier import AttnKNNClassifier

FORGET = "!forget"


@dataclass(frozen=True)
class Review:
    """One decision of a reviewer.

    Attributes
    ----------
    kind : {'entry', 'row'}
        Whether `key` is the id of an entry or the position of a row of a pool.
    key : object
        The id, or the position.
    given : str
        The label that the reviewer saw; empty if there was none.
    decision : str
        The label that the reviewer gave, or '!forget'.
    where : str
        Where it was read, for error messages.

    Examples
    --------
    >>> Review("entry", 7, "b", "a", "Line 2").decision
    'a'
    """

    kind: Literal["entry", "row"]
    key: Any
    given: str
    decision: str
    where: str


@dataclass(frozen=True)
class Reviewed:
    """Decisions of reviewers, from `read_label_studio` or `read_cleanlab`.

    Attributes
    ----------
    reviews : list of Review
        The decisions, in the order of the file.

    Examples
    --------
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "b", "b"])
    >>> reviewed = Reviewed([Review("entry", 1, "b", "a", "Line 2")])
    >>> reviewed.edits(clf).relabel
    {1: 'a'}
    """

    reviews: list[Review]

    def __len__(self) -> int:
        return len(self.reviews)

    @property
    def rows(self) -> Integers:
        """Positions of the rows that were labeled, of reviews of a pool."""
        return np.array([one.key for one in self.reviews if one.kind == "row"], dtype=np.int64)

    def labels(self, clf: AttnKNNClassifier, *, new_classes: bool = False) -> NDArray[Any]:
        """Labels of `rows`, of the type of the classes: what `clf.add(X[rows], labels)` takes.

        Parameters
        ----------
        clf : AttnKNNClassifier
            The classifier that the rows will be added to.
        new_classes : bool, default=False
            Whether a label may be another class.

        Returns
        -------
        ndarray of shape (n_rows,)
            One label for each row.
        """
        known = _labels_by_name(clf)
        named = [one for one in self.reviews if one.kind == "row"]
        return np.array([_label(one, known, new_classes) for one in named])

    def edits(self, clf: AttnKNNClassifier, *, new_classes: bool = False) -> ReviewEdits:
        """Compute what the decisions change, without changing it.

        Parameters
        ----------
        clf : AttnKNNClassifier
            The classifier whose entries were reviewed.
        new_classes : bool, default=False
            Whether a label may be another class.

        Returns
        -------
        ReviewEdits
            New labels by id, and ids to forget. Entries that have the label already are left out.

        Raises
        ------
        InvalidInputError
            If an id or a label is unknown, an id has two decisions, or the label of an entry
            changed since the reviewer saw it.
        """
        model = require_model(clf, "edits")
        entries = model.memory.entries
        current = dict(
            zip(entries.ids.tolist(), model.classes[entries.labels].tolist(), strict=True)
        )
        known, seen, found = _labels_by_name(clf), set(), ReviewEdits()
        for one in self.reviews:
            if one.kind != "entry":
                raise InvalidInputError(
                    f"{one.where} is for row {one.key} of a pool, not for an entry. Add such rows "
                    "(`attnknn add MODEL POOL --decisions TABLE`)."
                )
            key = str(one.key) if entries.ids.dtype == object else one.key
            if key not in current:
                raise InvalidInputError(
                    f"{one.where} names {one.key!r}, which is not the id of an entry."
                )
            if key in seen:
                raise InvalidInputError(f"{one.where} has a second decision for {one.key!r}.")
            seen.add(key)
            is_forget = one.decision == FORGET and FORGET not in known
            label = None if is_forget else _label(one, known, new_classes)
            if label == current[key]:
                continue
            if one.given and one.given != str(current[key]):
                raise InvalidInputError(
                    f"{one.where} shows the label {one.given!r}, but the entry now has "
                    f"{str(current[key])!r}: the file is older than the model."
                )
            if is_forget:
                found.forget.append(key)
            else:
                found.relabel[key] = label
        return found

    def to_frame(self) -> pd.DataFrame:
        """Convert to a DataFrame with one row per decision.

        Returns
        -------
        pandas.DataFrame
            Columns id (or row), label (that the reviewer saw) and decision.
        """
        import pandas as pd

        name = "row" if self.reviews and self.reviews[0].kind == "row" else "id"
        return pd.DataFrame(
            {
                name: [one.key for one in self.reviews],
                "label": [one.given for one in self.reviews],
                "decision": [one.decision for one in self.reviews],
            }
        )


@dataclass(frozen=True)
class ReviewEdits:
    """Edits that follow from reviews: arguments of `relabel` and `forget`.

    Attributes
    ----------
    relabel : dict
        New label by id.
    forget : list
        Ids of entries to forget.

    Examples
    --------
    >>> edits = ReviewEdits({1: "a"})
    >>> list(edits.relabel), list(edits.relabel.values())  # arguments of `clf.relabel`
    ([1], ['a'])
    """

    relabel: dict[Any, Any] = field(default_factory=dict)
    forget: list[Any] = field(default_factory=list)


def _labels_by_name(clf: AttnKNNClassifier) -> dict[str, Any]:
    return {str(label): label for label in clf.classes_.tolist()}


def _label(one: Review, known: dict[str, Any], new_classes: bool) -> Any:
    if one.decision in known:
        return known[one.decision]
    if not new_classes:
        raise InvalidInputError(
            f"{one.where} has the label {one.decision!r}, which is not a class. Give "
            "`new_classes=True` to add it."
        )
    kinds = {type(label) for label in known.values()}
    kind = kinds.pop() if len(kinds) == 1 else str
    try:
        return one.decision if kind in (str, bool) else kind(one.decision)
    except ValueError:
        raise InvalidInputError(
            f"{one.where} has the label {one.decision!r}, but the classes are of the type "
            f"{kind.__name__}."
        ) from None
