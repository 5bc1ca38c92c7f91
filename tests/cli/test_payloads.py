"""Every table about entries shows what they are, not only their ids."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from attnknn import AttnKNNClassifier
from attnknn.insight import audit

from .samples import QUICK, animals, fit_quickly, refused, run, write
from .test_texts import messages


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    return write(messages(), tmp_path / "texts.csv")


@pytest.fixture
def model(texts: Path, tmp_path: Path) -> Path:
    assert run("fit", texts, "-t", "topic", "-o", tmp_path / "m", *QUICK).exit_code == 0
    return tmp_path / "m"


def test_an_audit_shows_the_texts(model: Path, tmp_path: Path) -> None:
    *_, line = run("audit", model).stdout.splitlines()
    assert "message=" in line
    assert run("audit", model, "-o", tmp_path / "audit.csv").exit_code == 0
    assert pd.read_csv(tmp_path / "audit.csv")["entry"].str.startswith("message=").all()


def test_the_log_shows_the_texts(model: Path) -> None:
    run("forget", model, "0")
    assert "message=my card is lost on day 0" in run("log", model, "--edit", "1").stdout
    (change,) = json.loads(run("log", model, "--edit", "1", "--format", "json").stdout)
    assert change["payload"] == "message=my card is lost on day 0"


def test_what_if_and_explain_show_the_texts_of_rows(model: Path, texts: Path) -> None:
    tried = ("whatif", model, texts, "--forget", "0")
    assert " (message=" in run(*tried).stdout
    first, *_ = json.loads(run(*tried, "--format", "json").stdout)["rows"]
    assert first["content"].startswith("message=")
    explained = run("explain", model, texts, "--limit", "1").stdout
    assert explained.startswith("row 0 (message=my card is lost on day 0): ")


def test_a_model_without_payloads_shows_none(tmp_path: Path, rows: Path) -> None:
    train = write(animals(), tmp_path / "train.csv")
    fit_quickly(train, tmp_path / "bare", "--no-payload")
    run("forget", tmp_path / "bare", "id-0-000")
    for command in ("audit", "explain", "log", "whatif"):
        more = {
            "explain": [rows],
            "log": ["--edit", "1"],
            "whatif": [rows, "--forget", "id-0-001"],
        }
        shown = run(command, tmp_path / "bare", *more.get(command, [])).stdout
        assert shown
        assert "weight=" not in shown


def test_an_unknown_kind_of_id_says_where_ids_are_shown(model: Path) -> None:
    line = refused("forget", model, "photos/a.png")
    assert "are integers, got 'photos/a.png'. `attnknn explain` and `attnknn audit` show" in line


def test_payloads_of_an_audit_in_python() -> None:
    table = pd.DataFrame({"size": [1.0, 1.1, 5.0, 5.1]}, index=["a", "b", "c", "d"])
    clf = AttnKNNClassifier(attention="distance").fit(table, [0, 0, 1, 1], payloads=True)
    found = audit(clf)
    assert "#a  size=1.0" in found.table()
    assert "size=1.0" in found._repr_html_()
    assert found.to_frame().set_index("id")["payload"]["c"] == {"size": 5.0}
    bare = audit(AttnKNNClassifier(attention="distance").fit(table, [0, 0, 1, 1]))
    assert "payload" not in bare.to_frame()
