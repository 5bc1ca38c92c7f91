"""Experiments and benchmarks are run in small, so that they still work when they are needed."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from attnknn.research import datasets  # noqa: E402
from attnknn.research.evaluation.protocol import run  # noqa: E402
from attnknn.training import TrainConfig  # noqa: E402
from experiments import __main__ as experiments  # noqa: E402
from experiments import audit as audits  # noqa: E402
from experiments import (  # noqa: E402
    coverage,
    drift,
    few_shot,
    forgetting,
    label_noise,
    new_classes,
    out_of_scope,
    small_coverage,
    suggest,
)
from experiments.bars import (  # noqa: E402
    LEARNED,
    TABLE_BASELINES,
    bars,
    command_bars,
    image_bars,
    table_bars,
)
from experiments.images.recipe import Recipe  # noqa: E402
from experiments.methods import METHODS, TABLE_METHODS  # noqa: E402
from experiments.pages import (  # noqa: E402
    read_reports,
    replace_between,
)
from experiments.vit import measuring as vit  # noqa: E402


@pytest.fixture(scope="module")
def table():
    chosen = [METHODS[name] for name in ("uniform", "distance", "attnknn", "logistic")]
    return run(datasets.load("iris"), chosen, [0, 1])


def test_every_claim_names_known_methods_and_data():
    for claim in experiments.settings().values():
        if claim.get("kind") == "images":
            recipes = [Recipe.named(name) for name in claim["datasets"]]
            assert [recipe.name for recipe in recipes] == claim["datasets"]
            assert {recipe.source for recipe in recipes} <= set(datasets.names())
            continue
        if claim.get("kind") == "vit":
            assert claim["against"] in vit.LAYERS
            continue
        is_raw = claim.get("rows") == "raw" or claim.get("kind") == experiments.SCORES
        known = TABLE_METHODS if is_raw else METHODS
        assert set(claim["methods"]) <= set(known)
        assert set(claim["datasets"]) <= set(datasets.names())
        assert claim["against"] in claim["methods"]
        assert len(claim["seeds"]) >= (3 if claim.get("kind") == experiments.SCORES else 5)


def test_the_research_is_measured_with_the_settings_of_its_studies(monkeypatch):
    asked = []
    monkeypatch.setattr(experiments, "measure_claim", lambda study, _: asked.append(study))
    assert experiments.measure_research("cifar10") == 0
    (ablation,) = [study for study in asked if study.claim == "ablation"]
    assert "4 heads" in ablation.changes["variants"]
    assert {study.dataset for study in asked} == {"cifar10"}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(TABLE_METHODS) - {"LightGBM", "CatBoost", "XGBoost"}))
def test_every_table_method_takes_raw_rows(name, monkeypatch):
    monkeypatch.setattr("attnknn.fitting.tables.EPOCHS", (1, 60))
    monkeypatch.setattr("attnknn.fitting.tables.N_STEPS", 1)
    wine = run(datasets.load("wine"), [TABLE_METHODS[name]], [0], encoder=None)
    assert wine.mean("accuracy", name) > 0.8
    assert wine.encoder == "none"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["LightGBM", "CatBoost", "XGBoost"])
def test_boosting_libraries_take_raw_rows(name):
    pytest.importorskip(name.lower())
    wine = run(datasets.load("wine"), [TABLE_METHODS[name]], [0], encoder=None)
    assert wine.mean("accuracy", name) > 0.8


def test_every_bar_says_what_was_measured(table):
    found = list(bars({"quality": dict.fromkeys(("banking77", "letter", "churn"), table)}))
    assert any("banking77: accuracy ≥ 0.928" in str(bar) for bar in found)
    assert all(bar.measured for bar in found)
    assert {bar.is_met for bar in found} == {True, False}  # iris is not banking77


def test_image_bars_are_those_of_the_whole_classifier(table):
    named = {"attnknn": "attnknn, views", "logistic": "CNN head"}
    more = [replace(r, method=named[r.method]) for r in table.runs if r.method in named]
    images = replace(table, runs=(*table.runs, *more))
    found = [str(bar) for bar in image_bars({"cifar10-wide": images, "mnist-narrow": images})]
    assert len(found) == 7
    assert sum("cifar10-wide: trained in ≤ 35 minutes: 0." in bar for bar in found) == 1


def test_ranks_are_means_over_the_tables():
    chosen = [TABLE_METHODS[name] for name in ("uniform", "logistic", "HistGradientBoosting")]
    tables = {
        name: run(datasets.load(name), chosen, [0], encoder=None) for name in ("iris", "wine")
    }
    renamed = {
        name: replace(table, runs=tuple(_renamed(table.runs))) for name, table in tables.items()
    }
    found = [str(bar) for bar in table_bars(renamed)]
    assert sum("mean rank in log-loss better" in bar for bar in found) == len(TABLE_BASELINES)
    assert sum("not above HistGradientBoosting" in bar for bar in found) == 2
    assert sum("not behind HistGradientBoosting" in bar for bar in found) == 1


def _renamed(runs):
    """The runs of logistic regression under our name too, and three stand-ins at the end."""
    yield from runs
    for run_of_one in runs:
        if run_of_one.method == "logistic":
            yield replace(run_of_one, method=LEARNED)
        if run_of_one.method == "uniform":
            yield replace(run_of_one, method="distance")
            yield replace(run_of_one, method="MLP, same encoder")


def test_a_table_stands_between_its_comments(tmp_path):
    page = tmp_path / "README.md"
    page.write_text("before\n<!-- tables -->\nold\n<!-- /tables -->\nafter\n")
    replace_between(page, "tables", "| method |")
    assert page.read_text() == "before\n<!-- tables -->\n| method |\n<!-- /tables -->\nafter\n"


def test_the_bars_of_the_command_are_read_from_its_report(tmp_path):
    assert list(command_bars(tmp_path / "none.json")) == []
    report = tmp_path / "adult_csv.json"
    report.write_text('{"fit_seconds": 200.4, "accuracy": 0.8712, "nll": 0.279}')
    found = list(command_bars(report))
    assert [bar.is_met for bar in found] == [True, True, False]
    assert str(found[2]).endswith("--target income: ≤ 180 s: 200 s")


def test_missing_data_is_named_and_not_a_crash(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("ATTNKNN_DATA", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(experiments, "RESULTS", tmp_path / "results")
    assert experiments.main(["run", "quality", "--only", "banking77"]) == 1
    assert "banking77" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "yardstick"),
    [
        ("benchmarks.search", "bare product"),
        ("benchmarks.predict", "bare product"),
        ("benchmarks.editing", "bare product"),
        ("benchmarks.convolutions", "plain"),
        ("benchmarks.hierarchy", "weight in the visited cells"),
        ("benchmarks.vit", "SDPA"),
    ],
)
def test_benchmarks_run_in_small(module, yardstick):
    pytest.importorskip("faiss")
    done = subprocess.run(
        [sys.executable, "-m", module, "--quick"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert yardstick in done.stdout


def test_the_audit_is_measured_and_held_to_its_bars(tmp_path, capsys, monkeypatch):
    chosen = ["--only", "iris", "--rate", "0.2", "--seeds", "1", "--attention", "distance"]
    assert audits.main(["run", *chosen, "--folder", str(tmp_path)]) == 0
    report = read_reports(tmp_path)[0]
    assert report["all"]["entries"] == 120
    assert 0.8 < report["all"]["auroc"] <= 1.0
    assert "expected errors within 10 %" in capsys.readouterr().out
    assert audits.main(["bars", "--folder", str(tmp_path)]) == 0
    assert list(json.loads((tmp_path / "reports.json").read_text())) == ["iris-20-distance-0"]
    page = tmp_path / "page.md"
    page.write_text("<!-- audit -->\n<!-- /audit -->\n")
    monkeypatch.setattr(audits, "PAGE", page)
    assert audits.main(["page", "--folder", str(tmp_path)]) == 0
    assert f"| 1 | {report['all']['wrong']:,} |" in page.read_text()


def test_tasks_of_few_rows_are_measured_and_written(tmp_path, monkeypatch):
    monkeypatch.setattr(few_shot, "TASKS", 2)
    monkeypatch.setattr(few_shot, "CHOOSING", 1)
    monkeypatch.setattr(few_shot, "SETS", {"digits": (3, ((3, 1),))})
    report = few_shot.measure("digits", 0, TrainConfig(epochs=1))
    assert set(report["tasks"]["3-way 1-shot"]) == set(few_shot.METHODS)
    errors, losses = report["tasks"]["3-way 1-shot"][few_shot.OURS]
    assert len(errors) == len(losses) == 2
    shown = few_shot.table([report], n_splits=1)
    assert "| digits, 3-way 1-shot |" in shown
    assert "digits" not in few_shot.table([report])  # four splits are missing


def test_the_estimate_of_label_noise_is_measured_and_held_to_its_bars(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(label_noise, "DATASETS", ("iris",))
    monkeypatch.setattr(label_noise, "RATES", (0.0, 0.2))
    monkeypatch.setattr(label_noise, "METHODS", {"default": {"attention": "distance"}})
    assert label_noise.main(["run", "--seeds", "1", "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("debiased ECE ≤ 0.03") == 2
    clean, noisy = read_reports(tmp_path)
    assert (clean["wrong"], clean["auroc"]) == (0, None)
    assert 15 < noisy["wrong"] < 35
    assert 0.8 < noisy["auroc"] <= 1.0
    table = label_noise.table([{**noisy, "label_noise": 0.19, "error": 0.03}])
    assert "0.190 ± 0.030" in table
    assert "1 n. e." in label_noise.table([{**noisy, "label_noise": None}])
    unknown = [{**noisy, "label_noise": None, "expected_wrong": None}]
    shown = [str(bar) for bar in label_noise.bars(unknown)]
    assert shown[0].startswith("NOT MET")
    assert shown[0].endswith("not estimable")
    assert shown[2].endswith("none given")


def test_coverage_is_measured_before_and_after_edits_and_held_to_its_bars(
    tmp_path, capsys, monkeypatch
):
    chosen = ["--only", "digits", "--seeds", "1", "--attention", "distance"]
    assert coverage.main(["run", *chosen, "--folder", str(tmp_path)]) == 0
    report = read_reports(tmp_path)[0]
    assert report["edits"] == {"add": 143, "forget": 114, "relabel": 28}
    assert report["after"]["entries"] == report["before"]["entries"] + 143 - 114
    for state in coverage.STATES:
        assert report[state]["lac"]["all"][0]["coverage"] == pytest.approx(0.9, abs=0.06)
        assert report[state]["aps"]["by_class"]["coverage"] == pytest.approx(0.9, abs=0.06)
    printed = capsys.readouterr().out
    assert printed.count("coverage within") == 12
    assert printed.count("below their 1 % quantile") == 4
    monkeypatch.setattr(coverage, "DATASETS", ("digits",))
    assert "| digits, 1 | 28 of 1,294 |" in coverage.table([report])


def test_sets_of_small_tables_are_measured_with_and_without_the_correction(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(small_coverage, "SIZES", (30,))
    assert small_coverage.main(["run", "--draws", "2", "--folder", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("coverage of at least 90%") == len(small_coverage.TABLES)
    for report in read_reports(tmp_path):
        found = report["coverage"]
        assert found["uncorrected"] <= found["default"] <= 1
    assert "| 10 digits | jackknife+ |" in small_coverage.table(read_reports(tmp_path))


def test_what_edits_change_is_planned_apart():
    y = np.repeat(np.arange(10), 1000)
    plan = coverage.plan_edits(y, 10, seed=0)
    touched = np.concatenate([plan.added, plan.forgotten, plan.wrong])
    assert len(np.unique(touched)) == len(touched) == coverage.N_EDITS
    assert not np.isin(plan.added, plan.remembered).any()
    assert (np.flatnonzero(plan.observed != y) == np.sort(plan.wrong)).all()


def test_novelty_detection_has_an_interval(rng):
    places = rng.normal(size=(40, 8))
    X = (places[:, None] + 0.3 * rng.normal(size=(40, 15, 8))).reshape(-1, 8)
    found = out_of_scope.on_training_rows(X, np.repeat(np.arange(40), 15), seed=0)
    assert found["nearest distance"][0] > 0.95
    for value, lower, upper in found.values():
        assert lower <= value <= upper
    report = {**dict.fromkeys(out_of_scope.PARTS, found), "dataset": "blobs", "seed": 0}
    assert "| nearest distance | 0." in out_of_scope.table([report])
    assert next(out_of_scope.bars([report])).is_met == (found["nearest distance"][0] >= 0.965)


def test_cleanlab_ranks_the_same_entries_first():
    pytest.importorskip("cleanlab")
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.1, 0.9]])
    observed, is_wrong = np.array([0, 0, 1, 1]), np.array([False, True, False, False])
    assert audits.cleanlab_scores(probabilities, observed, is_wrong)["self_confidence"] == 1.0


def test_drift_is_measured_and_shown_in_tables(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(drift, "CASES", ((1, 30),))
    for name in ("iris", "normal"):
        assert drift.main(["run", "--only", name, "--seeds", "1", "--folder", str(tmp_path)]) == 0
    report = next(r for r in drift.ordered_reports(tmp_path) if r["dataset"] == "iris")
    assert report["changes"]["noise"]["rows"] is not None
    assert len(report["quiet"]) == drift.ORDERS
    assert drift.main(["table", "--folder", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "| iris | noise | 1 |" in told
    assert "| 1 | 30 |" in told
    assert set(json.loads((tmp_path / "reports.json").read_text())) == {"iris-0", "normal-1-30"}


def test_delays_are_medians_with_those_that_never_came():
    assert drift._median([None, None]) == "never"
    assert drift._median([0, 9, None]) == "6 rows (at most 10, 2 of 3)"


def test_sets_by_validation_rows_are_split_sets():
    digits = datasets.load("digits")
    extras = {"x_calibration": digits.X_test, "y_calibration": digits.y_test}
    assert coverage._way(replace(digits, extras=extras)) == {}
    way = coverage._way(replace(digits, name="digits, split", extras=extras))
    assert way["method"] == "split"
    assert way["calibration_rows"][0] is digits.X_test


def test_new_classes_are_measured_and_held_to_their_bars(tmp_path, capsys, monkeypatch):
    folder = ["--folder", str(tmp_path / "reports")]
    chosen = ["--only", "digits", "--new", "3", "--seeds", "2", "--attention", "distance"]
    assert new_classes.main(["run", *chosen, *folder]) == 0
    report = read_reports(tmp_path / "reports")[0]
    assert len(report["new_classes"]) == len(report["5 examples"]["new"]) == 3
    assert set(report["before"]["new"]) == {0.0}  # a class without entries is never answered
    assert 0.3 < np.mean(report["5 examples"]["new"]) < np.mean(report["10 examples"]["new"])
    out = capsys.readouterr().out
    assert "distance, 5 examples: accuracy of new classes ≥ 0.64: 0." in out
    assert len(out.splitlines()) == 3
    page = tmp_path / "page.md"
    page.write_text("<!-- new-classes -->\n<!-- /new-classes -->\n")
    monkeypatch.setattr(new_classes, "PAGE", page)
    assert new_classes.main(["page", *folder]) == 0
    assert [line.count("|") for line in page.read_text().splitlines()] == [0, 7, 7, 7, 7, 0]


def test_rows_of_new_classes_are_chosen_by_the_seed():
    y = np.repeat(np.arange(6), 20)
    new, rows = new_classes.chosen_rows(y, 2, 10, seed=1)
    again, same = new_classes.chosen_rows(y, 2, 10, seed=1)
    assert (rows == same).all()
    assert (new == again).all()
    assert (y[rows] == new[:, None]).all()
    assert len(np.unique(rows)) == 20
    assert (new_classes.chosen_rows(y, 2, 10, seed=2)[1] != rows).any()


def test_forgetting_is_measured_at_every_budget(tmp_path, capsys, monkeypatch):
    folder = ["--folder", str(tmp_path / "reports")]
    assert forgetting.main(["run", "--only", "iris", "--seeds", "2", *folder]) == 0
    report = read_reports(tmp_path / "reports")[0]
    assert set(report["policies"]) == {"least value", "random", "newest"}
    assert all(set(found) == {"50%", "25%", "10%"} for found in report["policies"].values())
    assert capsys.readouterr().out.count("| iris, 2 seeds |") == 6
    page = tmp_path / "page.md"
    page.write_text("<!-- forgetting -->\n<!-- /forgetting -->\n")
    monkeypatch.setattr(forgetting, "PAGE", page)
    assert forgetting.main(["page", *folder]) == 0
    assert page.read_text().count("| iris, 2 seeds | least value") == 2


def test_suggestions_are_measured_against_random_labels(tmp_path, monkeypatch, capsys):
    page = tmp_path / "suggest.md"
    page.write_text("<!-- suggest -->\n<!-- /suggest -->\n")
    small = {"SIZES": (40, 60, 80), "SHOWN": (40, 80), "N_RANDOM": 120, "DATASETS": ("digits",)}
    for name, value in {**small, "PAGE": page, "_default_accuracy": lambda run: 0.5}.items():
        monkeypatch.setattr(suggest, name, value)
    for strategy in ("random", "suggest"):
        options = ["--strategy", strategy, "--folder", str(tmp_path), "--seeds", "1"]
        assert suggest.main(["run", *options]) == 0
    assert suggest.main(["table", "--folder", str(tmp_path)]) == 0
    assert suggest.main(["bars", "--folder", str(tmp_path)]) == 0
    assert "80 suggested labels not below 120 random ones" in capsys.readouterr().out
    reports = {report["strategy"]: report for report in read_reports(tmp_path)}
    found = {name: report["sizes"]["80"]["accuracy"] for name, report in reports.items()}
    assert found["suggest"] > found["random"] + 0.02
    gap = suggest.differences(list(reports.values()), "digits", "suggest")
    assert gap == pytest.approx(found["suggest"] - reports["random"]["sizes"]["120"]["accuracy"])
    lines = page.read_text().splitlines()
    assert sum(line.startswith("| digits, ") for line in lines) == 2
    assert f"| {100 * found['suggest']:.1f} |" in page.read_text()
