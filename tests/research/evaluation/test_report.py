"""Reports are small, keep means and calibration bins, and grow seed by seed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from attnknn.errors import InvalidInputError
from attnknn.metrics import row_correct, row_nll, score_all
from attnknn.research.evaluation.report import MANY_ROWS, N_BINS, add_table, read_report
from attnknn.research.evaluation.table import Run, Table


def make_table(n_rows, seed=0, method="vote", concentration=0.3) -> Table:
    """One run of predictions that are more or less confident, as calibrated ones are."""
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(4, concentration), n_rows)
    drawn = rng.random((n_rows, 1)) < probabilities.cumsum(axis=1)
    truth = drawn.argmax(axis=1)
    run = Run(
        method=method,
        seed=seed,
        scores=score_all(truth, probabilities),
        row_nll=row_nll(truth, probabilities),
        row_correct=row_correct(truth, probabilities),
        row_confidence=probabilities.max(axis=1),
        fit_seconds=0.0,
        predict_seconds=0.0,
        settings={},
        chosen={},
    )
    return Table("fake", "0", 100, n_rows, "", "none", {}, (run,))


def bins_of(run):
    return np.minimum((run.row_confidence * N_BINS).astype(int), N_BINS - 1)


@pytest.mark.parametrize("n_rows", [40, MANY_ROWS - 1, MANY_ROWS, 20_000])
@pytest.mark.parametrize("concentration", [0.02, 0.3, 5.0])
def test_means_and_calibration_bins_are_kept(n_rows, concentration, tmp_path):
    table = make_table(n_rows, concentration=concentration)
    add_table(tmp_path / "report.json", table)
    (before,), (after,) = table.runs, read_report(tmp_path / "report.json").tables[""].runs
    assert (after.row_correct == before.row_correct).all()
    assert (bins_of(after) == bins_of(before)).all()
    assert after.row_nll.mean() == pytest.approx(before.row_nll.mean(), abs=5e-5)
    assert after.row_nll.std() == pytest.approx(before.row_nll.std(), rel=1e-2)
    for number in np.unique(bins_of(before)):
        rows = bins_of(before) == number
        gap = after.row_confidence[rows].sum() - before.row_confidence[rows].sum()
        assert abs(gap) < 1 / (16 * N_BINS)
    assert after.scores == before.scores


def test_many_rows_take_less_than_two_bytes_each(tmp_path):
    add_table(tmp_path / "report.json", make_table(20_000))
    assert (tmp_path / "report.npz").stat().st_size < 2 * 20_000


def test_what_was_stored_is_stored_again_as_it_is(tmp_path):
    add_table(tmp_path / "a.json", make_table(5000))
    (once,) = read_report(tmp_path / "a.json").tables[""].runs
    add_table(tmp_path / "b.json", read_report(tmp_path / "a.json").tables[""])
    (twice,) = read_report(tmp_path / "b.json").tables[""].runs
    np.testing.assert_allclose(twice.row_confidence, once.row_confidence, atol=1e-12)
    np.testing.assert_allclose(twice.row_nll, once.row_nll, atol=1e-12)


def test_seeds_and_cells_are_added_and_replaced(tmp_path):
    path = tmp_path / "report.json"
    for seed in (0, 1):
        add_table(path, make_table(50, seed), "rate-0.1", training={"seconds": seed})
    add_table(path, make_table(50, 2), "rate-0.2")
    again = make_table(50, 1)
    add_table(
        path,
        replace(again, runs=tuple(replace(r, fit_seconds=7.0) for r in again.runs)),
        "rate-0.1",
    )
    report = read_report(path)
    assert {cell: table.seeds for cell, table in report.tables.items()} == {
        "rate-0.1": [0, 1],
        "rate-0.2": [2],
    }
    assert report.trainings == {"rate-0.1": {0: {"seconds": 0}, 1: {"seconds": 1}}}
    assert report.table("rate-0.1", 1).runs[0].fit_seconds == 7.0
    assert report.table("rate-0.1", 2) is None
    assert read_report(tmp_path / "none.json").tables == {}


def test_equal_rows_are_stored_once(tmp_path):
    path = tmp_path / "report.json"
    table = make_table(50)
    for seed in (0, 1, 2):
        add_table(path, replace(table, runs=tuple(replace(r, seed=seed) for r in table.runs)))
    stored = json.loads(path.read_text())["tables"][""]["runs"]
    assert [run["rows"] for run in stored] == [0, 0, 0]
    assert read_report(path).tables[""].seeds == [0, 1, 2]


def test_tables_that_do_not_go_together_are_refused(tmp_path):
    path = tmp_path / "report.json"
    add_table(path, make_table(50, 0))
    with pytest.raises(InvalidInputError, match="same `encoder`"):
        add_table(path, replace(make_table(50, 1), encoder="other"))
    with pytest.raises(InvalidInputError, match="same test rows: it has 50, got 60"):
        add_table(path, make_table(60, 1), "other")
    assert read_report(path).tables[""].seeds == [0]
