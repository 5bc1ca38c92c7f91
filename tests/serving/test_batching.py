"""Questions that wait are answered together, and one bad question spoils no other."""

from __future__ import annotations

import asyncio
import threading

import pytest

from attnknn.serving.batching import MAX_WAITING, BusyError, MicroBatcher
from attnknn.serving.metrics import ROWS, Histogram


class Counting:
    """Answers rows with their count, after `go` was set."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.go = threading.Event()

    def __call__(self, state, questions):
        self.go.wait(10)
        rows = [row for question in questions for row in question.rows]
        if -1 in rows:
            raise ValueError("a bad row")
        self.calls.append([len(question.rows) for question in questions])
        return [f"{state}:{question.rows}".encode() for question in questions]


@pytest.fixture
def counting():
    return Counting()


@pytest.fixture
def batcher(counting):
    batcher = MicroBatcher(lambda: "state", counting, Histogram("rows", "Rows.", ROWS))
    yield batcher
    counting.go.set()
    batcher.close()


def test_what_waits_is_answered_by_one_call(batcher, counting):
    async def ask():
        first = batcher.ask([0])
        await asyncio.sleep(0.05)  # the worker has taken it
        others = [batcher.ask([n]) for n in range(1, 6)]
        counting.go.set()
        return await asyncio.gather(first, *others)

    answers = asyncio.run(ask())
    assert answers == [f"state:[{n}]".encode() for n in range(6)]
    assert counting.calls == [[1], [1, 1, 1, 1, 1]]


def test_a_bad_question_gets_its_error_and_the_others_their_answers(batcher, counting):
    async def ask():
        first = batcher.ask([0])
        await asyncio.sleep(0.05)
        others = [batcher.ask([1]), batcher.ask([-1]), batcher.ask([2])]
        counting.go.set()
        return await asyncio.gather(first, *others, return_exceptions=True)

    _, good, bad, also_good = asyncio.run(ask())
    assert (good, also_good) == (b"state:[1]", b"state:[2]")
    assert isinstance(bad, ValueError)


def test_a_full_queue_refuses_more(batcher, counting):
    async def ask():
        batcher.ask([0])
        await asyncio.sleep(0.05)
        waiting = [batcher.ask([0] * 64) for _ in range(MAX_WAITING // 64)]
        with pytest.raises(BusyError, match="Too many rows"):
            batcher.ask([0])
        counting.go.set()
        await asyncio.gather(*waiting)

    asyncio.run(ask())
    assert batcher.n_waiting == 0


def test_a_client_that_is_gone_holds_nobody_up(batcher, counting):
    async def ask():
        first = batcher.ask([0])
        await asyncio.sleep(0.05)
        gone, other = batcher.ask([1]), batcher.ask([2])
        gone.cancel()
        counting.go.set()
        return await asyncio.gather(first, other)

    assert asyncio.run(ask())[1] == b"state:[2]"
