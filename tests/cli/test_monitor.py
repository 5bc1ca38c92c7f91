"""`attnknn monitor`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import Result

from attnknn import AttnKNNClassifier
from attnknn.cli.rows.text_files import CsvSource
from attnknn.insight import DriftMonitor

from .samples import animals, refused, run, write

FEATURES = ["weight", "legs", "home"]


def watched(*arguments: Any, code: int = 0) -> Result:
    result = run("monitor", *arguments)
    assert result.exit_code == code, result.output
    return result


def novel(n: int = 60) -> pd.DataFrame:
    table = animals(n, seed=5)
    table["weight"] += 30 + np.arange(n)
    return table


@pytest.fixture
def quiet(tmp_path: Path) -> Path:
    return write(animals(30, seed=3), tmp_path / "quiet.csv")


@pytest.fixture
def drifted(tmp_path: Path) -> Path:
    return write(novel(), tmp_path / "drifted.csv")


def test_rows_like_the_entries_are_exit_code_0(model: Path, quiet: Path) -> None:
    said = watched(model, quiet).stdout
    assert said.startswith("No alarm in 30 rows; evidence of drift (martingale): 0.")
    assert "for labels; alarm at 200." in said


def test_drift_is_exit_code_3_and_a_sentence(model: Path, drifted: Path) -> None:
    said = watched(model, drifted, "--false-alarm-rate", "0.05", code=3).stdout
    assert "rows are farther from the memory" in said.splitlines()[0]


@pytest.mark.parametrize("n_at_once", [7, 1000])
def test_the_table_holds_what_python_gives(
    n_at_once: int, model: Path, quiet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CsvSource.chunks, "__defaults__", (n_at_once,))
    watched(model, quiet, "-o", tmp_path / "p.csv")
    found, table = pd.read_csv(tmp_path / "p.csv"), animals(30, seed=3)
    monitor = DriftMonitor(AttnKNNClassifier.load(model), random_state=0)
    expected = monitor.watch(table[FEATURES], table["kind"])
    assert found["name"].tolist() == table["name"].tolist()
    assert found["p_row"].tolist() == pytest.approx(expected.rows.p_values.tolist())
    assert found["p_label"].tolist() == pytest.approx(expected.labels.p_values.tolist())
    martingale = (expected.rows.log_martingale, expected.labels.log_martingale)
    assert found["log_martingale_rows"].tolist() == pytest.approx(martingale[0].tolist())
    assert found["log_martingale_labels"].tolist() == pytest.approx(martingale[1].tolist())


def test_two_files_with_a_state_are_one_stream(model: Path, quiet: Path, tmp_path: Path) -> None:
    table = pd.concat([animals(30, seed=3), novel()])
    whole, later = write(table, tmp_path / "whole.csv"), write(novel(), tmp_path / "later.csv")
    said = watched(model, whole, "-o", tmp_path / "whole-p.csv", code=3).stdout
    state = tmp_path / "state.json"
    watched(model, quiet, "--state", state)
    in_turn = watched(model, later, "--state", state, "-o", tmp_path / "p.csv", code=3).stdout
    assert in_turn.startswith(said.strip())
    assert " of the stream is row " in in_turn
    expected = pd.read_csv(tmp_path / "whole-p.csv").iloc[30:].reset_index(drop=True)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "p.csv"), expected)


def test_an_alarm_stands_until_the_state_is_deleted(
    model: Path, quiet: Path, drifted: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    watched(model, drifted, "--state", state, code=3)
    said = watched(model, quiet, "--state", state, code=3).stdout
    assert f"persists until {state} is deleted" in said
    state.unlink()
    watched(model, quiet, "--state", state)
    assert json.loads(state.read_text())["n_rows"] == 30


def test_labels_may_be_missing_or_absent(model: Path, rows: Path, tmp_path: Path) -> None:
    assert "for labels" not in watched(model, rows).stdout
    table = animals(30, seed=3)
    table.loc[::2, "kind"] = None
    watched(model, write(table, tmp_path / "some.csv"), "-o", tmp_path / "p.csv")
    found = pd.read_csv(tmp_path / "p.csv")
    assert found["p_label"].isna().tolist() == [True, False] * 15
    assert not found["p_row"].isna().any()


def test_a_class_that_the_model_never_saw_counts_as_novel(model: Path, tmp_path: Path) -> None:
    table = animals(40, seed=3)
    table["kind"] = "unicorn"
    said = watched(model, write(table, tmp_path / "new.csv"), code=3).stdout
    assert "labels agree less" in said


def test_whole_numbers_with_gaps_are_labels(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(80, 2))
    table = pd.DataFrame(X, columns=["a", "b"]).assign(y=np.arange(80) % 2)
    table["a"] += 5 * table["y"]
    train = write(table[:60], tmp_path / "train.parquet")
    run("fit", train, "-t", "y", "-o", tmp_path / "model", "--attention", "distance")
    later = table[60:].assign(y=table["y"].where(np.arange(80) % 3 > 0))
    path = write(later, tmp_path / "later.parquet")
    watched(tmp_path / "model", path, "-o", tmp_path / "p.csv")
    assert pd.read_csv(tmp_path / "p.csv")["p_label"].notna().sum() == later["y"].notna().sum()


def test_an_edited_model_is_refused_with_its_old_state(
    model: Path, quiet: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    watched(model, quiet, "--state", state)
    before = state.read_bytes()
    assert run("forget", model, "id-0-003").exit_code == 0
    line = refused("monitor", model, quiet, "--state", state)
    assert "edited or fitted again" in line
    assert str(state) in line
    assert state.read_bytes() == before


def test_what_cannot_be_used_is_named(model: Path, quiet: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text("{")
    assert "must hold the state of a monitor" in refused("monitor", model, quiet, "--state", state)
    state.write_text("{}")
    assert "no state of a drift monitor" in refused("monitor", model, quiet, "--state", state)
    assert "no column 'kid'" in refused("monitor", model, quiet, "--target", "kid")
    nowhere = tmp_path / "nowhere" / "state.json"
    assert "Folder not found" in refused("monitor", model, quiet, "--state", nowhere)
    for path in (quiet, tmp_path):
        assert watched(model, quiet, "--state", path, code=2).stdout == ""


def test_the_chance_of_false_alarms_is_that_of_the_state(
    model: Path, quiet: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state.json"
    watched(model, quiet, "--state", state, "--false-alarm-rate", "0.1")
    assert "alarm at 20." in watched(model, quiet, "--state", state).stdout
    again = watched(model, quiet, "--state", state, "--false-alarm-rate", "0.2", code=2)
    assert "created with --false-alarm-rate 0.1" in again.stderr
