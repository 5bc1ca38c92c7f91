"""JSON Lines: read like CSV, and as strictly."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from attnknn.cli.rows import json_lines, open_rows
from attnknn.errors import InvalidInputError

from .samples import QUICK, animals, fit_quickly, refused, run, write


def lines_of(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"\n".join(x if isinstance(x, bytes) else x.encode() for x in lines))
    return path


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "jsonl.gz"])
def test_every_command_reads_json_lines(ending: str, tmp_path: Path) -> None:
    tables = {name: tmp_path / f"{name}.{ending}" for name in ("train", "more")}
    for seed, path in enumerate(tables.values()):
        animals(seed=seed).to_json(path, orient="records", lines=True)
    fit_quickly(tables["train"], tmp_path / "model")
    fit_quickly(write(animals(), tmp_path / "train.csv"), tmp_path / "other")
    for command in ("predict", "explain", "evaluate"):
        expected = run(command, tmp_path / "other", tmp_path / "train.csv").stdout
        assert run(command, tmp_path / "model", tables["train"]).stdout == expected
    assert "60 entries" in run("add", tmp_path / "model", tables["more"]).stdout


def test_a_table_of_decisions_may_be_json_lines(model: Path, tmp_path: Path) -> None:
    table = lines_of(tmp_path / "t.jsonl", '{"id": "id-0-000", "decision": "sea lion"}')
    assert "Relabeled 1 entry" in run("relabel", model, table).stdout


def test_values_are_read_as_they_are_written(tmp_path: Path) -> None:
    path = lines_of(
        tmp_path / "rows.jsonl",
        '\ufeff{"a": 1.10, " b ": true, "c": " x ", "d": null, "": 5}',
        '{"b": false, "a": "", "d": NaN, "c": "None"}',
        '{"e": 123456789012345678901234567890}',
        "",
    )
    source = open_rows(path)
    assert source.columns == ["a", "b", "c", "d", "e"]
    (chunk,) = source.chunks()
    assert chunk.lines == [1, 2, 3]
    assert chunk.table["a"].tolist() == ["1.10", None, None]
    assert chunk.table["b"].tolist() == ["True", "False", None]
    assert chunk.table["c"].tolist() == ["x", "None", None]
    assert chunk.table["d"].tolist() == [None] * 3
    assert chunk.table["e"].tolist() == [None, None, "123456789012345678901234567890"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (['{"a": 1}', '{"a": 1'], "Line 2 of .* is not valid JSON: Expecting .* at character"),
        (["[", '{"a": 1}]'], "must be written as one object per line"),
        (['{"a": 1}', "5"], "must be a JSON object, such as .*; line 2 is 5"),
        (['[{"a": 1}]'], "must be a JSON object"),
        (['{"a": 1, "a ": 2}'], "line 1 of .* repeats 'a'"),
        (['{"a": 1}', "", '{"a": 1}'], "line 2 is blank"),
        ([""], "must hold rows, one JSON object per line"),
        (["{}"], "must hold rows"),
        ([r'{"a": "\ud800"}'], "Line 1 of .* must be valid Unicode"),
        ([r'{"\udfff": 1}'], "must be valid Unicode"),
        (['{"a": ' + "[" * 100_000], "nested too deeply"),
        (['{"a": 1}', b'{"a": "\xff"}'], "line 2 has the byte 0xff"),
    ],
)
def test_broken_lines_are_named(lines: list[str | bytes], words: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=words):
        open_rows(lines_of(tmp_path / "rows.jsonl", *lines))


def test_nested_values_are_refused_by_name_unless_the_column_is_ignored(tmp_path: Path) -> None:
    rows = [f'{{"x": {i}, "tags": ["a"], "y": "{"ab"[i % 2]}"}}' for i in range(8)]
    path, model = lines_of(tmp_path / "rows.jsonl", '{"x": 9, "y": "a"}', *rows), tmp_path / "m"
    arguments = ("fit", path, "-o", model, *QUICK)
    line = refused(*arguments, "-t", "y")
    assert "Column 'tags' of " in line
    assert "must hold one value per row; line 2 has a list." in line
    assert "--drop-columns tags" in line
    assert "line 2 has a list" in refused(*arguments, "-t", "tags")
    assert run(*arguments, "-t", "y", "--drop-columns", "tags").exit_code == 0
    assert run("predict", model, path).exit_code == 0
    nested = lines_of(tmp_path / "nested.jsonl", '{"x": {"deep": 1}, "y": "a"}')
    assert "Column 'x' of " in refused("predict", model, nested)
    assert "line 1 has an object" in refused("predict", model, nested)


def test_mistakes_in_values_name_the_line(tmp_path: Path) -> None:
    rows = [f'{{"x": {i}, "y": "{"ab"[i % 2]}"}}' for i in range(30)]
    path = lines_of(tmp_path / "rows.jsonl", *rows, '{"x": "n/a?", "y": "a"}')
    line = refused("fit", path, "-t", "y", "-o", tmp_path / "m")
    assert "Column 'x' looks like numbers, but line 31 has 'n/a?'" in line
    path = lines_of(tmp_path / "rows.jsonl", *rows, '{"x": Infinity, "y": "a"}')
    assert "line 31 is infinite" in refused("fit", path, "-t", "y", "-o", tmp_path / "m")
    path = lines_of(tmp_path / "rows.jsonl", *rows, '{"x": 1}')
    assert "column 'y' is empty in line 31" in refused("fit", path, "-t", "y")


def test_many_keys_and_rows_are_bounded(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wide = lines_of(tmp_path / "wide.jsonl", *(f'{{"key{i}": 1, "y": 1}}' for i in range(100)))
    line = refused("fit", wide, "-t", "y", "--max-memory", "100kB")
    assert "would need" in line
    assert "--max-memory" in line
    assert "would need" in refused("predict", model, wide, "--max-memory", "1KB")
    monkeypatch.setattr(json_lines, "CHUNK_CELLS", 500)
    chunks = list(open_rows(wide).chunks())
    assert len(chunks) > 20
    assert sum(len(chunk) for chunk in chunks) == 100


def test_long_rows_are_read_in_small_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_lines, "CHUNK_CHARACTERS", 10)
    path = lines_of(tmp_path / "rows.jsonl", *(['{"text": "123456"}'] * 4))
    assert [chunk.lines for chunk in open_rows(path).chunks()] == [[1, 2], [3, 4]]


def test_pipes_and_broken_archives_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    assert "named pipe" in refused("fit", tmp_path / "pipe.jsonl", "-t", "y")
    whole = gzip.compress(b'{"a": 1}\n' * 1000)
    path = lines_of(tmp_path / "rows.jsonl.gz", whole[:-10])
    assert "not a valid .gz file" in refused("fit", path, "-t", "a")


def test_json_files_get_a_hint(tmp_path: Path) -> None:
    animals().to_json(tmp_path / "rows.json", orient="records")
    line = refused("fit", tmp_path / "rows.json", "-t", "kind")
    assert "Write one JSON object per line, and name the file .jsonl." in line
