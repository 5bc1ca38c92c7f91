"""Labels, ids, payloads, column names and file names that attack a terminal or a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
import time
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from attnknn import AttnKNNClassifier
from attnknn._escape import CONTROLS
from attnknn.cli import output
from attnknn.cli.rows import open_rows
from attnknn.training import terminal

from .samples import QUICK, run

ESCAPES = [
    "\x1b[2J\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b31mC1",
    "\u202egnp.exe",
    "\u2066isolate\u2069",
    "line\nError: forged",
    "sep\u2028Error: forged",
    "over\rError: forged",
    "bell\x07\x7f",
    "[red]markup[/red] [bold",
]
FORMULAS = [
    '=HYPERLINK("http://x","y")',
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "-2+3",
    "+1+1",
    "\t=1+1",
    "\r=1+1",
    "'=1+1",
    "'tis an apostrophe",
    "''two",
    "-nan",
    "＝1+1",
]
TEXTS = [*ESCAPES, *FORMULAS, "<script>alert(1)</script>", "plain, with a comma"]
COLUMN = "\x1b[31m=col\u202e"
FILE = "\x1b]0;[red]\u202efile"


def check_shown(shown: str) -> None:
    """Nothing but line feeds controls the terminal, and no line is forged."""
    found = {c for c in shown if unicodedata.category(c) in CONTROLS} - {"\n"}
    assert not found, shown
    assert not re.search(r"^Error: forged", shown, flags=re.MULTILINE), shown


def show(*arguments: Any, exit_codes: tuple[int, ...] = (0,)) -> str:
    result = run(*arguments)
    assert result.exit_code in exit_codes, result.output
    check_shown(result.stdout)
    check_shown(result.stderr)
    return result.stdout


def hostile_rows() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    classes = np.arange(4 * len(TEXTS)) % len(TEXTS)
    return pd.DataFrame(
        {
            "name": [f"{TEXTS[c]}{row}" for row, c in enumerate(classes)],
            COLUMN: generator.normal(size=len(classes)) + 9 * classes,
            "words": [f"{TEXTS[c]} w" for c in classes],
            "kind": [TEXTS[c] for c in classes],
        }
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with hostile rows and a model of them, with hostile names."""
    folder = tmp_path_factory.mktemp("hostile")
    hostile_rows().to_parquet(folder / f"{FILE}.parquet")
    roles = ("-t", "kind", "--id-column", "name", "--subject-column", "words")
    rows = folder / f"{FILE}.parquet"
    show("fit", rows, "-o", folder / FILE, *roles, *QUICK, "--payload-columns", "words")
    return folder


def test_no_command_sends_control_characters_of_data_to_a_terminal(place: Path) -> None:
    model, rows = place / FILE, place / f"{FILE}.parquet"
    name = TEXTS[0] + "0"
    assert r"\x1b[2J" in show("explain", model, rows)
    show("evaluate", model, rows)
    show("audit", model)
    show("whatif", model, rows, "--relabel", f"{name}={TEXTS[5]}")
    show("monitor", model, rows, exit_codes=(0, 3))
    show("forget", model, name)
    show("undo", model, "--by", "\x1b[31mme")
    show("forget", model, "no\x1b[31m such id", exit_codes=(1,))
    show("snapshot", model, "\x1b[31mmonday", exit_codes=(0, 1))
    show("snapshot", model)
    show("rollback", model, "\x1b[31mtuesday", exit_codes=(1,))
    show("log", model)
    show("log", model, "--edit", 1)
    show("predict", model, place / f"missing{FILE}.csv", exit_codes=(1,))
    show("predict", model, rows, "-t\x1b[31m", exit_codes=(2,))
    (place / "bad.csv").write_text(f"{COLUMN},words\n\x1b[31mabc,d\n")
    show("predict", model, place / "bad.csv", exit_codes=(1,))
    show("predict", model, rows, "-o", place / f"out{FILE}.csv")
    show("forget", model, "--subject", f"{TEXTS[5]} w", exit_codes=(0, 1))


def test_json_holds_the_data_as_they_are(place: Path) -> None:
    model, rows = place / FILE, place / f"{FILE}.parquet"
    found = json.loads(show("predict", model, rows, "--format", "json"))
    assert [row["name"] for row in found] == hostile_rows()["name"].tolist()
    explained = json.loads(show("explain", model, rows, "--format", "json"))
    assert explained[0]["name"] == TEXTS[0] + "0"


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_spreadsheet_evaluates_nothing_and_the_texts_come_back(
    place: Path, ending: str, tmp_path: Path
) -> None:
    model, rows, out = place / FILE, place / f"{FILE}.parquet", tmp_path / f"out.{ending}"
    show("predict", model, rows, "--proba", "-o", out)
    with out.open(newline="", encoding="utf-8") as file:
        header, *cells = csv.reader(file, delimiter="\t" if ending == "tsv" else ",")
    assert len(cells) == len(hostile_rows())
    for cell in (*header, *(cell for row in cells for cell in row)):
        is_number = re.fullmatch(r"-?[0-9.]+(e[+-]?[0-9]+)?", cell)
        assert is_number or not cell.startswith(tuple("=+-@\t\r＝")), cell
    assert all(0 <= float(value) <= 1 for row in cells for value in row[2:])
    table = pd.concat([chunk.table for chunk in open_rows(out).chunks()])
    assert table["name"].tolist() == hostile_rows()["name"].tolist()
    expected = AttnKNNClassifier.load(model).predict(hostile_rows()[[COLUMN, "words"]])
    assert table["label"].tolist() == expected.tolist()


@pytest.mark.parametrize("label", [*FORMULAS[:-2], "\x1b[31m", "over\rline"])
def test_a_reviewed_table_of_hostile_texts_is_applied_exactly(label: str, tmp_path: Path) -> None:
    labels = [label, "plain"] * 6
    table = pd.DataFrame({"name": [f"{label}{i}" for i in range(12)], "x": range(12), "k": labels})
    table.to_parquet(tmp_path / "rows.parquet")
    model, audit = tmp_path / "model", tmp_path / "audit.csv"
    show("fit", tmp_path / "rows.parquet", "-t", "k", "--id-column", "name", "-o", model, *QUICK)
    show("audit", model, "-o", audit)
    with audit.open(newline="", encoding="utf-8") as file:
        reviewed = list(csv.DictReader(file))
    for row in reviewed:  # as a reviewer copies labels from the table: from the column `label`
        other = next(r["label"] for r in reviewed if r["label"] != row["label"])
        row["decision"] = other
    with audit.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, reviewed[0].keys(), quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(reviewed)
    show("relabel", model, audit)
    entries = AttnKNNClassifier.load(model)
    found = dict(
        zip(
            entries.memory_.entries.ids.tolist(),
            entries.classes_[entries.memory_.entries.labels].tolist(),
            strict=True,
        )
    )
    swapped = {label: "plain", "plain": label}
    assert found == {f"{label}{i}": swapped[labels[i]] for i in range(12)}


class _Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_printed_to_a_terminal_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = _Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    with output.open_writer(None, "csv") as writer:
        writer.write(pd.DataFrame({"a": ["\x1b[31m", "b"], "c": [1, 2]}))
    assert screen.getvalue() == "a,c\n\\x1b[31m,1\nb,2\n"


def test_progress_shows_markup_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(terminal, "DELAY", 0.0)
    with output.progress("Reading [red]x[/red]\x1b[2J"):
        deadline = time.monotonic() + 5
        shown = ""
        while "Reading" not in shown and time.monotonic() < deadline:
            shown += capsys.readouterr().err
    assert r"Reading [red]x[/red]\x1b[2J" in shown


def test_commands_print_only_with_the_functions_that_escape() -> None:
    folder = Path(output.__file__).parent
    for path in folder.rglob("*.py"):
        if path.name != "output.py":
            printing = re.findall(
                r"click\.s?echo|\n +print\(|sys\.std(?:out|err)\.write", path.read_text()
            )
            assert not printing, path
