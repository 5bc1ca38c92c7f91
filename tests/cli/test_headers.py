"""Files without a header: they are noticed, and read with `--no-header`."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from attnknn import AttnKNNClassifier
from attnknn.cli.rows.headers import cells_like_data
from attnknn.storage import load_notes

from .samples import QUICK, animals, refused, run
from .test_texts import questions

ROWS = [["4.9", "3.0", "setosa"], ["7.0", "3.2", "versicolor"]]


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """Name, weight, legs, home and kind, without these words."""
    animals().to_csv(tmp_path / "bare.csv", index=False, header=False)
    return tmp_path / "bare.csv"


@pytest.mark.parametrize(
    ("header", "rows", "found"),
    [
        (["5.1", "3.5", "setosa"], ROWS, ["5.1", "3.5", "setosa"]),
        (["5.1", "3.5", "other"], ROWS, ["5.1", "3.5"]),
        (["5", "3", "kind"], ROWS, ["5", "3"]),
        (["-1", "1e3", ".5"], ROWS, ["-1", "1e3", ".5"]),
        (["0", "1", "2"], ROWS, []),
        (["0", "1", "kind"], ROWS, []),
        (["1", "2", "kind"], ROWS, []),
        (["2019", "2021", "2020"], ROWS, []),
        (["2019", "kind", "x"], ROWS, ["2019"]),
        (["0", "kind", "x"], ROWS, []),
        (["10", "20", "30"], ROWS, []),
        (["3", "2", "1"], ROWS, ["3", "2", "1"]),
        (["length", "width", "kind"], ROWS, []),
        (["", "", "setosa"], ROWS, ["setosa"]),
        (["length", "width"], [], []),
        (["5.1", "3.5"], [], ["5.1", "3.5"]),
    ],
)
def test_cells_that_look_like_data(
    header: list[str], rows: list[list[str]], found: list[str]
) -> None:
    assert cells_like_data(header, rows) == found


def test_a_first_line_that_looks_like_data_is_refused_by_every_command(
    bare: Path, model: Path, tmp_path: Path
) -> None:
    line = refused("fit", bare, "-t", "kind", "-o", tmp_path / "new")
    assert "must name the columns, but it looks like data: " in line
    assert "--no-header" in line
    assert "or --header if these are names" in line
    for command in ("predict", "explain", "evaluate", "add", "monitor"):
        assert "looks like data" in refused(command, model, bare)
    assert "looks like data" in refused("whatif", model, bare, "--forget", "id-0-000")


def test_texts_without_a_header_are_noticed(tmp_path: Path) -> None:
    path = tmp_path / "texts.csv"
    questions()[["question", "topic"]].to_csv(path, index=False, header=False)
    assert "looks like data: 'my card is lost', 'lost'" in refused("fit", path, "-t", "topic")


@pytest.mark.parametrize("header", ["0,1,2", "2019,2020,kind", "spam,text,kind"])
def test_names_that_are_numbers_or_values_are_not_refused(header: str, tmp_path: Path) -> None:
    lines = [header, *(f"{word},word,{number}" for number, word in enumerate(["spam", "ham"] * 4))]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    target = header.split(",")[0]
    arguments = ("fit", tmp_path / "rows.csv", "-t", target, "-o", tmp_path / "m", *QUICK)
    assert run(*arguments).exit_code == 0


def test_a_header_of_numbers_can_be_confirmed(tmp_path: Path) -> None:
    rows = animals()[["weight", "legs", "kind"]].set_axis(["7.5", "9.5", "kind"], axis=1)
    rows.to_csv(tmp_path / "rows.csv", index=False)
    arguments = ("fit", tmp_path / "rows.csv", "-t", "kind", "-o", tmp_path / "m", *QUICK)
    assert "looks like data: '7.5', '9.5'." in refused(*arguments)
    assert run(*arguments, "--header").exit_code == 0


def test_every_command_reads_files_without_a_header(bare: Path, tmp_path: Path) -> None:
    named, model = tmp_path / "named.csv", tmp_path / "model"
    animals().set_axis([f"column_{n}" for n in range(1, 6)], axis=1).to_csv(named, index=False)
    fitted = run(
        *("fit", bare, "--no-header", "-t", "5", "--id-column", "column_1", "-o", model),
        *("--categorical", "4,3", *QUICK),
    )
    assert fitted.exit_code == 0, fitted.output
    assert load_notes(model)["target"] == "column_5"
    assert len(AttnKNNClassifier.load(model).memory_) == 60
    for command in ("predict", "explain", "evaluate"):
        expected = run(command, model, named)
        assert expected.exit_code == 0, expected.output
        assert run(command, model, bare, "--no-header").stdout == expected.stdout
    assert run("evaluate", model, bare, "--no-header", "-t", "5").exit_code == 0
    tried = run("whatif", model, bare, "--no-header", "--forget", "id-0-000")
    assert tried.exit_code == 0
    more = tmp_path / "more.csv"
    animals(6, seed=5).to_csv(more, index=False, header=False)
    assert "6 entries" in run("add", model, more, "--no-header").stdout
    assert run("monitor", model, more, "--no-header").exit_code == 0


def test_a_model_without_names_says_so_to_a_file_with_names(bare: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    assert run("fit", bare, "--no-header", "-t", "5", "-o", model, *QUICK).exit_code == 0
    animals().to_csv(tmp_path / "named.csv", index=False)
    line = refused("predict", model, tmp_path / "named.csv")
    assert "missing: 'column_1', 'column_2'" in line
    assert "The model was fitted with --no-header." in line
    short = tmp_path / "short.csv"
    animals().iloc[:, 1:4].to_csv(short, index=False, header=False)
    line = refused("predict", model, short, "--no-header")
    assert "missing: 'column_4'. Without a header, columns are matched by position." in line


def test_a_column_number_beyond_the_last_is_refused(bare: Path, tmp_path: Path) -> None:
    line = refused("fit", bare, "--no-header", "-t", "6", "-o", tmp_path / "m")
    assert "has no column 'column_6'" in line
    assert "column_1, column_2" in line


def test_rows_of_a_file_without_a_header_are_complete(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,a\n2,b,c\n")
    line = refused("fit", tmp_path / "a.csv", "--no-header", "-t", "2", "-o", tmp_path / "m")
    assert "must have 2 values, like the first row; line 2 has 3" in line


def test_only_text_files_can_lack_a_header(tmp_path: Path) -> None:
    animals().to_parquet(tmp_path / "rows.parquet")
    line = refused("fit", tmp_path / "rows.parquet", "--no-header", "-t", "kind")
    assert "--no-header is for text files" in line
    pd.DataFrame({"a": [1]}).to_json(tmp_path / "rows.jsonl", orient="records", lines=True)
    assert "--no-header is for" in refused("fit", tmp_path / "rows.jsonl", "--no-header", "-t", "a")
