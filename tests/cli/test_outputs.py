"""What the commands write: never into a model, and over existing files only with --force."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from attnknn.cli import COMMANDS, main
from attnknn.cli.vit import vit

from .samples import animals, refused, run, write

# Commands that replace nothing: an experiment continues its folder, a backup needs a new one.
WITHOUT_FORCE = {"experiment", "backup"}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture
def owned(tmp_path: Path) -> Path:
    table = animals(12).assign(owner=["Ann", "Bob", "Cid"] * 4)
    train = write(table, tmp_path / "owned.csv")
    options = ("--subject-column", "owner", "--attention", "uniform", "--calibration", "none")
    assert run("fit", train, "-t", "kind", "-o", tmp_path / "owned", *options).exit_code == 0
    return tmp_path / "owned"


def writing(model: Path, owned: Path, labeled: Path, out: Any) -> Iterator[list[Any]]:
    """A call of every command that writes a file, to `out`."""
    yield ["predict", model, labeled, "--format", "csv", "-o", out]
    yield ["audit", model, "--format", "csv", "-o", out]
    yield ["monitor", model, labeled, "--target", "kind", "-o", out]
    yield ["forget", owned, "--subject", "Ann", "--receipt", out]
    options = ["-t", "kind", "-o", labeled.parent / "new", "--encoder", "learned-tabular"]
    yield ["fit", labeled, *options, "--curves", out]


def test_no_command_writes_into_a_model_folder(
    model: Path, owned: Path, labeled: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(model)
    before = contents(model), contents(owned)
    for name in ("manifest.json", "new.csv"):
        for place in (model, tmp_path / "link", owned / ".." / "model"):
            for call in writing(model, owned, labeled, place / name):
                out = place / ("new.csv" if call[0] == "monitor" else name)
                out = out.with_suffix(".png") if call[0] == "fit" else out
                line = refused(*call[:-1], out, "--force")
                assert "is inside the model folder" in line, call
    state = refused("monitor", model, labeled, "--state", model / "manifest.json")
    assert "is inside the model folder" in state
    assert (contents(model), contents(owned)) == before


@pytest.mark.parametrize("command", ["evaluate", "report", "demo", "experiment", "vit", "fit"])
def test_no_folder_is_written_into_a_model_folder(
    command: str, model: Path, labeled: Path, tmp_path: Path
) -> None:
    before, out = contents(model), model / "page"
    calls: dict[str, list[Any]] = {
        "evaluate": ["evaluate", model, labeled, "--report", out, "--force"],
        "report": ["report", tmp_path, "-o", out, "--force"],
        "demo": ["demo", "-o", out, "--force"],
        "experiment": ["experiment", "main", "--dataset", "iris", "-o", out],
        "vit": ["vit", "train", "--output-dir", out, "--force"],
        "fit": ["fit", labeled, "-t", "kind", "-o", out, "--force"],
    }
    result = run(*calls[command])
    assert result.exit_code in (1, 2)
    assert "is inside the model folder" in " ".join(result.stderr.split())
    assert contents(model) == before
    assert not out.exists()


def test_an_existing_file_is_replaced_only_with_force(
    model: Path, owned: Path, labeled: Path, tmp_path: Path
) -> None:
    out = tmp_path / "mine.csv"
    for call in writing(model, owned, labeled, out):
        path = out.with_suffix(".png") if call[0] == "fit" else out
        path.write_text("mine")
        line = refused(*call[:-1], path)
        assert f"{path} exists. Give --force to replace it" in line, call
        assert path.read_text() == "mine"
        if call[0] == "fit":
            continue  # a training takes long
        run(*call[:-1], path, "--force")
        assert path.read_text() != "mine"


def test_a_page_is_replaced_only_with_force(
    model: Path, labeled: Path, tmp_path: Path, without_pdf: None
) -> None:
    folder = tmp_path / "page"
    (folder / "figures").mkdir(parents=True)
    (folder / "index.html").write_text("mine")
    (folder / "figures" / "mine.png").write_text("mine")
    line = refused("evaluate", model, labeled, "--report", folder)
    assert "index.html exists. Give --force to replace it" in line
    assert (folder / "index.html").read_text() == "mine"
    assert run("evaluate", model, labeled, "--report", folder, "--force").exit_code == 0
    assert "<h1>" in (folder / "index.html").read_text()
    assert (folder / "figures" / "mine.png").read_text() == "mine"  # not of an earlier page


def test_a_training_leaves_files_of_others_alone(tmp_path: Path) -> None:
    (tmp_path / "report.json").write_text("mine")
    result = run("vit", "train", "--output-dir", tmp_path)
    assert result.exit_code == 2
    assert "has a file report.json, which a training would replace" in result.stderr
    assert (tmp_path / "report.json").read_text() == "mine"


def test_a_table_can_be_written_to_standard_output_by_name(model: Path, rows: Path) -> None:
    assert run("predict", model, rows, "--format", "csv", "-o", "/dev/null").exit_code == 0
    assert not Path("/dev/null").is_file()


def commands() -> Iterator[click.Command]:
    context = click.Context(main)
    for name in COMMANDS:
        found = main.get_command(context, name)
        assert found is not None
        yield found
    yield from vit.commands.values()


def test_every_command_with_an_output_option_has_force() -> None:
    writers = {"out", "receipt", "report", "curves", "output_dir"}
    for command in commands():
        names = {parameter.name for parameter in command.params}
        assert "force" in names or not names & writers or command.name in WITHOUT_FORCE, (
            command.name
        )
