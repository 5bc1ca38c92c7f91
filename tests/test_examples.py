"""The examples run and print what they should."""

from __future__ import annotations

import ast
import doctest
import importlib
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
GALLERY = sorted((ROOT / "examples" / "gallery").glob("plot_*.py"))
TOUR = ROOT / "examples" / "tour.ipynb"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", GALLERY, ids=lambda path: path.stem)
def test_gallery_examples_import_what_exists(path: Path) -> None:
    """`make docs` runs them; this finds renamed names at once."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attnknn"):
            module = importlib.import_module(node.module)
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                assert hasattr(module, alias.name) or importlib.import_module(name)


def test_a_wrong_label_is_found_and_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "edit_a_memory.py"))
    said = capsys.readouterr().out
    assert "most suspect entry: #7, labeled barbera" in said
    assert "after relabel: barolo" in said


@pytest.mark.slow
def test_the_example_of_the_command_line_runs() -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", str(ROOT / "examples" / "from_the_command_line.sh")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert "p(0),p(1),p(2)" in done.stdout
    assert "accuracy" in done.stdout


def test_the_tour_is_stored_without_outputs() -> None:
    tour = nbformat.read(TOUR, as_version=4)
    nbformat.validate(tour)
    cells = [cell for cell in tour.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)


def test_the_tour_links_to_what_is_there() -> None:
    tour = nbformat.read(TOUR, as_version=4)
    words = " ".join(cell.source for cell in tour.cells if cell.cell_type == "markdown")
    links = re.findall(r"\]\(([^)]+)\)", words)
    assert links
    assert all((TOUR.parent / link).exists() for link in links)


@pytest.mark.slow
def test_the_tour_runs_and_shows_what_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    outputs = run_tour(tmp_path, monkeypatch)
    said = {name: "".join(o.get("text", "") for o in found) for name, found in outputs.items()}
    assert not [o for found in outputs.values() for o in found if o.get("name") == "stderr"]
    for name in ("honest", "look"):
        assert any("image/png" in o.get("data", {}) for o in outputs[name]), name
    assert said["compare"].count("AttnKNN minus") == 2
    assert "the prior (class frequencies)" in said["explain"]
    assert_the_edits_are_followed(said)
    assert_the_noise_is_found(said["noise"])
    assert "the same bytes: True" in said["save"]
    assert Path(said["report"].split()[-1]).is_file()


def run_tour(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list]:
    """What each cell put out, by the name of the cell; nothing is left outside `folder`."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, str(folder))
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # the kernel is another process
    tour = nbformat.read(TOUR, as_version=4)
    NotebookClient(tour, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    return {cell.id: cell.outputs for cell in tour.cells if cell.cell_type == "code"}


def assert_the_edits_are_followed(said: dict[str, str]) -> None:
    answers = {
        name: re.search(r"(?:the answer is|forgotten:|added:) (\d) at", said[name])[1]
        for name in ("damage", "fix", "forget")
    }
    (truth,) = re.findall(r"truth: (\d)", said["explain"])
    assert answers["damage"] != truth
    assert answers["fix"] == truth
    assert answers["forget"] != truth
    assert f"added: {truth} at" in said["forget"]
    suspect, wrong = re.findall(r"#(\d+)", said["find"])
    assert suspect == wrong
    assert "the same answer as before: True" in said["fix"]
    assert f"#{wrong} votes: False" in said["forget"]


def assert_the_noise_is_found(said: str) -> None:
    wrong, estimated = re.findall(r": (0\.\d+)", said)
    assert float(estimated) == pytest.approx(float(wrong), abs=0.03)


@pytest.mark.parametrize("page", ["model-folder.md"])
def test_the_code_of_our_pages_runs(page: str) -> None:
    results = doctest.testfile(str(ROOT / "docs" / page), module_relative=False)
    assert results.attempted > 0
    assert results.failed == 0
