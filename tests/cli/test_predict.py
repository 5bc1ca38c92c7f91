"""The commands `predict` and `explain`."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnknn import AttnKNNClassifier
from attnknn.cli.rows.npz import NpzSource
from attnknn.cli.rows.sources import Chunk, ParquetSource
from attnknn.cli.rows.text_files import CsvSource

from .samples import animals, fit_quickly, refused, run, write

FEATURES = ["weight", "legs", "home"]


def expected(model: Path, table: pd.DataFrame) -> np.ndarray:
    return AttnKNNClassifier.load(model).predict_proba(table[FEATURES])


def answered(*arguments: Any) -> str:
    result = run("predict", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_answers_carry_ids_class_names_and_probabilities(
    model: Path, rows: Path, tmp_path: Path
) -> None:
    answered(model, rows, "--proba", "-o", tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv")
    probabilities = expected(model, animals(9, seed=1))
    assert found["name"].tolist() == animals(9, seed=1)["name"].tolist()
    assert set(found["label"]) <= {"bird", "sea lion", "ox, or cow"}
    names = ["p(bird)", "p(ox, or cow)", "p(sea lion)"]
    assert found[names].to_numpy() == pytest.approx(probabilities, abs=1e-15)
    assert found["confidence"].tolist() == pytest.approx(probabilities.max(axis=1).tolist())


@pytest.mark.parametrize("ending", ["csv", "tsv", "csv.gz", "parquet"])
@pytest.mark.parametrize("n_at_once", [4, 1000])
def test_files_of_every_kind_give_the_same_answers_in_parts_of_any_size(
    ending: str, n_at_once: int, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (CsvSource, ParquetSource, NpzSource):
        monkeypatch.setattr(module.chunks, "__defaults__", (n_at_once,))
    path = write(animals(9, seed=1), tmp_path / f"rows.{ending}")
    records = json.loads(answered(model, path, "--format", "json", "--proba"))
    probabilities = expected(model, animals(9, seed=1))
    assert [r["p(sea lion)"] for r in records] == probabilities[:, 2].tolist()
    assert [r["name"] for r in records] == animals(9, seed=1)["name"].tolist()


def test_parts_of_a_file_do_not_guess_types(model: Path, tmp_path: Path) -> None:
    """A part in which the category '01' stands alone must not become the number 1."""
    table = animals(6)
    table["home"] = "01"
    path = write(table, tmp_path / "rows.csv")
    records = json.loads(answered(model, path, "--format", "json", "--proba"))
    assert [r["p(bird)"] for r in records] == expected(model, table)[:, 0].tolist()


def test_order_of_columns_more_columns_and_the_target_do_not_matter(
    model: Path, rows: Path, tmp_path: Path
) -> None:
    table = animals(9, seed=1)[["kind", "home", "legs", "weight", "name"]]
    table["kind"] = None
    table["more"] = "x"
    assert answered(model, write(table, tmp_path / "other.csv")) == answered(model, rows)


def test_rows_without_an_id_column_are_numbered(model: Path, tmp_path: Path) -> None:
    path = write(animals(3)[FEATURES], tmp_path / "rows.csv")
    lines = answered(model, path).splitlines()
    assert [line.split(",")[0] for line in lines] == ["row", "0", "1", "2"]


ENDINGS = ["parquet", "pq", "json", "json.gz", "csv", "csv.gz", "tsv", "tsv.gz"]


@pytest.mark.parametrize("name", [f"out.{ending}" for ending in ENDINGS])
def test_the_name_of_the_file_says_the_format(
    name: str, model: Path, rows: Path, tmp_path: Path
) -> None:
    out = tmp_path / name
    out.write_text("an older file")
    answered(model, rows, "-o", out, "--force")
    readers: dict[str, Any] = {"json": pd.read_json, "csv": pd.read_csv, "tsv": pd.read_table}
    read = readers.get(name.split(".")[1], pd.read_parquet)
    assert read(out).columns.tolist() == ["name", "label", "confidence"]
    assert len(read(out)) == 9


def test_an_unknown_ending_of_the_answers_is_refused_unless_the_format_is_given(
    model: Path, rows: Path, tmp_path: Path
) -> None:
    result = run("predict", model, rows, "-o", tmp_path / "out.xlsx")
    assert result.exit_code == 2
    assert ".csv, .tsv, .json" in result.stderr
    assert not (tmp_path / "out.xlsx").exists()
    answered(model, rows, "-o", tmp_path / "out.dat", "--format", "csv")
    assert len(pd.read_csv(tmp_path / "out.dat")) == 9


def test_a_folder_that_is_missing_or_closed_is_named_as_it_was_given(
    model: Path, rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "no" / "out.csv"
    assert f"Folder not found: {out.parent}" in refused("predict", model, rows, "-o", out)

    def closed(source: Path, _: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(source))

    monkeypatch.setattr("attnknn._output_files.os.replace", closed)
    line = refused("predict", model, rows, "-o", tmp_path / "out.csv")
    assert line == f"Error: {tmp_path / 'out.csv'}: Permission denied."


def test_what_is_no_plain_file_is_never_replaced(model: Path, rows: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    assert run("predict", model, rows, "-o", tmp_path / "pipe.csv").exit_code == 2
    assert (tmp_path / "pipe.csv").is_fifo()


def test_the_error_stream_says_how_many_rows_were_answered(
    model: Path, rows: Path, tmp_path: Path
) -> None:
    result = run("predict", model, rows, "-o", tmp_path / "out.csv")
    assert result.stderr == f"Predicted 9 rows, written to {tmp_path / 'out.csv'}.\n"
    assert result.stdout == ""
    assert run("predict", model, rows).stderr == "Predicted 9 rows.\n"


def test_vectors_are_answered_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NpzSource.chunks, "__defaults__", (7,))
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    np.savez(tmp_path / "train.npz", X=X, y=y)
    settings = ["--attention", "uniform", "-k", "3"]
    run("fit", tmp_path / "train.npz", "-o", tmp_path / "model", *settings)
    np.savez(tmp_path / "plain.npz", X=X)
    np.savez_compressed(tmp_path / "fortran.npz", X=np.asfortranarray(X))
    write(pd.DataFrame(X, columns=list("abc")), tmp_path / "table.csv")
    answers = [
        answered(tmp_path / "model", tmp_path / n)
        for n in ("plain.npz", "fortran.npz", "table.csv")
    ]
    assert len(answers[0].splitlines()) == 41
    assert answers[0] == answers[1] == answers[2]


def test_a_large_file_is_never_held_whole(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CsvSource.chunks, "__defaults__", (50,))
    path = write(pd.concat([animals(60)] * 10), tmp_path / "rows.csv")
    sizes: list[int] = []
    whole = Chunk.__init__

    def noted(part: Chunk, *arguments: Any, **options: Any) -> None:
        whole(part, *arguments, **options)
        sizes.append(len(part))

    monkeypatch.setattr(Chunk, "__init__", noted)
    answered(model, path, "-o", tmp_path / "out.csv")
    assert sizes == [50] * 12


def test_an_error_half_way_leaves_no_file(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CsvSource.chunks, "__defaults__", (5,))
    table = animals(20).astype(object)
    table.loc[17, "weight"] = "heavy"
    result = run("predict", model, write(table, tmp_path / "rows.csv"), "-o", tmp_path / "out.csv")
    assert "line 19 has 'heavy'" in result.stderr
    assert not (tmp_path / "out.csv").exists()
    assert list(tmp_path.glob(".*")) == []


@pytest.mark.filterwarnings("ignore:No row can be called novel")
def test_sets_and_decisions_are_columns_of_their_own(
    model: Path, rows: Path, tmp_path: Path
) -> None:
    options = ["--sets", "0.8", "--min-confidence", "0.9"]
    answered(model, rows, *options, "-o", tmp_path / "out.csv")
    found = pd.read_csv(tmp_path / "out.csv", keep_default_na=False)
    classifier = AttnKNNClassifier.load(model)
    table = animals(9, seed=1)[FEATURES]
    sets = classifier.predict_set(table, 0.8).labels()
    decisions = classifier.decide(table, min_confidence=0.9)
    assert found["set"].tolist() == [" | ".join(labels) for labels in sets]
    assert found["reason"].tolist() == decisions.reasons
    assert (found["decision"] == "predict").tolist() == decisions.is_answered.tolist()
    records = json.loads(answered(model, rows, *options, "--format", "json"))
    assert [record["set"] for record in records] == sets


def test_novelty_is_measured_by_the_given_number_of_nearest_entries(
    model: Path, rows: Path
) -> None:
    options = ["--novelty-level", "0.4", "--n-nearest", "2", "--format", "json"]
    records = json.loads(answered(model, rows, *options))
    table = animals(9, seed=1)[FEATURES]
    decisions = AttnKNNClassifier.load(model).decide(table, novelty_level=0.4, n_nearest=2)
    assert [record["reason"] for record in records] == decisions.reasons
    assert not decisions.is_answered.all()
    alone = run("predict", model, rows, "--n-nearest", "2")
    assert alone.exit_code == 2
    assert "--n-nearest requires --novelty-level" in alone.stderr
    many = refused("predict", model, rows, "--novelty-level", "0.4", "--n-nearest", "9999")
    assert "--n-nearest must be at most" in many


def test_what_cannot_be_guaranteed_is_one_line(model: Path, rows: Path) -> None:
    assert "needs at least 999 held-out examples" in refused(
        "predict", model, rows, "--sets", "0.999"
    )
    assert "cannot be guaranteed" in refused("predict", model, rows, "--max-risk", "0.0001")
    assert run("predict", model, rows, "--sets", "1.5").exit_code == 2


def test_each_row_is_shown_with_its_neighbors_rows(model: Path, rows: Path) -> None:
    output = run("explain", model, rows, "--limit", "2", "-n", "3").stdout
    assert output.count("name id-1-") == 2
    assert output.count("#id-0-") == 6
    assert output.count("weight=") == 8
    assert "name id-1-000 (weight=0.346, home=True): bird" in output
    assert output.count("2 more neighbors") == 2


def test_json_adds_up(model: Path, rows: Path) -> None:
    records = json.loads(
        run("explain", model, rows, "--row-numbers", "7,2", "-n", "2", "--format", "json").stdout
    )
    assert [record["name"] for record in records] == ["id-1-002", "id-1-007"]
    for record in records:
        assert len(record["ids"]) == len(record["payloads"]) == 2
        assert record["content"].startswith("weight=")
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
    assert "has 9 rows; row 9 does not exist" in refused(
        "explain", model, rows, "--row-numbers", "0,9"
    )


def test_fewer_rows_than_the_limit_are_all_shown(model: Path, rows: Path) -> None:
    assert run("explain", model, rows, "--limit", "50").stdout.count("name id-1-") == 9


def test_what_needs_too_much_memory_is_named_with_a_remedy(model, rows, monkeypatch):
    monkeypatch.setattr("attnknn.model.MIN_CHECKED_CELLS", 1)
    monkeypatch.setattr("attnknn._limits.available_bytes", lambda limit: 8)
    said = refused("predict", model, rows)
    assert "would need 0.9 kB of memory" in said
    assert said.endswith("Pass fewer rows at a time.")


def test_empty_sets_are_explained_and_can_be_avoided(model: Path, train: Path) -> None:
    given = ("predict", model, train, "--sets", "0.5", "--format", "json")
    said = run(*given)
    n_empty = sum(not row["set"] for row in json.loads(said.stdout))
    assert n_empty
    assert f"Empty sets: {n_empty}. In these rows no class reaches" in said.stderr
    assert "Increase --sets, or give --no-empty-sets" in said.stderr
    filled = run(*given, "--no-empty-sets")
    assert all(row["label"] in row["set"] for row in json.loads(filled.stdout) if row["set"])
    assert all(row["set"] for row in json.loads(filled.stdout))
    assert "Empty sets" not in filled.stderr
    alone = run("predict", model, train, "--no-empty-sets")
    assert alone.exit_code == 2
    assert "--no-empty-sets requires --sets" in alone.stderr
