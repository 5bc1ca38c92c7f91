"""Parquet files: columns with types of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from attnknn.cli.files.base import ROWS_AT_ONCE, Kind, Part, refuse_repeated
from attnknn.errors import InvalidInputError


class ParquetSource:
    """A Parquet file; an index that pandas wrote is no column."""

    default_target: str | None = None
    default_id: str | None = None
    kind: Kind = "table"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unusable: dict[str, str] = {}
        try:
            self._file = pq.ParquetFile(path)
        except pa.ArrowException as error:
            raise self._refused(error) from error
        names = list(self._file.schema_arrow.names)
        refuse_repeated(path, names)
        self.columns = [name for name in names if not name.startswith("__index_level_")]

    def parts(self, n_rows: int = ROWS_AT_ONCE) -> Iterator[Part]:
        """The rows with the types of the file."""
        first = 0
        try:
            for batch in self._file.iter_batches(batch_size=n_rows, columns=self.columns):
                table = pa.table(batch).replace_schema_metadata().to_pandas()
                yield Part(first, table)
                first += len(table)
        except pa.ArrowException as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> InvalidInputError:
        words = " ".join(str(error).split())
        return InvalidInputError(f"{self.path} is not a whole Parquet file: {words}")
