"""Batches that are read ahead come in order, whole, and not too early."""

from __future__ import annotations

import threading
import time

import pytest

from attnknn.training.reading import AHEAD, read_ahead


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_batches_come_in_their_order(workers):
    def slow_first(batch: int) -> int:
        time.sleep(0.01 if batch == 0 else 0.0)
        return batch * 10

    assert list(read_ahead(slow_first, range(7), workers)) == [0, 10, 20, 30, 40, 50, 60]


def test_few_batches_are_held():
    begun: list[int] = []
    reader = read_ahead(begun.append, range(50), workers=2)
    next(reader)
    time.sleep(0.05)
    assert len(begun) <= 2 * AHEAD + 1
    reader.close()


def test_reading_happens_in_other_threads():
    names = set(read_ahead(lambda _: threading.current_thread().name, range(4), workers=2))
    assert all(name.startswith("read-ahead") for name in names)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_comes_at_its_batch(workers):
    def read(batch: int) -> int:
        if batch == 2:
            raise OSError("cannot be read")
        return batch

    reader = read_ahead(read, range(5), workers)
    assert [next(reader), next(reader)] == [0, 1]
    with pytest.raises(OSError, match="cannot be read"):
        next(reader)


def test_threads_end_with_a_reader_that_is_left():
    reader = read_ahead(lambda batch: batch, range(100), workers=2)
    next(reader)
    reader.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("read-ahead")]
