"""Edits of a model in a database from other processes, as the tests of faults need them."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from attnknn.errors import MemoryServerError, UnknownOutcomeError
from attnknn.memory import PostgresMemory, make_entries

ROWS = 3  # of one edit: all of them are there, or none


class Maker:
    """Memories on one server, by name; can be sent to another process."""

    def __init__(self, address: str, **settings: object) -> None:
        self.address, self.settings = address, settings

    def __call__(self, name: str) -> PostgresMemory:
        return PostgresMemory(
            f"{self.address}&model={name}" if name else self.address, **self.settings
        )


def edit_until(address: str, first_id: int, stop: Path, log: Path) -> None:
    """Add rows, three in one edit, until `stop` exists; log which edits were acknowledged."""
    memory, name = None, first_id
    with log.open("a", buffering=1) as file:
        while not stop.exists():
            ids = np.arange(name, name + ROWS)
            try:
                if memory is None:
                    memory = PostgresMemory(address, timeout=10).open()
                memory.add(make_entries(np.full((ROWS, 2), name % 97), np.zeros(ROWS), ids=ids))
                memory.commit()
            except UnknownOutcomeError:
                file.write(f"unknown {name}\n")
                memory = None
            except MemoryServerError as error:
                file.write(f"failed {name} {type(error).__name__}\n")
                memory = None
                time.sleep(0.05)
            else:
                file.write(f"done {name}\n")
            name += ROWS
