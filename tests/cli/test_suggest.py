"""`attnknn suggest`, and the files that go to Label Studio and cleanlab and come back."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from attnknn import AttnKNNClassifier
from attnknn.insight import audit, cleanlab_issues, suggest

from .samples import QUICK, animals, fit_quickly, refused, run, write

HOSTILE = ["\x1b[2J<script>", '=1+1"&', "\u202egpj.exe"]


def annotate(tasks: Path, labels: list[str] | None = None) -> Path:
    """The export of a project in which each prediction is accepted, or these labels are given."""
    exported = json.loads(tasks.read_text())
    for place, task in enumerate(exported):
        result = task["predictions"][0]["result"]
        if labels is not None:
            result[0]["value"]["choices"] = [labels[place]]
        task.update(id=place, annotations=[{"result": result, "was_cancelled": False}])
    path = tasks.with_name("export.json")
    path.write_text(json.dumps(exported))
    return path


def entries_of(model: Path) -> dict[str, str]:
    clf = AttnKNNClassifier.load(model)
    entries = clf.memory_.entries
    return dict(zip(entries.ids.tolist(), clf.classes_[entries.labels].tolist(), strict=True))


def test_suggestions_are_those_of_the_library_with_names_and_reasons(model: Path, rows) -> None:
    clf = AttnKNNClassifier.load(model)
    table = pd.read_csv(rows)
    found = suggest(clf, table[["weight", "legs", "home"]], 4)
    shown = run("suggest", model, rows, "-n", "4").stdout.splitlines()
    assert shown[0] == found.sentence()
    for line, row, reason in zip(shown[3:], found.rows, found.reasons, strict=True):
        assert f"name {table['name'][row]} (weight=" in line
        assert line.endswith(reason)


def test_labels_in_the_table_are_added(model: Path, rows, tmp_path: Path) -> None:
    out = tmp_path / "todo.csv"
    result = run("suggest", model, rows, "-n", "5", "-o", out)
    assert "5 of 9 unlabeled rows" in result.stdout
    table = pd.read_csv(out, keep_default_na=False, dtype=str)
    assert set(table["decision"]) == {""}
    assert table["entry"].str.startswith("weight=").all()
    table.loc[[0, 2], "decision"] = ["bird", "sea lion"]
    names = pd.read_csv(rows)["name"][table["row"].astype(int)[[0, 2]]].tolist()
    assert table["name"][[0, 2]].tolist() == [f"name {name}" for name in names]
    done = run("add", model, rows, "--decisions", write(table, out))
    assert done.stdout.startswith("Added 2 entries; model now holds 62 entries")
    known = entries_of(model)
    assert [known[name] for name in names] == ["bird", "sea lion"]
    again = run("suggest", model, rows, "-n", "9")
    assert "7 of 7 unlabeled rows" in again.stdout
    assert "Left out: 2 rows equal entries of the model." in again.stderr
    only = write(pd.read_csv(rows).iloc[table["row"].astype(int)[[0, 2]]], tmp_path / "only.csv")
    assert "so none is left to label" in refused("suggest", model, only)
    assert "9 of 9" in run("suggest", model, rows, "-n", "9", "--include-known").stdout


def test_annotations_of_label_studio_are_added(model: Path, rows, tmp_path: Path) -> None:
    tasks, config = tmp_path / "tasks.json", tmp_path / "config.xml"
    options = ("-n", "4", "--format", "label-studio", "--labeling-config", config)
    run("suggest", model, rows, *options, "-o", tasks)
    choices = ElementTree.fromstring(config.read_text())[1]
    assert [choice.get("value") for choice in choices] == ["bird", "ox, or cow", "sea lion"]
    assert {"weight", "home"} <= set(json.loads(tasks.read_text())[0]["data"]["table"])
    done = run("add", model, rows, "--decisions", annotate(tasks, ["bird"] * 4))
    assert done.stdout.startswith("Added 4 entries; model now holds 64 entries")
    assert "not for an entry" in refused("relabel", model, tmp_path / "export.json")


def test_an_audit_goes_to_label_studio_and_comes_back(model: Path, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.json"
    result = run("audit", model, "--format", "label-studio", "-o", tasks, "--limit", "6")
    assert "6 entries to" in result.stdout
    found = audit(AttnKNNClassifier.load(model))
    ids = found.ids[found.order[:6]].tolist()
    assert [task["data"]["attnknn_id"] for task in json.loads(tasks.read_text())] == ids
    before = entries_of(model)
    new = ["bird" if before[name] != "bird" else "sea lion" for name in ids[:4]]
    labels = [*new, "!forget", before[ids[5]]]
    result = run("relabel", model, annotate(tasks, labels))
    assert result.stdout.startswith("Relabeled 4 entries and forgot 1 entry;")
    expected = {**before, **dict(zip(ids, new, strict=False))}
    del expected[ids[4]]
    assert entries_of(model) == expected
    run("undo", model)
    assert entries_of(model) == before


def test_an_audit_is_written_as_cleanlab_names_its_columns_and_read_back(
    model: Path, tmp_path: Path
) -> None:
    run("relabel", model, write(_swap(model), tmp_path / "swap.csv"))
    issues = tmp_path / "issues.csv"
    run("audit", model, "--format", "cleanlab", "-o", issues)
    table = pd.read_csv(issues)
    expected = cleanlab_issues(audit(AttnKNNClassifier.load(model)))
    pd.testing.assert_frame_equal(table, expected, check_dtype=False)
    table["is_label_issue"] = table["id"].isin(["id-0-000", "id-0-001"])
    table["predicted_label"] = table["id"].map({"id-0-000": "bird", "id-0-001": "sea lion"})
    result = run("relabel", model, write(table, issues), "--format", "cleanlab")
    assert result.stdout.startswith("Relabeled 2 entries;")
    known = entries_of(model)
    assert (known["id-0-000"], known["id-0-001"]) == ("bird", "sea lion")
    assert "Nothing changed" in run("relabel", model, issues, "--format", "cleanlab").stdout
    assert "`id` and `decision`" in refused("relabel", model, issues)


def _swap(model: Path) -> pd.DataFrame:
    return pd.DataFrame({"id": ["id-0-000", "id-0-001"], "decision": ["sea lion", "bird"]})


@pytest.mark.parametrize("style", ["cleanlab", "label-studio", "csv"])
def test_hostile_labels_and_texts_stay_text_and_come_back(tmp_path: Path, style) -> None:
    rows = animals(30)
    rows["kind"] = np.array(HOSTILE)[np.arange(30) % 3]
    rows["name"] = [f"{HOSTILE[row % 3]}{row}" for row in range(30)]
    train = tmp_path / "train.csv"
    rows.to_csv(train, index=False, quoting=csv.QUOTE_ALL)
    fit_quickly(train, tmp_path / "model")
    model = tmp_path / "model"
    before = entries_of(model)
    out = tmp_path / ("audit.json" if style == "label-studio" else "audit.csv")
    printed = run("audit", model, "--format", style, "-o", out).stdout
    assert "\x1b" not in printed
    target = next(name for name, label in before.items() if label != HOSTILE[0])
    if style == "label-studio":
        tasks = json.loads(out.read_text())
        labels = [
            HOSTILE[0] if task["data"]["attnknn_id"] == target else task["data"]["given_label"]
            for task in tasks
        ]
        out = annotate(out, labels)
    else:
        table = pd.read_csv(out, keep_default_na=False, dtype=str)
        assert not table.map(lambda cell: cell.startswith("=")).any(axis=None)
        raw = {"'" + label if label.startswith("=") else label: label for label in before}
        is_it = table["id"].map(lambda name: raw.get(name, name)) == target
        if style == "cleanlab":
            table["is_label_issue"], table["predicted_label"] = is_it, HOSTILE[0]
        else:
            table["decision"] = np.where(is_it, HOSTILE[0], "")
        table.to_csv(out, index=False)
    more = ("--format", "cleanlab") if style == "cleanlab" else ()
    result = run("relabel", model, out, *more)
    assert result.stdout.startswith("Relabeled 1 entry;"), result.output
    assert entries_of(model) == {**before, target: HOSTILE[0]}


def test_texts_are_suggested_and_added(tmp_path: Path) -> None:
    asked = ["is my card lost", "I lost a card", "what is the fee", "fees for a transfer"] * 5
    labels = ["lost", "lost", "fee", "fee"] * 5
    train = write(pd.DataFrame({"text": asked, "topic": labels}), tmp_path / "train.csv")
    model = tmp_path / "model"
    assert run("fit", train, "-t", "topic", "--text", "text", "-o", model, *QUICK).exit_code == 0
    pool = tmp_path / "pool.txt"
    pool.write_text("a fee for a lost card\nwhere is it\nthe card is lost\n")
    tasks = tmp_path / "tasks.json"
    run("suggest", model, pool, "-n", "2", "--format", "label-studio", "-o", tasks)
    first = json.loads(tasks.read_text())[0]["data"]
    assert first["text"] == pool.read_text().splitlines()[first["attnknn_row"]]
    done = run("add", model, pool, "--decisions", annotate(tasks, ["lost", "fee"]))
    assert done.stdout.startswith("Added 2 entries"), done.output


def test_images_are_suggested_by_file_name(tmp_path: Path) -> None:
    for row in range(16):
        pixels = np.zeros((16, 16), dtype=np.uint8)
        side = ("left", "right")[row % 2]
        pixels[row : row + 4, 8 * (row % 2) :][:, :8] = 200
        folder = tmp_path / ("pool" if row > 11 else f"photos/{side}")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / f"{row}.png")
    model = tmp_path / "model"
    fitted = run("fit", tmp_path / "photos", "-o", model, "--epochs", "1", *QUICK)
    assert fitted.exit_code == 0, fitted.output
    tasks = tmp_path / "tasks.json"
    prefix = ("--image-prefix", "/data/local-files/?d=")
    run("suggest", model, tmp_path / "pool", "--format", "label-studio", "-o", tasks, *prefix)
    images = {task["data"]["image"] for task in json.loads(tasks.read_text())}
    assert images == {f"/data/local-files/?d={row}.png" for row in range(12, 16)}
    done = run("add", model, tmp_path / "pool", "--decisions", annotate(tasks, ["left"] * 4))
    assert done.stdout.startswith("Added 4 entries"), done.output


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        ({"row": "99"}, "Decisions must be for rows of .* which has 9; one is for row 99"),
        ({"row": "x"}, "Line 2 must have a row number in `row`, got 'x'"),
        ({"decision": "brid"}, "Line 2 has the label 'brid', which is not a class"),
    ],
)
def test_wrong_decisions_are_refused_by_line(
    model: Path, rows, tmp_path, decision, message
) -> None:
    table = pd.DataFrame([{"row": "3", "decision": "bird", **decision}])
    answer = refused("add", model, rows, "--decisions", write(table, tmp_path / "todo.csv"))
    assert pytest.raises(AssertionError, match=message).matches(AssertionError(answer))


def test_options_that_do_not_go_together_are_refused(model: Path, rows, tmp_path: Path) -> None:
    config = tmp_path / "config.xml"
    for command in (("audit", model), ("suggest", model, rows)):
        result = run(*command, "--labeling-config", config)
        assert result.exit_code == 2
        assert "--labeling-config requires --format label-studio" in result.stderr
    result = run("add", model, rows, "-t", "kind", "--decisions", rows)
    assert "either --target or --decisions" in result.stderr
    result = run("relabel", model, rows, "--format", "cleanlab", "--sep", ";")
    assert "--sep is for tables" in result.stderr
    twice = write(
        pd.DataFrame({"row": [3, 3], "decision": ["bird", "bird"]}), tmp_path / "todo.csv"
    )
    assert "second decision for row 3" in refused("add", model, rows, "--decisions", twice)
    out = tmp_path / "todo.csv"
    assert "exists" in refused("suggest", model, rows, "-o", out)
    assert "differ from" in run("suggest", model, rows, "-o", rows, "--force").stderr


def test_every_strategy_of_the_library_is_an_option(model: Path, rows) -> None:
    from attnknn.cli.suggest import STRATEGIES
    from attnknn.insight import suggesting

    assert set(STRATEGIES) == set(suggesting.STRATEGIES)
    for strategy in STRATEGIES:
        result = run("suggest", model, rows, "-n", "2", "--strategy", strategy)
        assert "2 of 9 unlabeled rows" in result.stdout
