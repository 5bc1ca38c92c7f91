"""`attnknn report` and `attnknn evaluate --report`."""

from __future__ import annotations

import pytest

from attnknn.research import datasets
from attnknn.research.evaluation.baselines import UniformKNN
from attnknn.research.evaluation.protocol import Method
from attnknn.research.evaluation.protocol import run as run_methods

from .samples import run

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.usefixtures("without_pdf")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    methods = [Method(name, lambda _: UniformKNN()) for name in ("uniform", "attnknn")]
    run_methods(datasets.load("iris"), methods, [0, 1], folder=folder / "quality" / "iris")
    return folder


def test_experiments_become_a_page(results, tmp_path):
    done = run("report", results, "-o", tmp_path / "page", "--title", "All of it")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page" / "index.html").read_text()
    assert "<h1>All of it</h1>" in page
    assert "quality/iris" in page
    assert (tmp_path / "page" / "tables" / "quality-iris.md").exists()


def test_bad_arguments_are_one_line(results, tmp_path):
    done = run("report", results, "--ours", "nobody", "-o", tmp_path / "page")
    assert done.exit_code == 2
    assert "--ours must be one of 'uniform', 'attnknn'" in done.output
    done = run("report", tmp_path)
    assert done.exit_code == 1
    assert "There is no report.json below" in done.output


def test_a_users_own_model_gets_the_same_page(model, labeled, tmp_path):
    done = run("evaluate", model, labeled, "--report", tmp_path / "page")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page" / "index.html").read_text()
    for heading in ("How right", "How honest", "Where wrong"):
        assert f"<h2>{heading}</h2>" in page
    assert (tmp_path / "page" / "figures" / "reliability.png").exists()


def test_a_page_is_not_written_onto_a_file(tmp_path):
    (tmp_path / "file").write_text("mine")
    result = run("report", tmp_path, "-o", tmp_path / "file")
    assert result.exit_code == 1
    assert "Reports need a folder" in result.output
    assert (tmp_path / "file").read_text() == "mine"
