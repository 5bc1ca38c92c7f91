"""`attnknn explain`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .samples import fit_quickly, refused, run


def test_each_row_is_shown_with_its_neighbors_rows(model: Path, rows: Path) -> None:
    output = run("explain", model, rows, "--limit", "2", "-n", "3").stdout
    assert output.count("name id-1-") == 2
    assert output.count("weight=") == 6
    assert output.count("2 more neighbors") == 2


def test_json_adds_up(model: Path, rows: Path) -> None:
    records = json.loads(
        run("explain", model, rows, "--rows", "7,2", "-n", "2", "--format", "json").stdout
    )
    assert [record["name"] for record in records] == ["id-1-002", "id-1-007"]
    for record in records:
        assert len(record["ids"]) == len(record["payloads"]) == 2
        total = sum(record["weights"]) + record["others"]["weight"] + record["prior_weight"]
        assert total == pytest.approx(1.0)
        assert set(record["probabilities"]) == {"bird", "sea lion", "ox, or cow"}


def test_a_value_head_is_said_to_be_no_exact_evidence(
    train: Path, rows: Path, tmp_path: Path
) -> None:
    said = fit_quickly(train, tmp_path / "headed", "--value-head").stdout
    assert "by the vote and" in said
    output = run("explain", tmp_path / "headed", rows, "--limit", "2").stdout
    assert output.count("Not exact evidence: a value head made the prediction") == 2
    shown = run("explain", tmp_path / "headed", rows, "--limit", "1", "--format", "json").stdout
    record = json.loads(shown)[0]
    assert record["is_exact"] is False
    assert record["remark"].startswith("Not exact evidence")


def test_a_row_that_is_not_there_is_refused(model: Path, rows: Path) -> None:
    assert "has 9 rows; row 9 does not exist" in refused("explain", model, rows, "--rows", "0,9")


def test_fewer_rows_than_the_limit_are_all_shown(model: Path, rows: Path) -> None:
    assert run("explain", model, rows, "--limit", "50").stdout.count("name id-1-") == 9
