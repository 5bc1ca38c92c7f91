"""Concurrent questions of few rows, answered together by one worker thread.

A call of the model costs much more than one more row in it. So the worker takes all questions that
wait, up to a number of rows, and answers them by one call. It never waits for more to come: a
question that comes alone is answered at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from attnknn.serving.metrics import Histogram
from attnknn.serving.state import State

MAX_ROWS = 256  # of one call
MAX_WAITING = 2048  # rows
Content = bytes


class BusyError(RuntimeError):
    """A queue is full."""


@dataclass(frozen=True, slots=True)
class Question:
    """Rows that wait for their answer."""

    rows: Sequence[Any]
    options: Any
    answer: asyncio.Future[Content]


class MicroBatcher:
    """Answers questions together.

    Parameters
    ----------
    state : returns the current state of the model
    answer : the answers to several questions, from one state
    sizes : counts the rows of each call
    """

    def __init__(
        self,
        state: Callable[[], State],
        answer: Callable[[State, Sequence[Question]], list[Content]],
        sizes: Histogram,
    ) -> None:
        self._state, self._answer, self._sizes = state, answer, sizes
        self._waiting: deque[Question] = deque()
        self._n_rows = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_closed = False

    @property
    def n_waiting(self) -> int:
        """Rows that wait."""
        return self._n_rows

    def ask(self, rows: Sequence[Any], options: Any = None) -> asyncio.Future[Content]:
        """Put a question into the queue; called from an event loop.

        Raises
        ------
        BusyError
            If too many rows wait already.
        """
        question = Question(rows, options, asyncio.get_running_loop().create_future())
        with self._changed:
            if self._is_closed:
                raise BusyError("The server is stopping.")
            if self._n_rows + len(rows) > MAX_WAITING:
                raise BusyError("Too many rows are waiting for an answer. Ask again later.")
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="answers", daemon=True)
                self._thread.start()
            self._waiting.append(question)
            self._n_rows += len(rows)
            self._changed.notify()
        return question.answer

    def close(self) -> None:
        """Answer what waits, and end."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while questions := self._take():
            self._sizes.add(sum(len(question.rows) for question in questions))
            state = self._state()
            try:
                answers: list[Any] = list(self._answer(state, questions))
            except Exception:  # one of them is to blame: each gets its own answer
                answers = [self._answer_alone(state, question) for question in questions]
            loop = questions[0].answer.get_loop()
            try:
                loop.call_soon_threadsafe(_deliver, questions, answers)
            except RuntimeError:  # the loop was closed: nobody waits any more
                continue

    def _answer_alone(self, state: State, question: Question) -> Content | Exception:
        try:
            return self._answer(state, [question])[0]
        except Exception as error:
            return error

    def _take(self) -> list[Question]:
        """The questions of the next call; none after the end."""
        with self._changed:
            while not self._waiting and not self._is_closed:
                self._changed.wait()
            taken: list[Question] = []
            n_rows = 0
            while self._waiting and (not taken or n_rows + len(self._waiting[0].rows) <= MAX_ROWS):
                taken.append(self._waiting.popleft())
                n_rows += len(taken[-1].rows)
            self._n_rows -= n_rows
            return taken


def _deliver(questions: Sequence[Question], answers: Sequence[Content | Exception]) -> None:
    for question, answer in zip(questions, answers, strict=True):
        if question.answer.done():  # the client is gone
            continue
        if isinstance(answer, Exception):
            question.answer.set_exception(answer)
        else:
            question.answer.set_result(answer)
