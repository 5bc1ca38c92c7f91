"""`attnknn audit`, and the commands that edit: relabel, forget, add, undo; and whatif."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnknn import AttnKNNClassifier
from attnknn.insight import audit

from .samples import animals, fit_quickly, refused, run, write


def labels_of(model: Path) -> dict[str, str]:
    clf = AttnKNNClassifier.load(model)
    entries = clf.memory_.entries
    return dict(zip(entries.ids.tolist(), clf.classes_[entries.labels].tolist(), strict=True))


@pytest.fixture
def table(model: Path, tmp_path: Path) -> pd.DataFrame:
    """The table of an audit, as a person opens it."""
    result = run("audit", model, "-o", tmp_path / "audit.csv", "--limit", "20")
    assert "20 entries to" in result.stdout
    return pd.read_csv(tmp_path / "audit.csv", keep_default_na=False, dtype=str)


def decide(table: pd.DataFrame, decisions: dict[int, str], path: Path) -> Path:
    chosen = table.copy()
    for row, decision in decisions.items():
        chosen.loc[row, "decision"] = decision
    return write(chosen, path)


def test_the_table_is_the_audit_and_has_room_for_decisions(model: Path, table) -> None:
    found = audit(AttnKNNClassifier.load(model))
    assert table["id"].tolist() == found.ranking[:20].tolist()
    assert set(table["decision"]) == {""}
    assert table["entry"].str.contains("weight=").all()
    assert table.columns[-1] == "decision"
    assert table["contradicted_by"].str.contains("(", regex=False).any()


def test_without_a_file_it_prints_a_summary_and_with_a_format_the_rows(model: Path) -> None:
    summary = run("audit", model).stdout
    assert "no probabilities (label noise" in summary
    assert "ranked by label-error score" in summary
    result = run("audit", model, "--format", "json", "--limit", "2")
    rows = json.loads(result.stdout)
    assert len(rows) == 2
    assert "wrong" not in rows[0]
    assert result.stderr.startswith("entries")


def test_probabilities_of_wrong_labels_are_shown_where_noise_is_modeled(tmp_path: Path) -> None:
    train = write(animals(60), tmp_path / "train.csv")
    settings = ("--calibration", "auto", "--label-noise", "symmetric")
    fit_quickly(train, tmp_path / "model", *settings)
    assert "wrong  score" in run("audit", tmp_path / "model").stdout
    result = run("audit", tmp_path / "model", "--format", "json", "--limit", "1")
    assert 0 <= json.loads(result.stdout)[0]["wrong"] <= 1


def test_duplicates_and_conflicts_are_named(tmp_path: Path) -> None:
    rows = animals(30)
    again = rows.iloc[:2].assign(name=["copy", "clash"], kind=[rows["kind"][0], "ox, or cow"])
    train = write(pd.concat([rows, again]), tmp_path / "train.csv")
    fit_quickly(train, tmp_path / "model")
    run("audit", tmp_path / "model", "-o", tmp_path / "audit.parquet")
    table = pd.read_parquet(tmp_path / "audit.parquet").set_index("id")
    assert table.loc["copy", "duplicate_of"] == "id-0-000"
    assert table.loc["copy", "conflict_with"] == ""
    assert table.loc["clash", "conflict_with"] == "id-0-001 (sea lion)"


def test_decisions_are_applied_and_taken_back(model: Path, table, tmp_path: Path) -> None:
    before = labels_of(model)
    new = "bird" if table["label"][0] != "bird" else "sea lion"
    answers = decide(table, {0: new, 1: "!forget", 2: table["label"][2]}, tmp_path / "answers.csv")
    result = run("relabel", model, answers)
    assert result.stdout.startswith("Relabeled 1 entry and forgot 1 entry;")
    expected = {**before, table["id"][0]: new}
    del expected[table["id"][1]]
    assert labels_of(model) == expected
    assert run("undo", model).stdout == (
        "Undid edit 1, relabeled 1 entry and forgot 1 entry; model now holds 60 entries (edit 2).\n"
    )
    assert labels_of(model) == before
    assert "original state" in refused("undo", model)


def test_an_empty_table_changes_nothing(model: Path, table, tmp_path: Path) -> None:
    old = labels_of(model)
    result = run("relabel", model, write(table, tmp_path / "answers.csv"))
    assert "Nothing changed" in result.stdout
    assert labels_of(model) == old


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "nobody", "decision": "bird"}, "Line 2 has the id 'nobody', which the model"),
        (
            {"decision": "brid"},
            "Line 2 has the label 'brid', which is not a class of this model. Did",
        ),
        (
            {"decision": "forget"},
            "Line 2 has the decision 'forget'; to remove an entry, write !forget.",
        ),
        (
            {"decision": "bird", "label": "gone"},
            "Line 2 shows the label 'gone', but the entry now has",
        ),
    ],
)
def test_a_wrong_decision_is_refused_and_nothing_changes(
    model: Path, table, tmp_path: Path, row: dict[str, str], message: str
) -> None:
    table = table[table["label"] != "bird"].reset_index(drop=True)
    for column, value in row.items():
        table.loc[0, column] = value
    table.loc[1, "decision"] = "!forget"
    old = labels_of(model)
    assert message in refused("relabel", model, write(table, tmp_path / "answers.csv"))
    assert labels_of(model) == old


def test_an_entry_decided_twice_is_refused(model: Path, table, tmp_path: Path) -> None:
    twice = pd.concat([table.head(1)] * 2).assign(decision="!forget")
    said = refused("relabel", model, write(twice, tmp_path / "answers.csv"))
    assert "Line 3 has a second decision for the id" in said


def test_a_new_class_must_be_allowed(model: Path, table, tmp_path: Path) -> None:
    answers = decide(table, {0: "yeti"}, tmp_path / "answers.csv")
    assert "--new-classes" in refused("relabel", model, answers)
    assert run("relabel", model, answers, "--new-classes").exit_code == 0
    assert labels_of(model)[table["id"][0]] == "yeti"


def test_a_class_that_means_a_gap_is_refused_in_text_files(tmp_path: Path) -> None:
    model = tmp_path / "model"
    X, y = np.arange(12.0)[:, None], np.array(["NA", "EU"] * 6)
    AttnKNNClassifier(3, attention="distance", calibration=None).fit(X, y).save(model)
    run("audit", model, "-o", tmp_path / "audit.csv")
    assert "cannot express the class 'NA'" in refused("relabel", model, tmp_path / "audit.csv")
    run("audit", model, "-o", tmp_path / "audit.parquet")
    table = pd.read_parquet(tmp_path / "audit.parquet")
    table.loc[table["id"] == 1, "decision"] = "NA"
    result = run("relabel", model, write(table, tmp_path / "answers.parquet"))
    assert result.stdout.startswith("Relabeled 1 entry;")
    assert labels_of(model)[1] == "NA"


def test_vectors_can_be_added(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    for name in ("train", "more"):
        np.savez(tmp_path / f"{name}.npz", X=generator.normal(size=(20, 3)), y=np.arange(20) % 2)
    run("fit", tmp_path / "train.npz", "-o", tmp_path / "model", "--attention", "distance")
    assert run("add", tmp_path / "model", tmp_path / "more.npz").exit_code == 0
    assert list(labels_of(tmp_path / "model")) == list(range(40))


def test_forget_takes_ids_apart_or_together(model: Path) -> None:
    assert run("forget", model, "id-0-000,id-0-001", "id-0-002").stdout.startswith(
        "Forgot 3 entries;"
    )
    assert len(labels_of(model)) == 57
    old = labels_of(model)
    assert "No entry has the id 'id-0-000'" in refused("forget", model, "id-0-005", "id-0-000")
    assert "must keep at least one" in refused("forget", model, *labels_of(model))
    assert labels_of(model) == old


def test_forget_takes_numbers_where_ids_are_numbers(train: Path, tmp_path: Path) -> None:
    run("fit", train, "-t", "kind", "-o", tmp_path / "counted", "--attention", "distance")
    assert "are integers, got 'x'" in refused("forget", tmp_path / "counted", "x")
    assert run("forget", tmp_path / "counted", "3,5").exit_code == 0
    assert 3 not in labels_of(tmp_path / "counted")


def test_add_remembers_rows_with_their_ids_and_payloads(model: Path, labeled: Path) -> None:
    assert run("add", model, labeled).stdout.startswith("Added 12 entries;")
    entries = AttnKNNClassifier.load(model).memory_.entries
    assert entries.ids[-12:].tolist() == pd.read_csv(labeled)["name"].tolist()
    assert all("weight=" in payload for payload in entries.payloads[-12:])
    assert "is in the memory already" in refused("add", model, labeled)
    assert run("undo", model).stdout == (
        "Undid edit 1, added 12 entries; model now holds 60 entries (edit 2).\n"
    )
    assert len(labels_of(model)) == 60


def test_add_refuses_labels_that_are_no_class(model: Path, tmp_path: Path) -> None:
    rows = write(animals(5, seed=4).assign(kind="yeti"), tmp_path / "more.csv")
    assert "Line 2 has the label 'yeti'" in refused("add", model, rows)
    assert run("add", model, rows, "--new-classes").exit_code == 0


def test_whatif_says_what_would_change_and_changes_nothing(model: Path, rows: Path) -> None:
    old = labels_of(model)
    entries = labels_of(model)
    relabel = [part for name in entries for part in ("--relabel", f"{name}=bird")]
    result = run("whatif", model, rows, *relabel)
    assert "of 9 rows would change the label" in result.stdout
    assert "→ bird 0." in result.stdout or "→ bird 1." in result.stdout
    gone = run("whatif", model, rows, "--forget", "id-0-000,id-0-001", "--format", "json")
    record = json.loads(gone.stdout)
    assert record["n_rows"] == len(record["rows"]) == 9
    assert labels_of(model) == old


def test_whatif_of_rows_that_come_is_what_adding_them_gives(
    model: Path, rows: Path, labeled: Path, tmp_path: Path
) -> None:
    tried = json.loads(run("whatif", model, rows, "--add", labeled, "--format", "json").stdout)
    assert len(labels_of(model)) == 60
    run("add", model, labeled)
    run("predict", model, rows, "--proba", "-o", tmp_path / "answers.csv")
    answers = pd.read_csv(tmp_path / "answers.csv")
    after = np.array([row["after"] for row in tried["rows"]])
    found = answers.iloc[:, -3:].to_numpy()
    np.testing.assert_allclose(after, found, atol=1e-6)
    wild = write(animals(3, seed=4).assign(kind="yeti"), tmp_path / "wild.csv")
    assert "Line 2 has the label 'yeti'" in refused("whatif", model, rows, "--add", wild)


def herd(n: int, seed: int) -> pd.DataFrame:
    """Animals in herds, with a column of sample weight and one that nobody may see."""
    told = {"herd": [f"herd {i % 7}" for i in range(n)], "say": 1.0 + np.arange(n) % 3}
    return animals(n, seed).assign(**told, secret=[f"hush {i}" for i in range(n)])


def test_rows_that_are_added_keep_the_roles_of_their_columns(tmp_path: Path, rows: Path) -> None:
    model = tmp_path / "model"
    train, more = write(herd(60, 0), tmp_path / "h.csv"), write(herd(14, 3), tmp_path / "m.csv")
    roles = ("--group-column", "herd", "--sample-weight-column", "say", "--drop-columns", "secret")
    fit_quickly(train, model, *roles)
    tried = json.loads(run("whatif", model, rows, "--add", more, "--format", "json").stdout)

    assert run("add", model, more).exit_code == 0

    clf = AttnKNNClassifier.load(model)
    entries = clf.memory_.entries
    herds = [f"herd {i % 7}" for i in [*range(60), *range(14)]]
    same_herd = np.array(herds)[:, None] == np.array(herds)
    assert ((entries.groups[:, None] == entries.groups) == same_herd).all()
    assert entries.sample_weight[60:].tolist() == herd(14, 3)["say"].tolist()
    assert not any("hush" in shown for shown in entries.payloads)
    run("predict", model, rows, "--proba", "-o", tmp_path / "answers.csv")
    after = np.array([row["after"] for row in tried["rows"]])
    found = pd.read_csv(tmp_path / "answers.csv").iloc[:, -3:].to_numpy()
    np.testing.assert_allclose(after, found, atol=1e-6)
    bare = write(herd(3, 5).drop(columns="herd"), tmp_path / "bare.csv")
    assert "herd" in refused("add", model, bare)


def test_columns_to_be_shown_are_those_of_the_fit_in_rows_that_are_added(tmp_path: Path) -> None:
    model, train = tmp_path / "model", write(herd(60, 0), tmp_path / "herd.csv")
    fit_quickly(train, model, "--payload-columns", "home")
    run("add", model, write(herd(3, 3), tmp_path / "more.csv"))
    shown = AttnKNNClassifier.load(model).memory_.entries.payloads
    assert all(text.startswith("home=") and "," not in text for text in shown)


def test_whatif_knows_the_ids_that_decide_ties(tmp_path: Path) -> None:
    table = pd.DataFrame({"id": range(100, 130), "a": 1.0, "kind": ["x", "y"] * 15})
    table.loc[:4, "a"] = 2.0
    train = write(table, tmp_path / "train.csv")
    more = write(table.assign(id=range(30), kind="x"), tmp_path / "more.csv")
    rows = write(pd.DataFrame({"id": [1], "a": [1.0]}), tmp_path / "rows.csv")
    model = tmp_path / "model"
    settings = (
        "--attention",
        "uniform",
        "--calibration",
        "none",
        "-k",
        "5",
        "--encoder",
        "tabular",
    )
    run(
        "fit",
        train,
        "-t",
        "kind",
        "-o",
        model,
        "--id-column",
        "id",
        "--encoder",
        "tabular",
        *settings,
    )
    tried = json.loads(run("whatif", model, rows, "--add", more, "--format", "json").stdout)
    run("add", model, more)
    after = AttnKNNClassifier.load(model).predict_proba(pd.DataFrame({"a": [1.0]}))
    np.testing.assert_allclose([row["after"] for row in tried["rows"]], after, atol=1e-9)


def test_whatif_refuses_what_it_cannot_read(model: Path, rows: Path) -> None:
    assert run("whatif", model, rows).exit_code == 2
    assert run("whatif", model, rows, "--relabel", "bird").exit_code == 2
    assert "does not name an entry" in refused("whatif", model, rows, "--relabel", "nobody=bird")
    assert "not a class of this model" in refused("whatif", model, rows, "--relabel", "id-0-000=x")


def test_a_table_without_decisions_says_which_columns_it_needs(model: Path, tmp_path: Path) -> None:
    (tmp_path / "other.csv").write_text("id,label\nid-0-000,cat\n")
    line = refused("relabel", model, tmp_path / "other.csv")
    assert "has no column 'decision'" in line
    assert "needs the columns `id` and `decision`, as written by `attnknn audit -o`" in line


def test_a_table_that_is_applied_again_changes_nothing(model: Path, table, tmp_path: Path) -> None:
    answers = table.head(2).copy()
    answers["decision"] = ["!forget", "ox, or cow"]
    path = write(answers, tmp_path / "answers.csv")
    assert "now holds 59 entries (edit 1)" in run("relabel", model, path).stdout
    assert "Nothing changed" in run("relabel", model, path).stdout
    unknown = write(answers.head(1).assign(id="nobody"), tmp_path / "unknown.csv")
    assert "which the model does not hold" in refused("relabel", model, unknown)
