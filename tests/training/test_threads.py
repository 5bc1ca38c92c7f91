"""Threads: shares of rows, one thread for small tensors, batches read ahead."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from attnknn.training import threads
from attnknn.training.threads import AHEAD, in_shares, read_ahead


@pytest.fixture
def three(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)


@pytest.mark.usefixtures("three")
def test_shares_are_all_rows_in_order():
    rows, written = torch.arange(8.0), torch.zeros(8)
    parts = in_shares(lambda a, b: (b.copy_(2 * a), a.tolist())[1], rows, written)
    assert parts == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert torch.equal(written, 2 * rows)
    assert in_shares(len, rows[:1]) == [1]


@pytest.mark.usefixtures("three")
def test_shares_have_no_gradients_and_pass_errors_on():
    weight = torch.ones(6, requires_grad=True)
    assert not any(part.requires_grad for part in in_shares(lambda rows: rows * 2, weight))
    with pytest.raises(ZeroDivisionError):
        in_shares(lambda rows: 1 / (len(rows) - 2), weight)


@pytest.mark.usefixtures("three")
def test_an_error_in_one_share_waits_for_the_others():
    written = torch.zeros(3)

    def work(rows):
        if rows[0] == 0:
            raise ZeroDivisionError
        time.sleep(0.05)
        written[rows] = 1

    with pytest.raises(ZeroDivisionError):
        in_shares(work, torch.arange(3))
    assert written.tolist() == [0, 1, 1]


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("is_inference", [False, True])
def test_all_shares_have_the_inference_mode_of_the_caller(is_inference):
    with torch.inference_mode(is_inference):
        written = torch.zeros(6)
        modes = in_shares(
            lambda rows: (rows.add_(1), torch.is_inference_mode_enabled())[1], written
        )
    assert modes == [is_inference] * 3
    assert written.tolist() == [1.0] * 6
    assert in_shares(lambda _: torch.is_grad_enabled(), written) == [False] * 3


def test_each_helper_has_one_core_and_no_gradients():
    with ThreadPoolExecutor(1, initializer=threads._work_alone) as pool:
        assert pool.submit(torch.get_num_threads).result() == 1
        assert not pool.submit(torch.is_grad_enabled).result()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")
@pytest.mark.usefixtures("three")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_process_has_helpers_of_its_own():
    rows = torch.zeros(6)
    assert sum(in_shares(len, rows)) == 6
    child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(sum(in_shares(len, rows)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6


def test_one_thread_works_where_it_was_called(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(threads, "ThreadPoolExecutor", None)
    assert in_shares(len, torch.zeros(4)) == [4]


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


def test_linear_algebra_is_limited_until_the_last_block_ends():
    libraries = threads._blas_libraries("scipy.optimize" in sys.modules)
    usual = [library.get_num_threads() for library in libraries]
    first, second = threads.one_blas_thread_if(True), threads.one_blas_thread_if(True)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert {library.get_num_threads() for library in libraries} <= {1}
    second.__exit__(None, None, None)
    assert [library.get_num_threads() for library in libraries] == usual


def test_large_linear_algebra_is_not_limited():
    libraries = threads._blas_libraries("scipy.optimize" in sys.modules)
    usual = [library.get_num_threads() for library in libraries]
    with threads.one_blas_thread_if(False):
        assert [library.get_num_threads() for library in libraries] == usual
