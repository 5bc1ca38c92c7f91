"""Contents become a fitted classifier; nothing is believed that was not checked."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from attnknn._stored import Arrays, Fields
from attnknn.calibration import Calibration
from attnknn.encoders import Encoder, encoder_from_settings
from attnknn.errors import AttnKNNError, InvalidInputError, ModelFolderError
from attnknn.fitting.report import Candidate, FitReport
from attnknn.memory import METRICS, Entries, Memory, NumpyMemory
from attnknn.memory.entries import refuse_repeated
from attnknn.model import FittedModel
from attnknn.registry import Kind
from attnknn.storage.files import Contents, ModelFolder, shape_fits, wrap_content_errors
from attnknn.storage.folder import FORMAT, VERSION
from attnknn.storage.packing import PARTS
from attnknn.storage.parts import (
    attention_from_plain,
    from_plain,
    part_from_plain,
    value_head_from_plain,
)

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier

MAX_CLASSES, MAX_CLASS_CHARACTERS = 1 << 20, 1 << 26
_Classifier = TypeVar("_Classifier", bound="AttnKNNClassifier")


class PackedModel(ModelFolder):
    """Contents that are not written yet, read as a folder of files would be; nothing is copied."""

    builds_index = False

    def __init__(self, contents: Contents, path: Path) -> None:
        self.path, self._contents = path, contents

    def settings(self) -> dict[str, Any]:
        """The settings as JSON returns them."""
        settings: dict[str, Any] = json.loads(json.dumps(self._contents.settings))
        return settings

    def array(self, name: str, dtype: Any, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """The array itself."""
        array = self._contents.arrays[name]
        if array.dtype != dtype or not shape_fits(array.shape, shape):
            raise self.refuse(f"{name} must hold {np.dtype(dtype)} numbers of another shape")
        return array

    def lines(self, name: str, n_lines: int) -> list[Any]:  # noqa: ARG002  (there are as many)
        """Ids and subjects; payloads, which may be anything, as their JSON."""
        lines = self._contents.lines[name]
        return list(lines) if name == "payloads" else [json.loads(line) for line in lines]

    def trained(self, name: str) -> Arrays:
        """The fitted arrays of a part themselves."""
        return self._contents.trained[name]


def check_loadable(contents: Contents, cls: type[AttnKNNClassifier], path: Path) -> None:
    """Raise if `unpack` would refuse the contents, before an older model is replaced by them."""
    try:
        with wrap_content_errors(path):
            unpack(PackedModel(contents, path), cls)
    except ModelFolderError as error:
        raise InvalidInputError(
            f"This classifier cannot be stored, because `load` would refuse it; nothing was "
            f"written. {error}"
        ) from error


def unpack(folder: ModelFolder, cls: type[_Classifier]) -> _Classifier:
    """The classifier that `pack` took apart."""
    stored = _settings(folder)
    classifier = cls(**_params(stored, cls))
    classifier.n_features_in_ = stored.integer("n_features_in", least=1)
    if stored.anything("feature_names_in") is not None:
        names = stored.texts("feature_names_in")
        if len(names) != classifier.n_features_in_:
            raise ModelFolderError("The stored `feature_names_in` must name every column.")
        classifier.feature_names_in_ = np.array(names, dtype=object)
    classifier.model_ = _model(folder, stored)
    return classifier


def _model(folder: ModelFolder, stored: Fields) -> FittedModel:
    classes = _classes(stored.of("classes"))
    encoder = _encoder(folder, stored)
    memory = folder.memory(classes.tolist())
    if memory is None:
        memory = _memory(folder, stored.of("memory"), len(classes))
    shape = memory.vectors.width, len(classes)
    _check_width(encoder, shape[0])
    parts = stored.of("attention")
    arrays = folder.trained("attention") if parts.flag("has_tensors") else {}
    attention = attention_from_plain(parts, arrays, *shape)
    head = None
    if stored.anything("value_head") is not None:
        of_head = folder.trained("value_head")
        head = value_head_from_plain(stored.of("value_head"), of_head, *shape)
    has_trust = attention.needs_trust and folder.has_trust
    return FittedModel(
        encoder,
        memory,
        attention,
        _calibration(folder, stored.of("calibration"), len(classes)),
        stored.integer("n_neighbors", least=1),
        classes,
        value_head=head,
        views_factor=stored.number("views_factor", least=1e-6, most=1e6),
        min_next_id=stored.of("memory").integer("least_next_id"),
        report=_report(stored.of("fit_report")),
        stored_trust=_trust(folder, len(memory)) if has_trust else None,
    )


def notes_of(folder: ModelFolder) -> dict[str, str]:
    """The notes that were stored beside a classifier."""
    notes = _settings(folder).of("notes")
    return {name: notes.text(name) for name in notes}


def _settings(folder: ModelFolder) -> Fields:
    stored = Fields(folder.settings(), "settings")
    if stored.text("format") != FORMAT or stored.integer("version") != VERSION:
        raise folder.refuse("its settings are of another format or version")
    return stored


def _params(stored: Fields, cls: type[AttnKNNClassifier]) -> dict[str, Any]:
    params = stored.of("params")
    if set(params) != set(cls._get_param_names()):
        raise ModelFolderError(f"The stored `params` must be {cls._get_param_names()}.")
    return {name: _param(name, params.anything(name)) for name in params}


def _param(name: str, value: Any) -> Any:
    return (
        part_from_plain(cast(Kind, name), value)
        if isinstance(value, dict) and name in PARTS
        else (from_plain(name, value))
    )


def _classes(stored: Fields) -> NDArray[Any]:
    values, name = stored.anything("values"), stored.text("dtype")
    kinds = {"b": bool, "i": int, "u": int, "f": float, "U": str}
    kind = kinds.get(name[1:2])
    is_list = isinstance(values, list) and len(values) > 0
    if kind is None or not is_list or not all(type(value) is kind for value in values):
        raise ModelFolderError("The stored `classes` must be texts, numbers or booleans.")
    longest = max(len(str(value)) for value in values) if kind is str else 8
    if len(values) > MAX_CLASSES or len(values) * longest > MAX_CLASS_CHARACTERS:
        raise ModelFolderError(
            f"The stored `classes` must be at most {MAX_CLASSES:,}, with names of at most "
            f"{MAX_CLASS_CHARACTERS:,} characters if all are padded to the longest."
        )
    dtype = np.array(values, dtype=str).dtype if kind is str else np.dtype(name)
    classes = np.array(values, dtype=dtype)
    if classes.dtype.str != name or len(set(classes.tolist())) != len(values):
        raise ModelFolderError("The stored `classes` must be distinct and of their type.")
    return classes


def _encoder(folder: ModelFolder, stored: Fields) -> Encoder:
    array_names = stored.texts("encoder_arrays")
    arrays = {n: folder.array(f"encoder_{n}", np.float64, (None,)) for n in array_names}
    encoder = encoder_from_settings(stored.of("encoder").to_dict(), arrays)
    names = getattr(encoder, "feature_names_in_", None)
    same_names = names is None or names.tolist() == stored.anything("feature_names_in")
    if not same_names or encoder.n_features_in_ != stored.integer("n_features_in"):
        raise ModelFolderError("The stored encoder must take the columns of the classifier.")
    return encoder


def _check_width(encoder: Any, dim: int) -> None:
    width = len(encoder.get_feature_names_out())
    if width != dim:
        raise ModelFolderError(
            f"The stored encoder must give embeddings of {dim} numbers, it gives {width}."
        )


def _memory(folder: ModelFolder, stored: Fields, n_classes: int) -> Memory:
    memory: Memory = part_from_plain("memory", stored.anything("part"))
    if memory.is_shared:
        raise ModelFolderError("A model folder must not name a database as its memory.")
    metric = stored.text("metric")
    has_center = stored.flag("has_center")
    if metric not in METRICS or has_center != (metric == "euclidean"):
        raise ModelFolderError(f"The stored metric must be one of {METRICS}, got {metric!r}.")
    entries = _entries(folder, stored, n_classes)
    dim = entries.embeddings.shape[1]
    center = folder.array("center", np.float64, (dim,)) if has_center else None
    if center is not None and not np.isfinite(center).all():
        raise folder.refuse("center.npy must hold finite numbers")
    memory.check_stored_settings(len(entries))
    memory = memory if folder.builds_index else NumpyMemory()
    try:
        return memory.restore(entries, metric, center)
    except AttnKNNError as error:
        raise folder.refuse(f"its memory cannot be built ({error})") from error


def _entries(folder: ModelFolder, stored: Fields, n_classes: int) -> Entries:
    embeddings = folder.array("embeddings", np.float32, (None, None))
    n = len(embeddings)
    payloads = None
    if stored.flag("has_payloads"):
        payloads = np.full(n, None, dtype=object)
        payloads[:] = folder.lines("payloads", n)
    entries = Entries(
        embeddings=embeddings,
        labels=folder.array("labels", np.int64, (n,)),
        ids=_texts(folder, "ids", n)
        if stored.flag("has_text_ids")
        else folder.array("ids", np.int64, (n,)),
        groups=folder.array("groups", np.int64, (n,)),
        sample_weight=folder.array("sample_weight", np.float64, (n,)),
        held_out=folder.array("held_out", np.bool_, (n,)),
        payloads=payloads,
        subjects=_texts(folder, "subjects", n) if _says(stored, "has_subjects") else None,
        decay=_decay(folder, n) if _says(stored, "has_decay") else None,
    )
    _check_entries(folder, entries, n_classes)
    return entries


def _texts(folder: ModelFolder, name: str, n: int) -> NDArray[Any]:
    texts = folder.lines(name, n)
    if not all(isinstance(text, str) for text in texts):
        raise folder.refuse(f"{name}.jsonl must hold texts")
    array = np.full(n, "", dtype=object)
    array[:] = texts
    return array


def _says(stored: Fields, name: str) -> bool:
    """Older folders do not speak of it."""
    return name in stored and stored.flag(name)


def _decay(folder: ModelFolder, n: int) -> NDArray[np.float64]:
    decay = folder.array("decay", np.float64, (n,))
    if not ((decay > 0) & (decay <= 1)).all():
        raise folder.refuse("decay.npy must hold numbers above 0, up to 1")
    return decay


def _check_entries(folder: ModelFolder, entries: Entries, n_classes: int) -> None:
    if not np.isfinite(entries.embeddings).all():
        raise folder.refuse("embeddings.npy must hold finite numbers")
    if len(entries) and not 0 <= entries.labels.min() <= entries.labels.max() < n_classes:
        raise folder.refuse(f"labels.npy must hold codes from 0 to {n_classes - 1}")
    if not (np.isfinite(entries.sample_weight).all() and (entries.sample_weight > 0).all()):
        raise folder.refuse("sample_weight.npy must hold positive numbers")
    if (entries.held_out.view(np.uint8) > 1).any():
        raise folder.refuse("held_out.npy must hold zeros and ones")
    try:
        refuse_repeated(entries.ids)
    except AttnKNNError as error:
        raise folder.refuse(str(error).rstrip(".")) from error


def _trust(folder: ModelFolder, n: int) -> NDArray[np.float64]:
    trust = folder.array("trust", np.float64, (n,))
    if not ((trust >= 0) & (trust <= 1)).all():  # NaN is neither
        raise folder.refuse("trust.npy must hold numbers from 0 to 1")
    return trust


def _calibration(folder: ModelFolder, stored: Fields, n_classes: int) -> Calibration:
    transition = None
    if stored.flag("has_transition"):
        transition = folder.array("transition", np.float64, (n_classes, n_classes))
        sums = transition.sum(axis=1)
        if not (transition >= 0).all() or not (np.abs(sums - 1) < 1e-6).all():
            raise folder.refuse("the rows of transition.npy must be probabilities")
    return Calibration(
        exponent=stored.number("exponent", least=1e-6, most=1e6),
        label_noise=stored.number("label_noise", least=0.0, most=1.0),
        noise_error=stored.number("noise_error", least=0.0, most=1.0),
        no_estimate=stored.text("no_estimate"),
        transition=transition,
    )


def _report(stored: Fields) -> FitReport:
    readers: dict[str, Callable[[str], Any]] = {
        "str": stored.text,
        "int": stored.integer,
        "float": stored.number_or_nan,
    }
    plain = {f.name: f for f in fields(FitReport) if f.name != "candidates"}
    values = {name: readers[str(f.type)](name) for name, f in plain.items()}
    return FitReport(**values, candidates=_candidates(stored.anything("candidates")))


def _candidates(stored: Any) -> tuple[Candidate, ...]:
    if not isinstance(stored, list):
        raise ModelFolderError(f"The stored candidates must be a list, got {str(stored)[:40]!r}.")
    found = [Fields(candidate, "fit_report.candidates") for candidate in stored]
    return tuple(
        Candidate(
            name=fields.text("name"),
            log_loss=fields.number_or_nan("log_loss"),
            weight=fields.number("weight", least=0.0, most=1.0),
            seconds=fields.number("seconds", least=0.0),
            note=fields.text("note"),
        )
        for fields in found
    )
