"""All entries of a person leave a stored model, and what was done is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn._atomic import all_or_nothing
from attnknn.durable.receipt import ENCODER, Receipt, part_names
from attnknn.encoders import IdentityEncoder, TextEncoder
from attnknn.errors import UnknownEntryError
from attnknn.records import Floats
from attnknn.storage.store import erasing, history
from attnknn.storage.store.erasing import Owned
from attnknn.storage.store.schema import refused_if_damaged

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.durable.model import EditableModel

ANSWERS_TO_COMPARE = 200
SHORTEST = 8  # bytes; shorter contents are found anywhere by chance


def erase(model: EditableModel, subject: str) -> Receipt:
    """Remove every trace of a subject's entries from the folder of a model."""
    database, classifier = model.database, model.classifier
    gone = erasing.owned_by(database, subject)
    if not gone or not subject:
        raise UnknownEntryError(f"No entry is of the subject {subject!r}.")
    seen = _seen_by(model, subject)
    embeddings, texts = _only_theirs(model, subject, gone)
    with all_or_nothing(classifier), refused_if_damaged(model.path):
        _forget(model, gone)
        edited = _answers(classifier)
        names = [subject, *(entry.id for entry in gone if isinstance(entry.id, str))]
        words = _words(len(gone))
        erasing.erase(database, subject, embeddings, names, by=model.by, words=words)
    n_cached = _erase_cached(classifier, gone)
    try:
        with refused_if_damaged(model.path):
            erasing.finish_erasure(database, model.path)
    finally:
        model.load()
    rebuilt = _answers(model.classifier)
    return Receipt(
        subject=subject,
        ids=[entry.id for entry in gone],
        at=history.now(),
        by=model.by,
        n_cached=n_cached,
        searched=sorted(path.name for path in model.path.iterdir()),
        found_in=erasing.files_that_hold(model.path, [*embeddings, *texts]),
        n_answers=len(rebuilt),
        answers_agree=bool(np.allclose(edited, rebuilt, rtol=0, atol=1e-6)),
        seen_by=seen,
    )


def _forget(model: EditableModel, gone: list[Owned]) -> None:
    """Take the entries out of the classifier, as far as it still has them."""
    classifier = model.classifier
    is_theirs = np.isin(model.seqs, [entry.seq for entry in gone])
    if is_theirs.any():
        classifier.forget(classifier.memory_.entries.ids[is_theirs])
    vectors = [np.frombuffer(entry.embedding, dtype="<f4").astype(np.float32) for entry in gone]
    classifier.attention_ = classifier.attention_.copy()
    classifier.attention_.forget_copies(np.stack(vectors))


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


def _only_theirs(
    model: EditableModel, subject: str, gone: list[Owned]
) -> tuple[list[bytes], list[bytes]]:
    """Embeddings and texts that must be nowhere afterward: no other entry has them."""
    embeddings, payloads = erasing.contents_of_others(model.database, subject)
    others = "\n".join(payloads)
    vectors = {entry.embedding for entry in gone if any(entry.embedding)} - embeddings
    texts = {entry.payload.strip('"') for entry in gone}
    unknown = [text.encode() for text in texts if text not in others]
    return (
        [vector for vector in vectors if len(vector) >= SHORTEST],
        [text for text in unknown if len(text) >= SHORTEST],
    )


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
