"""The commands `add`, `refit`, `undo`, `snapshot`, `rollback` and `log`; `forget --subject`."""

from __future__ import annotations

import json
from pathlib import Path
from threading import Timer

import numpy as np
import pytest

from attnknn import AttnKNNClassifier
from attnknn.storage.locking import WriterLock

from .samples import animals, fit_quickly, refused, run, write


def size(model: Path) -> int:
    return len(AttnKNNClassifier.load(model).memory_)


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    """A model whose rows belong to three keepers, one of them to nobody."""
    table = animals(30).assign(keeper=[["Ann Ash", "Bob Beech", ""][i % 3] for i in range(30)])
    train = write(table, tmp_path / "train.csv")
    fit_quickly(train, tmp_path / "model", "--subject-column", "keeper")
    return tmp_path / "model"


def test_the_log_tells_who_did_what(model: Path) -> None:
    assert "has no edits" in run("log", model).stdout
    run("forget", model, "id-0-000", "--by", "ann")
    run("undo", model, "--by", "bob")
    lines = run("log", model).stdout.splitlines()
    assert lines[0].split() == ["edit", "at", "by", "message"]
    assert lines[2].split()[0::2] == ["1", "ann", "1"]
    assert lines[3].endswith("bob  Undid edit 1: Forgot 1 entry")
    as_json = json.loads(run("log", model, "--format", "json").stdout)
    assert [line["action"] for line in as_json] == ["create", "edit", "undo"]
    (entry,) = json.loads(run("log", model, "--edit", "1", "--format", "json").stdout)
    assert (entry["id"], entry["label_after"]) == ("id-0-000", None)
    head, line = run("log", model, "--edit", "1").stdout.splitlines()
    assert head.split() == ["id", "label_before", "label_after", "payload"]
    assert line.split()[2] == "-"
    assert line.endswith(entry["payload"])
    assert entry["payload"].startswith("weight=")
    assert "There is no edit 9" in refused("log", model, "--edit", "9")
    assert "no model folder" in refused("log", model.parent / "nothing")


def test_a_command_says_that_it_waits_for_another_writer(model: Path) -> None:
    run("snapshot", model, "first")
    lock = WriterLock(model)
    Timer(0.3, lock.release).start()
    done = run("forget", model, "id-0-000")
    assert "Another process is editing" in done.stderr
    assert "Forgot 1 entry" in done.stdout
    assert run("undo", model).stderr == ""


def test_a_new_fit_says_that_the_log_ends(owned: Path, tmp_path: Path) -> None:
    run("forget", owned, "id-0-001")
    said = run("fit", tmp_path / "train.csv", "-t", "kind", "-o", owned, "--force").stderr
    assert "This fit deletes the log and the snapshots of" in said
    assert "has no edits" in run("log", owned).stdout
    assert "has not been edited" in refused("undo", owned)
    assert run("snapshot", owned).stdout == ""
    assert not (owned / "entries.sqlite").exists()
    assert "--by must be a name" in refused("forget", owned, "1", "--by", "")


def test_a_receipt_that_cannot_be_written_erases_nothing(owned: Path, tmp_path: Path) -> None:
    nowhere = tmp_path / "no folder" / "receipt.json"
    assert "Folder not found" in refused(
        "forget", owned, "--subject", "Ann Ash", "--receipt", nowhere
    )
    assert size(owned) == 30


def test_an_erasure_that_fails_leaves_no_empty_receipt(owned: Path, tmp_path: Path) -> None:
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    old.write_text("kept")
    for receipt in (new, old):
        refused("forget", owned, "--subject", "nobody", "--receipt", receipt)
    assert not new.exists()
    assert old.read_text() == "kept"


def test_snapshots_are_taken_listed_and_gone_back_to(model: Path) -> None:
    run("forget", model, "id-0-000")
    said = run("snapshot", model, "monday", "--by", "ann").stdout
    assert said == "Saved snapshot monday: the state after edit 1.\n"
    run("forget", model, "id-0-001", "id-0-002")
    assert run("snapshot", model).stdout.startswith("monday  edit 1  ")
    assert run("rollback", model, "monday").stdout == (
        "Rolled back to snapshot monday; model now holds 59 entries (edit 3).\n"
    )
    assert size(model) == 59
    assert run("undo", model).stdout.startswith("Undid edit 3, rolled back to snapshot monday; ")
    assert size(model) == 57
    run("rollback", model, "--edit", "0")
    assert size(model) == 60
    assert "no snapshot 'tuesday'. Known: 'monday'" in refused("rollback", model, "tuesday")
    assert run("rollback", model).exit_code == 2
    assert run("rollback", model, "monday", "--edit", "1").exit_code == 2


def test_a_subject_is_erased_with_a_receipt(owned: Path, tmp_path: Path) -> None:
    done = run("forget", owned, "--subject", "Ann Ash", "--receipt", tmp_path / "receipt.json")
    assert done.stdout.startswith("Erased 10 entries of subject Ann Ash (")
    assert "found in none" in done.stdout
    assert done.stdout.endswith("\nErased 10 entries; model now holds 20 entries (edit 1).\n")
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert receipt["n_searched"] > 0
    assert receipt["found_in"] == []
    assert not receipt["is_complete"]  # the encoder of tables has seen the rows
    assert "Until then the encoder may hold their values." in done.stdout
    assert len(receipt["ids"]) == 10
    assert size(owned) == 20
    assert not any(b"Ann Ash" in file.read_bytes() for file in owned.iterdir())
    assert "No entry belongs to the subject 'Ann Ash'" in refused(
        "forget", owned, "--subject", "Ann Ash"
    )
    assert run("forget", owned).exit_code == 2
    assert run("forget", owned, "x", "--subject", "y").exit_code == 2
    assert run("forget", owned, "x", "--receipt", tmp_path / "r.json").exit_code == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_receipt_on_a_full_disk_is_given_again(owned: Path, tmp_path: Path) -> None:
    told = refused("forget", owned, "--subject", "Ann Ash", "--receipt", "/dev/full")
    assert "The entries are erased, but the receipt could not be written to /dev/full" in told
    assert "To get it, forget the subject again with another path for --receipt." in told
    assert size(owned) == 20
    run("forget", owned, "--subject", "Ann Ash", "--receipt", tmp_path / "receipt.json")
    assert len(json.loads((tmp_path / "receipt.json").read_text())["ids"]) == 10


def test_other_spellings_of_a_subject_are_printed_as_commands(tmp_path: Path) -> None:
    keepers = ["Zoë", "Zoe\u0308", "zoë", "Bob"]
    path = write(animals(12).assign(keeper=keepers * 3), tmp_path / "train.csv")
    fit_quickly(path, tmp_path / "m", "--subject-column", "keeper")
    printed = run("forget", tmp_path / "m", "--subject", "Zoë").stdout.splitlines()
    assert printed[-3:-1] == [
        rf"  attnknn forget {tmp_path / 'm'} --subject $'Zoe\u0308'",
        rf"  attnknn forget {tmp_path / 'm'} --subject $'zo\u00eb'",
    ]


def test_rows_that_are_added_have_their_subject_too(owned: Path, tmp_path: Path) -> None:
    more = animals(4, seed=3).assign(keeper=["Ann Ash", "Cid", "Cid", ""])
    run("add", owned, write(more, tmp_path / "more.csv"))
    entries = AttnKNNClassifier.load(owned).memory_.entries
    assert entries.subjects[-4:].tolist() == ["Ann Ash", "Cid", "Cid", ""]
    assert entries.groups[-4] == entries.groups[0]
    assert not any("keeper" in payload for payload in entries.payloads)
    bare = write(animals(4, seed=5), tmp_path / "bare.csv")
    assert "keeper" in refused("add", owned, bare)
    assert np.isin(["weight"], AttnKNNClassifier.load(owned).feature_names_in_).all()


def test_a_model_is_refitted_on_its_entries_and_that_can_be_undone(
    train: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    settings = ("--attention", "distance", "-k", "8", "--label-noise", "symmetric")
    run("fit", train, "-t", "kind", "-o", model, "--id-column", "name", *settings)
    run("forget", model, *[f"id-0-{i:03d}" for i in range(0, 30)])
    before = AttnKNNClassifier.load(model)

    done = run("refit", model, "--by", "ann")

    expected = AttnKNNClassifier.load(model)
    assert done.exit_code == 0, done.output
    assert "Refitted; model now holds 30 entries (edit 2)." in done.stdout
    assert "ann   Refitted" in run("log", model).stdout
    assert before.refit().attention_.temperature_ == expected.attention_.temperature_
    assert run("undo", model).exit_code == 0
    again = AttnKNNClassifier.load(model)
    assert again.attention_.temperature_ != expected.attention_.temperature_


def test_a_folder_that_was_never_edited_can_be_refitted(model: Path) -> None:
    done = run("refit", model)
    assert done.exit_code == 0, done.output
    assert size(model) == 60
    assert "no model folder" in refused("refit", model.parent / "nothing")
