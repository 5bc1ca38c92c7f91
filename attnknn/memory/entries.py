"""Everything known of the remembered entries except how to search them: arrays in step."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnknn.errors import InvalidInputError
from attnknn.records import Booleans, Floats, Integers

NO_GROUP = -1


@dataclass(frozen=True)
class Entries:
    """N remembered entries, one row of every array each.

    Parameters
    ----------
    embeddings : (N, D) float32
    labels : (N,) codes of the classes
    ids : (N,) distinct integers or strings
    groups : (N,) entries of one group never judge each other; -1 is no group
    importance : (N,) positive; a neighbor's log importance is added to its score
    fresh : (N,) True where no learned part was trained on the entry
    payloads : (N,) objects shown with the evidence, or None for no payloads at all
    """

    embeddings: NDArray[np.float32]
    labels: Integers
    ids: NDArray[Any]
    groups: Integers
    importance: Floats
    fresh: Booleans
    payloads: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Integers | Booleans) -> Entries:
        """The entries at `rows`, a mask or positions."""
        return self._mapped(lambda array: array[rows])

    def joined(self, other: Entries) -> Entries:
        """These entries followed by the `other` ones."""
        if self.payloads is None and other.payloads is not None:
            return replace(self, payloads=_no_payloads(len(self))).joined(other)
        if self.payloads is not None and other.payloads is None:
            return self.joined(replace(other, payloads=_no_payloads(len(other))))
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self)}
        return Entries(
            **{
                name: None if mine is None else np.concatenate([mine, theirs])
                for name, (mine, theirs) in pairs.items()
            }
        )

    def _mapped(self, change: Any) -> Entries:
        arrays = {f.name: getattr(self, f.name) for f in fields(self)}
        return Entries(
            **{name: None if array is None else change(array) for name, array in arrays.items()}
        )


def make_entries(
    embeddings: ArrayLike,
    labels: ArrayLike,
    *,
    ids: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    importance: ArrayLike | None = None,
    payloads: Any = None,
    fresh: bool | ArrayLike = True,
    first_id: int = 0,
) -> Entries:
    """Entries with everything that was left out filled in; ids count up from `first_id`.

    >>> entries = make_entries([[0.0], [1.0]], [0, 1])
    >>> entries.ids.tolist(), entries.importance.tolist()
    ([0, 1], [1.0, 1.0])
    """
    embeddings = np.asarray(embeddings)
    if embeddings.dtype != np.float32:
        embeddings = embeddings.astype(np.float64, copy=False)
    n = len(embeddings)
    if ids is None:
        ids = np.arange(first_id, first_id + n, dtype=np.int64)
    entries = Entries(
        embeddings=embeddings,
        labels=np.asarray(labels, dtype=np.int64),
        ids=_checked_ids(np.asarray(ids)),
        groups=_group_codes(groups, n),
        importance=_checked_importance(importance, n),
        fresh=np.broadcast_to(np.asarray(fresh, dtype=bool), (n,)).copy(),
        payloads=_checked_payloads(payloads),
    )
    for name in ("labels", "ids", "groups", "importance", "payloads"):
        array = getattr(entries, name)
        if array is not None and array.shape != (n,):
            raise InvalidInputError(
                f"`{name}` must hold one value for each of the {n} rows, got shape {array.shape}."
            )
    return entries


def _checked_ids(ids: NDArray[Any]) -> NDArray[Any]:
    if ids.dtype.kind in "OT":
        ids = np.asarray(ids.tolist())
    if ids.dtype.kind in "iu":
        ids = ids.astype(np.int64)
    elif ids.dtype.kind == "U":
        ids = ids.astype(object)  # fixed-width strings would cut a longer id that is added later
    elif ids.size:
        raise InvalidInputError(f"`ids` must be integers or strings, got {ids.dtype}.")
    if len(set(ids.tolist())) < len(ids):
        values, counts = np.unique(ids.astype(str), return_counts=True)
        raise InvalidInputError(f"`ids` must be distinct, {values[counts > 1][0]!r} comes twice.")
    return ids


def _group_codes(groups: ArrayLike | None, n: int) -> Integers:
    if groups is None:
        return np.full(n, NO_GROUP, dtype=np.int64)
    groups = np.asarray(groups)
    if groups.dtype.kind not in "iu":
        raise InvalidInputError(f"`groups` must be integers, got {groups.dtype}.")
    return groups.astype(np.int64)


def _checked_importance(importance: ArrayLike | None, n: int) -> Floats:
    if importance is None:
        return np.ones(n)
    importance = np.asarray(importance, dtype=np.float64)
    if not (np.isfinite(importance).all() and (importance > 0).all()):
        raise InvalidInputError("`importance` must be positive and finite for every row.")
    return importance


def _checked_payloads(payloads: Any) -> NDArray[np.object_] | None:
    if payloads is None:
        return None
    items = list(payloads)
    array = _no_payloads(len(items))
    array[:] = items
    return array


def _no_payloads(n: int) -> NDArray[np.object_]:
    return np.full(n, None, dtype=object)
