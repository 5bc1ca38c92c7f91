"""`attnknn fit`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from attnknn import AttnKNNClassifier
from attnknn.cli.rows.training import Roles
from attnknn.errors import ModelFolderError
from attnknn.storage import load_notes

from .samples import QUICK, animals, fit_quickly, refused, run, write


def test_the_choice_of_the_encoder_and_the_report_are_printed(train: Path, tmp_path: Path) -> None:
    output = fit_quickly(train, tmp_path / "model").stdout
    assert "encoder           tabular: a table of several types" in output
    assert "leave-one-out     accuracy" in output
    assert "classes           bird, ox, or cow, sea lion" in output


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "tsv", "parquet"])
def test_the_same_settings_in_python_give_the_same_answers(ending: str, tmp_path: Path) -> None:
    train = write(animals(), tmp_path / f"train.{ending}")
    fit_quickly(train, tmp_path / "model")
    table = animals()
    classifier = AttnKNNClassifier(
        5, encoder="tabular", attention="distance", calibration=None, random_state=0
    ).fit(table[["weight", "legs", "home"]], table["kind"], ids=table["name"])
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    queries = animals(20, seed=3)[["weight", "legs", "home"]]
    assert loaded.predict_proba(queries).tobytes() == classifier.predict_proba(queries).tobytes()
    assert loaded.feature_names_in_.tolist() == ["weight", "legs", "home"]
    assert loaded.memory_.entries.ids.tolist() == table["name"].tolist()


def test_numbers_are_read_as_pandas_reads_them(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=200) * 10.0 ** np.arange(-100, 100)
    table = pd.DataFrame({"x": numbers, "y": np.arange(200) % 2})
    write(table, tmp_path / "train.csv")
    from attnknn.cli.rows import open_rows
    from attnknn.cli.rows.training import Roles, read_training_rows

    ours = read_training_rows(open_rows(tmp_path / "train.csv"), Roles(target="y")).X["x"]
    assert ours.tolist() == numbers.tolist()


def test_roles_of_columns_reach_the_entries(tmp_path: Path) -> None:
    table = animals(30)
    table["herd"] = np.where(np.arange(30) < 4, "a", None)
    table["say"] = np.linspace(1, 2, 30)
    table["diary"] = "slept, ate, slept again, and then looked out of the window for hours"
    train = write(table, tmp_path / "train.csv")
    roles = [
        "--group-column",
        "herd",
        "--sample-weight-column",
        "say",
        "--drop-columns",
        "diary,home",
    ]
    fit_quickly(train, tmp_path / "model", *roles, "--payload-columns", "diary,weight")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    entries = loaded.memory_.entries
    assert len(set(entries.groups[:4].tolist())) == 1
    assert entries.groups[0] >= 0
    assert (entries.groups[4:] == -1).all()
    assert entries.sample_weight.tolist() == table["say"].tolist()
    assert loaded.feature_names_in_.tolist() == ["weight", "legs"]
    assert entries.payloads[0].startswith("diary=slept, ate, slept again…, weight=")
    assert load_notes(tmp_path / "model") == {
        "target": "kind",
        "id_column": "name",
        "group_column": "herd",
        "sample_weight_column": "say",
        "payload_columns": '["diary", "weight"]',
        "dropped_columns": '["diary", "home"]',
    }


@pytest.mark.parametrize("text", ["5", "{}", "[1]", "home"])
def test_notes_that_are_no_names_of_columns_are_refused(text: str) -> None:
    with pytest.raises(ModelFolderError, match="`dropped_columns` must be a list of column names"):
        Roles.from_notes({"target": "kind", "dropped_columns": text})


def test_payloads_can_be_left_out(train: Path, tmp_path: Path) -> None:
    fit_quickly(train, tmp_path / "model", "--no-payload")
    assert AttnKNNClassifier.load(tmp_path / "model").memory_.entries.payloads is None


@pytest.mark.parametrize(
    ("labels", "kept"),
    [
        (["1", "20", "-3"], [-3, 1, 20]),
        (["01", "20", "3"], ["01", "20", "3"]),
        (["1.0", "2", "3"], ["1.0", "2", "3"]),
        (["True", "False", "True"], ["False", "True"]),
    ],
)
def test_labels_stay_as_they_are_written(
    labels: list[str], kept: list[Any], tmp_path: Path
) -> None:
    lines = [f"{i},{labels[i % 3]}" for i in range(12)]
    (tmp_path / "train.csv").write_text("\n".join(["x,y", *lines]))
    run("fit", tmp_path / "train.csv", "-t", "y", "-o", tmp_path / "model", *QUICK)
    assert AttnKNNClassifier.load(tmp_path / "model").classes_.tolist() == kept


def test_spaces_around_labels_categories_and_names_do_not_count(tmp_path: Path) -> None:
    plain = [f"{i % 7},{'ab'[i % 2]},{'yes' if i % 3 else 'no'}" for i in range(30)]
    padded = [line.replace(",", (", ", " ,", ",")[i % 3]) + " " for i, line in enumerate(plain)]
    (tmp_path / "plain.csv").write_text("\n".join(["x,z,y", *plain]))
    (tmp_path / "padded.csv").write_text("\n".join([" x, z ,y ", *padded]))
    answers = []
    for name in ("plain", "padded"):
        model, rows = tmp_path / name, tmp_path / f"{name}.csv"
        run("fit", rows, "-t", "y", "-o", model, *QUICK)
        assert AttnKNNClassifier.load(model).classes_.tolist() == ["no", "yes"]
        for other in ("plain", "padded"):
            answers.append(run("predict", model, tmp_path / f"{other}.csv").stdout)
            answers.append(run("evaluate", model, tmp_path / f"{other}.csv").stdout)
    assert len(set(answers)) == 2


def test_a_quote_may_follow_a_space(tmp_path: Path) -> None:
    lines = [f'{i}, "{"ab"[i % 2]}, c"' for i in range(12)]
    (tmp_path / "train.csv").write_text("\n".join(["x, y", *lines]))
    run("fit", tmp_path / "train.csv", "-t", "y", "-o", tmp_path / "model", *QUICK)
    assert AttnKNNClassifier.load(tmp_path / "model").classes_.tolist() == ["a, c", "b, c"]


def test_labels_of_shape_n_by_1_are_one_per_row(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(20, 3))
    np.savez(tmp_path / "train.npz", X=X, y=(np.arange(20) % 2)[:, None])
    assert run("fit", tmp_path / "train.npz", "-o", tmp_path / "model", *QUICK).exit_code == 0


@pytest.mark.parametrize("names", [("X", "y"), ("x_train", "y_train"), ("X_train", "y_train")])
def test_vectors_of_an_npz_file_are_taken_as_they_are_or_scaled(
    names: tuple[str, str], tmp_path: Path
) -> None:
    X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    y = np.array(["a", "b"])[np.arange(40) % 2]
    np.savez_compressed(tmp_path / "train.npz", **{names[0]: X, names[1]: y, "k": np.arange(40)})
    arguments = ["-o", tmp_path / "model", "--id-column", "k", *QUICK]
    result = run("fit", tmp_path / "train.npz", *arguments)
    assert "of scaled columns and" in result.stdout
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert loaded.predict(X).shape == (40,)
    assert loaded.classes_.tolist() == ["a", "b"]


def test_an_existing_model_is_replaced_only_by_force(model: Path, train: Path) -> None:
    arguments = ("fit", train, "-t", "kind", "-o", model, *QUICK)
    before = (model / "manifest.json").read_bytes()
    assert "Give --force to replace it" in refused(*arguments)
    assert (model / "manifest.json").read_bytes() == before
    assert run(*arguments, "--force").exit_code == 0
    assert (model / "manifest.json").read_bytes() != before  # other payloads, no ids


def test_a_folder_that_is_not_a_model_is_refused_even_by_force(train: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.txt").write_text("years")
    arguments = ("fit", train, "-t", "kind", "-o", tmp_path / "home", "--force", *QUICK)
    assert "is not a model folder" in refused(*arguments)
    assert (tmp_path / "home" / "thesis.txt").exists()


def test_a_failed_fit_leaves_the_old_model(model: Path, tmp_path: Path) -> None:
    before = (model / "manifest.json").read_bytes()
    (tmp_path / "bad.csv").write_text("kind\nbird\n")
    refused("fit", tmp_path / "bad.csv", "-t", "kind", "-o", model, "--force")
    assert (model / "manifest.json").read_bytes() == before


def test_a_table_without_a_target_is_wrong_usage(train: Path, tmp_path: Path) -> None:
    result = run("fit", train, "-o", tmp_path / "model")
    assert result.exit_code == 2
    assert "--target" in result.stderr


def test_every_short_name_of_the_library_can_be_chosen() -> None:
    from attnknn.cli import fit as command
    from attnknn.registry import registered

    choices = {option.name: getattr(option.type, "choices", ()) for option in command.fit.params}
    assert set(choices["attention"]) == {"auto", *registered("attention")}
    by_address = {name for name, cls in registered("memory").items() if cls.is_shared}
    assert by_address == {"postgres"}
    assert set(choices["memory"]) == set(registered("memory")) - by_address
    alone = set(registered("encoder")) - {"union"}  # which joins others
    assert set(choices["encoder"]) == {"auto", *alone}


def test_learned_attention_and_every_setting_can_be_asked_for(tmp_path: Path) -> None:
    train = write(animals(30), tmp_path / "train.csv")
    chosen = ["--encoder", "tabular", "--metric", "cosine", "--attention", "learned", "-k", "3"]
    chosen += ["--label-noise", "none", "--calibration", "scores", "--memory", "numpy", "--seed", 7]
    chosen += ["--value-head"]
    run("fit", train, "-t", "kind", "-o", tmp_path / "model", "--drop-columns", "name", *chosen)
    params = AttnKNNClassifier.load(tmp_path / "model").get_params(deep=False)
    assert params["attention"] == "learned"
    assert params["metric"] == "cosine"
    assert params["label_noise"] is None
    assert params["calibration"] == "scores"
    assert params["memory"] == "numpy"
    assert params["random_state"] == 7
    assert params["value_head"] is True


def test_a_model_that_nobody_names_is_called_after_its_file(
    tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    train = write(animals(), tmp_path / "my.animals.csv.gz")
    assert run("fit", train, "-t", "kind", *QUICK).exit_code == 0
    assert AttnKNNClassifier.load("my.animals-model").classes_.tolist()[0] == "bird"
    assert "already" in refused("fit", train, "-t", "kind", *QUICK)


def fit_wine(folder: Path, *arguments: Any) -> str:
    table = load_wine(as_frame=True).frame.rename(columns={"target": "kind"})
    train = write(table[::2], folder / "wine.csv")
    result = run("fit", train, "-t", "kind", "-o", folder / "model", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_budget_bounds_the_choice_and_the_report_is_printed(tmp_path: Path) -> None:
    output = fit_wine(tmp_path, "--budget", "0.3")
    assert "encoder           scaled: log-loss by distance is " in output
    assert "candidate 1       distance: log-loss " in output
    assert "boosting: not tried: would take about " in output
    assert "learned: not tried: fewer than 3,000 rows" in output
    assert output.count("encoder  ") == 1
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert (loaded.budget, loaded.attention, loaded.encoder) == (0.3, "auto", "auto")
    assert f"attention         {loaded.fit_report_.attention}: " in output
    for candidate in loaded.fit_report_.candidates:
        assert str(candidate) in output


def test_a_budget_of_one_second_gives_a_model_that_predicts(tmp_path: Path) -> None:
    fit_wine(tmp_path, "--budget", 1)
    table = load_wine(as_frame=True).frame.drop(columns="target")
    rows = write(table.iloc[::10], tmp_path / "rows.csv")
    result = run("predict", tmp_path / "model", rows)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == 19
    assert "weight" in run("explain", tmp_path / "model", rows).stdout


@pytest.mark.parametrize("budget", ["0", "-1", "fast"])
def test_a_budget_must_be_positive(budget: str, train: Path) -> None:
    result = run("fit", train, "-t", "kind", "--budget", budget)
    assert result.exit_code == 2
    assert "--budget" in result.stderr
