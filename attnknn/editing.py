"""Edits of a fitted model: each returns the next `FittedModel` and leaves the given one as it is.

Votes, prior and trust follow an edit at once. What was trained or fitted (encoder, projections,
temperatures, probability map, value head) stays until a refit. The neighbor graph moves on to the
next model; the given one searches again if it is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnknn._validation import check_same_kind
from attnknn.errors import InvalidInputError
from attnknn.memory.base import Memory
from attnknn.memory.entries import RowMetadata, make_entries
from attnknn.memory.neighbor_graph import NeighborGraph
from attnknn.model import FittedModel
from attnknn.records import Floats, Integers


def add(
    model: FittedModel,
    embeddings: NDArray[Any],
    labels: NDArray[Any],
    metadata: RowMetadata,
) -> FittedModel:
    """The model with more entries; an unseen label becomes a new class.

    Parameters
    ----------
    embeddings : ndarray of shape (n, D)
        As the encoder gives them.
    labels : ndarray of shape (n,)
    metadata : RowMetadata
    """
    if metadata.ids is None and model.memory.entries.ids.dtype == object:
        raise InvalidInputError("This memory's ids are strings: give `ids` for the new rows.")
    prepared = model.memory.prepare(embeddings)
    model = _with_classes(model, labels, lambda: prepared)
    graph = _graph_to_update(model)
    memory = copy(model.memory)
    metadata = metadata.grouped(memory.entries)
    codes = label_codes(model.classes, labels)
    entries = make_entries(embeddings, codes, **vars(metadata), first_id=next_id(model))
    memory.add(entries)
    if graph is not None and len(entries) < len(memory):
        graph.add_entries(memory, len(entries))
    return _next(model, graph, memory=memory)


def forget(model: FittedModel, ids: ArrayLike) -> FittedModel:
    """The model without the entries with these `ids`."""
    graph = _graph_to_update(model)
    memory = copy(model.memory)
    positions = np.unique(memory.positions_of(ids))
    memory.forget(ids)
    if graph is not None and len(memory):
        graph.remove_entries(memory, positions)
    min_next_id = next_id(model)  # an id, once used, never names another row
    kept = np.delete(np.arange(len(model.memory)), positions)
    return _next(model, graph, kept, memory=memory, min_next_id=min_next_id)


def relabel(model: FittedModel, ids: ArrayLike, labels: NDArray[Any]) -> FittedModel:
    """The model with other labels for the entries with these `ids`, one each.

    It is the given model if they have these labels already.
    """
    positions = model.memory.positions_of(ids)
    if model.classes[model.memory.entries.labels[positions]].tolist() == labels.tolist():
        return model
    model = _with_classes(model, labels, lambda: model.memory.vectors[positions])
    memory = copy(model.memory)
    memory.relabel(ids, label_codes(model.classes, labels))
    return _next(model, model.existing_graph(), memory=memory)


def set_decay(model: FittedModel, decay: Floats | None) -> FittedModel:
    """The model with another decay of the sample weights, (N,) in the order of the entries."""
    memory = copy(model.memory)
    memory.set_decay(decay)
    return _next(model, model.existing_graph(), memory=memory)


def followed(model: FittedModel) -> FittedModel:
    """The model with the edits that other processes made of a memory that is shared."""
    memory = copy(model.memory)
    return read_again(model, memory) if memory.follow() else model


def committed(model: FittedModel) -> FittedModel:
    """The model after its edits were written to a memory that is shared.

    Edits of other processes that came before them are in it, too.
    """
    memory = copy(model.memory)
    memory.commit([json.dumps(label) for label in model.classes.tolist()])
    if np.array_equal(memory.entries.ids, model.memory.entries.ids):
        return _next(model, model.existing_graph(), memory=memory)
    return read_again(model, memory)


def read_again(model: FittedModel, memory: Memory) -> FittedModel:
    """The model with entries that others have edited: classes of theirs are admitted."""
    model = replace(model, memory=memory, stored_trust=None)
    codes, n_classes = memory.entries.labels, len(model.classes)
    unseen = np.flatnonzero(codes >= n_classes)
    if not len(unseen):
        return model
    texts = memory.class_texts
    labels = np.array([json.loads(texts[code]) for code in codes[unseen].tolist()])
    return _with_classes(model, labels, lambda: memory.vectors[unseen])


def next_id(model: FittedModel) -> int:
    """A number larger than every id that was used; 0 if ids are strings."""
    ids = model.memory.entries.ids
    if ids.dtype == object:
        return 0
    return max(int(ids.max(initial=-1)) + 1, model.min_next_id)


def label_codes(classes: NDArray[Any], labels: NDArray[Any]) -> Integers:
    """The codes (n,) of labels that are all among the classes."""
    place = {label: code for code, label in enumerate(classes.tolist())}
    return np.array([place[label] for label in labels.tolist()], dtype=np.int64)


def _next(
    model: FittedModel,
    graph: NeighborGraph | None,
    kept: Integers | None = None,
    **changes: Any,
) -> FittedModel:
    """The next model: trust follows from the entries again, and the neighbor graph is kept.

    It begins with the entries of the given model, or with the `kept` ones.
    """
    changes.setdefault("attention", model.attention.copy())  # caches of the states stay apart
    edited = replace(model, stored_trust=None, **changes)
    if graph is not None and graph.matches(edited.memory):
        edited.cached("graph", lambda: graph)
    edited.attention.follow_edit(model, edited, kept)
    return edited


def _graph_to_update(model: FittedModel) -> NeighborGraph | None:
    """The neighbor graph, if updating it costs less than a search of a few entries later."""
    return model.existing_graph() if model.memory.vectors.is_local else None


def _with_classes(
    model: FittedModel, labels: NDArray[Any], read: Callable[[], NDArray[np.float32]]
) -> FittedModel:
    """The model with unseen labels among its classes, which stay sorted.

    scikit-learn's metrics take the columns of probabilities in sorted order.
    """
    known = set(model.classes.tolist())
    unseen = [label for label in np.unique(labels).tolist() if label not in known]
    if not unseen:
        return model
    both = _joined_classes(model.classes, unseen)
    order = np.argsort(both, kind="stable")
    attention, memory, head = model.attention.copy(), copy(model.memory), model.value_head
    prepared = read()
    for label in unseen:
        attention.admit_class(prepared[labels == label])
    attention.reorder_classes(order)
    memory.recode(np.argsort(order))
    return _next(
        model,
        model.existing_graph(),
        attention=attention,
        memory=memory,
        calibration=model.calibration.with_classes(len(both)).with_order(order),
        value_head=None if head is None else head.with_classes(len(both)).with_order(order),
        classes=both[order],
    )


def _joined_classes(classes: NDArray[Any], unseen: list[Any]) -> NDArray[Any]:
    """The classes and, after them, unseen labels of the same kind: 3.0 among integers is 3.

    An integer type that is too narrow is widened, as int8 for 300.
    """
    check_same_kind(unseen[0], classes.tolist()[0])
    wide = {"i": np.int64, "u": np.int64, "f": np.float64}.get(classes.dtype.kind)
    if wide is None:
        return np.concatenate([classes, np.asarray(unseen)])
    values = [*classes.tolist(), *unseen]
    for dtype in (classes.dtype, np.dtype(wide)):
        both = _exact_integers(values, dtype)
        if both is not None:
            return both
    wrong = [label for label in unseen if _exact_integers([label], np.dtype(wide)) is None]
    raise InvalidInputError(
        "Labels must be integers of at most 64 bits, like the known classes, got "
        f"{(wrong or unseen)[0]!r}. Give another label, or fit again with labels of one type."
    )


def _exact_integers(values: list[Any], dtype: np.dtype[Any]) -> NDArray[Any] | None:
    """An array of exactly these numbers, or None if one is not an integer or does not fit."""
    try:
        held = np.array([int(value) for value in values], dtype=dtype)
    except OverflowError:
        return None
    return held if held.tolist() == values else None
