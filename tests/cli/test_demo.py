"""`attnknn demo`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from attnknn import AttnKNNClassifier
from attnknn.cli.demo import story

from .samples import refused, run


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same demo with quick parts: nothing is trained."""

    monkeypatch.setattr(story, "DATASETS", ("iris",))
    monkeypatch.setattr(story, "AttnKNNClassifier", _Quick)


class _Quick(AttnKNNClassifier):
    def fit(self, X: Any, y: Any, **options: Any) -> AttnKNNClassifier:
        self.set_params(attention="distance", calibration=None, n_neighbors=8)
        return super().fit(X, y, **options)


def check_report(out: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((out / "report.json").read_text())
    story_numbers = report["story"]
    assert story_numbers["loaded_answers_are_the_same_bytes"]
    assert story_numbers["after_relabel"] > story_numbers["before_relabel"]
    assert story_numbers["rank"] <= 3
    text = (out / "report.md").read_text()
    assert f"{story_numbers['after_relabel']:.6f}" in text
    for figure in ("comparison.png", "reliability.png", "evidence.png"):
        assert (out / figure).stat().st_size > 5000
        assert figure in text
        assert figure in (out / "report.html").read_text()
    return report


def test_the_demo_leaves_a_report_with_figures_and_a_model(short: None, tmp_path: Path) -> None:
    result = run("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    assert "3. Find label errors" in result.stdout
    assert "AttnKNN chose distance attention" in result.stdout
    assert f"  #{story.FLIPPED}  a " in result.stdout  # a line of the table of evidence
    check_report(tmp_path / "demo")
    assert len(AttnKNNClassifier.load(tmp_path / "demo" / "model").memory_) == 1436
    assert "Give --force to replace it" in refused("demo", "--out", tmp_path / "demo")
    assert run("demo", "--out", tmp_path / "demo", "--force").exit_code == 0


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "report.md").write_text("mine")
    assert "nothing was changed" in refused("demo", "--out", tmp_path)
    assert (tmp_path / "report.md").read_text() == "mine"


def test_without_matplotlib_the_report_says_what_to_install(
    short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    assert "Install `attnknn[plots]`" in result.stdout
    assert "Install `attnknn[plots]`" in (tmp_path / "demo" / "report.md").read_text()


@pytest.mark.slow
def test_the_whole_demo_runs(tmp_path: Path) -> None:
    result = run("demo", "--out", tmp_path / "demo")
    assert result.exit_code == 0, result.output
    report = check_report(tmp_path / "demo")
    assert set(report["tables"]) == {"breast-cancer", "digits"}
    assert len(report["tables"]["digits"]) == 4


def test_the_demo_ends_with_the_page_of_its_model(
    short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[Path] = []
    monkeypatch.setattr("attnknn.cli.serve.run", lambda model, **_: served.append(model))
    assert "attnknn serve" in run("demo", "--out", tmp_path / "first").stdout
    assert served == []
    result = run("demo", "--out", tmp_path / "demo", "--serve")
    assert result.exit_code == 0, result.output
    assert served == [tmp_path / "demo" / "model"]
