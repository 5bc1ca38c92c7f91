"""Edits of a stored model give the same result as the same edits in memory."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from attnknn import AttnKNNClassifier, FaissMemory, LearnedAttention, open_for_editing
from attnknn.errors import (
    InvalidInputError,
    InvalidSettingError,
    ModelBusyError,
    ModelFolderError,
    UnknownEntryError,
)
from attnknn.insight import weigh_by_age
from attnknn.storage import load_notes, save_classifier
from attnknn.storage.editor import EditableModel, list_changes, list_edits
from attnknn.storage.store.state import digest_of
from attnknn.training import TrainConfig

from .samples import assert_same, fitted, labels, people, predict, rows, with_store

MORE = {"payloads": ["new"] * 5, "subjects": ["person-1", "x", "x", "", "y"]}


def edit_in_every_way(thing: AttnKNNClassifier) -> None:
    thing.add(rows(5, seed=2), ["bee", "dog", "dog", "cat", "aardvark"], **MORE)
    thing.relabel([3, 40], ["cat", "ant"])
    thing.forget([0, 7, 41])
    thing.add(rows(2, seed=3), ["bee", "bee"])


def test_a_store_returns_what_was_saved(path: Path) -> None:
    with open_for_editing(path) as model:
        assert_same(model.classifier, fitted())
    assert_same(AttnKNNClassifier.load(path), fitted())


def test_edits_of_a_store_are_those_of_a_classifier(path: Path) -> None:
    expected = fitted()
    edit_in_every_way(expected)
    with open_for_editing(path) as model:
        edit_in_every_way(model)  # type: ignore[arg-type]
        assert_same(model.classifier, expected)
        assert_same(AttnKNNClassifier.load(path), expected)  # while it is open
    assert_same(AttnKNNClassifier.load(path), expected)
    with open_for_editing(path) as model:
        model.add(rows(1, seed=4), ["ant"])
        assert model.classifier.memory_.entries.ids[-1] == 47  # ids are never reused


@pytest.mark.parametrize("ids", [None, [f"row {i}" for i in range(40)]])
def test_learned_parts_are_kept_and_follow_new_classes(tmp_path: Path, ids) -> None:
    attention = LearnedAttention(n_heads=2, training=TrainConfig(epochs=1))
    clf = AttnKNNClassifier(8, attention=attention, value_head=True, random_state=0)
    clf.fit(rows(), labels(), ids=ids)
    clf.save(tmp_path / "model")
    new = None if ids is None else ["n1", "n2"]
    with open_for_editing(tmp_path / "model") as model:
        for each in (clf, model):
            each.add(rows(2, seed=2), ["dog", "bee"], ids=new)
        assert_same(model.classifier, clf)
        model.cache_trust()
    again = AttnKNNClassifier.load(tmp_path / "model")
    assert again.model_.stored_trust is not None
    assert_same(again, clf)
    with open_for_editing(tmp_path / "model") as model:
        model.refit()
        assert_same(AttnKNNClassifier.load(tmp_path / "model"), model.classifier)
        assert model.undo().message == "Refitted"
        assert_same(model.classifier, clf)


def test_trust_that_is_not_stored_is_computed_again(tmp_path: Path) -> None:
    attention = LearnedAttention(trust=True, training=TrainConfig(epochs=1))
    AttnKNNClassifier(8, attention=attention, random_state=0).fit(rows(), labels()).save(
        tmp_path / "model"
    )
    with open_for_editing(tmp_path / "model") as model:
        model.forget([0])
        expected = predict(model.classifier)
    again = AttnKNNClassifier.load(tmp_path / "model")
    assert again.model_.stored_trust is None
    np.testing.assert_allclose(predict(again), expected, rtol=0, atol=1e-12)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize(
    "call",
    [
        lambda model: None,
        lambda model: model.forget([999]),
        lambda model: model.add(rows(2), ["ant"]),
        lambda model: model.relabel([0], ["ant", "bee"]),
        lambda model: model.relabel([0], "ant"),  # its current label
        lambda model: model.undo(),
        lambda model: model.rollback(0),
        lambda model: model.rollback("monday"),
        lambda model: model.changes(0),
        lambda model: model.snapshot(" "),
        lambda model: model.forget(subject="nobody"),
        lambda model: model.cache_trust(),
        lambda model: (model.log(), model.snapshots()),
    ],
)
def test_a_folder_changes_only_with_the_first_edit_that_is_made(path: Path, call) -> None:
    before = contents(path)
    with open_for_editing(path, by="ann") as model:
        with suppress(InvalidInputError, InvalidSettingError, ModelFolderError, UnknownEntryError):
            call(model)
        assert not model.has_store
    assert contents(path) == before
    assert os.listdir(path.parent) == ["model"]
    with open_for_editing(path, by="bob") as model:
        assert [line.message for line in model.log()] == ["Opened for editing with 40 entries"]
        model.snapshot("monday")
        assert model.has_store
        with pytest.raises(ModelBusyError):
            open_for_editing(path)
        assert_same(AttnKNNClassifier.load(path), fitted())
        model.forget([1])
    assert set(os.listdir(path)) == {"entries.sqlite", "head.jsonl", "manifest.json", "writer.lock"}
    assert [line.by for line in list_edits(path)] == ["bob", "bob"]


def test_a_first_edit_that_finds_no_room_leaves_the_folder_as_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    before = contents(path)
    with open_for_editing(path) as model:
        with monkeypatch.context() as patch:
            patch.setattr("attnknn.storage.editor.write_store", fail)
            with pytest.raises(OSError, match="No space"):
                model.forget([1])
        assert_same(model.classifier, fitted())
        with pytest.raises(ModelBusyError):
            open_for_editing(path)
    assert contents(path) == before


def test_several_edits_are_one(path: Path) -> None:
    with open_for_editing(path, by="ann") as model:
        with model.edit("Monday's corrections") as classifier:
            classifier.relabel([1], "cat")
            model.forget([2])
        assert [line.message for line in model.log()[1:]] == ["Monday's corrections"]
        model.undo()
        assert_same(model.classifier, fitted())


def _relabel_and_fail(model: EditableModel) -> None:
    with model.edit():
        model.classifier.relabel([1], "cat")
        model.classifier.add(rows(2), ["a"])


def test_an_edit_that_fails_changes_nothing(path: Path) -> None:
    with open_for_editing(path) as model:
        with pytest.raises(InvalidInputError):
            _relabel_and_fail(model)
        assert_same(model.classifier, fitted())
        assert len(model.log()) == 1
        model.relabel([1], "bee")  # its current label
        assert len(model.log()) == 1


def test_a_commit_that_fails_leaves_the_classifier_as_it_was(path: Path) -> None:
    with open_for_editing(path) as model:
        model.database.execute("drop table snapshots")  # any damage: reading it fails below
        model.database.execute("alter table versions rename to gone")
        with pytest.raises(ModelFolderError, match="fails"):
            model.forget([1])
        assert_same(model.classifier, fitted())


def test_an_id_may_come_back_with_another_row(tmp_path: Path) -> None:
    clf = AttnKNNClassifier(attention="distance", calibration=None)
    clf.fit(rows(4), list("aabb"), ids=list("wxyz")).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        with model.edit():
            for each in (clf, model.classifier):
                each.forget(["x"])
                each.add(rows(1, seed=5), ["b"], ids=["x"])
        assert_same(model.classifier, clf)
        assert_same(AttnKNNClassifier.load(tmp_path / "model"), clf)


def test_all_entries_may_go_and_others_come(path: Path) -> None:
    with open_for_editing(path) as model:
        model.forget(list(range(40)))
        assert len(AttnKNNClassifier.load(path).memory_) == 0
    with open_for_editing(path) as model:
        model.add(rows(3, seed=2), labels(3))
        assert len(AttnKNNClassifier.load(path).memory_) == 3


def test_the_log_records_who_changed_what(path: Path) -> None:
    assert list_edits(path) == []
    with pytest.raises(InvalidSettingError, match="never been edited"):
        list_changes(path, 0)
    with open_for_editing(path, by="ann") as model:
        model.relabel([3, 4], ["cat", "cat"])
        model.forget([5])
    with open_for_editing(path, by="bob") as model:
        model.add(rows(2, seed=2), ["dog", "dog"])
    lines = list_edits(path)
    assert [(line.edit, line.by) for line in lines] == [
        *((0, "ann"), (1, "ann"), (2, "ann"), (3, "bob"))
    ]
    assert [line.message for line in lines[1:]] == [
        *("Relabeled 2 entries", "Forgot 1 entry", "Added 2 entries")
    ]
    assert all(line.at.endswith("+00:00") for line in lines)
    assert [(t.id, t.label_before, t.label_after) for t in list_changes(path, 1)] == [
        *((3, "ant", "cat"), (4, "bee", "cat"))
    ]
    assert [(t.id, t.label_before, t.label_after) for t in list_changes(path, 2)] == [
        (5, "cat", None)
    ]
    assert [(t.id, t.label_before, t.label_after) for t in list_changes(path, 3)] == [
        *((40, None, "dog"), (41, None, "dog"))
    ]
    with pytest.raises(InvalidSettingError, match="There is no edit 4; the last one is 3"):
        list_changes(path, 4)


def test_there_is_one_writer_and_readers_see_complete_states(path: Path) -> None:
    with open_for_editing(path) as model:
        with pytest.raises(ModelBusyError, match="being edited by another process"):
            open_for_editing(path, wait=0.05)
        with pytest.raises(ModelFolderError, match="being edited by another process"):
            fitted().save(path)
        with model.edit():
            model.classifier.forget([1])
            assert len(AttnKNNClassifier.load(path).memory_) == 40
        assert len(AttnKNNClassifier.load(path).memory_) == 39
    save_classifier(fitted(), path)  # a new model takes the place of the store
    assert not (path / "entries.sqlite").exists()
    assert list_edits(path) == []


def test_without_locks_a_second_writer_is_detected(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, "not supported")

    monkeypatch.setattr("fcntl.flock", flock)
    with open_for_editing(path) as first, open_for_editing(path) as second:
        first.forget([1])
        with pytest.raises(ModelFolderError, match="replaced while it was edited"):
            second.forget([2])
    with open_for_editing(path) as first, open_for_editing(path) as second:
        first.forget([3])
        with pytest.raises(ModelFolderError, match="edited by another process since"):
            second.forget([2])
        assert len(second.classifier.memory_) == 39
    with open_for_editing(path) as first:
        save_classifier(fitted(), path)
        with pytest.raises(ModelFolderError, match="replaced while it was edited"):
            first.forget([2])


def test_notes_stay_through_edits(tmp_path: Path) -> None:
    save_classifier(fitted(), tmp_path / "model", notes={"target": "kind"})
    with open_for_editing(tmp_path / "model") as model:
        model.forget([1])
    assert load_notes(tmp_path / "model") == {"target": "kind"}


READ_AS_NOBODY = """
import os, sys
from pathlib import Path
from attnknn import AttnKNNClassifier
path = Path(sys.argv[1])
AttnKNNClassifier.load(path)  # imports what nobody may
for name in ("entries.sqlite-wal", "entries.sqlite-shm"):
    (path / name).unlink(missing_ok=True)
os.setuid(65534)
assert not os.access(path, os.W_OK)
print(len(AttnKNNClassifier.load(path).memory_))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_folder_that_may_not_be_written_can_be_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        fitted().save(path)
        with open_for_editing(path) as model:
            model.forget([1])
        for reached in (Path(folder), path):
            os.chmod(reached, 0o755)
        command = [sys.executable, "-c", READ_AS_NOBODY, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "39\n", done.stderr


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        ("update rows set embedding = x'00' where seq = 3", "checksum differs"),
        ("update rows set payload = 'other' where seq = 3", "checksum differs"),
        ("update rows set subject = 'other' where seq = 3", "checksum differs"),
        ("update versions set label = '\"bee\"' where seq = 3", "checksum differs"),
        (
            "update versions set (label, digest) = ('\"wasp\"', "
            "digest_of(seq, '\"wasp\"', sample_weight, decay, held_out)) where seq = 3",
            "not a class",
        ),
        (
            "update versions set (sample_weight, digest) = (-1, "
            "digest_of(seq, label, -1.0, decay, held_out)) where seq = 3",
            "positive",
        ),
        ("update versions set until = 0 where seq = 3", "39 entries, and 40 were written"),
        ("update parts set content = x'00' where name = 'settings.json'", "checksum differs"),
        ("delete from parts where name = 'center.npy'", "does not hold center.npy"),
        ("delete from log", "cannot be used"),
        ("create view spy as select * from rows", "must hold the tables of a store"),
        (
            "create trigger t after insert on rows begin delete from rows; end",
            "must hold the tables of a store",
        ),
    ],
)
def test_a_damaged_or_hostile_store_is_refused(path: Path, harm: str, message: str) -> None:
    with_store(path)
    database = sqlite3.connect(path / "entries.sqlite")
    database.create_function("digest_of", -1, digest_of)
    database.execute(harm)
    database.commit()
    database.close()
    with pytest.raises(ModelFolderError, match=message):
        AttnKNNClassifier.load(path)
    with pytest.raises(ModelFolderError, match=message):
        open_for_editing(path)


def test_a_store_that_is_no_database_is_refused(path: Path) -> None:
    with_store(path)
    for name in ("entries.sqlite-wal", "entries.sqlite-shm"):
        (path / name).unlink(missing_ok=True)
    (path / "entries.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(ModelFolderError, match=r"entries\.sqlite"):
        AttnKNNClassifier.load(path)
    (path / "entries.sqlite").unlink()
    with pytest.raises(ModelFolderError, match=r"it has no file entries\.sqlite"):
        AttnKNNClassifier.load(path)


def test_names_for_the_log_must_not_be_blank(path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="`by` must be a name"):
        open_for_editing(path, by=" ")
    for missing in ("nothing", "no parent/nothing"):
        with pytest.raises(ModelFolderError, match="no model folder"):
            open_for_editing(path.parent / missing)
    (path.parent / "thesis").mkdir()
    with pytest.raises(ModelFolderError, match="not a model folder"):
        open_for_editing(path.parent / "thesis")
    assert list((path.parent / "thesis").iterdir()) == []


def test_rows_of_one_subject_are_a_group_also_those_that_come_later() -> None:
    clf = fitted()
    clf.add(rows(3, seed=2), labels(3), subjects=["person-1", "new", ""])
    entries = clf.memory_.entries
    assert entries.groups[-3] == entries.groups[1]
    assert entries.groups[-2] not in entries.groups[:-2]
    assert entries.groups[-1] == -1
    clf.forget(subject="person-1")
    assert "person-1" not in clf.memory_.entries.subjects
    assert len(clf.memory_) == 43 - people().count("person-1") - 1
    with pytest.raises(KeyError, match=r"No entry .* the subject 'person-1'"):
        clf.forget(subject="person-1")
    with pytest.raises(InvalidSettingError, match="either `ids` or `subject`"):
        clf.forget([1], subject="x")


def test_decay_is_stored_too(path: Path) -> None:
    expected = fitted()
    weigh_by_age(expected, 10.0)
    with open_for_editing(path) as model:
        with model.edit() as classifier:
            weigh_by_age(classifier, 10.0)
        model.add(rows(1, seed=2), ["ant"])
        assert_same(AttnKNNClassifier.load(path), expected.add(rows(1, seed=2), ["ant"]))
        assert model.log()[1].message == "Changed the weight of 39 entries"
        model.rollback(0)
        assert_same(model.classifier, fitted())


@pytest.mark.parametrize("call", ["undo", "rollback", "snapshot", "erase"])
def test_history_cannot_change_within_a_block_of_edits(path: Path, call: str) -> None:
    with open_for_editing(path) as model:
        model.forget([1])
        calls = {
            "undo": model.undo,
            "rollback": lambda: model.rollback(0),
            "snapshot": lambda: model.snapshot("x"),
            "erase": lambda: model.forget(subject="person-1"),
        }
        with model.edit():
            model.relabel([2], "ant")
            with pytest.raises(InvalidSettingError, match="End the block"):
                calls[call]()
        assert model.log()[-1].message == "Relabeled 1 entry"


def test_a_closed_model_cannot_be_edited(path: Path) -> None:
    model = open_for_editing(path)
    model.close()
    model.close()
    with pytest.raises(InvalidSettingError, match="was closed"):
        model.forget([1])


def test_ids_of_removed_rows_are_not_reused(path: Path) -> None:
    with open_for_editing(path) as model:
        model.add(rows(2, seed=2), ["ant", "bee"], subjects=["late", "late"])
        model.forget(subject="late")
        model.add(rows(1, seed=3), ["ant"])
        assert model.classifier.memory_.entries.ids[-1] == 42
        model.undo()
        model.add(rows(1, seed=3), ["ant"])
        assert model.classifier.memory_.entries.ids[-1] == 43


def test_a_row_that_comes_back_with_another_owner_is_another_row(path: Path) -> None:
    with open_for_editing(path) as model:
        entries = model.classifier.memory_.entries
        with model.edit() as classifier:
            for place in (0, 39):
                classifier.forget([place])
                classifier.add(
                    rows()[place : place + 1],
                    labels()[place : place + 1],
                    ids=[place],
                    payloads=["corrected"],
                    subjects=["heir"],
                    groups=entries.groups[[place]],
                )
        assert model.log()[-1].message == "Added 2 entries and forgot 2 entries"
        assert_same(AttnKNNClassifier.load(path), model.classifier)


def test_a_state_that_cannot_be_read_is_not_restored(path: Path) -> None:
    with open_for_editing(path) as model:
        model.add(rows(1, seed=2), ["dog"])
        damage = "update parts set content = x'00' where name = 'settings.json' and since = 0"
        model.database.execute(damage)
        for go_back in (model.undo, lambda: model.rollback(0)):
            with pytest.raises(ModelFolderError, match="checksum"):
                go_back()
        assert len(AttnKNNClassifier.load(path).memory_) == 41


def test_leftovers_of_killed_saves_are_removed_on_opening(path: Path) -> None:
    shutil.copytree(path, path.with_name(".model.attnknn-previous"))
    with open_for_editing(path):
        assert os.listdir(path.parent) == ["model"]


def test_a_manifest_that_is_a_pipe_is_refused(path: Path) -> None:
    (path / "manifest.json").unlink()
    os.mkfifo(path / "manifest.json")
    with pytest.raises(ModelFolderError, match="no readable manifest"):
        AttnKNNClassifier.load(path)


def test_classes_may_have_room_for_longer_names(tmp_path: Path) -> None:
    y = np.array(["a", "b"] * 5 + ["a long name"])[:10]
    AttnKNNClassifier(attention="distance").fit(rows(10), y).save(tmp_path / "model")
    assert AttnKNNClassifier.load(tmp_path / "model").classes_.tolist() == ["a", "b"]


def test_an_index_of_lists_opens_with_fewer_entries_than_lists(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    memory = FaissMemory("ivf", n_lists=12)
    AttnKNNClassifier(memory=memory, attention="distance").fit(rows(), labels()).save(
        tmp_path / "model"
    )
    with open_for_editing(tmp_path / "model") as model:
        model.forget(list(range(32)))
    assert len(AttnKNNClassifier.load(tmp_path / "model").memory_) == 8


def test_rows_without_a_subject_have_no_group() -> None:
    clf = AttnKNNClassifier(attention="distance", calibration=None)
    clf.fit(rows(4), list("aabb"), subjects=[None, float("nan"), "ann", "ann"])
    assert clf.memory_.entries.subjects.tolist() == ["", "", "ann", "ann"]
    assert clf.memory_.entries.groups.tolist() == [-1, -1, 0, 0]


def test_a_folder_that_may_not_be_written_is_named(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, exist_ok: bool = False, **__: object) -> None:
        if not exist_ok:  # the parent is there
            raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", refuse)
        with (
            open_for_editing(path) as model,
            pytest.raises(ModelFolderError, match=r"may not write to .*model model is"),
        ):
            model.forget([1])
    with_store(path)
    with monkeypatch.context() as patch:
        plain = os.open
        patch.setattr(os, "open", lambda *a: refuse() if "lock" in str(a[0]) else plain(*a))
        with pytest.raises(ModelFolderError, match="may not edit the model"):
            open_for_editing(path)


def test_labels_with_another_type_get_new_versions(tmp_path: Path) -> None:
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    clf.fit(rows(), np.arange(40) % 2).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        with model.edit() as edited:
            edited.relabel([3], 0)
            edited.model_ = replace(edited.model_, classes=edited.classes_.astype(float))
        assert model.log()[-1].message == "Relabeled 1 entry"
    assert AttnKNNClassifier.load(tmp_path / "model").classes_.tolist() == [0.0, 1.0]
    with open_for_editing(tmp_path / "model") as model:
        model.undo()
    assert AttnKNNClassifier.load(tmp_path / "model").classes_.dtype == np.int64


@pytest.mark.parametrize(
    ("metadata", "column", "expected"),
    [
        ({"payloads": ["now with a payload"]}, "payloads", "now with a payload"),
        ({"subjects": ["carol"], "groups": [-1]}, "subjects", "carol"),
    ],
)
def test_an_entry_that_is_replaced_keeps_what_only_the_new_one_has(
    tmp_path: Path, metadata, column: str, expected: str
) -> None:
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    clf.fit(rows(), labels()).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model, model.edit():
        model.forget([39])
        model.add(rows()[39:], labels()[39:], ids=[39], **metadata)
    entries = AttnKNNClassifier.load(tmp_path / "model").memory_.entries
    assert getattr(entries, column)[-1] == expected


def test_payloads_that_are_equal_but_not_the_same_are_distinguished(tmp_path: Path) -> None:
    clf = AttnKNNClassifier(attention="distance", calibration=None, n_neighbors=3)
    clf.fit(rows(), labels(), payloads=[1] * 40).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model, model.edit():
        model.forget([39])
        model.add(rows()[39:], labels()[39:], ids=[39], payloads=[True])
    assert AttnKNNClassifier.load(tmp_path / "model").memory_.entries.payloads[-1] is True


def test_a_save_discards_history_only_when_asked(path: Path) -> None:
    loaded = AttnKNNClassifier.load(path)
    with_store(path)
    save_classifier(loaded, path, discard_history=False)  # nothing was edited yet
    with open_for_editing(path) as model:
        model.relabel([1], "cat")
        model.snapshot("monday")
    with pytest.raises(ModelFolderError, match=r"edits \(1\) and snapshots \(1\)"):
        save_classifier(loaded, path, discard_history=False)
    assert len(list_edits(path)) == 2
    save_classifier(loaded, path, discard_history=True)
    assert list_edits(path) == []
    save_classifier(loaded, path, discard_history=False)
