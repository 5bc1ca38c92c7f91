"""The examples run, and say what they promise."""

from __future__ import annotations

import doctest
import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


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


@pytest.mark.parametrize("page", ["model-folder.md"])
def test_the_code_of_our_pages_runs(page: str) -> None:
    results = doctest.testfile(str(ROOT / "docs" / page), module_relative=False)
    assert results.attempted > 0
    assert results.failed == 0
