"""The edits of a classifier: add, forget, relabel and refit, each whole or not at all."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnknn._atomic import all_or_nothing
from attnknn._validation import check_labels, check_same_kind
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.memory.entries import RowMetadata, make_entries
from attnknn.records import Booleans, Floats, Integers

if TYPE_CHECKING:
    from attnknn.attention import Attention
    from attnknn.calibration import Calibration
    from attnknn.memory import Memory
    from attnknn.memory.neighbor_graph import NeighborGraph
    from attnknn.value_head import ValueHead


class EditsMixin:
    """What changes a fitted classifier; checks and fitting are the classifier's."""

    memory_: Memory
    attention_: Attention
    calibration_: Calibration
    value_head_: ValueHead | None
    classes_: NDArray[Any]

    if TYPE_CHECKING:

        @property
        def _cache(self) -> dict[str, Any]: ...
        def _check_fitted(self, method: str) -> None: ...
        def _check_remembers(self, method: str) -> None: ...
        def _check_settings(self) -> None: ...
        def _drop_caches(self) -> None: ...
        def _fit_parts(self, held_out: Booleans | None = None) -> None: ...
        def _has_trained_encoder(self) -> bool: ...
        def _encoded(
            self, X: Any, *, reset: bool, labels: NDArray[Any] | None = None
        ) -> NDArray[Any]: ...

    def add(
        self,
        X: Any,
        y: Any,
        *,
        ids: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        payloads: Any = None,
        subjects: ArrayLike | None = None,
    ) -> Self:
        """Remember more rows; an unseen label becomes a new class in `classes_`.

        Votes, prior and trust follow at once. What was trained (encoder, projections, temperatures,
        value head) stays as it is until `refit`; a value head sees the new rows as neighbors, and
        a new class has the probability that the vote gives it.
        """
        self._check_fitted("add")
        labels = check_labels(y, are_all=False)
        if ids is None and self.memory_.entries.ids.dtype == object:
            raise InvalidInputError("This memory's ids are strings: give `ids` for the new rows.")
        rows = self._encoded(X, reset=False)
        if len(rows) != len(labels):
            raise InvalidInputError(f"`X` has {len(rows)} rows but `y` has {len(labels)} labels.")
        with self._edit():
            self._admit(labels, self.memory_.prepare(rows))
            told = RowMetadata(ids, groups, sample_weight, payloads, subjects).grouped(
                self.memory_.entries
            )
            codes = self._codes(labels)
            entries = make_entries(rows, codes, **vars(told), first_id=self._next_id())
            others = self._kept_others()
            self.memory_.add(entries)
            if others is not None and len(entries) < len(self.memory_):
                others.added(self.memory_, len(entries))
        return self

    def forget(self, ids: ArrayLike | None = None, *, subject: str | None = None) -> Self:
        """Remove the entries with these `ids`, or all those of a `subject`.

        The next answer is as if they had never been. Files know nothing of it: to erase a person
        from a stored model too, with a receipt, use `attnknn.open_for_editing`.
        """
        self._check_fitted("forget")
        if (ids is None) == (subject is None):
            raise InvalidSettingError("Give `ids` or a `subject` to forget, one of the two.")
        if ids is None:
            ids = self.memory_.entries.ids_of(str(subject))
        with self._edit():
            self._least_next_id = self._next_id()  # an id, once given, never names another row
            positions = np.unique(self.memory_.positions_of(ids))
            others = self._kept_others()
            self.memory_.forget(ids)
            if others is not None and len(self.memory_):
                others.forgot(self.memory_, positions)
        return self

    def relabel(self, ids: ArrayLike, y: Any) -> Self:
        """Give the entries with these `ids` the labels `y`, one each or one for all."""
        self._check_fitted("relabel")
        wanted = np.atleast_1d(np.asarray(ids))
        labels = check_labels(np.atleast_1d(np.asarray(y)), are_all=False)
        if np.ndim(y) == 0:
            labels = np.repeat(labels, len(wanted))
        if len(labels) != len(wanted):
            raise InvalidInputError(
                f"`y` must hold one label, or one for each of the {len(wanted)} ids, "
                f"got {len(labels)}."
            )
        with self._edit():
            positions = self.memory_.positions_of(wanted)
            self._admit(labels, self.memory_.entries.embeddings[positions])
            self.memory_.relabel(wanted, self._codes(labels))
        return self

    def _set_decay(self, decay: Floats | None) -> Self:
        """Set what age leaves of the sample weight of each entry (N,), in the order remembered."""
        with self._edit():
            self.memory_.set_decay(decay)
        return self

    def refit(self) -> Self:
        """Fit attention, calibration and value head again on what is remembered now.

        The encoder stays: the rows it was fitted on are not kept, only their embeddings.
        """
        self._check_remembers("refit")
        self._check_settings()
        with self._edit():
            self._drop_caches()
            self._refit_parts()
        return self

    def _refit_parts(self) -> None:
        """Fit the parts on held-out entries.

        What the encoder was trained on does not become fresh.
        """
        held_out, is_trained = self.memory_.entries.held_out, self._has_trained_encoder()
        if is_trained and held_out.sum() < 2:
            warnings.warn(
                "The encoder was trained on all entries but "
                f"{held_out.sum()}, so what is fitted to them is too sure. Add rows, or fit again.",
                stacklevel=4,
            )
        is_mixed = is_trained and 2 <= held_out.sum() < len(held_out)
        self._fit_parts(held_out if is_mixed else None)
        if is_trained:
            entries = self.memory_.entries
            self.memory_.entries = replace(entries, held_out=entries.held_out & held_out)

    def _kept_others(self) -> NeighborGraph | None:
        """The lists of nearest others, if there are some of what is remembered now."""
        others: NeighborGraph | None = self._cache.get("others")
        return others if others is not None and others.is_of(self.memory_) else None

    def _codes(self, labels: NDArray[Any]) -> Integers:
        place = {label: code for code, label in enumerate(self.classes_.tolist())}
        return np.array([place[label] for label in labels.tolist()], dtype=np.int64)

    def _admit(self, labels: NDArray[Any], prepared: NDArray[np.float32]) -> None:
        """Add unseen labels to `classes_`, with what the learned parts know per class."""
        known = set(self.classes_.tolist())
        unseen = [label for label in np.unique(labels).tolist() if label not in known]
        if not unseen:
            return
        both = _with_unseen(self.classes_, unseen)
        for label in unseen:
            self.attention_.admit_class(prepared[labels == label])
        self.calibration_ = self.calibration_.with_classes(len(both))
        order = np.argsort(both, kind="stable")  # scikit-learn's metrics take columns as sorted
        self.attention_.reorder_classes(order)
        self.calibration_ = self.calibration_.with_order(order)
        if self.value_head_ is not None:
            self.value_head_ = self.value_head_.with_classes(len(both)).with_order(order)
        self.memory_.recode(np.argsort(order))
        self.classes_ = both[order]

    def _next_id(self) -> int:
        """Larger than every number that was an id; 0 where ids are texts."""
        known = self.memory_.entries.ids
        if known.dtype == object:
            return 0
        return max(int(known.max(initial=-1)) + 1, self.__dict__.get("_least_next_id", 0))

    @contextmanager
    def _edit(self) -> Iterator[None]:
        """All of an edit or nothing of it; caches are dropped after it."""
        with all_or_nothing(self):
            self.memory_, self.attention_ = copy(self.memory_), self.attention_.copy()
            fitted_before, others = self.attention_, self._cache.get("others")
            yield
            if self.attention_ is fitted_before:  # else a refit left caches of its own
                self._drop_caches()
            if others is not None and others.is_of(self.memory_):
                self._cache["others"] = others


def _with_unseen(classes: NDArray[Any], unseen: list[Any]) -> NDArray[Any]:
    """The classes and, after them, unseen labels of the same kind: 3.0 beside integers is 3.

    A type that is too narrow becomes wider, as int8 for 300, and stays of its kind.
    """
    check_same_kind(unseen[0], classes.tolist()[0])
    wide = {"i": np.int64, "u": np.int64, "f": np.float64}.get(classes.dtype.kind)
    if wide is None:
        return np.concatenate([classes, np.asarray(unseen)])
    values = [*classes.tolist(), *unseen]
    for dtype in (classes.dtype, np.dtype(wide)):
        both = _whole_numbers(values, dtype)
        if both is not None:
            return both
    wrong = [label for label in unseen if _whole_numbers([label], np.dtype(wide)) is None]
    raise InvalidInputError(
        "Labels must be whole numbers of at most 64 bits, as the classes that are known, got "
        f"{(wrong or unseen)[0]!r}. Give another label, or fit again with labels of one kind."
    )


def _whole_numbers(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """An array of exactly these numbers, or None where one is not whole or does not fit."""
    try:
        held = np.array([int(value) for value in values], dtype=dtype)
    except OverflowError:
        return None
    return held if held.tolist() == values else None
