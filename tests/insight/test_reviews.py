"""Label Studio and cleanlab: what is written, what is read back, and what is refused."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from strategies import blobs

from attnknn import AttnKNNClassifier
from attnknn.errors import InvalidInputError, TooLargeError
from attnknn.insight import (
    audit,
    cleanlab_issues,
    label_studio_config,
    label_studio_tasks,
    read_cleanlab,
    read_label_studio,
    suggest,
)

HOSTILE = ["<script>alert(1)</script>", '=1+1"&<', "\u202egpj.exe", "línea\nnueva"]


def noisy(payloads=None, ids=None, names=("a", "b", "c")):
    X, y = blobs(60, spread=0.3)
    labels = np.array(names, dtype=object)[y]
    right = labels.copy()
    labels[:4] = labels[1:5]
    clf = AttnKNNClassifier(attention="distance", label_noise="symmetric", random_state=0)
    return clf.fit(X, labels.astype(str), payloads=payloads, ids=ids), right.astype(str)


def annotated(tasks, labels=None):
    """What Label Studio exports if every prediction is accepted, or these labels are given."""
    exported = []
    for place, task in enumerate(json.loads(json.dumps(tasks))):
        result = task["predictions"][0]["result"]
        if labels is not None:
            result = [{**result[0], "value": {"choices": [labels[place]]}}]
        annotation = {"id": place, "result": result, "was_cancelled": False, "ground_truth": False}
        exported.append({"id": place, **task, "annotations": [annotation], "meta": {}})
    return exported


def test_accepted_predictions_come_back_as_new_labels(tmp_path):
    clf, right = noisy(payloads=[f"text {row}" for row in range(60)])
    found = audit(clf)
    tasks = label_studio_tasks(found, limit=20)
    path = tmp_path / "export.json"
    path.write_text(json.dumps(annotated(tasks)))
    reviewed = read_label_studio(path)
    assert len(reviewed) == 20
    edits = reviewed.edits(clf)
    suggested = dict(zip(found.ids.tolist(), found.suggested.tolist(), strict=True))
    assert edits.relabel == {
        task["data"]["attnknn_id"]: suggested[task["data"]["attnknn_id"]]
        for task in tasks
        if task["data"]["given_label"] != task["predictions"][0]["result"][0]["value"]["choices"][0]
    }
    assert set(edits.relabel) == {0, 1, 2, 3}
    clf.relabel(list(edits.relabel), list(edits.relabel.values()))
    current = clf.classes_[clf.memory_.entries.labels]
    assert (current == right).all()
    assert not read_label_studio(path).edits(clf).relabel  # applied before


def test_tasks_have_what_label_studio_reads():
    clf, _ = noisy(payloads=[f"text {row}" for row in range(60)])
    found = audit(clf)
    task = label_studio_tasks(found, limit=3, model_version="model 7")[2]
    place = found.order[2]
    assert task["data"]["text"] == f"text {found.ids[place]}"
    prediction = task["predictions"][0]
    assert prediction["model_version"] == "model 7"
    assert prediction["score"] == pytest.approx(found.suggested_probability[place])
    assert prediction["result"][0]["type"] == "choices"
    config = ElementTree.fromstring(label_studio_config(clf.classes_))
    shown, choices = list(config)
    result = prediction["result"][0]
    assert (result["from_name"], result["to_name"]) == (choices.get("name"), shown.get("name"))
    assert choices.get("toName") == shown.get("name")
    assert shown.get("value").removeprefix("$") in task["data"]
    assert [choice.get("value") for choice in choices] == ["a", "b", "c", "!forget"]


def test_images_and_tables_are_shown_as_such():
    files = [f"cats/{row}.jpg" for row in range(60)]
    task = label_studio_tasks(audit(noisy(payloads=files)[0]), limit=1, prefix="/data/?d=")[0]
    assert task["data"]["image"].startswith("/data/?d=cats/")
    rows = [{"age": np.int64(row), "job": "cook", "missing": np.nan} for row in range(60)]
    task = label_studio_tasks(audit(noisy(payloads=rows)[0]), limit=1)[0]
    assert task["data"]["table"] == {
        "age": task["data"]["attnknn_id"],
        "job": "cook",
        "missing": "nan",
    }
    assert 'value="$table"' in label_studio_config(["a"], "table")
    without = label_studio_tasks(audit(noisy()[0]), limit=1)[0]
    assert without["data"]["text"] == f"entry {without['data']['attnknn_id']}"


def test_suggested_rows_come_back_with_labels():
    clf, _ = noisy()
    X, _ = blobs(30, seed=5)
    found = suggest(clf, X, 5)
    contents = [f"row {row}" for row in found.rows]
    tasks = label_studio_tasks(found, contents)
    assert [task["data"]["attnknn_row"] for task in tasks] == found.rows.tolist()
    reviewed = read_label_studio(annotated(tasks, ["a", "b", "c", "a", "b"]))
    assert reviewed.rows.tolist() == found.rows.tolist()
    assert reviewed.labels(clf).tolist() == ["a", "b", "c", "a", "b"]
    assert reviewed.to_frame().columns.tolist() == ["row", "label", "decision"]
    clf.add(X[reviewed.rows], reviewed.labels(clf))
    assert len(clf.memory_) == 65


def test_hostile_text_and_ids_come_back_unchanged(tmp_path):
    ids = [f"{HOSTILE[row % 4]}{row}" for row in range(60)]
    clf, _ = noisy(payloads=ids, ids=ids, names=HOSTILE[:3])
    tasks = label_studio_tasks(audit(clf))
    assert {task["data"]["attnknn_id"] for task in tasks} == set(ids)
    assert {task["data"]["text"] for task in tasks} == set(ids)
    path = tmp_path / "export.json"
    path.write_text(json.dumps(annotated(tasks, [HOSTILE[0]] * 60)))
    edits = read_label_studio(path).edits(clf)
    assert set(edits.relabel.values()) == {HOSTILE[0]}
    config = ElementTree.fromstring(label_studio_config(HOSTILE))
    assert [choice.get("value") for choice in config[1]][:4] == HOSTILE


@pytest.mark.parametrize(
    ("classes", "decision", "label"),
    [([1, 2], "2", 2), ([True, False], "True", True), ([1.0, 2.0], "2.0", 2.0)],
)
def test_labels_have_the_type_of_the_classes(classes, decision, label):
    clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0]], classes)
    wrong = 0 if classes[0] != label else 1
    task = exported(data={"attnknn_id": wrong}, label=decision)
    found = read_label_studio([task]).edits(clf).relabel
    assert found == {wrong: label}
    assert type(found[wrong]) is type(label)


def exported(data=None, label="a", **annotation):
    result = [{"from_name": "label", "type": "choices", "value": {"choices": [label]}}]
    return {"data": data or {"attnknn_id": 0}, "annotations": [{"result": result, **annotation}]}


def test_skipped_and_empty_annotations_change_nothing_and_ground_truth_decides():
    skipped = exported(was_cancelled=True)
    empty = exported()
    empty["annotations"][0]["result"] = []
    nobody = {"data": {"attnknn_id": 3}, "annotations": []}
    assert not len(read_label_studio([skipped, empty, nobody]))
    both = exported(label="a")
    both["annotations"] += exported(label="b", ground_truth=True)["annotations"]
    assert read_label_studio([both]).reviews[0].decision == "b"
    both["annotations"][1]["ground_truth"] = False
    with pytest.raises(InvalidInputError, match="Task 1 of The export has contradicting annot"):
        read_label_studio([both])


def test_the_choice_to_forget_is_an_edit():
    clf, _ = noisy()
    edits = read_label_studio([exported({"attnknn_id": 5}, "!forget")]).edits(clf)
    assert (edits.forget, edits.relabel) == ([5], {})


def test_edits_refuse_what_does_not_fit_the_model():
    clf, _ = noisy()

    def edits(*tasks, **settings):
        return read_label_studio(list(tasks)).edits(clf, **settings)

    with pytest.raises(InvalidInputError, match="names 99, which is not the id of an entry"):
        edits(exported({"attnknn_id": 99}))
    with pytest.raises(InvalidInputError, match="second decision for 7"):
        edits(exported({"attnknn_id": 7}), exported({"attnknn_id": 7}))
    with pytest.raises(InvalidInputError, match="'z', which is not a class"):
        edits(exported(label="z"))
    assert edits(exported(label="z"), new_classes=True).relabel == {0: "z"}
    old = {"attnknn_id": 30, "given_label": "old"}
    label = next(c for c in "abc" if c != clf.classes_[clf.memory_.entries.labels[30]])
    with pytest.raises(InvalidInputError, match="older than the model"):
        edits(exported(old, label))
    with pytest.raises(
        InvalidInputError, match=r"row 3 of a pool, not for an entry\. Add such rows"
    ):
        edits(exported({"attnknn_row": 3}))
    numbers = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0]], [1, 2])
    with pytest.raises(InvalidInputError, match="of the type int"):
        read_label_studio([exported(label="many")]).edits(numbers, new_classes=True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not valid JSON: .* in line 1"),
        (b'{"data": {}}', "must be a JSON export of Label Studio, a list of tasks, got an object"),
        (b'[{"data": {"a": 1, "a": 2}}]', "repeats 'a'"),
        (b'["\\ud800"]', "must be valid Unicode"),
        (b"[\xff]", "must be valid Unicode"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[" + b"1" * 5000 + b"]", "an integer of too many digits"),
        (b"[3]", "Task 1 of .* must have an object `data`.* got no object at all"),
        (b'[{"data": 3}]', "must have an object `data`.* got a number"),
        (b'[{"data": {}}]', "must have a list `annotations`.* got nothing"),
        (b'[{"data": {}, "annotation_id": 3}]', "JSON-MIN. Export the project as JSON"),
        (b'[{"data": {"text": "a"}, "annotations": []}]', "Was another project exported"),
        (
            b'[{"data": {"attnknn_id": 1}, "annotations": [3]}]',
            "An annotation of task 1 .*`result`",
        ),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, content, message):
    path = tmp_path / "export.json"
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=message):
        read_label_studio(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"value": {"choices": ["a", "b"]}}, r"must have one label, got \['a', 'b'\]"),
        ({"value": {"choices": [3]}}, r"must have one label, got \[3\]"),
        ({"value": {"choices": [""]}}, "must have one label"),
        ({"value": {}}, "must have a list `choices`"),
        ({"value": 3}, "must have an object `value`"),
    ],
)
def test_other_results_are_refused(change, message):
    task = exported()
    task["annotations"][0]["result"][0].update(change)
    with pytest.raises(InvalidInputError, match=message):
        read_label_studio([task])


@pytest.mark.parametrize("key", [True, 1.5, None, ["x"], ""])
def test_ids_of_another_type_are_refused(key):
    with pytest.raises(InvalidInputError, match="must have an integer or a string as `attnknn_id`"):
        read_label_studio([exported({"attnknn_id": key})])
    with pytest.raises(InvalidInputError, match="must have an integer of at least 0"):
        read_label_studio([exported({"attnknn_row": key if key != "" else -1})])


def test_results_of_other_controls_are_ignored():
    task = exported()
    task["annotations"][0]["result"].append(
        {"from_name": "note", "type": "textarea", "value": {"text": ["hm"]}}
    )
    assert read_label_studio([task]).reviews[0].decision == "a"


def test_a_file_too_large_for_the_memory_is_refused_before_it_is_read(tmp_path, monkeypatch):
    from attnknn import _limits

    monkeypatch.setattr(_limits, "available_bytes", lambda limit=None: 100)
    for name, read in (("export.json", read_label_studio), ("issues.csv", read_cleanlab)):
        path = tmp_path / name
        path.write_text("x" * 1000)
        with pytest.raises(TooLargeError, match=name):
            read(path)


def test_a_table_of_label_issues_has_the_columns_of_cleanlab_and_comes_back(tmp_path):
    clf, right = noisy()
    found = audit(clf)
    table = cleanlab_issues(found)
    columns = ["id", "is_label_issue", "label_score", "given_label", "predicted_label"]
    assert table.columns.tolist() == columns
    assert set(table["id"][table["is_label_issue"]]) == {0, 1, 2, 3}
    assert table["label_score"].between(0, 1).all()
    for source in (table, tmp_path / "issues.csv"):
        if source is not table:
            table.to_csv(source, index=False)
        edits = read_cleanlab(source).edits(clf)
        assert edits.relabel == {row: right[row] for row in range(4)}


def test_scores_are_those_of_cleanlab_itself():
    rank = pytest.importorskip("cleanlab.rank")
    clf, _ = noisy()
    table = cleanlab_issues(audit(clf)).sort_values("id")
    labels, proba = clf.memory_.entries.labels, clf.leave_one_out_proba()
    expected = rank.get_label_quality_scores(labels, proba, method="self_confidence")
    assert np.allclose(table["label_score"], expected)


def test_tables_as_pandas_writes_them_with_an_index_are_read(tmp_path):
    issues = pd.DataFrame(
        {"is_label_issue": [False, True], "label_quality": [0.9, 0.1]}
        | {"given_label": ["b", "=b"], "predicted_label": ["b", "c"]}
    )
    path = tmp_path / "issues.csv"
    issues.to_csv(path)
    for source in (issues, path):
        (one,) = read_cleanlab(source).reviews
        assert (one.key, one.given, one.decision) == (1, "=b", "c")


def test_tables_that_are_not_of_label_issues_are_refused(tmp_path):
    table = pd.DataFrame({"is_label_issue": [True], "given_label": ["a"], "predicted_label": ["b"]})
    with pytest.raises(InvalidInputError, match="The table must have the column 'predicted_label'"):
        read_cleanlab(table.drop(columns="predicted_label"))
    with pytest.raises(InvalidInputError, match="Row 0 of the table must have True or False"):
        read_cleanlab(table.assign(is_label_issue="maybe"))
    path = tmp_path / "issues.csv"
    with pytest.raises(InvalidInputError, match="File not found"):
        read_cleanlab(path)
    path.write_bytes(b'a,b\n"open')
    with pytest.raises(InvalidInputError, match="not a valid CSV file"):
        read_cleanlab(path)
    for content, message in (
        (b"is_label_issue,id,id\nTrue,1,2\n", "must be unique; 'id' is not"),
        (b"id,label\n1,2,3\n", "must have 2 values, as the header has; row 0 has 3"),
        (b"id,label\n1,2\n1\n", "must have 2 values, as the header has; row 1 has 1"),
        (b"", "must have the column 'is_label_issue'"),
    ):
        path.write_bytes(content)
        with pytest.raises(InvalidInputError, match=message):
            read_cleanlab(path)
    path.write_bytes(b"a\xff,b\n")
    with pytest.raises(InvalidInputError, match="not a valid CSV file"):
        read_cleanlab(path)


def test_wrong_arguments_are_refused():
    clf, _ = noisy()
    with pytest.raises(
        InvalidInputError, match="`contents` must have one object for each of the 60"
    ):
        label_studio_tasks(audit(clf), ["one"])
    with pytest.raises(InvalidInputError, match="`kind` must be one of text, image, table"):
        label_studio_config(["a"], "audio")


def test_string_ids_that_look_like_numbers_are_found(tmp_path):
    clf, _ = noisy(ids=[str(row) for row in range(60)])
    path = tmp_path / "issues.csv"
    label = next(c for c in "abc" if c != clf.classes_[clf.memory_.entries.labels[7]])
    path.write_text(f",is_label_issue,given_label,predicted_label\n7,True,,{label}\n")
    assert read_cleanlab(path).edits(clf).relabel == {"7": label}
