"""Sweeps: figures, tables and sentences of tables at several places."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.metrics import score_all
from attnknn.research.evaluation.table import BY_ROW, Run, Table
from attnknn.research.reports.page import html_page
from attnknn.research.reports.tables import SWEPT, sweep_section

N_ROWS, SEEDS = 400, (0, 1)


def run_of(method: str, seed: int, n_right: int) -> Run:
    """A run of two classes that is sure by 0.9 and right on the first `n_right` rows."""
    is_right = np.arange(N_ROWS) < n_right
    chance = np.where(is_right, 0.9, 0.1)  # of class 0, which is the truth
    probabilities = np.stack([chance, 1 - chance], axis=1)
    return Run(
        method=method,
        seed=seed,
        scores=score_all(np.zeros(N_ROWS, dtype=int), probabilities, classes=[0, 1]),
        row_nll=-np.log(chance),
        row_correct=is_right,
        row_confidence=probabilities.max(axis=1),
        fit_seconds=0.0,
        predict_seconds=0.0,
        settings={},
        chosen={},
    )


def table_of(**n_right: int) -> Table:
    runs = [run_of(method, seed, n) for seed in SEEDS for method, n in n_right.items()]
    return Table("rows", "checksum", 10, N_ROWS, "", "identity", {}, tuple(runs))


@pytest.fixture
def tables() -> dict[float, Table]:
    return {
        0.4: table_of(uniform=200, distance=300, attnknn=360),
        0.0: table_of(uniform=380, distance=360, attnknn=380),
        0.2: table_of(uniform=300, distance=340, attnknn=370),
    }


@pytest.fixture
def section(tables):
    return sweep_section(tables, "Noise", "noise", across="rate of noise")


def test_there_is_a_row_for_each_place_and_a_column_for_each_method(tables, section):
    assert [grid.name for grid in section.tables] == [f"noise-{metric}" for metric in SWEPT]
    for grid, metric in zip(section.tables, SWEPT, strict=True):
        assert list(grid.head) == ["rate of noise", "uniform", "distance", "attnknn"]
        assert [row[0] for row in grid.rows] == ["0", "0.2", "0.4"]
        for row, place in zip(grid.rows, sorted(tables), strict=True):
            for cell, method in zip(row[1:], grid.head[1:], strict=True):
                assert cell.startswith(f"{tables[place].mean(metric, method):.4f} [")
                if metric in BY_ROW:
                    assert cell == tables[place].cell(metric, method)


def test_lines_go_through_the_means_in_bands(tables, section):
    for drawing, metric in zip(section.drawings, SWEPT, strict=True):
        (panel,) = drawing.figure.axes
        assert len(panel.lines) == len(panel.collections) == 3
        for line in panel.lines:
            assert line.get_xdata().tolist() == sorted(tables)
            wanted = [tables[place].mean(metric, line.get_label()) for place in sorted(tables)]
            assert line.get_ydata() == pytest.approx(wanted)
        heights = panel.collections[0].get_paths()[0].vertices[:, 1]
        band = np.ptp(heights) - np.ptp(panel.lines[0].get_ydata())
        assert metric == "macro_f1" or band > 1e-6


def test_macro_f1_is_shown_with_its_range_over_seeds():
    runs = tuple(run_of("a", seed, n) for seed, n in zip(SEEDS, (300, 200), strict=True))
    low, high = sorted(run.scores.macro_f1 for run in runs)
    uneven = Table("rows", "checksum", 10, N_ROWS, "", "identity", {}, runs)
    grid = sweep_section({1: uneven, 2: table_of(a=300)}, "K", "k", across="K").tables[1]
    assert grid.rows[0][1] == f"{(low + high) / 2:.4f} [{low:.4f}, {high:.4f}]"
    assert "the lowest and the highest of the seeds" in grid.note


def test_losses_and_errors_start_at_zero(section):
    accuracy, f1, loss, error = (drawing.figure.axes[0] for drawing in section.drawings)
    assert accuracy.get_ylim()[0] > 0
    assert f1.get_ylim()[0] > 0
    assert loss.get_ylim()[0] == error.get_ylim()[0] == 0


def test_the_method_that_is_harmed_least_is_named(section):
    said = section.sentences
    assert said[0].startswith(
        "From rate of noise 0 to 0.4, the accuracy of attnknn falls least, by 0.0500 ["
    )
    assert said[0].endswith("its paired difference to every other excludes zero.")
    assert "the log-loss of attnknn rises least, by" in said[1]
    assert said[2].startswith("At rate of noise 0.4, attnknn has the highest accuracy (0.9000 [")


def test_the_last_place_compares_a_method_with_the_others(tables):
    said = sweep_section(tables, "", "", across="rate", ours="distance").sentences
    assert any(words.startswith("At rate 0.4, distance has a lower log-loss") for words in said)
    assert any(words.startswith("At rate 0.4, distance has a higher log-loss") for words in said)
    assert sweep_section(tables, "", "", across="rate").sentences == said[:-2]


def test_methods_without_a_significant_difference_are_listed():
    tables = {1: table_of(a=300, b=300, c=300), 2: table_of(a=298, b=299, c=200)}
    said = sweep_section(tables, "K", "k", across="K").sentences
    assert said[0].startswith("From K 1 to 2, the accuracy of b does not change significantly")
    assert said[0].endswith("; no significant difference to a.")


def test_a_gain_is_no_loss():
    tables = {1: table_of(a=200, b=200), 64: table_of(a=300, b=250)}
    said = sweep_section(tables, "K", "k", across="K", is_log=True).sentences
    assert "the accuracy of a rises most, by 0.2500" in said[0]
    assert "the log-loss of a falls most, by" in said[1]


def test_one_method_is_compared_with_nobody():
    tables = {1: table_of(a=300), 2: table_of(a=200)}
    said = sweep_section(tables, "K", "k", across="K").sentences
    assert "the accuracy of a falls by 0.2500 [" in said[0]
    assert all("other method" not in sentence for sentence in said)


def test_places_of_a_logarithm_are_written_out():
    tables = {k: table_of(a=300 + k, b=300) for k in (1, 4, 16)}
    section = sweep_section(tables, "K", "k", across="K", is_log=True)
    (panel,) = section.drawings[0].figure.axes
    assert panel.get_xscale() == "log"
    assert [label.get_text() for label in panel.get_xticklabels()] == ["1", "4", "16"]


def test_a_sweep_becomes_a_part_of_a_page(section):
    page = html_page("Noise", [section])
    assert page.count("<img") == page.count("<table>") == 4


def test_calibration_errors_have_intervals(tables, section):
    grid = section.tables[3]
    gap = tables[0.0].ece_interval("uniform")
    assert grid.rows[0][1] == f"{0.9 - 0.95:.4f} [{gap.lower:.4f}, {gap.upper:.4f}]".lstrip("-")
    assert "without its sampling noise" in grid.note


def test_a_sweep_that_is_not_finished_takes_the_seeds_that_all_have(tables):
    late = replace(tables[0.4], runs=tables[0.4].runs[:3])  # seed 0 alone
    section = sweep_section({**tables, 0.4: late}, "Noise", "noise", across="rate")
    assert section.sentences[-1] == "Seed 1 is left out: it is not measured at rate 0.4."
    assert "seeds 0." in section.tables[0].note
    alone = {
        place: replace(table, runs=tuple(run for run in table.runs if run.seed == 0))
        for place, table in tables.items()
    }
    assert section.tables[0].rows == sweep_section(alone, "", "", across="rate").tables[0].rows


def test_seeds_are_paired_whatever_their_order(tables):
    turned = replace(tables[0.4], runs=tables[0.4].runs[3:] + tables[0.4].runs[:3])
    section = sweep_section({**tables, 0.4: turned}, "Noise", "noise", across="rate")
    assert section.sentences == sweep_section(tables, "", "", across="rate").sentences


def test_tables_without_a_seed_in_common_are_refused(tables):
    runs = tuple(replace(run, seed=run.seed + 5) for run in tables[0.4].runs)
    with pytest.raises(InvalidInputError, match=r"seed in common, got 0 and 1 at 0; .* 5 and 6 at"):
        sweep_section({**tables, 0.4: replace(tables[0.4], runs=runs)}, "", "", across="rate")


def test_methods_that_are_not_measured_everywhere_have_gaps():
    tables = {
        1: table_of(a=300, b=300),
        2: table_of(a=290, b=300, late=310),
        4: table_of(a=280, late=300),
    }
    section = sweep_section(tables, "K", "k", across="K")
    assert section.sentences[-2:] == [
        "b is not measured at K 4.",
        "late is not measured at K 1.",
    ]
    assert [row[2] == "–" for row in section.tables[0].rows] == [False, False, True]
    (panel,) = section.drawings[0].figure.axes
    found = {line.get_label(): np.isnan(line.get_ydata()).tolist() for line in panel.lines}
    assert found == {
        "a": [False, False, False],
        "b": [False, False, True],
        "late": [True, False, False],
    }
    assert section.sentences[0].startswith("From K 1 to 4, the accuracy of a falls by")


def test_tables_that_cannot_be_paired_are_refused(tables):
    def refused(**changes):
        other = {**tables, 0.4: replace(tables[0.4], **changes)}
        with pytest.raises(InvalidInputError, match="Tables of a sweep must have the same") as said:
            sweep_section(other, "Noise", "noise", across="rate")
        return str(said.value)

    assert "`dataset`, got 'rows' at 0 and 'others' at 0.4" in refused(dataset="others")
    with pytest.raises(InvalidInputError, match="at least 2 places, got 1"):
        sweep_section({1: tables[0.0]}, "K", "k", across="K")
    with pytest.raises(InvalidSettingError, match="`is_log` needs places above 0, got 0"):
        sweep_section(tables, "Noise", "noise", across="rate", is_log=True)
