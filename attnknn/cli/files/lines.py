"""Plain text files: a text in each line, as one column."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from attnknn.cli.files.base import ROWS_AT_ONCE, Part
from attnknn.cli.files.text import TextSource


class LinesSource(TextSource):
    """A file without a header; what means missing elsewhere, as 'None', is a text here.

    Parameters
    ----------
    column : the name under which the texts are asked for
    """

    def __init__(self, path: Path, column: str) -> None:
        self.path, self.columns = path, [column]
        self.unusable: dict[str, str] = {}

    def parts(self, n_rows: int = ROWS_AT_ONCE) -> Iterator[Part]:
        """The lines without the spaces around them; None for a blank one."""
        first = 0
        with self._explained(), self._bytes() as file:
            lines = enumerate(io.TextIOWrapper(file, encoding="utf-8-sig"), start=1)
            while block := list(itertools.islice(lines, n_rows)):
                texts = pd.Series([line.strip() or None for _, line in block], dtype=object)
                table = pd.DataFrame({self.columns[0]: texts})
                yield Part(first, table, lines=[number for number, _ in block])
                first += len(block)
