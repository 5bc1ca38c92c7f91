"""The map of all entries: computed in the background, and kept while the entries stay."""

from __future__ import annotations

import threading
from typing import Any, Literal

import numpy as np
from pydantic_core import to_json

from attnknn.insight import Layout, layout
from attnknn.records import Floats
from attnknn.serving.kept_labels import audit_of
from attnknn.serving.state import State

Color = Literal["class", "error", "novelty", "age"]
DIGITS = 4  # of coordinates
STEP = 0.05  # of progress that is remembered


class EntryMap:
    """Lays the entries out, in a thread of its own.

    An edit that adds no entry keeps the positions of the others. New entries are placed among
    their neighbors, so that the map does not jump.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._layout: Layout | None = None
        self._model = ""
        self._scale = 1.0
        self._thread: threading.Thread | None = None
        self._progress = 0.0
        self._error: Exception | None = None
        self._is_closed = False

    def positions(self, state: State) -> Floats | None:
        """Positions of all entries within [-1, 1]; None until they are known."""
        with self._lock:
            drawn, scale = self._layout, self._scale
            if drawn is None or self._model != state.model:
                return None
        found: Floats = state.derived(
            f"positions {id(drawn)}",
            lambda: drawn.positions_of(state.classifier.memory_.entries.ids),
        )
        return None if np.isnan(found).any() else found / scale

    def begin(self, state: State) -> float:
        """Compute the map of a state, unless it is being computed; returns the progress."""
        with self._lock:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            if self._thread is None or not self._thread.is_alive():
                start = self._layout if self._model == state.model else None
                self._progress = 0.0
                self._thread = threading.Thread(
                    target=self._compute, args=(state, start), name="map", daemon=True
                )
                self._thread.start()
            return self._progress

    def place(self, state: State, X: Any) -> Floats | None:
        """Where rows fall on the map; None until it is known."""
        if self.positions(state) is None:
            return None
        with self._lock:
            drawn, scale = self._layout, self._scale
        assert drawn is not None
        found = np.nan_to_num(drawn.place(state.classifier, X)) / scale
        return np.clip(np.round(found, DIGITS), -1.0, 1.0)

    def close(self) -> None:
        """End what is being computed."""
        self._is_closed = True
        if self._thread is not None:
            self._thread.join()

    def _compute(self, state: State, start: Layout | None) -> None:
        try:
            drawn = layout(state.classifier, start=start, progress=self._note)
        except _ClosedError:
            return
        except Exception as error:
            self._error = error
            return
        with self._lock:
            self._layout, self._model = drawn, state.model
            self._scale = float(np.abs(drawn.positions).max(initial=0.0)) or 1.0

    def _note(self, progress: float) -> None:
        self._progress = float(progress)
        if self._is_closed:
            raise _ClosedError


class _ClosedError(Exception):
    pass


def map_as_json(state: State, positions: Floats, color: Color) -> bytes:
    """An answer in the form of `schemas.Map`, made once for each state and color."""

    def compute() -> bytes:
        x, y = np.round(positions, DIGITS).T
        entries = state.classifier.memory_.entries
        return to_json(
            {
                "version": state.version,
                "n": len(entries),
                "ids": entries.ids.tolist(),
                "x": x.tolist(),
                "y": y.tolist(),
                "color": _color(state, color),
            },
            inf_nan_mode="null",
        )

    return state.derived(f"map by {color}", compute)


def _color(state: State, color: Color) -> dict[str, Any]:
    model = state.classifier.model_
    if color == "class":
        labels = model.memory.entries.labels
        return {"kind": "class", "values": labels.tolist(), "classes": model.classes.tolist()}
    if color == "error":
        found = audit_of(state)
        values = found.label_error_score if found.no_probabilities else found.wrong
    elif color == "novelty":
        values = model.leave_one_out().batch.neighbors.distances[:, 0]
    else:
        values = np.arange(state.n_entries, dtype=float)
    finite = np.where(np.isfinite(values), values, np.nan)
    return {
        "kind": "number",
        "values": [float(f"{value:.5g}") for value in finite],
        "classes": None,
    }
