"""Bad files get one clear line, exit code 1, and nothing is written."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from attnknn.cli.rows import open_rows

from .samples import QUICK, animals, refused, run, write


def refused_fit(path: Path, target: str = "kind") -> str:
    model = path.parent / "new model"
    line = refused("fit", path, "-t", target, "-o", model, *QUICK)
    assert not model.exists()
    return line


def refused_predict(model: Path, path: Path) -> str:
    out = path.parent / "out.csv"
    out.write_text("precious")
    line = refused("predict", model, path, "-o", out, "--force")
    assert out.read_text() == "precious"
    assert sorted(p.name for p in path.parent.glob(".*")) == []
    return line


def text_file(folder: Path, text: str | bytes, name: str = "bad.csv") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_missing_file_is_named(model: Path, tmp_path: Path) -> None:
    assert "File not found" in refused_fit(tmp_path / "nowhere.csv")
    assert "File not found" in refused_predict(model, tmp_path / "nowhere.csv")


def test_an_unknown_ending_gets_the_list_of_known_ones(tmp_path: Path) -> None:
    assert ".parquet" in refused_fit(text_file(tmp_path, "x", "rows.xlsx"))


def test_a_missing_column_is_named_with_those_there_are(train: Path) -> None:
    line = refused_fit(train, target="species")
    assert "no column 'species'" in line
    assert "name, weight, legs, home, kind" in line


def test_a_column_missing_at_predict_is_named(model: Path, tmp_path: Path) -> None:
    path = write(animals(3).drop(columns=["weight", "home"]), tmp_path / "bad.csv")
    assert "missing: 'weight', 'home'" in refused_predict(model, path)


def test_an_empty_file_and_a_header_without_rows_are_distinguished(
    model: Path, tmp_path: Path
) -> None:
    empty, header = text_file(tmp_path, "", "a.csv"), text_file(tmp_path, "weight,kind\n", "b.csv")
    assert "must hold rows, it is empty" in refused_fit(empty)
    assert "it has 0" in refused_fit(header)
    assert "must hold rows, it is empty" in refused_predict(model, empty)
    blank = text_file(tmp_path, "\nweight,kind\n", "blank.csv")
    assert "must name the columns, it is blank" in refused_fit(blank)
    header = text_file(tmp_path, "weight,legs,home\n", "c.csv")
    assert "it has none" in refused_predict(model, header)


def test_a_wrong_encoding_is_said_with_line_and_byte(tmp_path: Path) -> None:
    latin = text_file(tmp_path, "x,kind\n1,a\n2,caf\xe9\n".encode("latin-1"))
    assert "line 3 has the byte 0xe9 at position 6" in refused_fit(latin)
    utf16 = text_file(tmp_path, "x,kind\n1,a\n".encode("utf-16"))
    assert "it is UTF-16" in refused_fit(utf16)


def test_a_file_that_is_no_text_is_named_for_what_it_is(tmp_path: Path) -> None:
    zipped = text_file(tmp_path, gzip.compress(b"x,kind\n1,a\n"))
    assert "it is compressed. Rename it to end in .gz." in refused_fit(zipped)
    workbook = text_file(tmp_path, b"PK\x03\x04\xff\xfe\n")
    assert "a workbook. Save the table as CSV." in refused_fit(workbook)


def test_a_byte_order_mark_is_no_part_of_the_first_name(tmp_path: Path) -> None:
    text = "\ufeffkind,x\n" + "".join(f"{'ab'[i % 2]},{i}\n" for i in range(9))
    path = text_file(tmp_path, text)
    assert run("fit", path, "-t", "kind", "-o", tmp_path / "m", *QUICK).exit_code == 0


def test_a_missing_label_is_said_with_its_row(tmp_path: Path) -> None:
    assert "line 3" in refused_fit(text_file(tmp_path, "x,kind\n1,a\n2,\n3,b\n"))
    table = animals(9)
    table.loc[4, "kind"] = None
    assert "row 4" in refused_fit(write(table, tmp_path / "bad.parquet"))


def test_a_repeated_header_is_refused(model: Path, tmp_path: Path) -> None:
    path = text_file(tmp_path, "x,kind,x\n1,a,2\n")
    assert "'x' is repeated" in refused_fit(path)
    assert "'x' is repeated" in refused_predict(model, path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("x,z,kind\n1,1,a\n2,2\n", "line 3 has 2"),
        ("x,z,kind\n1,1,a\n2,2,b,9\n", "line 3 has 4"),
        ("x,z,kind\n1,1,a,9\n2,2,b,9\n", "line 2 has 4"),
    ],
)
def test_ragged_rows_are_refused(text: str, match: str, tmp_path: Path) -> None:
    assert match in refused_fit(text_file(tmp_path, text))


def test_text_in_a_column_of_numbers_is_said_with_its_row(model: Path, tmp_path: Path) -> None:
    table = animals(5).astype(object)
    table.loc[3, "weight"] = "heavy"
    line = refused_predict(model, write(table, tmp_path / "bad.csv"))
    assert "Column 'weight' must hold numbers, as in `fit`; line 5 has 'heavy'" in line
    table.loc[3, "weight"] = "inf"
    assert "line 5 is infinite" in refused_predict(model, write(table, tmp_path / "bad.csv"))


def test_an_unknown_category_and_a_gap_are_allowed(model: Path, tmp_path: Path) -> None:
    table = animals(4)
    table.loc[0, "home"] = "the moon"
    table.loc[1, ["home", "weight"]] = None
    result = run("predict", model, write(table, tmp_path / "odd.csv"))
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 5


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    assert "not a valid Parquet file" in refused_fit(text_file(tmp_path, "PAR1xx", "a.parquet"))
    assert "not a valid NPZ file" in refused_fit(text_file(tmp_path, "PKxx", "a.npz"))
    zipped = gzip.compress(b"x,kind\n1,a\n" * 500)[:-20]
    assert ".gz file" in refused_fit(text_file(tmp_path, zipped, "a.csv.gz"))
    assert ".gz" in refused_fit(text_file(tmp_path, b"x,kind\n1,a\n", "b.csv.gz"))


def test_pickled_objects_in_an_npz_file_are_never_opened(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", X=np.zeros((3, 2)), y=np.array([1, "a", None], dtype=object))
    assert "pickled Python objects" in refused_fit(tmp_path / "bad.npz", "y")


def test_an_npz_file_of_another_width_or_shape_is_refused(tmp_path: Path) -> None:
    X, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
    np.savez(tmp_path / "train.npz", X=X, y=y)
    run("fit", tmp_path / "train.npz", "-o", tmp_path / "model", *QUICK)
    np.savez(tmp_path / "wide.npz", X=np.zeros((2, 4)))
    line = refused_predict(tmp_path / "model", tmp_path / "wide.npz")
    assert "must have 3 columns, as in `fit`, they have 4" in line
    np.savez(tmp_path / "cube.npz", X=np.zeros((2, 4, 4)))
    assert "shape" in refused_predict(tmp_path / "model", tmp_path / "cube.npz")
    np.savez(tmp_path / "none.npz", z=np.zeros((2, 3)))
    assert "it has: z" in refused_predict(tmp_path / "model", tmp_path / "none.npz")
    X[1, 1] = np.nan
    np.savez(tmp_path / "gap.npz", X=X)
    assert "row 1" in refused_predict(tmp_path / "model", tmp_path / "gap.npz")


def test_arrays_of_other_lengths_are_named_with_both_lengths(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", X=np.zeros((20, 3)), y=np.zeros(19), z=np.zeros((20, 2)))
    for arguments in ((), ("-t", "y")):
        line = refused("fit", tmp_path / "bad.npz", "-o", tmp_path / "m", *arguments)
        assert "'X' has 20 rows, 'y' has 19 values" in line
    assert "'z' has shape (20, 2)" in refused_fit(tmp_path / "bad.npz", "z")


def test_gaps_in_vectors_and_columns_taken_as_they_are_get_the_way_out(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", X=np.array([[0.0, 1.0], [2.0, np.nan]]), y=[0, 1])
    assert "the value in row 1 is missing. Fit with `--encoder tabular`" in refused_fit(
        tmp_path / "bad.npz", "y"
    )
    path = text_file(tmp_path, "x,kind\n1,a\n,b\n")
    line = refused("fit", path, "-t", "kind", "-o", tmp_path / "m", "--encoder", "identity")
    assert "the value in line 3 is missing. Fit with `--encoder tabular`" in line


def test_lines_are_counted_with_the_header_and_values_of_several_lines(
    model: Path, tmp_path: Path
) -> None:
    text = 'weight,legs,home\n1,2,"a\nb"\nheavy,2,"c\nd"\n'
    assert "line 4 has 'heavy'" in refused_predict(model, text_file(tmp_path, text))
    assert "line 6 has 2" in refused_predict(model, text_file(tmp_path, text + "1,2\n"))


def test_a_blank_line_between_rows_is_named(model: Path, tmp_path: Path) -> None:
    text = 'weight,legs,home\n1,2,"a\nb"\n\n\n3,2,c\n'
    assert "line 4 is blank" in refused_predict(model, text_file(tmp_path, text))
    end = text_file(tmp_path, "weight,legs,home\n1,2,a\n3,2,c\n\n\n")
    assert len(json.loads(run("predict", model, end, "--format", "json").stdout)) == 2


def test_blank_lines_of_a_single_column_are_missing_values(tmp_path: Path) -> None:
    path = text_file(tmp_path, "x\n1\n\n3\n\n")
    (chunk,) = open_rows(path).chunks()
    assert chunk.table["x"].tolist() == ["1", None, "3", None]
    assert chunk.lines == [2, 3, 4, 5]


def test_an_open_quote_is_found(tmp_path: Path) -> None:
    assert "begins in line 3" in refused_fit(text_file(tmp_path, 'x,kind\n1,a\n2,"b\n3,a\n'))


def test_one_row_is_too_few(tmp_path: Path) -> None:
    line = refused_fit(text_file(tmp_path, "x,kind\n1,a\n"))
    assert line.endswith("must have at least two rows, it has 1.")


@pytest.mark.filterwarnings("default:`y` has only one class")
def test_one_class_is_accepted_with_the_warning_of_python(tmp_path: Path) -> None:
    rows = write(animals(12).assign(kind="ox"), tmp_path / "rows.csv")
    result = run("fit", rows, "-t", "kind", "-o", tmp_path / "new model", *QUICK)
    assert "Warning: `y` has only one class, 'ox'" in result.stderr


def test_columns_that_tell_nothing_are_named(tmp_path: Path) -> None:
    table = pd.DataFrame({"year": 1, "note": None, "kind": ["a", "b"] * 5})
    line = refused_fit(write(table, tmp_path / "bad.csv"))
    assert "bad.csv must have a column that varies" in line
    assert line.endswith("equal or missing in year, note.")
    table["x"] = range(10)
    path = write(table, tmp_path / "good.csv")
    told = run("fit", path, "-t", "kind", "-o", tmp_path / "m", *QUICK).stderr
    assert "2: year (all values are equal), note (all values are missing)" in told


def test_an_infinite_number_is_said_with_its_line(tmp_path: Path) -> None:
    assert "line 3 is infinite" in refused_fit(text_file(tmp_path, "x,kind\n1,a\ninf,b\n"))


def test_lists_in_a_column_are_refused(tmp_path: Path) -> None:
    table = pd.DataFrame({"x": [1, 2], "tags": [[1, 2], [3, 4]], "kind": ["a", "b"]})
    path = write(table, tmp_path / "bad.parquet")
    assert "--drop-columns tags" in refused_fit(path)


def test_a_name_that_is_nearly_right_gets_a_guess(train: Path) -> None:
    assert "Did you mean 'kind'?" in refused_fit(train, target="Kinds")


def test_a_folder_that_is_not_a_model_is_refused(rows: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "is not a model folder" in refused("predict", tmp_path / "empty", rows)
    assert "no model folder" in refused("predict", tmp_path / "nowhere", rows)
    assert "is a file, not a model folder" in refused("predict", rows, rows)


def test_repeated_ids_are_refused(tmp_path: Path) -> None:
    table = animals(6)
    table.loc[3, "name"] = table.loc[2, "name"]
    path = write(table, tmp_path / "bad.csv")
    line = refused("fit", path, "-t", "kind", "-o", tmp_path / "m", "--id-column", "name", *QUICK)
    assert "repeats 'id-0-002' in line 5" in line


def test_sample_weight_must_be_positive(tmp_path: Path) -> None:
    table = animals(6)
    table["say"] = [1, 1, 0, 1, 1, 1]
    path = write(table, tmp_path / "bad.csv")
    arguments = ("-t", "kind", "-o", tmp_path / "m", "--sample-weight-column", "say", *QUICK)
    assert "line 4 has '0'" in refused("fit", path, *arguments)


def test_wrong_usage_ends_with_code_2(model: Path, rows: Path, tmp_path: Path) -> None:
    assert run("predict", model).exit_code == 2
    assert run("predict", model, rows, "--format", "xml").exit_code == 2
    assert run("predict", model, rows, "--format", "parquet").exit_code == 2
    assert run("predict", model, rows, "-o", rows).exit_code == 2
    assert run("explain", model, rows, "--row-numbers", "a,b").exit_code == 2
    assert run("nonsense").exit_code == 2


def test_a_missing_target_lists_the_columns(train: Path, tmp_path: Path) -> None:
    result = run("fit", train, "-o", tmp_path / "m")
    assert result.exit_code == 2
    assert "with --target; it has: name, weight, legs, home, kind." in result.stderr


def test_an_encoding_and_a_repeated_name_come_with_a_remedy(tmp_path: Path) -> None:
    latin = text_file(tmp_path, "x,kind\n1,caf\xe9\n".encode("latin-1"))
    assert '"CSV UTF-8" in spreadsheets' in refused_fit(latin)
    twice = text_file(tmp_path, "x,x,kind\n1,2,a\n", "twice.csv")
    assert "'x' is repeated. Rename one." in refused_fit(twice)
