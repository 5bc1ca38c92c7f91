"""JSON Lines: one object per line, read as strictly as CSV."""

from __future__ import annotations

import io
import itertools
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from attnknn.cli.rows.memory_bound import check_size, memory_bound
from attnknn.cli.rows.sources import CHUNK_ROWS, Chunk
from attnknn.cli.rows.text_files import CHUNK_CHARACTERS, TextFile
from attnknn.errors import InvalidInputError

CHUNK_CELLS = 1 << 24  # a line may have few of many keys
NESTED: dict[type, str] = {dict: "an object", list: "a list"}
Object = dict[str, Any]


class JsonLinesSource(TextFile):
    """Objects with the same keys, mostly: a key that a line does not have is a missing value.

    Values become strings as CSV files have them, so that the same rules infer their types; null,
    NaN and "" are missing. Keys with an object or list as value are not usable as columns.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._n_rows = n_bytes = 0
        bound = memory_bound()
        names: dict[str, None] = {}
        unusable: dict[str, str] = {}
        for line, row in self._objects():
            self._n_rows += 1
            for name, value in row.items():
                if name not in names:
                    names[name] = None
                    n_bytes += sys.getsizeof(name)
                    check_size(path, n_bytes, bound)
                if type(value) in NESTED and name not in unusable:
                    unusable[name] = (
                        f"Column {name!r} of {path} must hold one value per row; line {line} has "
                        f"{NESTED[type(value)]}."
                    )
        if not names:
            raise InvalidInputError(
                f"{path} must hold rows, one JSON object per line; it has none."
            )
        self.unusable = unusable
        self.columns = [name for name in names if name not in unusable]

    @property
    def declared_bytes(self) -> int:
        """Eight bytes for each cell."""
        return 8 * self._n_rows * len(self.columns)

    def chunks(self, n_rows: int = CHUNK_ROWS) -> Iterator[Chunk]:
        """Rows as stripped strings; None where a value is missing."""
        n_rows = min(n_rows, max(1, CHUNK_CELLS // max(1, len(self.columns))))
        first, objects = 0, self._objects()
        while block := _take(objects, n_rows):
            table = {
                name: pd.Series([_cell(row.get(name)) for _, row in block], dtype=object)
                for name in self.columns
            }
            lines = [line for line, _ in block]
            yield Chunk(first, pd.DataFrame(table, index=range(len(block))), lines=lines)
            first += len(block)

    def _objects(self) -> Iterator[tuple[int, Object]]:
        """Each object with its line; blank lines are allowed at the end."""
        blank = 0
        with self._explain_errors(), self._open() as file:
            text = io.TextIOWrapper(file, encoding="utf-8-sig")
            for number, line in enumerate(self._bounded_lines(text), start=1):
                if not line.strip():
                    blank = blank or number
                    continue
                if blank:
                    raise InvalidInputError(
                        f"Every line of {self.path} must hold a row; line {blank} is blank. Remove "
                        "it."
                    )
                yield number, self._parse(line, number)

    def _parse(self, line: str, number: int) -> Object:
        try:
            # Numbers stay as they are written, as in CSV: 1.10 is a label, and 1e400 a mistake.
            row = json.loads(
                line,
                object_pairs_hook=_without_repeated,
                parse_int=str,
                parse_float=str,
                parse_constant=_constant,
            )
            "".join(_strings(row)).encode("utf-8")
        except _RepeatedKeyError as error:
            raise InvalidInputError(
                f"Keys of an object must be unique; line {number} of {self.path} repeats "
                f"{error.args[0]!r}."
            ) from None
        except UnicodeEncodeError:
            raise InvalidInputError(
                f"Line {number} of {self.path} must be valid Unicode; it has half of a surrogate "
                "pair, such as \\ud800."
            ) from None
        except RecursionError:
            raise InvalidInputError(
                f"Line {number} of {self.path} is nested too deeply; it must be a flat object."
            ) from None
        except json.JSONDecodeError as error:
            raise InvalidInputError(self._not_json(line, number, error)) from None
        if not isinstance(row, dict):
            raise InvalidInputError(
                f"Every line of {self.path} must be a JSON object, such as "
                f'{{"age": 39, "job": "cook"}}; line {number} is {line.strip()[:40]}.'
            )
        return row

    def _not_json(self, line: str, number: int, error: json.JSONDecodeError) -> str:
        is_spread = number == 1 and line.strip() in ("[", "{")
        hint = (
            " A file of one array or object must be written as one object per line."
            if is_spread
            else ""
        )
        return (
            f"Line {number} of {self.path} is not valid JSON: {error.msg}, at character "
            f"{error.pos + 1}.{hint}"
        )


class _RepeatedKeyError(Exception):
    pass


def _without_repeated(pairs: list[tuple[str, Any]]) -> Object:
    """An object of stripped keys; those without a name are skipped, as in CSV."""
    row: Object = {}
    for key, value in pairs:
        name = key.strip()
        if name in row:
            raise _RepeatedKeyError(name)
        row[name] = value
    row.pop("", None)
    return row


def _constant(name: str) -> str | None:
    """NaN is how Python writes a missing number; infinite ones are refused later, by name."""
    return None if name == "NaN" else name


def _strings(row: Any) -> Iterator[str]:
    """Keys and strings of a flat object; those of nested ones are not read."""
    if isinstance(row, dict):
        yield from row
        yield from (value for value in row.values() if isinstance(value, str))


def _cell(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).strip() or None


def _take(objects: Iterator[tuple[int, Object]], n_rows: int) -> list[tuple[int, Object]]:
    """The next rows: at most `n_rows`, and fewer if they are long."""
    taken, n_characters = [], 0
    for line, row in itertools.islice(objects, n_rows):
        taken.append((line, row))
        n_characters += sum(len(value) for value in row.values() if isinstance(value, str))
        if n_characters > CHUNK_CHARACTERS:
            break
    return taken
