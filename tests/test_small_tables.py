"""The study of small tables: scores are stored, resumed, shown and compared with the bars."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnknn.research import datasets
from experiments import small_tables
from experiments.peers import CalibratedSVC
from experiments.small_tables import (
    chapter,
    difference,
    measure,
    ranks,
    score,
    study_bars,
)

CHOSEN = {
    "seeds": [1, 2],
    "datasets": ["iris", "wine", "letter"],
    "development": ["iris"],
    "methods": ["distance", "logistic", "uniform"],
    "ours": ["distance"],
    "against": "distance",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    for name in ("iris", "wine"):
        measure(name, CHOSEN, folder, folder / "rows")
    return folder


@pytest.fixture(autouse=True)
def _rival(monkeypatch):
    monkeypatch.setattr(small_tables, "RIVAL", "logistic")  # CatBoost may not be installed


def test_what_was_measured_is_read_and_not_run_again(folder, monkeypatch):
    monkeypatch.setattr(datasets, "load", lambda name: pytest.fail("was run again"))
    report = measure("wine", CHOSEN, folder)
    assert score(report, "error", "uniform") < 0.2
    gap = difference(report, "nll", "uniform")
    expected = score(report, "nll", "uniform") - score(report, "nll", "distance")
    assert gap.mean == pytest.approx(expected, abs=1e-3)  # rows are rounded when they are stored
    assert gap.lower <= gap.mean <= gap.upper


def test_a_further_method_runs_alone(folder, monkeypatch, capsys, tmp_path):
    more = {**CHOSEN, "methods": [*CHOSEN["methods"], "random forest"]}
    assert list(measure("iris", more, tmp_path, folder / "rows")["methods"]) == more["methods"]
    assert {line.split(",")[0] for line in capsys.readouterr().err.splitlines()} == {
        "iris: random forest"
    }


def test_the_chapter_names_what_only_tests_and_what_is_missing(folder):
    text = chapter(CHOSEN, folder)
    assert "iris (development): 120 training" in text
    assert "wine (test only): 142 training" in text
    assert "2 tables: iris, wine." in text
    assert "1 tables: wine." in text
    assert "Not measured yet: letter." in text
    assert "| **distance** |" in text
    assert chapter(CHOSEN, folder / "nothing") == ""


def made(name, nll, gap):
    """A report of two methods, ours above the peer by `gap` in log-loss."""
    scores = {"ours": nll + gap, "logistic": nll}
    methods = {m: {"nll": f"{v:.5f}", "error": f"{v:.5f}"} for m, v in scores.items()}
    wide = f"{-gap} {-gap - 0.01} {-gap + 0.01}"
    return {
        "dataset": name,
        "methods": methods,
        "differences": {"logistic": {"nll": wide, "error": wide}},
    }


def test_ranks_are_means_over_tables_and_bars_show_what_is_not_met(monkeypatch):
    reports = [made("a", 0.5, -0.1), made("b", 0.5, -0.1), made("c", 0.5, 0.08)]
    assert ranks(reports, "nll") == pytest.approx({"ours": 4 / 3, "logistic": 5 / 3})
    chosen = {
        **CHOSEN,
        "datasets": ["a", "b", "c"],
        "development": ["a", "b"],
        "methods": ["ours", "logistic"],
        "ours": ["ours"],
        "against": "ours",
    }
    monkeypatch.setattr(small_tables, "complete", lambda *_: reports)
    found = [str(bar) for bar in study_bars(chosen, Path())]
    assert [line.startswith("met") for line in found] == [True, True, True, False] + 4 * [False]
    assert found[3].endswith("beyond the interval: c")
    reports[2] = made("c", 0.5, 0.055)  # within the interval of 10 %
    assert [str(bar) for bar in study_bars(chosen, Path())][3].startswith("met")


def test_a_support_vector_machine_has_a_stratified_sample_of_many_rows():
    iris = datasets.load("iris")
    model = CalibratedSVC(max_rows=60).fit(iris.X_train, iris.y_train)
    assert sum(c.estimator.shape_fit_[0] for c in model.model_[-1].calibrated_classifiers_) == 240
    assert (model.predict_proba(iris.X_test).argmax(axis=1) == iris.y_test).mean() > 0.8
