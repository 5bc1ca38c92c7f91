"""The option `--sep`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .samples import QUICK, animals, refused, run

NAMED = ("-t", "kind", "--id-column", "name", *QUICK)


def separated(path: Path, separator: str) -> Path:
    animals(30).to_csv(path, index=False, sep=separator)
    return path


@pytest.mark.parametrize(
    ("separator", "typed"), [(";", ";"), ("\t", "\\t"), ("\t", "tab"), ("|", "|")]
)
def test_every_command_takes_a_separator(separator: str, typed: str, tmp_path: Path) -> None:
    rows, model = separated(tmp_path / "rows.txt", separator), tmp_path / "model"
    plain = separated(tmp_path / "rows.csv", ",")
    assert run("fit", rows, "-o", model, *NAMED, "--sep", typed).exit_code == 0
    for command in ("predict", "explain", "evaluate"):
        expected = run(command, model, plain)
        assert expected.exit_code == 0
        assert run(command, model, rows, "--sep", typed).stdout == expected.stdout


@pytest.mark.parametrize(
    ("separator", "ending", "hint"),
    [(";", "csv", "';'"), ("\t", "csv", r"'\t'"), (",", "tsv", "','")],
)
def test_one_column_that_looks_like_several_gets_a_hint(
    separator: str, ending: str, hint: str, tmp_path: Path
) -> None:
    path = separated(tmp_path / f"rows.{ending}", separator)
    assert f"give --sep {hint}" in refused("fit", path, "-o", tmp_path / "model", *NAMED)


def test_a_separator_that_is_given_is_not_doubted(tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text("a;b\n1\n")
    line = refused("fit", tmp_path / "odd.csv", "-o", tmp_path / "m", "-t", "c", "--sep", ",")
    assert "It has: a;b." in line


def test_a_separator_must_be_one_character_of_a_text_file(tmp_path: Path) -> None:
    rows = separated(tmp_path / "rows.csv", ",")
    assert run("fit", rows, "-o", tmp_path / "m", *NAMED, "--sep", ";;").exit_code == 2
    animals(9).to_parquet(tmp_path / "rows.parquet")
    arguments = ("fit", tmp_path / "rows.parquet", "-o", tmp_path / "m", *NAMED)
    assert "--sep is for text files" in refused(*arguments, "--sep", ";")
