"""`attnknn verify`, `backup` and `recover`."""

from __future__ import annotations

import shutil
from pathlib import Path

from attnknn import open_for_editing

from .samples import refused, run


def test_a_model_that_lost_edits_is_refused_until_it_is_recovered(
    model: Path, rows: Path, tmp_path: Path
) -> None:
    run("forget", model, "id-0-000")
    with open_for_editing(model) as opened:
        opened.forget(["id-0-001"])
        shutil.copytree(model, tmp_path / "killed")
    model = tmp_path / "killed"
    (model / "entries.sqlite-wal").unlink()
    for command in (["predict", model, rows], ["log", model], ["undo", model]):
        message = refused(*command)
        assert "edit 2 was acknowledged" in message
        assert "only up to edit 1" in message
        assert "attnknn recover" in message
    done = run("recover", model, "--by", "ann").stdout
    assert done == (
        "Recovered the state after edit 1; later edits up to 2 are lost; killed holds 59 entries "
        "(edit 2).\n"
    )
    assert "ann   Recovered" in run("log", model).stdout
    assert run("recover", model).stdout == (
        "Nothing to recover; killed holds 59 entries (edit 2).\n"
    )
    assert run("predict", model, rows).exit_code == 0


def test_a_copy_of_an_edited_model_is_intact_and_damage_is_exit_code_one(
    model: Path, tmp_path: Path
) -> None:
    run("forget", model, "id-0-000")
    done = run("backup", model, tmp_path / "copy")
    assert done.exit_code == 0
    assert "that the last acknowledged edit (1) is present" in done.stdout
    assert "a backup replaces nothing" in refused("backup", model, tmp_path / "copy")
    done = run("verify", tmp_path / "copy")
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (0, f"{tmp_path}/copy is intact.")
    (tmp_path / "copy" / "head.jsonl").unlink()
    done = run("verify", tmp_path / "copy")
    assert done.exit_code == 1
    assert "PROBLEM: " in done.stdout
    assert "has 1 problem." in done.stdout
