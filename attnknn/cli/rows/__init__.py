"""Read rows from files: tables, vectors, texts and images.

A `Source` is a file (CSV, JSON Lines, Parquet, NPZ, text, images) that yields its rows in chunks;
`open_rows` picks the right one. `read_training_rows` turns a source into the arguments of `fit`,
with the column `Roles` that the user chose. `Queries` turns the chunks of a source into rows that
a stored classifier accepts. Every error names the line or row of the file where it occurred.
"""

from __future__ import annotations

from attnknn.cli.rows.sources import Chunk, Source, check_column, open_rows

__all__ = ["Chunk", "Source", "check_column", "open_rows"]
