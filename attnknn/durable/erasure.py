"""All entries of a person leave a stored model, and what was done is checked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn._atomic import all_or_nothing
from attnknn.durable.receipt import ENCODER, Receipt, part_names
from attnknn.encoders import IdentityEncoder, TextEncoder
from attnknn.errors import UnknownEntryError
from attnknn.records import Floats
from attnknn.storage.store import erasing, history
from attnknn.storage.store.schema import refused_if_damaged

if TYPE_CHECKING:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.durable.model import EditableModel

ANSWERS_TO_COMPARE = 200
SHORTEST = 8  # bytes; shorter contents are found anywhere by chance

Erased = list[tuple[Any, bytes, str]]  # id, embedding and payload of each entry


def erase(model: EditableModel, subject: str) -> Receipt:
    """Remove every trace of a subject's entries from the folder of a model."""
    database, classifier = model.database, model.classifier
    seqs = erasing.seqs_of_subject(database, subject)
    if not seqs or not subject:
        raise UnknownEntryError(f"No entry is of the subject {subject!r}.")
    gone = erasing.contents_of(database, seqs)
    seen = _seen_by(model, seqs)
    still_there = classifier.memory_.entries.ids[np.isin(model.seqs, seqs)]
    with all_or_nothing(classifier), refused_if_damaged(model.path):
        if len(still_there):
            classifier.forget(still_there)
        edited = _answers(classifier)
        names = [subject, *(name for name, _, _ in gone if isinstance(name, str))]
        erasing.erase(database, seqs, names, by=model.by, words=_words(len(seqs)))
    n_cached = _erase_cached(classifier, gone)
    try:
        with refused_if_damaged(model.path):
            erasing.finish_erasure(database, model.path)
    finally:
        model.load()
    rebuilt = _answers(model.classifier)
    return Receipt(
        subject=subject,
        ids=[name for name, _, _ in gone],
        at=history.now(),
        by=model.by,
        n_cached=n_cached,
        searched=sorted(path.name for path in model.path.iterdir()),
        found_in=erasing.files_that_hold(model.path, _needles(model.classifier, gone)),
        n_answers=len(rebuilt),
        answers_agree=bool(np.allclose(edited, rebuilt, rtol=0, atol=1e-6)),
        seen_by=seen,
    )


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


def _needles(classifier: AttnKNNClassifier, gone: Erased) -> list[bytes]:
    """Bytes that must be nowhere: contents of the erased entries that no other entry has."""
    entries = classifier.memory_.entries
    kept = {row.astype("<f4").tobytes() for row in entries.embeddings}
    payloads = [] if entries.payloads is None else entries.payloads.tolist()
    kept_texts = "\n".join(json.dumps(payload) for payload in payloads)
    embeddings = {embedding for _, embedding, _ in gone if any(embedding)}
    texts = {payload.strip('"') for _, _, payload in gone}
    unknown = [text.encode() for text in texts if text not in kept_texts]
    needles = [*(embeddings - kept), *unknown]
    return [needle for needle in needles if len(needle) >= SHORTEST]


def _erase_cached(classifier: AttnKNNClassifier, gone: Erased) -> int:
    """Erase embeddings of texts from the user's cache that became one of these entries."""
    encoder = classifier.encoder_
    if not (isinstance(encoder, TextEncoder) and encoder.cache):
        return 0
    known = {embedding for _, embedding, _ in gone}

    def is_erased(vectors: Any) -> Any:
        prepared = classifier.memory_.prepare(vectors)
        return np.array([row.astype("<f4").tobytes() in known for row in prepared], dtype=bool)

    return encoder.forget_embeddings(is_erased)


def _seen_by(model: EditableModel, seqs: list[int]) -> list[str]:
    """The fitted parts that had seen some of these entries."""
    parts = part_names(erasing.seen_by(model.database, seqs))
    is_fitted = not isinstance(model.classifier.encoder_, IdentityEncoder | TextEncoder)
    were_there = erasing.were_there(model.database, seqs, 0)  # no edit fits the encoder again
    return [*parts, ENCODER] if is_fitted and were_there else parts
