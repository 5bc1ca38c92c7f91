"""After an erasure the folder holds no trace of the person, and the receipt states it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnknn import (
    AttnKNNClassifier,
    KEnsembleAttention,
    LearnedAttention,
    _output_files,
    backup,
    open_for_editing,
    verify,
)
from attnknn.encoders import TableEncoder
from attnknn.errors import (
    CacheError,
    InvalidSettingError,
    ModelFolderError,
    ReceiptError,
    UnknownEntryError,
)
from attnknn.storage import erasure, save_classifier
from attnknn.storage.editor import list_edits
from attnknn.storage.store import erasing, schema
from attnknn.training import TrainConfig

from .samples import assert_same, fitted, labels, payloads, people, rows, with_store

WHO = "person-3"
THEIRS = [i for i, name in enumerate(people()) if name == WHO]


def traces(path: Path, needles: list[bytes]) -> list[str]:
    """Files of the folder, and of the one around it, that hold any of these bytes."""
    files = [file for file in path.parent.rglob("*") if file.is_file()]
    return [file.name for file in files if any(n in content_of(file) for n in needles)]


def content_of(file: Path) -> bytes:
    """Read by another process: to close a file here would drop the locks of an open model."""
    return subprocess.run(["cat", file], capture_output=True, check=True).stdout


def needles_of(classifier: AttnKNNClassifier) -> list[bytes]:
    embeddings = classifier.memory_.vectors.all()
    texts = [payloads()[i].encode() for i in THEIRS]
    return [*(embeddings[i].tobytes() for i in THEIRS), *texts, WHO.encode()]


def test_every_trace_goes_and_answers_are_those_without(path: Path) -> None:
    needles = needles_of(fitted())
    with open_for_editing(path, by="ann") as model:
        model.relabel(THEIRS[:1], "cat")
        model.forget(THEIRS[1:2])  # removed from the current state, not from earlier ones
        model.snapshot(f"before {WHO} asked")
        with model.edit(f"asked by {WHO}"):
            model.relabel([1], "cat")
        assert traces(path, needles)
        receipt = model.forget(subject=WHO)
        assert traces(path, needles) == []  # while it is open too
        assert_same(model.classifier, fitted().relabel([1], "cat").forget(THEIRS))
    assert traces(path, needles) == []
    assert sorted(receipt.ids) == THEIRS
    assert receipt.is_complete
    assert receipt.n_compared == 35
    assert receipt.affected_parts == ["attention and calibration", "the center of the embeddings"]
    assert "`refit` clears attention and calibration" in str(receipt)
    assert "35 predictions are the same as" in str(receipt)
    assert "are NOT the same as" in str(replace(receipt, predictions_agree=False))
    assert json.loads(json.dumps(receipt.to_dict()))["is_complete"] is True
    with open_for_editing(path) as model:
        assert [line.message for line in model.log()][-2:] == [
            *("asked by (erased)", "Erased 5 entries of a subject")
        ]
        with pytest.raises(UnknownEntryError, match="No entry belongs to the subject 'person-3'"):
            model.forget(subject=WHO)
        with pytest.raises(UnknownEntryError):
            model.forget(subject="")


def test_neither_undo_nor_rollback_restores_erased_entries(path: Path) -> None:
    with open_for_editing(path) as model:
        model.relabel([1], "cat")
        model.forget(subject=WHO)
        with pytest.raises(ModelFolderError, match="is an erasure, which cannot be undone"):
            model.undo()
        model.rollback(0)
        assert_same(model.classifier, fitted().forget(THEIRS))


def test_parts_fitted_without_them_are_not_affected(path: Path) -> None:
    with open_for_editing(path) as model:
        model.add(rows(2, seed=2), ["ant", "bee"], subjects=["late", "late"])
        assert model.forget(subject="late").affected_parts == []
        model.add(rows(2, seed=2), ["ant", "bee"], subjects=["late", "late"])
        model.refit()
        model.forget([1])
        receipt = model.forget(subject="late")
        assert receipt.affected_parts == ["attention and calibration"]
        assert "Only a new `fit`" not in receipt.remedy
        model.add(rows(2, seed=2), ["ant", "bee"], subjects=["late", "late"])
        assert model.forget(subject="late").remedy == "No fitted part was trained on these entries."


def test_parts_extended_by_their_new_class_are_affected(path: Path) -> None:
    with open_for_editing(path) as model:
        model.add(rows(1, seed=2), ["dog"], subjects=["late"])
        assert model.forget(subject="late").affected_parts == ["attention and calibration"]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_prototype_that_is_their_only_row_goes_too(tmp_path: Path, metric: str) -> None:
    clf = AttnKNNClassifier(
        8, attention=LearnedAttention(training=TrainConfig(epochs=1)), metric=metric, random_state=0
    )
    clf.fit(rows(), labels()).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        model.add(rows(1, seed=2), ["dog"], subjects=["late"])
        needle = model.classifier.memory_.vectors[-1].tobytes()
        assert needle in model.classifier.attention_.module_.prototypes.detach().numpy().tobytes()
        model.forget([1])
        receipt = model.forget(subject="late")
        assert receipt.is_complete
        assert traces(tmp_path / "model", [needle]) == []
        model.rollback(1)
        assert traces(tmp_path / "model", [needle]) == []


def test_a_fitted_encoder_needs_a_new_fit(tmp_path: Path) -> None:
    clf = AttnKNNClassifier(encoder=TableEncoder(), attention="distance", random_state=0)
    clf.fit(rows(), labels(), subjects=people()).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        receipt = model.forget(subject=WHO)
    assert "the encoder" in receipt.affected_parts
    assert receipt.is_verified
    assert not receipt.is_complete
    assert receipt.remedy.endswith("Until then the encoder may hold their values.")
    assert "Only a new `fit` clears the center of the embeddings, the encoder." in receipt.remedy


def test_contents_of_other_entries_are_not_traces(tmp_path: Path) -> None:
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    X = np.repeat(rows(4), 2, axis=0)
    clf.fit(X, list("aabbaabb"), subjects=["x", "y"] * 4, payloads=["the same text"] * 8)
    clf.save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        receipt = model.forget(subject="x")
    assert receipt.is_complete
    assert traces(tmp_path / "model", [b"the same text"])  # of the others


def test_a_trace_that_is_left_is_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(erasing, "finish_erasure", lambda *_: None)
    with open_for_editing(path) as model:
        receipt = model.forget(subject=WHO)
    assert receipt.found_in
    assert not receipt.is_complete


def test_an_interrupted_erasure_is_finished_when_next_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needles = needles_of(fitted())
    with monkeypatch.context() as patch:
        patch.setattr(erasing, "finish_erasure", lambda *_: None)
        with open_for_editing(path) as model:
            model.forget(subject=WHO)
            model.database.execute("pragma wal_checkpoint(truncate)")
    with open_for_editing(path):
        pass
    assert traces(path, needles) == []


def test_a_reader_delays_an_erasure_and_the_receipt(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "TIMEOUT", 0.05)
    with open_for_editing(path, by="ann") as model:
        model.forget([1])
        with schema.open_to_read(path) as reader:
            reader.execute("select count(*) from rows").fetchone()
            for _ in range(2):
                with pytest.raises(ModelFolderError, match="another process is reading"):
                    model.forget(subject=WHO)
            assert len(model.classifier.memory_) == 34
        receipt = model.forget(subject=WHO)
        assert (sorted(receipt.ids), receipt.by, receipt.n_compared) == (THEIRS, "ann", 0)
        assert receipt.is_complete
        assert "attention and calibration" in receipt.affected_parts
        with pytest.raises(UnknownEntryError):
            model.forget(subject=WHO)
        assert traces(path, needles_of(fitted())) == []
        assert model.database.execute("select * from cache").fetchall() == []


@contextmanager
def no_file_longer_than(n_bytes: int) -> Iterator[None]:
    """Longer ones fail to be written, as on a full disk."""
    import resource

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
def test_an_erasure_without_room_says_what_to_free_and_edits_go_on(tmp_path: Path) -> None:
    X, path = np.random.default_rng(0).normal(size=(40, 3000)), tmp_path / "model"
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    clf.fit(X, labels(), subjects=people()).save(path)
    with open_for_editing(path) as model:
        model.relabel([0], "cat")
    with no_file_longer_than((path / "entries.sqlite").stat().st_size // 2):
        with (
            open_for_editing(path) as model,
            pytest.raises(ModelFolderError, match=r"When \d{3},\d{3} bytes are free on the disk"),
        ):
            model.forget(subject=WHO)
        with pytest.warns(UserWarning, match=r"An erasure is not finished.* bytes are free"):
            model = open_for_editing(path)
        with model:
            model.relabel([4], "cat")
            model.undo()
            with pytest.raises(ModelFolderError, match="bytes are free on the disk"):
                model.forget(subject=WHO)
        assert len(AttnKNNClassifier.load(path).memory_) == 35
    with open_for_editing(path) as model:
        receipt = model.forget(subject=WHO)
        assert receipt.is_verified
    assert traces(path, [X[i].astype("<f4").tobytes()[:24] for i in THEIRS]) == []


def test_an_erasure_that_was_killed_gives_its_receipt_when_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"mail-{i}@example.org" for i in range(40)]
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    clf.fit(rows(), labels(), ids=ids, subjects=people()).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model", by="ann") as model:
        with monkeypatch.context() as patch:
            patch.setattr(erasing, "finish_erasure", _fail)
            with pytest.raises(CacheError):
                model.forget(subject=WHO)
        model.forget(subject="person-5")  # keeps the pending receipt of the other erasure
    with open_for_editing(tmp_path / "model", by="bob") as model:
        assert traces(tmp_path / "model", [WHO.encode(), *(ids[i].encode() for i in THEIRS)]) == []
        receipt = model.forget(subject=WHO)
        assert (receipt.by, len(receipt.ids)) == ("ann", 5)
        assert all(each.startswith("sha256:") for each in receipt.ids)
        assert "No predictions were compared" in str(receipt)
        with pytest.raises(UnknownEntryError):
            model.forget(subject="person-5")


def test_a_refit_in_a_block_is_affected_by_the_current_entries(path: Path) -> None:
    with open_for_editing(path) as model:
        model.add(rows(2, seed=2), ["ant", "bee"], subjects=["late", "late"])
        with model.edit("Monday"):
            model.refit()
        assert model.forget(subject="late").affected_parts == ["attention and calibration"]


def test_a_class_that_came_later_does_not_hide_who_brought_the_first(path: Path) -> None:
    with open_for_editing(path) as model:
        model.add(rows(1, seed=2), ["dog"], subjects=["late"])
        model.add(rows(1, seed=3), ["eel"])
        assert model.forget(subject="late").affected_parts == ["attention and calibration"]


def test_long_rows_are_searched_for_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(12, 3000))  # more than a page of the file
    clf = AttnKNNClassifier(attention="distance", calibration=None)
    subjects = [*["ann", "bob"] * 5, "", ""]
    clf.fit(X, [0, 1, 1] * 4, subjects=subjects).save(tmp_path / "model")
    with monkeypatch.context() as patch:
        patch.setattr(erasing, "finish_erasure", lambda *_: None)
        with open_for_editing(tmp_path / "model") as model:
            assert not model.forget(subject="ann").is_complete
    with open_for_editing(tmp_path / "model") as model:
        assert model.forget(subject="bob").is_complete


def test_an_erasure_whose_cache_fails_can_be_asked_for_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_for_editing(path) as model:
        with monkeypatch.context() as patch:
            patch.setattr(erasure, "_erase_cached", _fail)
            with pytest.raises(CacheError):
                model.forget(subject=WHO)
        assert len(model.classifier.memory_) == 40
        assert model.forget(subject=WHO).is_complete


def _fail(*_: object) -> int:
    raise CacheError("no room")


def test_numbers_that_look_like_a_short_row_are_left_alone(tmp_path: Path) -> None:
    clf = AttnKNNClassifier(
        4, attention=LearnedAttention(training=TrainConfig(epochs=1)), metric="cosine"
    )
    X = np.where(np.arange(40)[:, None] % 2 == 1, 1.0, -1.0)  # every embedding is 1.0 or -1.0
    clf.fit(X, np.arange(40) % 2).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        before = {
            name: t.clone() for name, t in model.classifier.attention_.module_.state_dict().items()
        }
        model.add([[3.0]], [2], subjects=["late"])
        assert model.forget(subject="late").is_complete
        for name, tensor in model.classifier.attention_.module_.state_dict().items():
            if name != "prototypes":
                np.testing.assert_array_equal(tensor.numpy(), before[name].numpy())


@pytest.mark.parametrize("inner", ["distance", LearnedAttention(training=TrainConfig(epochs=1))])
def test_the_class_of_one_person_is_erased_from_votes_over_several_k(tmp_path: Path, inner) -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    clf = AttnKNNClassifier(4, attention=KEnsembleAttention((2, 4), attention=inner))
    clf.fit(X, np.arange(40) % 2).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        before = model.classifier.predict_proba(X)
        model.add([[9.0, 9.0, 9.0]], [2], subjects=["late"])
        assert model.forget(subject="late").is_complete
        assert model.classifier.classes_.tolist() == [0, 1]
        np.testing.assert_allclose(model.classifier.predict_proba(X), before)


def others_may_lock(path: Path) -> bool:
    """Whether another process could take the lock by which SQLite knows of an open connection."""
    script = (
        "import fcntl, sys; file = open(sys.argv[1], 'r+b'); "
        "fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 128)"
    )
    command = [sys.executable, "-S", "-c", script, path / "entries.sqlite-shm"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX locks")
def test_an_erasure_keeps_the_locks_of_the_open_model(path: Path) -> None:
    with open_for_editing(path) as model:
        model.relabel([1], "cat")
        assert not others_may_lock(path)
        model.forget(subject=WHO)
        model.relabel([2], "cat")
        assert not others_may_lock(path)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX locks")
def test_reading_a_model_keeps_the_locks_of_the_open_model(path: Path, tmp_path: Path) -> None:
    """Closing any handle to a file of SQLite drops all locks that the process has on it."""
    with open_for_editing(path) as model:
        model.relabel([1], "cat")
        AttnKNNClassifier.load(path)
        list_edits(path)
        assert verify(path).is_intact
        backup(path, tmp_path / "copy")
        assert not others_may_lock(path)


@pytest.mark.slow
def test_edits_go_on_beside_readers_after_an_erasure(path: Path) -> None:
    script = (
        "import sys; from attnknn import AttnKNNClassifier as A; "
        "print(len(A.load(sys.argv[1]).memory_))"
    )
    with open_for_editing(path) as model:
        model.forget(subject=WHO)
        for edit in range(2, 5):
            model.relabel([1], "cat" if edit % 2 else "ant")
            command = [sys.executable, "-c", script, str(path)]
            assert subprocess.run(command, capture_output=True, check=True).stdout == b"35\n"
            assert model.head == edit
    assert len(list_edits(path)) == 5


def test_all_snapshots_that_name_a_person_are_renamed(path: Path) -> None:
    with open_for_editing(path) as model:
        model.snapshot(f"before {WHO} asked")
        model.snapshot(f"{WHO} still here")
        model.snapshot("(erased) still here")
        model.relabel([1], "cat")
        model.snapshot("kept")
        model.forget(subject=WHO)
        names = {snapshot.name for snapshot in model.snapshots()}
        assert names == {
            *("before (erased) asked", "(erased) still here", "(erased) still here (2)", "kept")
        }


def test_people_who_erase_themselves_are_not_named_anywhere(path: Path) -> None:
    with open_for_editing(path, by=WHO) as model:
        model.relabel([1], "cat")
        model.snapshot(f"of {WHO.upper()}")
        with model.edit(f"{WHO.title()} asked"):
            model.relabel([2], "ant")
        receipt = model.forget(subject=WHO)
        assert receipt.is_complete
        assert receipt.by == WHO
        assert {line.by for line in model.log()} == {"(erased)"}
        assert model.log()[2].message == "(erased) asked"
        assert [snapshot.by for snapshot in model.snapshots()] == ["(erased)"]
    assert traces(path, [WHO.encode(), WHO.title().encode(), WHO.upper().encode()]) == []


def test_a_name_that_is_a_number_does_not_change_generated_messages(tmp_path: Path) -> None:
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    clf.fit(rows(), labels(), subjects=[str(i % 8) for i in range(40)]).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        model.relabel([0, 1, 4], "cat")
        model.forget([5, 6, 7])
        model.undo()
        model.snapshot("before 3 asked")
        model.rollback("before 3 asked")
        with model.edit("as 3 asked"):
            model.relabel([8], "ant")
        model.forget(subject="3")
        assert [line.message for line in model.log()] == [
            "Opened for editing with 40 entries",
            "Relabeled 3 entries",
            "Forgot 3 entries",
            "Undid edit 2: Forgot 3 entries",
            "Rolled back to snapshot before (erased) asked",
            "as (erased) asked",
            "Erased 5 entries of a subject",
        ]


def test_a_value_that_the_encoder_has_learned_is_found(tmp_path: Path) -> None:
    cities = ["Oslo", "Rome"] * 10
    cities[5] = "Zzyzx-Ville"
    X = pd.DataFrame({"height": np.arange(20.0), "city": cities})
    texts = [f"height={h:.3g}, city={c}" for h, c in zip(X["height"], cities, strict=True)]
    clf = AttnKNNClassifier(3, encoder=TableEncoder(), attention="distance", calibration=None)
    clf.fit(
        X, ["a", "b"] * 10, payloads=texts, subjects=["bob" if i == 5 else "" for i in range(20)]
    )
    clf.save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        receipt = model.forget(subject="bob")
    assert receipt.found_in == ["entries.sqlite (settings.json)"]
    assert not receipt.is_verified


@pytest.mark.parametrize("who", ["Ann", "Zoë Brontë"])
def test_a_class_that_has_the_name_of_the_person_is_found(
    tmp_path: Path, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    clf.fit(rows(8), [who, "bob"] * 4, subjects=[who.upper(), ""] * 4).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        monkeypatch.setattr(erasing, "_drop_classes", lambda *_: False)
        receipt = model.forget(subject=who.upper())
    assert "entries.sqlite (settings.json)" in receipt.found_in
    assert receipt.remaining_classes == [who]


def test_an_erasure_that_could_not_be_verified_is_not_complete(tmp_path: Path) -> None:
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    metadata = {"subjects": ["ann", "ann of ours"] * 4, "payloads": ["x"] * 8}
    clf.fit(rows(8)[:, :1], list("abababab"), **metadata).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        receipt = model.forget(subject="ann")
    assert (receipt.n_searched, receipt.found_in) == (0, [])
    assert not receipt.is_complete
    assert "0 traces of them were searched" in str(receipt)


def test_a_name_that_begins_another_name_is_no_trace(tmp_path: Path) -> None:
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    clf.fit(rows(8), list("abababab"), subjects=["visitor-1", "visitor-12"] * 4)
    clf.save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        assert model.forget(subject="visitor-1").is_complete


@pytest.mark.parametrize(
    ("words", "places"),
    [("rob7@mail.org asked", ["entries.sqlite (log)"]), ("row 12 is a secret of a person", [])],
)
def test_a_value_that_somebody_wrote_in_the_log_is_found(
    tmp_path: Path, words: str, places: list[str]
) -> None:
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    metadata = {
        "subjects": ["bob", ""] * 4,
        "payloads": [{"mail": "rob7@mail.org, a person"}, "x"] * 4,
    }
    clf.fit(rows(8), list("abababab"), **metadata).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        with model.edit(words):
            model.relabel([1], "a")
        assert model.forget(subject="bob").found_in == places


def owned(path: Path, subjects: list[str], **metadata: object) -> Path:
    """A stored model of twelve rows, whose subjects repeat."""
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    repeated = (subjects * 12)[:12]
    clf.fit(rows(12), list("ababab" * 2), subjects=repeated, **metadata).save(path)
    return path


@pytest.mark.parametrize(
    ("who", "written", "left"),
    [
        ("Zoë Ash", "Zoe\u0308  ASH asked", "(erased) asked"),
        ("Zoe\u0308 Ash", "of_Zoë Ash_monday", "of_(erased)_monday"),
        ("ann", "annual report of Ann's", "annual report of (erased)'s"),
        ("山田太郎", "山田太郎さんの依頼", "(erased)さんの依頼"),
    ],
)
def test_a_name_goes_from_messages_and_snapshots_in_any_spelling(
    tmp_path: Path, who: str, written: str, left: str
) -> None:
    with open_for_editing(owned(tmp_path / "model", [who, "bob"])) as model:
        model.snapshot(written)
        with model.edit(written):
            model.relabel([1], "a")
        model.undo()
        assert model.forget(subject=who).is_complete
        assert [snapshot.name for snapshot in model.snapshots()] == [left]
        assert [line.message for line in model.log()][1:3] == [left, f"Undid edit 1: {left}"]


@pytest.mark.parametrize(
    ("ids", "written", "left"),
    [
        (
            [f"mail-{i}@example.org" for i in range(12)],
            "mail-2@example.org left, mail-1@example.org asked",
            "(erased) left, mail-1@example.org asked",
        ),
        (
            np.arange(4000, 4012),
            "4002 left on 2026-4002, v4002",
            "(erased) left on 2026-4002, v4002",
        ),
    ],
)
def test_ids_of_erased_entries_go_from_messages_and_snapshots(
    tmp_path: Path, ids: object, written: str, left: str
) -> None:
    with open_for_editing(owned(tmp_path / "model", ["ann", "bob"], ids=ids)) as model:
        model.snapshot(written)
        with model.edit(written):
            model.relabel(list(ids)[1:2], "a")
        assert model.forget(subject="ann").is_complete
        assert [snapshot.name for snapshot in model.snapshots()] == [left]
        assert model.log()[1].message == left


def test_files_in_folders_below_are_searched_too(path: Path) -> None:
    with open_for_editing(with_store(path)) as model:
        (path / "old" / "copies").mkdir(parents=True)
        (path / "old" / "copies" / "rows.txt").write_text(f"secret of {WHO.upper()}")
        (path / "old" / "empty.txt").touch()
        receipt = model.forget(subject=WHO)
    assert receipt.found_in == ["old/copies/rows.txt"]
    assert {"old/copies/rows.txt", "old/empty.txt", "entries.sqlite"} <= set(receipt.searched)
    assert not receipt.is_verified


def test_a_file_whose_name_is_that_of_the_person_is_found(path: Path) -> None:
    with open_for_editing(with_store(path)) as model:
        (path / "exports").mkdir()
        (path / "exports" / f"rows_{WHO}.txt").touch()
        assert model.forget(subject=WHO).found_in == [f"exports/rows_{WHO}.txt"]


def test_what_was_not_searched_is_named_and_nothing_is_claimed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    with open_for_editing(with_store(path)) as model:
        (path / "backup").symlink_to(tmp_path / "elsewhere")
        receipt = model.forget(subject=WHO)
    assert receipt.not_searched == ["backup"]
    assert not receipt.is_verified
    assert not receipt.is_complete
    assert "Not searched: backup." in str(receipt)


def test_other_spellings_of_a_name_are_named(tmp_path: Path) -> None:
    people = ["Zoë Ash", "Zoe\u0308 Ash", " zoë  ash ", "Zoe Ash"]
    with open_for_editing(owned(tmp_path / "model", people)) as model:
        receipt = model.forget(subject="Zoë Ash")
        assert receipt.other_spellings == [" zoë  ash ", "Zoe\u0308 Ash"]
        assert r"' zo\xeb  ash ', 'Zoe\u0308 Ash'" in str(receipt)
        with pytest.raises(UnknownEntryError, match=r"Did you mean ' zo\\xeb  ash ' or"):
            model.forget(subject="ZOË ASH")
        for name in receipt.other_spellings:
            assert model.forget(subject=name).other_spellings in ([], ["Zoe\u0308 Ash"])
        assert set(model.classifier.memory_.entries.subjects) == {"Zoe Ash"}


def classifier_with_zoe(**settings: object) -> AttnKNNClassifier:
    """A fitted classifier with a class that only the entries of Zoe have."""
    names = np.where(np.arange(40) % 8 == 3, "zoe-class", labels())
    fixed = {"encoder": "identity", "attention": "distance", "calibration": None}
    settings = {**fixed, "n_neighbors": 8, **settings}
    return AttnKNNClassifier(random_state=0, **settings).fit(rows(), names, subjects=people())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"attention": "uniform", "calibration": "auto"},
        {"attention": LearnedAttention(training=TrainConfig(epochs=1))},
        {"attention": LearnedAttention(terms=("support",), training=TrainConfig(epochs=1))},
    ],
)
def test_a_class_that_only_they_had_goes_from_every_state(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    classifier_with_zoe(**settings).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        model.relabel([1], "cat")
        model.add(rows(2, seed=2), ["dog", "eel"], subjects=[WHO, ""])
        receipt = model.forget(subject=WHO)
        assert receipt.removed_classes == ["dog", "zoe-class"]
        assert receipt.is_complete
        assert "no other entry had: 'dog', 'zoe-class'" in str(receipt)
        assert model.classifier.classes_.tolist() == ["ant", "bee", "cat", "eel"]
        assert traces(tmp_path / "model", [b"zoe-class", b'"dog"']) == []
        expected = model.classifier.predict_proba(rows(3, seed=5))
        model.rollback(0)
        assert model.classifier.classes_.tolist() == ["ant", "bee", "cat"]
        model.undo()
        np.testing.assert_array_equal(model.classifier.predict_proba(rows(3, seed=5)), expected)
        model.add(rows(1, seed=3), ["zoe-class"])
        model.refit()
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert loaded.classes_.tolist() == ["ant", "bee", "cat", "eel", "zoe-class"]


def test_noise_of_labels_is_that_of_the_other_classes(tmp_path: Path) -> None:
    clf = classifier_with_zoe()
    noise = np.full((4, 4), 0.1) + 0.6 * np.eye(4)
    clf.edit(lambda m: replace(m, calibration=replace(m.calibration, transition=noise)))
    clf.save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        assert model.forget(subject=WHO).is_complete
        found = model.classifier.calibration_.transition
        np.testing.assert_allclose(found, (np.full((3, 3), 0.1) + 0.6 * np.eye(3)) / 0.9)


def test_a_class_that_a_value_head_needs_is_named(tmp_path: Path) -> None:
    classifier_with_zoe(value_head=True).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        assert model.classifier.value_head_ is not None
        model.add(rows(1, seed=2), ["dog"], subjects=["late"])
        late = model.forget(subject="late")
        assert (late.removed_classes, late.is_verified) == (["dog"], True)
        receipt = model.forget(subject=WHO)
        assert (receipt.removed_classes, receipt.remaining_classes) == ([], ["zoe-class"])
        assert not receipt.is_verified
        assert "removes classes that no entry has any more: 'zoe-class'." in receipt.remedy
        assert "zoe-class" in model.classifier.classes_


def test_a_class_that_others_had_once_stays(path: Path) -> None:
    with open_for_editing(path) as model:
        model.add(rows(2, seed=2), ["dog", "dog"], subjects=["late", ""])
        model.forget([41])
        receipt = model.forget(subject="late")
        assert (receipt.removed_classes, receipt.remaining_classes) == ([], [])
        assert "dog" in model.classifier.classes_


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX limits")
@pytest.mark.parametrize("share", [0.0, 0.4, 0.8, 0.95])
def test_an_erasure_without_room_is_done_later(tmp_path: Path, share: float) -> None:
    X, names = np.random.default_rng(0).normal(size=(800, 64)), ["ann", *["bob"] * 19] * 40
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    clf.fit(X, np.arange(800) // 2 % 2, subjects=names).save(path := tmp_path / "model")
    with open_for_editing(with_store(path)) as model:
        size = (path / "entries.sqlite").stat().st_size
        needles = [X.astype("<f4")[0].tobytes(), b"ann"]
        with (
            no_file_longer_than(4096 + int(share * size)),
            pytest.raises(
                ModelFolderError, match=r"When \d+,\d{3} bytes are free on the disk of"
            ) as raised,
        ):
            model.forget(subject="ann")
        is_deleted = "The entries are deleted" in str(raised.value)
        assert is_deleted or "Nothing was erased" in str(raised.value)
        assert is_deleted == (share >= 0.8)
        assert len(model.classifier.memory_) == (760 if is_deleted else 800)
        model.relabel([1], 1)
        assert model.head == 1 + is_deleted
    with open_for_editing(path) as model:
        receipt = model.forget(subject="ann")
        assert (len(receipt.ids), receipt.is_complete) == (40, True)
        assert len(model.classifier.memory_) == 760
        assert traces(path, needles) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_receipt_that_could_not_be_written_is_given_again(tmp_path: Path) -> None:
    ids = [f"mail-{i}@example.org" for i in range(12)]
    path = owned(tmp_path / "model", ["ann", "bob"], ids=ids)
    with open_for_editing(path, by="eve") as model:
        for _ in range(2):
            with pytest.raises(ReceiptError, match=r"are erased, but .* /dev/full \(No space left"):
                model.forget(subject="ann", receipt="/dev/full")
        assert len(model.classifier.memory_) == 6
        assert traces(path, [b"mail-2@"]) == []
    with open_for_editing(path, by="bob") as model:
        receipt = model.forget(subject="ann", receipt=tmp_path / "receipt.json")
        assert json.loads((tmp_path / "receipt.json").read_text()) == receipt.to_dict()
        assert (len(receipt.ids), receipt.by, receipt.n_compared) == (6, "eve", 6)
        assert receipt.n_searched > 6  # the first search, for contents too
        assert receipt.is_complete
        assert model.database.execute("select * from cache").fetchall() == []
        with pytest.raises(UnknownEntryError):
            model.forget(subject="ann", receipt=tmp_path / "again.json")
    assert sorted(os.listdir(tmp_path)) == ["model", "receipt.json"]


def test_a_trace_that_was_found_is_in_the_receipt_that_is_given_again(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_for_editing(path) as model:
        with monkeypatch.context() as patch:
            patch.setattr(erasing, "finish_erasure", lambda *_: None)
            patch.setattr(_output_files, "publish", _fail)
            with pytest.raises(ReceiptError):
                model.forget(subject=WHO, receipt=tmp_path / "receipt.json")
        receipt = model.forget(subject=WHO, receipt=tmp_path / "receipt.json")
        assert receipt.found_in
        assert not receipt.is_verified


def test_nothing_is_erased_if_there_is_no_place_for_the_receipt(path: Path, tmp_path: Path) -> None:
    with open_for_editing(path) as model:
        for place in (path / "receipt.json", tmp_path / "nowhere" / "receipt.json", tmp_path):
            with pytest.raises(InvalidSettingError):
                model.forget(subject=WHO, receipt=place)
        with pytest.raises(InvalidSettingError, match="`receipt` requires a `subject`"):
            model.forget([1], receipt=tmp_path / "receipt.json")
        assert len(model.classifier.memory_) == 40
        assert model.head == 0


def test_a_name_in_the_notes_of_a_model_is_found(tmp_path: Path) -> None:
    save_classifier(fitted(), tmp_path / "model", notes={"source": f"with the rows of {WHO}"})
    with open_for_editing(tmp_path / "model") as model:
        found = model.forget(subject=WHO).found_in
    assert "entries.sqlite (notes)" in found


@pytest.mark.skipif(sys.platform != "linux", reason="names of files that are not UTF-8")
def test_a_receipt_with_control_characters_in_a_file_name_is_printed(path: Path) -> None:
    with open_for_editing(path) as model:
        model.relabel([1], "cat")
        (path / os.fsdecode(b"\xff\x1b[2J.txt")).write_text(WHO)
        printed = str(model.forget(subject=WHO))
    assert "found in" in printed.encode("utf-8").decode()
    assert "\x1b" not in printed
