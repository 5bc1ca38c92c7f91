"""Files that are damaged or of something else are named, with what to do."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from attnknn.errors import InvalidInputError
from attnknn.evaluation.table import Table


@pytest.fixture
def report(table, tmp_path):
    path = tmp_path / "claim" / "wine" / "0" / "report.json"
    table.to_json(path)
    return path


def assert_named(path, match):
    with pytest.raises(InvalidInputError, match=match) as caught:
        Table.from_json(path)
    assert str(path) in str(caught.value)


def test_half_an_npz_file_is_named(report):
    rows = report.with_suffix(".npz")
    rows.write_bytes(rows.read_bytes()[:200])
    assert_named(report, "Remove both and run the experiment again")


def test_a_changed_byte_of_the_rows_is_named(report):
    rows = report.with_suffix(".npz")
    content = bytearray(rows.read_bytes())
    content[len(content) // 3] ^= 0xFF
    rows.write_bytes(bytes(content))
    assert_named(report, "damaged")


def test_rows_that_are_lost_are_named(report):
    report.with_suffix(".npz").unlink()
    assert_named(report, r"report\.npz is not beside it")


@pytest.mark.parametrize("content", ['{"dataset": "wi', "", "\x00"])
def test_half_a_report_is_named(report, content):
    report.write_text(content)
    assert_named(report, "damaged")


@pytest.mark.parametrize("content", [{}, [], {"runs": 3}, {"args": {"K": 4}}])
def test_reports_of_something_else_are_named(report, content):
    report.write_text(json.dumps(content))
    assert_named(report, "no report of an experiment")


def test_runs_of_something_else_are_named(report):
    report.write_text(json.dumps({"runs": [{"lr": 0.1}]}))
    assert_named(report, "no report of an experiment")


def test_captions_say_what_was_damaged(table):
    assert "damage" not in table.caption()
    noisy = replace(table, corruption="test images with noise 3 of 5")
    assert "seeds 0, 1; damage: test images with noise 3 of 5. In brackets" in noisy.caption()
