"""Files for users: whole or not at all, over others only on request, never into a model."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from attnknn import AttnKNNClassifier, _output_files
from attnknn._output_files import check_output, replace_file, write_file
from attnknn.errors import InvalidSettingError

MANIFEST = '{\n "files": {},\n "format": "attnknn-model",\n "version": 4\n}\n'


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "manifest.json").write_text(MANIFEST)
    return folder


def test_the_mark_of_a_model_folder_is_the_one_that_models_have(tmp_path: Path) -> None:
    AttnKNNClassifier(n_neighbors=1, attention="uniform", calibration=None).fit(
        [[0.0], [1.0], [2.0], [3.0]], [0, 1, 0, 1]
    ).save(tmp_path / "model")
    with pytest.raises(InvalidSettingError, match="inside the model folder"):
        check_output(tmp_path / "model" / "new.csv", force=True)


def test_nothing_is_written_into_a_model_folder_by_any_path(model: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "folder-link").symlink_to(model)
    (tmp_path / "file-link.csv").symlink_to(model / "manifest.json")
    (tmp_path / "new-link.csv").symlink_to(model / "new.csv")
    (model / "inner").mkdir()
    for path in (
        model / "manifest.json",
        model / "new.csv",
        model / "inner" / "new.csv",
        tmp_path / "folder-link" / "new.csv",
        tmp_path / "file-link.csv",
        tmp_path / "new-link.csv",
        tmp_path / "other" / ".." / "model" / "new.csv",
        Path("/dev/..") / str(model / "manifest.json")[1:],
    ):
        with pytest.raises(InvalidSettingError, match="inside the model folder"):
            write_file(path, "x", force=True)
    assert (model / "manifest.json").read_text() == MANIFEST
    assert sorted(path.name for path in model.iterdir()) == ["inner", "manifest.json"]


def test_an_existing_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    write_file(path, "old")
    path.chmod(0o640)
    with pytest.raises(InvalidSettingError, match=r"report\.txt exists\. Give `force=True`"):
        write_file(path, "new")
    assert path.read_text() == "old"
    write_file(path, "new", force=True)
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_file(tmp_path / "link", "new", force=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_a_failed_block_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    write_file(path, "old")

    def fail() -> None:
        with replace_file(path, force=True) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_appears_in_the_meantime_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"

    def write_both() -> None:
        with replace_file(path):
            path.write_text("theirs")

    with pytest.raises(InvalidSettingError, match="exists"):
        write_both()
    assert path.read_text() == "theirs"


def test_the_content_and_the_name_are_synced_in_this_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, events = tmp_path / "report.txt", []
    replace, fsync = os.replace, os.fsync

    def record_sync(handle: int) -> None:
        events.append("folder" if Path(f"/proc/self/fd/{handle}").resolve().is_dir() else "file")
        fsync(handle)

    monkeypatch.setattr(_output_files.os, "fsync", record_sync)
    monkeypatch.setattr(
        _output_files.os, "replace", lambda *paths: (events.append("rename"), replace(*paths))
    )
    write_file(path, "x")
    assert events == ["file", "rename", "folder"]


def _limit_file_size() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))


def test_a_full_disk_leaves_the_old_file_and_the_error_names_it(tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    write_file(path, "old")
    code = "import sys; from attnknn._output_files import write_file\n"
    code += "write_file(sys.argv[1], 'x' * 5000, force=True)"
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        preexec_fn=_limit_file_size,
    )
    assert done.stderr.splitlines()[-1] == f"OSError: [Errno 27] File too large: '{path}'"
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_streams_and_pipes_are_written_directly(tmp_path: Path) -> None:
    code = "from attnknn._output_files import write_file; write_file('/dev/stdout', 'hello')"
    with (tmp_path / "redirected").open("w") as file:
        subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
    assert (tmp_path / "redirected").read_text() == "hello"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == b"hello"
    write_file("/dev/null", "x")
    assert not Path("/dev/null").is_file()


def test_folders_and_missing_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettingError, match="is a folder"):
        write_file(tmp_path, "x")
    with pytest.raises(InvalidSettingError, match=r"Folder not found: .*missing"):
        write_file(tmp_path / "missing" / "x.csv", "x")
