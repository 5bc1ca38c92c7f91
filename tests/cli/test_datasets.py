"""`attnknn datasets` says where data come from, whether they are here, and what to put where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnknn._cache import cache_folder
from attnknn.research import datasets

from .samples import run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a file of letters, and nothing to be found elsewhere."""
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME", "USERPROFILE"):
        monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.setenv("ATTNKNN_DATA", str(tmp_path / "data"))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "letter.tsv.gz").touch()
    return tmp_path / "data"


def line_of(name: str, lines: list[str]) -> str:
    return next(line for line in lines if line.split(" ")[0] == name)


def test_every_set_is_listed_with_its_origin_and_whether_it_is_here(folder: Path) -> None:
    lines = run("datasets").stdout.splitlines()
    for source in datasets.SOURCES.values():
        assert line_of(source.name, lines).endswith(source.origin)
    assert " yes " in line_of("iris", lines)
    assert " yes " in line_of("letter", lines)
    assert " no " in line_of("adult", lines)


def test_what_is_missing_is_named_with_the_folder_it_belongs_in(folder: Path) -> None:
    missing = run("datasets").stdout.split("To use the others")[1]
    assert f"into {cache_folder()}:" in missing
    lines = missing.splitlines()
    files = "tabular/adult-train.csv.gz and tabular/adult-test.csv.gz"
    assert line_of("adult", lines).split(maxsplit=1)[1] == files
    assert line_of("mnist", lines).endswith(" mnist.npz (or MNIST/raw)")
    people = line_of("cifar10n-worst", lines).split(maxsplit=1)[1]
    assert people.startswith("cifar10.npz (or cifar-10-batches-py, ")
    assert people.endswith(") and cifar10n.npz")
    assert not [line for line in lines if line.startswith(("letter", "iris"))]
    assert str(folder) in lines[-3]
    assert "FOLDER/train/CLASS/file.png" in lines[-1]


def test_nothing_is_said_to_be_missing_when_all_is_here(folder: Path) -> None:
    for source in datasets.SOURCES.values():
        for file in source.files:
            (folder / Path(file.path).name).touch()
    shown = run("datasets").stdout
    assert "not here" not in shown
    assert " no " not in shown


def test_a_program_gets_the_same_as_json(folder: Path) -> None:
    rows = {row["name"]: row for row in json.loads(run("datasets", "--format", "json").stdout)}
    assert list(rows) == datasets.names()
    assert rows["letter"]["found"] == str(folder / "letter.tsv.gz")
    assert rows["letter"]["missing"] == []
    assert rows["letter"]["put_into"] is None
    assert rows["mnist"]["found"] is None
    assert rows["mnist"]["missing"] == [["mnist.npz", "MNIST/raw"]]
    assert rows["mnist"]["put_into"] == str(cache_folder())
    assert rows["mnist"]["source"].startswith("http://yann.lecun.com")
