"""A fitted classifier becomes contents; whatever cannot be stored is found here."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.memory import Entries, EntryColumns
from attnknn.storage.files import Contents
from attnknn.storage.folder import FORMAT, VERSION
from attnknn.storage.parts import (
    attention_to_plain,
    part_to_plain,
    to_plain,
    value_head_to_plain,
)

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

PARTS = ("attention", "memory", "encoder")
EncoderParts = tuple[dict[str, Any], dict[str, NDArray[Any]]]


def pack(classifier: AttnKNNClassifier, notes: dict[str, str]) -> Contents:
    """Everything that a folder must hold to give the same answers."""
    contents = pack_parts(classifier, notes, encoder_parts(classifier))
    contents.arrays.update(_entry_arrays(classifier.memory_.read()))
    contents.lines.update(entry_lines(classifier.memory_.entries))
    trust = classifier.model_.entry_trust
    if trust is not None:
        contents.arrays["trust"] = trust
    return contents


def encoder_parts(classifier: AttnKNNClassifier) -> EncoderParts:
    """The settings and arrays of the encoder, which no edit changes."""
    return classifier.encoder_.to_settings()


def pack_parts(
    classifier: AttnKNNClassifier, notes: dict[str, str], encoder: EncoderParts
) -> Contents:
    """Everything but the entries and what follows from them."""
    model = classifier.model_
    encoder_settings, encoder_arrays = encoder
    attention, attention_arrays = attention_to_plain(model.attention)
    value_head, head_arrays = value_head_to_plain(model.value_head)
    settings = {
        "format": FORMAT,
        "version": VERSION,
        "params": _params(classifier),
        "n_features_in": int(classifier.n_features_in_),
        "feature_names_in": _names(classifier),
        "classes": _classes(classifier.classes_),
        "n_neighbors": int(classifier.n_neighbors_),
        "fit_report": _report(classifier.fit_report_),
        "encoder": encoder_settings,
        "encoder_arrays": sorted(encoder_arrays),
        "attention": attention,
        "views_factor": float(model.views_factor),
        "value_head": value_head,
        "calibration": {
            "exponent": float(model.calibration.exponent),
            "label_noise": float(model.calibration.label_noise),
            "noise_error": float(model.calibration.noise_error),
            "no_estimate": model.calibration.no_estimate,
            "has_transition": model.calibration.transition is not None,
        },
        "memory": _memory(classifier),
        "notes": _notes(notes),
    }
    _check_json(settings)
    trained = {"attention": attention_arrays, "value_head": head_arrays}
    contents = Contents(settings, trained={name: found for name, found in trained.items() if found})
    contents.arrays.update(_part_arrays(classifier))
    contents.arrays.update({f"encoder_{name}": array for name, array in encoder_arrays.items()})
    return contents


def _params(classifier: AttnKNNClassifier) -> dict[str, Any]:
    params = classifier.get_params(deep=False)
    return {
        name: part_to_plain(name, value)
        if name in PARTS and not isinstance(value, str)
        else to_plain(name, value)
        for name, value in params.items()
    }


def _names(classifier: AttnKNNClassifier) -> list[str] | None:
    names = getattr(classifier, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _classes(classes: NDArray[Any]) -> dict[str, Any]:
    if classes.dtype.kind not in "biufU":
        raise InvalidInputError(
            f"Labels of type {classes.dtype} cannot be stored: use texts, numbers or booleans."
        )
    values = classes.tolist()
    narrow = np.array(values, dtype=str if classes.dtype.kind == "U" else classes.dtype)
    return {"dtype": narrow.dtype.str, "values": values}


def _report(report: Any) -> dict[str, Any]:
    """The fields of the report; what could not be measured (NaN) is null."""
    fields = asdict(report)
    candidates = [
        {name: _or_none(value) for name, value in candidate.items()}
        for candidate in fields.pop("candidates")
    ]
    plain = {name: to_plain(name, _or_none(value)) for name, value in fields.items()}
    return plain | {"candidates": candidates}


def _or_none(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _memory(classifier: AttnKNNClassifier) -> dict[str, Any]:
    memory = classifier.memory_
    return {
        # A folder holds the entries of a database as a copy, which is searched in the process.
        "part": part_to_plain("memory", memory.local_copy() if memory.is_shared else memory),
        "metric": memory.metric_,
        "width": memory.vectors.width,
        "has_center": memory.center_ is not None,
        "has_text_ids": memory.entries.ids.dtype == object,
        "has_payloads": memory.entries.payloads is not None,
        "has_subjects": memory.entries.subjects is not None,
        "has_decay": memory.entries.decay is not None,
        "least_next_id": int(classifier.model_.min_next_id),
    }


def _part_arrays(classifier: AttnKNNClassifier) -> dict[str, NDArray[Any]]:
    center, transition = classifier.memory_.center_, classifier.calibration_.transition
    arrays = {"center": center, "transition": transition}
    return {name: array for name, array in arrays.items() if array is not None}


def _entry_arrays(entries: Entries) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {
        "embeddings": entries.embeddings,
        "labels": entries.labels,
        "groups": entries.groups,
        "sample_weight": entries.sample_weight,
        "held_out": entries.held_out,
    }
    if entries.ids.dtype != object:
        arrays["ids"] = entries.ids
    if entries.decay is not None:
        arrays["decay"] = entries.decay
    return arrays


def entry_lines(entries: EntryColumns) -> dict[str, list[str]]:
    """Ids that are texts, subjects and payloads, each as one line of JSON; those there are."""
    lines = {}
    if entries.ids.dtype == object:
        lines["ids"] = [json.dumps(name) for name in entries.ids.tolist()]
    if entries.subjects is not None:
        lines["subjects"] = [json.dumps(name) for name in entries.subjects.tolist()]
    if entries.payloads is not None:
        named = zip(entries.ids.tolist(), entries.payloads.tolist(), strict=True)
        lines["payloads"] = [_payload_line(name, payload) for name, payload in named]
    return lines


def _payload_line(name: Any, payload: Any) -> str:
    try:
        line = json.dumps(payload, default=_scalar)
        is_kept = isinstance(payload, str | int | None) or _is_same(json.loads(line), payload)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(
            f"The payload of entry {name!r} cannot be stored as JSON: {error}. Use texts, numbers, "
            "lists and dicts with text keys."
        ) from error
    if not is_kept:
        raise InvalidInputError(
            f"The payload of entry {name!r} would come back as something else: {line[:60]}. Use "
            "lists, not tuples, and text keys in dicts."
        )
    return line


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON")


def _is_same(back: Any, payload: Any) -> bool:
    if isinstance(back, dict):
        return (
            isinstance(payload, dict)
            and list(back) == list(payload)
            and all(_is_same(back[key], payload[key]) for key in back)
        )
    if isinstance(back, list):
        return (
            isinstance(payload, list)
            and len(back) == len(payload)
            and all(map(_is_same, back, payload))
        )
    return bool(back == payload) or (back != back and payload != payload)


def _notes(notes: dict[str, str]) -> dict[str, str]:
    for name, text in notes.items():
        if not (isinstance(name, str) and isinstance(text, str)):
            raise InvalidSettingError(f"`notes` must be texts by name, got {name!r}: {text!r}.")
    return notes


def _check_json(settings: dict[str, Any]) -> None:
    try:
        json.dumps(settings, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidSettingError(f"The settings cannot be stored as JSON: {error}.") from error
