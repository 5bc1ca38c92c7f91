"""Tables in random splits of their rows: measured once, compared with bounds, shown."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

sys.path.insert(0, str(Path(__file__).parent.parent))

from experiments import quarter_splits
from experiments.pages import read_reports


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(quarter_splits, "BOUNDS", {"iris": 0.5, "wine": 1e-9})
    monkeypatch.setattr(quarter_splits, "METHODS", ("distance", "logistic"))
    monkeypatch.setattr(quarter_splits, "OURS", "distance")
    return tmp_path


def test_every_split_has_all_rows_and_is_that_of_its_seed():
    first, again, other = (quarter_splits.rows_of("iris", seed) for seed in (1, 1, 2))
    assert (len(first.y_train), len(first.y_test)) == (112, 38)
    assert first.X_test.equals(again.X_test)
    assert not first.X_test.equals(other.X_test)


def test_rows_are_split_in_the_order_of_the_file():
    """So that the split is the one that anybody makes of the file."""
    X, y = load_iris(return_X_y=True, as_frame=True)
    _, expected = train_test_split(X, test_size=0.25, random_state=1, stratify=y)
    found = quarter_splits.rows_of("iris", 1)
    np.testing.assert_array_equal(found.X_test.to_numpy(), expected.to_numpy())


def test_results_are_compared_with_bounds_and_not_measured_again(folder, monkeypatch, capsys):
    assert quarter_splits.main(["run", "--folder", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["met", "NOT"]
    monkeypatch.setattr(quarter_splits, "measure", lambda *_: pytest.fail("was run again"))
    assert quarter_splits.main(["run", "--folder", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_the_table_has_a_line_for_each_table(folder):
    quarter_splits.main(["run", "--folder", str(folder)])
    table = quarter_splits.table(read_reports(folder))
    assert [line.split(" | ")[0] for line in table.splitlines()[-4:]] == [
        *("| iris, seed 1", "| iris, mean"),
        *("| wine, seed 1", "| wine, mean"),
    ]
