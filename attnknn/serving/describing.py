"""The model and its entries, as the page shows them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn._display import payload_text
from attnknn.encoders import NumericEncoder, UnionEncoder
from attnknn.encoders.tabular import CategoryColumn, NumericColumn
from attnknn.errors import UnknownEntryError
from attnknn.memory.entries import NO_GROUP
from attnknn.records import Integers
from attnknn.serving.access import Caller
from attnknn.serving.answers import plain
from attnknn.serving.entry_images import EntryImages
from attnknn.serving.rows import kind_of, text_column
from attnknn.serving.schemas import ClassCount, Column, Entry, ModelInfo, Version
from attnknn.serving.state import State
from attnknn.serving.uploads import as_json_value

if TYPE_CHECKING:
    from attnknn.serving.service import Service

MAX_VALUES = 50  # of a category, most frequent first
MAX_SUMMARIZED = 20_000  # entries of which columns are summarized


def version_of(state: State) -> Version:
    """The version of a state."""
    return Version(version=state.version, model=state.model, n_entries=state.n_entries)


def describe(service: Service, caller: Caller) -> ModelInfo:
    """What the model is, and what the caller may do with it."""
    state, settings = service.state, service.settings
    classifier = state.classifier
    fitted, report = classifier.model_, classifier.fit_report_
    entries = fitted.memory.entries
    counts = zip(fitted.classes.tolist(), fitted.counts.tolist(), strict=True)
    return ModelInfo(
        **version_of(state).model_dump(),
        name=service.model.name,
        kind=kind_of(classifier),
        n_features=getattr(classifier, "n_features_in_", None),
        classes=[ClassCount(label=label, count=count) for label, count in counts],
        columns=state.derived("columns", lambda: columns_of(state)),
        encoder=fitted.encoder.name,
        attention=report.attention,
        n_neighbors=fitted.n_neighbors,
        label_noise=number(classifier.label_noise_),
        label_noise_se=number(report.label_noise_error),
        fit_report=str(report),
        has_subjects=entries.subjects is not None,
        has_payloads=entries.payloads is not None,
        id_kind="str" if entries.ids.dtype == object else "int",
        is_editable=not settings.is_read_only and caller.may("editor"),
        is_durable=service.model.is_durable,
        role="reader" if caller.role == "nobody" else caller.role,
        by=caller.name or settings.author,
    )


def number(value: float) -> float | None:
    """A number, or None for NaN and infinity."""
    return float(value) if math.isfinite(value) else None


def columns_of(state: State) -> list[Column]:
    """The columns of a table, with what a form needs to know; the column of a text model."""
    classifier = state.classifier
    kind = kind_of(classifier)
    if kind == "texts":
        return [Column(name=text_column(state), kind="text")]
    if kind != "table":
        return []
    names = [str(name) for name in classifier.feature_names_in_]
    encoder = classifier.encoder_
    while isinstance(encoder, UnionEncoder):
        encoder = encoder.encoders_[0][1]
    if isinstance(encoder, NumericEncoder):
        return _numeric_columns(state, encoder, names)
    table = getattr(encoder, "table_", encoder)
    known = {column.name: column for column in getattr(table, "columns_", [])}
    return [_column(name, known.get(name)) for name in names if name in known or not known]


def _numeric_columns(state: State, encoder: NumericEncoder, names: list[str]) -> list[Column]:
    """Columns whose values are found in the embeddings of the entries."""
    vectors = state.classifier.memory_.vectors
    if vectors.width != len(names) or state.classifier.metric != "euclidean":
        return [Column(name=name, kind="number") for name in names]
    center = getattr(state.classifier.memory_, "center_", None)
    first = np.arange(min(state.n_entries, MAX_SUMMARIZED))
    values = vectors[first].astype(np.float64) + (0.0 if center is None else center)
    values = values * getattr(encoder, "scale_", 1.0) + getattr(encoder, "center_", 0.0)
    low, median, high = np.quantile(values, [0.02, 0.5, 0.98], axis=0)
    return [
        Column(
            name=name,
            kind="number",
            low=_rounded(low[place]),
            median=_rounded(median[place]),
            high=_rounded(high[place]),
        )
        for place, name in enumerate(names)
    ]


def _column(name: str, known: Any) -> Column:
    if isinstance(known, CategoryColumn):
        return Column(name=name, kind="category", values=list(known.categories[:MAX_VALUES]))
    if isinstance(known, NumericColumn):
        kind: Any = "date" if known.kind == "date" else "number"
        if kind == "date":
            return Column(name=name, kind=kind)
        if known.knots is not None:
            low, high = known.knots[len(known.knots) // 50], known.knots[-len(known.knots) // 50]
        else:
            low, high = known.center - 2 * known.scale, known.center + 2 * known.scale
        return Column(
            name=name,
            kind=kind,
            low=_rounded(low),
            median=_rounded(known.fill),
            high=_rounded(high),
        )
    return Column(name=name, kind="text")


def _rounded(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


class EntryWriter:
    """Writes entries as the page shows them."""

    def __init__(self, service: Service, state: State, caller: Caller) -> None:
        self._model, self._entries = state.classifier.model_, state.classifier.memory_.entries
        self._images = EntryImages(service.settings.image_folders)
        self._added_by = state.derived("added", lambda: service.model.added_by(state))
        self._subjects = self._entries.subjects if caller.may("admin") else None

    def write(self, position: int) -> Entry:
        """An entry by its position."""
        entries = self._entries
        payload = None if entries.payloads is None else entries.payloads[position]
        group = int(entries.groups[position])
        decay = 1.0 if entries.decay is None else float(entries.decay[position])
        subject = None if self._subjects is None else self._subjects[position]
        return Entry(
            id=plain(entries.ids[position]),
            label=plain(self._model.classes[entries.labels[position]]),
            group=None if group == NO_GROUP else group,
            sample_weight=float(entries.sample_weight[position]) * decay,
            subject=str(subject) if subject else None,
            payload=as_json_value(payload),
            image=self._images.has(payload),
            added_by_edit=self._added_by.get(entries.ids[position]),
        )


def find_entries(state: State, label: str | None, query: str | None) -> Integers:
    """The positions of entries with a label, and with a text in their id or payload."""
    fitted = state.classifier.model_
    entries = fitted.memory.entries
    found = np.arange(len(entries))
    if label is not None:
        known = {str(one): code for code, one in enumerate(fitted.classes.tolist())}
        found = found[entries.labels == known.get(label, -1)]
    if query:
        text = query.casefold()
        found = found[[text in _searched(entries, position) for position in found.tolist()]]
    return found


def _searched(entries: Any, position: int) -> str:
    payload = "" if entries.payloads is None else payload_text(entries.payloads[position])
    return f"{entries.ids[position]} {payload}".casefold()


def position_of(state: State, name: str) -> int:
    """The position of the entry with an id that is given as text."""
    ids = state.classifier.memory_.entries.ids
    found = known_positions(state, [name if ids.dtype == object else _as_integer(name)])
    if not found:
        raise UnknownEntryError(f"No entry has the id {name!r}.")
    return found[0]


def known_positions(state: State, names: Iterable[Any]) -> list[int]:
    """The positions of the entries with these ids, without the unknown ones."""
    places: dict[Any, int] = state.derived(
        "places",
        lambda: {
            name: place for place, name in enumerate(state.classifier.memory_.entries.ids.tolist())
        },
    )
    return [places[name] for name in names if name in places]


def _as_integer(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None
