"""`attnknn evaluate`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from attnknn import AttnKNNClassifier, metrics

from .samples import animals, refused, run, write


def test_every_metric_is_that_of_the_library(model: Path, labeled: Path) -> None:
    result = json.loads(run("evaluate", model, labeled, "--format", "json").stdout)
    table = animals(12, seed=2)
    loaded = AttnKNNClassifier.load(model)
    probabilities = loaded.predict_proba(table[["weight", "legs", "home"]])
    scores = metrics.score_all(table["kind"], probabilities, classes=loaded.classes_)
    for name, value in scores.to_dict().items():
        assert result["scores"][name] == pytest.approx(value), name
    assert result["n_rows"] == 12
    assert np.sum(result["confusion_matrix"]) == 12
    assert result["classes"] == loaded.classes_.tolist()


def test_the_table_names_every_metric_and_the_mistakes(model: Path, tmp_path: Path) -> None:
    table = animals(12, seed=2)
    table["truth"] = "bird"
    path = write(table, tmp_path / "labeled.csv")
    output = run("evaluate", model, path, "--target", "truth").stdout
    for word in (
        "accuracy",
        "balanced accuracy",
        "macro F1",
        "NLL",
        "Brier",
        "width",
        "mass",
        "debiased",
    ):
        assert word in output
    assert "bird predicted as sea lion" in output


def test_a_class_that_the_model_does_not_know_is_named(model: Path, tmp_path: Path) -> None:
    table = animals(12, seed=2)
    table.loc[5, "kind"] = "unicorn"
    line = refused("evaluate", model, write(table, tmp_path / "labeled.csv"))
    assert "line 7 has 'unicorn'" in line


def test_rows_without_labels_are_refused(model: Path, rows: Path) -> None:
    line = refused("evaluate", model, rows)
    assert "no column 'kind'" in line
    assert "rows without labels need `predict`" in line


@pytest.mark.parametrize("kind", [np.int64, np.float64, np.bool_])
def test_labels_of_any_kind_are_compared_as_written(kind: type, tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(20, 2)), (np.arange(20) % 2).astype(kind)
    np.savez(tmp_path / "rows.npz", X=X + y[:, None] * 9, y=y)
    settings = ["--attention", "uniform", "-k", "3"]
    run("fit", tmp_path / "rows.npz", "-o", tmp_path / "model", *settings)
    result = run("evaluate", tmp_path / "model", tmp_path / "rows.npz", "--format", "json")
    assert json.loads(result.stdout)["scores"]["accuracy"] == 1.0


def test_a_report_goes_neither_into_the_model_nor_into_a_file(
    model: Path, labeled: Path, tmp_path: Path
) -> None:
    line = refused("evaluate", model, labeled, "--report", model / "page")
    assert "is inside the model folder" in line
    (tmp_path / "file").write_text("")
    line = refused("evaluate", model, labeled, "--report", tmp_path / "file")
    assert "Reports need a folder" in line
