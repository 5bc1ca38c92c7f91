"""Files that are damaged or of something else are named, with what to do."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("matplotlib")

from attnknn.cli.research import make_page, write_page
from attnknn.errors import InvalidInputError
from attnknn.research.evaluation.report import add_table, read_report
from attnknn.research.reports.collecting import collected


@pytest.fixture
def report(table, tmp_path):
    path = tmp_path / "claim" / "wine" / "report.json"
    add_table(path, table)
    return path


def assert_named(path, match):
    with pytest.raises(InvalidInputError, match=match) as caught:
        read_report(path)
    assert str(path) in str(caught.value)


def test_half_an_npz_file_is_named(report):
    rows = report.with_suffix(".npz")
    rows.write_bytes(rows.read_bytes()[:200])
    assert_named(report, "Remove both and run the experiment again")


def test_a_changed_byte_of_the_rows_is_named(report):
    rows = report.with_suffix(".npz")
    content = bytearray(rows.read_bytes())
    content[60] ^= 0xFF  # in the compressed rows, not in a header
    rows.write_bytes(bytes(content))
    assert_named(report, "damaged")


def test_rows_that_are_lost_are_named(report):
    report.with_suffix(".npz").unlink()
    assert_named(report, r"report\.npz is not beside it")


@pytest.mark.parametrize("content", ['{"dataset": "wi', "", "\x00"])
def test_half_a_report_is_named(report, content):
    report.write_text(content)
    assert_named(report, "damaged")


@pytest.mark.parametrize("content", [{}, [], {"tables": 3}, {"args": {"K": 4}}])
def test_reports_of_something_else_are_named(report, content):
    report.write_text(json.dumps(content))
    assert_named(report, "no report of an experiment")


def test_runs_of_something_else_are_named(report):
    report.write_text(json.dumps({"tables": {"": {"runs": [{"lr": 0.1}]}}}))
    assert_named(report, "no report of an experiment")


def test_captions_name_the_corruption(table):
    assert "damage" not in table.caption()
    noisy = replace(table, corruption="test images with noise 3 of 5")
    assert "seeds 0, 1; damage: test images with noise 3 of 5. In brackets" in noisy.caption()


def seed_of(table, seed):
    return replace(table, runs=tuple(run for run in table.runs if run.seed == seed))


@pytest.fixture
def folder(table, tmp_path):
    """Two experiments with two seeds each."""
    for name in ("a", "b"):
        for seed in (0, 1):
            add_table(tmp_path / "all" / name / "report.json", seed_of(table, seed))
    return tmp_path / "all"


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setattr(
        "attnknn.research.reports.writing._write_book", lambda path, *_: path.touch()
    )
    monkeypatch.setattr("attnknn.research.reports.writing.as_bytes", lambda *_: b"")


def test_a_report_that_cannot_be_read_leaves_the_others(folder):
    broken = folder / "a" / "report.npz"
    broken.write_bytes(broken.read_bytes()[:100])
    found = collected(folder)
    assert list(found.tables) == ["b"]
    assert found.tables["b"].seeds == [0, 1]
    (reason,) = found.unread
    assert str(broken.with_suffix(".json")) in reason


@pytest.mark.parametrize("content", [{}, [1], {"method": "attnknn"}, 3])
@pytest.mark.parametrize("name", ["error_analyses", "trainings"])
def test_foreign_parts_of_a_report_are_named(folder, name, content):
    path = folder / "a" / "report.json"
    report = json.loads(path.read_text())
    path.write_text(json.dumps({**report, name: {"": {"0": content}}}))
    found = collected(folder)
    assert "b" in found.tables
    if (name, content) == ("trainings", {}) or (name == "trainings" and "method" in str(content)):
        assert not found.trainings  # without losses by epoch there is nothing to draw
        return
    (reason,) = found.unread
    assert str(path) in reason
    assert "Remove" in reason


def test_a_table_without_runs_is_named(folder, table):
    add_table(folder / "c" / "report.json", replace(table, runs=()))
    (reason,) = collected(folder).unread
    assert "holds no runs" in reason


def test_a_foreign_sheet_is_named(folder):
    (folder / "c").mkdir()
    (folder / "c" / "report.json").write_text('{"measurements": [{"claim": "x"}]}')
    (reason,) = collected(folder).unread
    assert str(folder / "c" / "report.json") in reason


@pytest.mark.usefixtures("undrawn")
def test_a_broken_part_does_not_end_the_page(folder, table, tmp_path):
    for place, seed in ((1, 0), (4, 1)):  # a sweep without a seed in common
        add_table(folder / "s" / "report.json", seed_of(table, seed), f"K-{place}")
    (folder / "b" / "report.json").write_text("{")
    made = make_page(folder, tmp_path / "page", None, "All", "attnknn report", force=False)
    page = made.page.read_text()
    assert len(made.omitted) == 2
    assert "What could not be read or drawn" in page
    assert "must have a seed in common" in page
    assert "<h2>a</h2>" in page
    assert "Made by `attnknn report` from" in page


@pytest.mark.usefixtures("undrawn")
def test_a_page_says_which_command_made_it(folder, tmp_path):
    page = write_page(folder, tmp_path / "page", None, "All").read_text()
    assert "Made by `attnknn experiment` from" in page
    assert "What could not be read" not in page


@pytest.mark.usefixtures("undrawn")
def test_the_command_says_what_is_missing(folder, tmp_path):
    from click.testing import CliRunner

    from attnknn.cli import main

    (folder / "b" / "report.json").write_text("{")
    asked = ["report", str(folder), "-o", str(tmp_path / "page")]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 1
    assert "omits what its last section lists" in done.output
    assert str(folder / "b" / "report.json") in done.output
    assert (tmp_path / "page" / "index.html").exists()


@pytest.mark.usefixtures("undrawn")
def test_ours_is_looked_for_in_every_table(folder, table, tmp_path):
    runs = tuple(replace(run, method=f"{run.method}-2") for run in seed_of(table, 0).runs)
    add_table(folder / "c" / "report.json", replace(table, runs=runs))
    made = make_page(folder, tmp_path / "page", "uniform", "All", "attnknn report", force=False)
    assert made.omitted == []
