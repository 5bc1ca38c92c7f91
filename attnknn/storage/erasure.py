"""Erase all entries of a person from a stored model, verify it, and issue a receipt."""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from copy import copy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn._escape import visible
from attnknn._output_files import replace_file
from attnknn.editing import forget
from attnknn.encoders import IdentityEncoder, ImageEncoder, TextEncoder
from attnknn.errors import InvalidSettingError, ModelFolderError, ReceiptError, UnknownEntryError
from attnknn.model import FittedModel
from attnknn.storage.names import other_spellings
from attnknn.storage.store import erasing
from attnknn.storage.store.changes import count_entries
from attnknn.storage.store.erasing import SubjectEntry
from attnknn.storage.store.pending import (
    PendingReceipt,
    delete_pending,
    find_pending,
    save_pending,
)
from attnknn.storage.store.schema import transaction, wrap_database_errors
from attnknn.storage.traces import Traces, collect_traces

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.storage.editor import EditableModel

MAX_COMPARED = 200  # predictions
ENCODER = "the encoder"
CENTER = "the center of the embeddings"
VOTE = "attention and calibration"
HEAD = "the value head"
REFITTED = (VOTE, HEAD)  # by `refit`
PARTS = {"center.npy": CENTER, "value_head.safetensors": HEAD}  # all other files belong to VOTE


@dataclass(frozen=True)
class Receipt:
    """What was erased of a person, what was verified, and which fitted parts are affected.

    Attributes
    ----------
    subject : str
        The person.
    ids : list
        The ids of the removed entries; text ids as hashes if the receipt is asked for again.
    at, by : str
        When (in UTC) and by whom the entries were erased.
    removed_classes : list
        The classes that only these entries had, which were removed with them; texts as hashes if
        the receipt is asked for again.
    remaining_classes : list
        Such classes that could not be removed, because a fitted part needs them.
    n_cached_embeddings : int
        How many embeddings of texts were erased from the user's cache.
    searched : list of str
        The files in the model folder, and in folders below it, that were searched for traces.
    not_searched : list of str
        What was not searched there: links, and whatever could not be read.
    n_searched : int
        How many traces were searched for: pieces of the entries, words and names.
    found_in : list of str
        The files, and places within the store, where a trace was still found.
    n_compared : int
        How many predictions were compared with those of a memory built without the entries. It is
        0 after an interrupted erasure, when the memory was built without them anyway.
    predictions_agree : bool
        Whether all of them were the same.
    affected_parts : list of str
        The fitted parts that were trained on the entries.
    other_spellings : list of str
        Other subjects whose names differ from this one only in Unicode form, upper and lower case
        or spaces. They were not erased; if they are the same person, erase them too.
    """

    subject: str
    ids: list[Any]
    at: str
    by: str
    removed_classes: list[Any]
    remaining_classes: list[Any]
    n_cached_embeddings: int
    searched: list[str]
    not_searched: list[str]
    n_searched: int
    found_in: list[str]
    n_compared: int
    predictions_agree: bool
    affected_parts: list[str]
    other_spellings: list[str]

    @property
    def is_verified(self) -> bool:
        """Whether all files were searched for traces, none was found, and all predictions agree."""
        left = [*self.found_in, *self.not_searched, *self.remaining_classes]
        return self.predictions_agree and self.n_searched > 0 and not left

    @property
    def is_complete(self) -> bool:
        """Whether it is verified and the encoder, which may hold values, is not affected."""
        return self.is_verified and ENCODER not in self.affected_parts

    @property
    def remedy(self) -> str:
        """What would remove the influence on the fitted parts too."""
        if not self.affected_parts and not self.remaining_classes:
            return "No fitted part was trained on these entries."
        by_refit = [part for part in self.affected_parts if part in REFITTED]
        by_fit = [part for part in self.affected_parts if part not in REFITTED]
        sentences = [f"Fitted on these entries: {', '.join(self.affected_parts) or 'nothing'}."]
        sentences += [f"`refit` clears {', '.join(by_refit)} from then on."] if by_refit else []
        sentences += [f"Only a new `fit` clears {', '.join(by_fit)}."] if by_fit else []
        if ENCODER in by_fit:
            sentences += ["Until then the encoder may hold their values."]
        if self.remaining_classes:
            names = ", ".join(map(repr, self.remaining_classes))
            sentences += [f"Only a new `fit` removes classes that no entry has any more: {names}."]
        return " ".join(sentences)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, with `is_complete` and `remedy`."""
        return {**asdict(self), "is_complete": self.is_complete, "remedy": self.remedy}

    def __str__(self) -> str:
        traces = f"{self.n_searched:,} {'trace' if self.n_searched == 1 else 'traces'}"
        found = (
            f"found in {', '.join(map(visible, self.found_in))}"
            if self.found_in
            else "found in none"
        )
        agree = "the same as" if self.predictions_agree else "NOT the same as"
        compared = f"{self.n_compared:,} predictions are {agree}"
        if not self.n_compared:
            compared = "No predictions were compared with"
        sentences = [self.remedy]
        if self.not_searched:
            sentences.insert(0, f"Not searched: {', '.join(map(visible, self.not_searched))}.")
        if self.removed_classes:
            names = ", ".join(map(repr, self.removed_classes))
            sentences.insert(0, f"Removed classes that no other entry had: {names}.")
        if self.other_spellings:
            names = ", ".join(map(ascii, self.other_spellings))
            sentences.append(
                f"Not erased, although the name differs only in case, spaces or Unicode form: "
                f"{names}. If this is the same person, erase each of these subjects too."
            )
        rest = "\n".join(sentences)
        return (
            f"Erased {count_entries(len(self.ids))} of subject {visible(self.subject)} "
            f"({self.at}, by {visible(self.by)}).\n"
            f"{traces} of them were searched for in {len(self.searched)} files and {found}.\n"
            f"{compared} those of a memory built without them.\n{rest}"
        )


def erase_subject(model: EditableModel, subject: str, path: Path | None = None) -> Receipt:
    """Remove every trace of a subject's entries from the folder of a model.

    The store drops its note of the receipt only when the file `path` is on the disk.
    """
    erased = None
    try:
        # The file is created before anything is erased.
        with nullcontext() if path is None else replace_file(path, force=True) as file:
            erased = _erase(model, subject)
            if file is not None:
                text = json.dumps(erased.receipt.to_dict(), indent=1)
                file.write_text(f"{text}\n", encoding="utf-8")
    except (OSError, InvalidSettingError) as error:
        if erased is None:
            raise
        _keep_verified(model, erased)
        reason = getattr(error, "strerror", None) or error
        raise ReceiptError(
            f"The entries are erased, but the receipt could not be written to {path} ({reason}). "
            "To get it, forget the subject again with another path for `receipt`.",
            parameter="receipt",
        ) from error
    with suppress(ModelFolderError), wrap_database_errors(model.path):  # harmless if it stays
        delete_pending(model.database, erased.edit)
    return erased.receipt


@dataclass(frozen=True)
class _Erased:
    """A verified erasure; `pending` is None if the entries were deleted earlier."""

    edit: int
    receipt: Receipt
    pending: PendingReceipt | None


def _erase(model: EditableModel, subject: str) -> _Erased:
    if not model.has_store:  # an unknown subject must not create it
        subjects = model.classifier.memory_.entries.subjects
        names = set() if subjects is None else set(subjects.tolist())
        if subject not in names - {""}:
            raise UnknownEntryError(_explain_unknown(names, subject))
    entries = erasing.entries_of(model.database, subject) if subject else []
    if not entries:
        return _resume(model, subject)
    affected = _affected_parts(model, subject)
    others = erasing.entries_of_others(model.database, subject)
    copies = list({entry.embedding for entry in entries} - others.embeddings)
    traces = collect_traces(subject, entries, others)
    n_cached = _erase_cached(model.classifier, entries)  # first: it can be computed again
    pending = PendingReceipt([entry.id for entry in entries], affected, n_cached)
    edited = _forget(model, entries)
    pending = _delete(model, subject, copies, pending)
    pending = replace(pending, **_compare(edited, model.classifier.model_))
    done = _verify(model, subject, model.head, pending, traces)
    # The log does not name people who erased themselves.
    return replace(done, receipt=replace(done.receipt, by=model.by))


def _keep_verified(model: EditableModel, erased: _Erased) -> None:
    """Add the outcome of the verification to the note in the store, if there is room for it."""
    if erased.pending is None:
        return
    with (
        suppress(ModelFolderError),
        wrap_database_errors(model.path),
        transaction(model.database),
    ):
        save_pending(model.database, erased.edit, erased.receipt.subject, erased.pending)


def _delete(
    model: EditableModel, subject: str, copies: list[bytes], pending: PendingReceipt
) -> PendingReceipt:
    """Delete the entries and load the rest."""
    try:
        with wrap_database_errors(model.path):
            with erasing.explain_no_room(model.path):
                pending = erasing.erase_entries(
                    model.database,
                    subject,
                    copies,
                    head=model.head,
                    by=model.by,
                    message=f"Erased {count_entries(len(pending.ids))} of a subject",
                    pending=pending,
                )
            erasing.finish_erasure(model.database, model.path)
    finally:
        model.load()
    return pending


def _resume(model: EditableModel, subject: str) -> _Erased:
    """Finish an erasure whose receipt was not delivered after the entries were deleted.

    Their contents are no longer known, so only the name is searched for.
    """
    with wrap_database_errors(model.path):
        found = find_pending(model.database, subject) if subject else None
        if found is None:
            names = erasing.subjects_of(model.database)
            raise UnknownEntryError(_explain_unknown(names, subject))
        erasing.finish_erasure(model.database, model.path)
    edit, pending = found
    traces = collect_traces(subject, [], erasing.entries_of_others(model.database, subject))
    return replace(_verify(model, subject, edit, pending, traces), pending=None)


def _explain_unknown(names: set[str], subject: str) -> str:
    close = other_spellings(names, subject)
    hint = f" Did you mean {' or '.join(map(ascii, close))}?" if close else ""
    return f"No entry belongs to the subject {subject!r}.{hint}"


def _verify(
    model: EditableModel, subject: str, edit: int, pending: PendingReceipt, traces: Traces
) -> _Erased:
    """Search for traces and complete the receipt of an edit."""
    line, database = model.log()[edit], model.database
    with wrap_database_errors(model.path):
        written, learned = erasing.written_texts(database), erasing.learned_texts(database)
        files = traces.find(model.path, written, learned)
        verified = replace(
            pending,
            n_searched=max(pending.n_searched, len(traces)),
            found_in=sorted({*pending.found_in, *files.found}),
        )
        receipt = Receipt(
            subject=subject,
            at=line.at,
            by=line.by,
            searched=files.searched,
            not_searched=files.skipped,
            other_spellings=other_spellings(erasing.subjects_of(database), subject),
            **asdict(verified),
        )
    return _Erased(edit, receipt, verified)


def _forget(model: EditableModel, entries: list[SubjectEntry]) -> FittedModel:
    """The current model without the entries, by an edit in RAM."""
    fitted = model.classifier.model_
    is_theirs = np.isin(model.seqs, [entry.seq for entry in entries])
    return forget(fitted, fitted.memory.entries.ids[is_theirs]) if is_theirs.any() else fitted


def _compare(edited: FittedModel, rebuilt: FittedModel) -> dict[str, Any]:
    """Compare predictions of a memory that was edited in RAM with those of one built again.

    Both have the fitted parts of the second. Some of its entries are the queries.
    """
    n_entries = len(rebuilt.memory)
    if not n_entries:
        return {"n_compared": 0, "predictions_agree": len(edited.memory) == 0}
    codes = {label: code for code, label in enumerate(rebuilt.classes.tolist())}
    memory = copy(edited.memory)
    memory.recode(np.array([codes.get(label, -1) for label in edited.classes.tolist()]))
    queries = rebuilt.memory.vectors[:: max(1, n_entries // MAX_COMPARED)][:MAX_COMPARED]
    one, other = (
        fitted.answer(queries).probabilities
        for fitted in (replace(rebuilt, memory=memory, stored_trust=None), rebuilt)
    )
    agree = bool(np.allclose(one, other, rtol=0, atol=1e-6))
    return {"n_compared": len(queries), "predictions_agree": agree}


def _erase_cached(classifier: AttnKNNClassifier, entries: list[SubjectEntry]) -> int:
    """Erase the embeddings of these entries from the user's caches.

    Of images all features of the network are erased: they can be computed again.
    """
    encoder = classifier.encoder_
    if isinstance(encoder, ImageEncoder) and encoder.computing.cache:
        return encoder.forget_features()
    if not (isinstance(encoder, TextEncoder) and encoder.cache):
        return 0
    known = {entry.embedding for entry in entries}

    def is_erased(vectors: Any) -> Any:
        prepared = classifier.memory_.prepare(vectors)
        return np.array([row.astype("<f4").tobytes() in known for row in prepared], dtype=bool)

    return encoder.forget_embeddings(is_erased)


def _affected_parts(model: EditableModel, subject: str) -> list[str]:
    """The fitted parts that were trained on entries of a subject."""
    parts = part_names(erasing.parts_fitted_on(model.database, subject))
    is_fitted = not isinstance(model.classifier.encoder_, IdentityEncoder | TextEncoder)
    was_fitted_on = erasing.has_entries_after(model.database, subject, 0)  # no edit fits it again
    return [*parts, ENCODER] if is_fitted and was_fitted_on else parts


def part_names(files: set[str]) -> list[str]:
    """The names for people of the parts in these files, without the encoder.

    >>> part_names({"center.npy", "settings.json", "encoder_scale.npy"})
    ['attention and calibration', 'the center of the embeddings']
    """
    return sorted({PARTS.get(name, VOTE) for name in files if not name.startswith("encoder_")})
