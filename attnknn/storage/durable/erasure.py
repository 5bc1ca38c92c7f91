"""All entries of a person leave a stored model, and what was done is checked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn.encoders import IdentityEncoder, TextEncoder
from attnknn.errors import UnknownEntryError
from attnknn.records import Floats
from attnknn.storage.durable.receipt import ENCODER, Receipt, part_names
from attnknn.storage.durable.traces import Traces, traces_of
from attnknn.storage.store import erasing, pending
from attnknn.storage.store.erasing import Owned
from attnknn.storage.store.pending import Pending
from attnknn.storage.store.schema import refused_if_damaged

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.storage.durable.model import EditableModel

ANSWERS_TO_COMPARE = 200


def erase(model: EditableModel, subject: str) -> Receipt:
    """Remove every trace of a subject's entries from the folder of a model."""
    gone = erasing.owned_by(model.database, subject) if subject else []
    if not gone:
        return _late_receipt(model, subject)
    seen = _seen_by(model, subject)
    others = erasing.others_than(model.database, subject)
    copies = list({entry.embedding for entry in gone} - others.embeddings)
    traces = traces_of(subject, gone, others)
    n_cached = _erase_cached(model.classifier, gone)  # first: that can be made again
    noted = Pending([entry.id for entry in gone], seen, n_cached)
    edited = _delete(model, subject, gone, copies, noted)
    rebuilt = _answers(model.classifier)
    agree = bool(np.allclose(edited, rebuilt, rtol=0, atol=1e-6))
    receipt = _receipt(model, subject, model.head, noted, traces, len(rebuilt), agree)
    return replace(receipt, by=model.by)  # the log does not name who erased themselves


def _delete(
    model: EditableModel, subject: str, gone: list[Owned], copies: list[bytes], noted: Pending
) -> Floats:
    """Delete the entries, and load what is left; returns the answers of before it was loaded."""
    database, words = model.database, _words(len(gone))
    try:
        with refused_if_damaged(model.path):
            _forget(model, gone, copies)
            edited = _answers(model.classifier)
            erasing.erase(
                database, subject, copies, head=model.head, by=model.by, words=words, noted=noted
            )
            erasing.finish_erasure(database, model.path)
    finally:
        model.load()
    return edited


def _late_receipt(model: EditableModel, subject: str) -> Receipt:
    """The receipt of an erasure that was cut short after the entries were deleted.

    Their contents are not known any more: what is searched for is the name.
    """
    with refused_if_damaged(model.path):
        found = pending.noted_of(model.database, subject) if subject else None
        if found is None:
            raise UnknownEntryError(f"No entry is of the subject {subject!r}.")
        erasing.finish_erasure(model.database, model.path)
    edit, noted = found
    traces = traces_of(subject, [], erasing.others_than(model.database, subject))
    return _receipt(model, subject, edit, noted, traces, 0, True)


def _receipt(
    model: EditableModel,
    subject: str,
    edit: int,
    noted: Pending,
    traces: Traces,
    n_answers: int,
    answers_agree: bool,
) -> Receipt:
    """What was done in an edit; from now on it can be asked for no more."""
    line = model.log()[edit]
    receipt = Receipt(
        subject=subject,
        ids=noted.ids,
        at=line.at,
        by=line.by,
        n_cached=noted.n_cached,
        searched=sorted(path.name for path in model.path.iterdir()),
        n_searched=len(traces),
        found_in=traces.found(model.path, model.database),
        n_answers=n_answers,
        answers_agree=answers_agree,
        seen_by=noted.seen_by,
    )
    with refused_if_damaged(model.path):
        pending.drop(model.database, edit)
    return receipt


def _forget(model: EditableModel, gone: list[Owned], copies: list[bytes]) -> None:
    """Take the entries, and copies of them, out of the classifier as far as it still has them."""
    classifier = model.classifier
    is_theirs = np.isin(model.seqs, [entry.seq for entry in gone])
    if is_theirs.any():
        classifier.forget(classifier.memory_.entries.ids[is_theirs])
    width = classifier.memory_.entries.embeddings.shape[1]
    vectors = np.frombuffer(b"".join(copies), dtype="<f4").astype(np.float32)
    classifier.attention_ = classifier.attention_.copy()
    classifier.attention_.forget_copies(vectors.reshape(-1, width))


def _words(n: int) -> str:
    return f"Erased {n:,} {'entry' if n == 1 else 'entries'} of a subject"


def _answers(classifier: AttnKNNClassifier) -> Floats:
    """What is answered about some of the entries, as if they were queries."""
    entries = classifier.memory_.entries
    if not len(entries):
        return np.zeros((0, len(classifier.classes_)))
    step = max(1, len(entries) // ANSWERS_TO_COMPARE)
    queries = entries.embeddings[::step][:ANSWERS_TO_COMPARE]
    return classifier._parts().answer(queries).probabilities


def _erase_cached(classifier: AttnKNNClassifier, gone: list[Owned]) -> int:
    """Erase embeddings of texts from the user's cache that became one of these entries."""
    encoder = classifier.encoder_
    if not (isinstance(encoder, TextEncoder) and encoder.cache):
        return 0
    known = {entry.embedding for entry in gone}

    def is_erased(vectors: Any) -> Any:
        prepared = classifier.memory_.prepare(vectors)
        return np.array([row.astype("<f4").tobytes() in known for row in prepared], dtype=bool)

    return encoder.forget_embeddings(is_erased)


def _seen_by(model: EditableModel, subject: str) -> list[str]:
    """The fitted parts that had seen entries of a subject."""
    parts = part_names(erasing.seen_by(model.database, subject))
    is_fitted = not isinstance(model.classifier.encoder_, IdentityEncoder | TextEncoder)
    were_there = erasing.were_there(model.database, subject, 0)  # no edit fits the encoder again
    return [*parts, ENCODER] if is_fitted and were_there else parts
