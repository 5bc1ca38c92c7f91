"""The service behind the routes: one model, its queues, files and counters."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from attnknn.classifier import AttnKNNClassifier
from attnknn.errors import AttnKNNError
from attnknn.serving.batching import BusyError, MicroBatcher
from attnknn.serving.entry_map import EntryMap
from attnknn.serving.errors import Refusal
from attnknn.serving.folder_model import FolderModel
from attnknn.serving.memory_model import MemoryModel
from attnknn.serving.metrics import Gauge, Metrics
from attnknn.serving.monitoring import StreamMonitor
from attnknn.serving.predictions import answer_together
from attnknn.serving.served_model import ServedModel
from attnknn.serving.settings import Settings
from attnknn.serving.state import State
from attnknn.serving.uploads import Uploads

LOG = logging.getLogger("attnknn.serving")
N_WORKERS = 2  # threads that answer questions other than predictions
MAX_WAITING = 64  # such questions
MAX_EDITS_WAITING = 64
LOOK_EVERY = 1.0  # seconds between looks for edits of other processes
_Result = TypeVar("_Result")


class Service:
    """Everything that the routes use.

    Parameters
    ----------
    model : Path or AttnKNNClassifier
        A model folder, or a classifier in memory.
    settings : Settings
        What the operator set.
    """

    def __init__(self, model: Path | AttnKNNClassifier, settings: Settings) -> None:
        self.settings = settings
        self.model: ServedModel = (
            FolderModel(model, settings.author, settings.edit_wait)
            if isinstance(model, Path)
            else MemoryModel(model, settings.author)
        )
        self.metrics = Metrics(
            [
                Gauge("attnknn_entries", "Entries of the model.", lambda: self.state.n_entries),
                Gauge("attnknn_version", "Number of the last edit.", lambda: self.state.version),
                Gauge("attnknn_rows_waiting", "Waiting rows.", lambda: self.batcher.n_waiting),
                Gauge("attnknn_questions_waiting", "Waiting questions.", lambda: self._n_asked),
                Gauge("attnknn_edits_waiting", "Waiting edits.", lambda: self._n_edits),
            ]
        )
        self.batcher = MicroBatcher(lambda: self.state, answer_together, self.metrics.batches)
        self.uploads = Uploads(settings.max_upload)
        self.monitor = StreamMonitor()
        self.map = EntryMap()
        self._readers = ThreadPoolExecutor(N_WORKERS, thread_name_prefix="questions")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="edits")
        self._n_asked = self._n_edits = 0
        self._looking: asyncio.Task[None] | None = None
        self._is_closed = False
        self._closing = threading.Lock()

    @property
    def state(self) -> State:
        """The last whole state of the model."""
        return self.model.state

    @property
    def is_ready(self) -> bool:
        """Whether requests are answered."""
        return not self._is_closed

    async def ask(self, question: Callable[[], _Result]) -> _Result:
        """Answer a question in a worker thread; raises `BusyError` if too many wait."""
        if self._n_asked >= MAX_WAITING:
            raise BusyError("Too many questions are waiting for an answer. Ask again later.")
        self._n_asked += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, question)
        finally:
            self._n_asked -= 1

    async def edit(self, kind: str, edit: Callable[[ServedModel], _Result]) -> _Result:
        """Make an edit in the writer's thread, after those that came before.

        An edit that has begun is finished even if its client closes the connection.
        """
        if self.settings.is_read_only:
            raise Refusal(403, "ReadOnlyError", "This server does not edit the model.")
        if self._n_edits >= MAX_EDITS_WAITING:
            raise BusyError("Too many edits are waiting. Try again later.")
        self._n_edits += 1
        outcome = "failed"
        try:
            done = await self._write(lambda: edit(self.model))
            outcome = "done"
            return done
        finally:
            self._n_edits -= 1
            self.metrics.edits.add(kind=kind, outcome=outcome)

    async def look_up(self, question: Callable[[ServedModel], _Result]) -> _Result:
        """Ask about the history of the model."""
        return await self.ask(lambda: question(self.model))

    async def start(self) -> None:
        """Begin to look for edits of other processes."""
        if self._looking is None and not self._is_closed:
            self._looking = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """Finish what runs, and close the model."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Finish what runs, and close the model; closing twice is allowed."""
        with self._closing:
            if self._is_closed:
                return
            self._is_closed = True
            self.batcher.close()
            self._readers.shutdown()
            self._writer.submit(self.model.release).result()
            self._writer.shutdown()
            self.map.close()
            self.uploads.close()

    async def _write(self, edit: Callable[[], _Result]) -> _Result:
        running = asyncio.get_running_loop().run_in_executor(self._writer, edit)
        return await asyncio.shield(running)

    async def _look(self) -> None:
        last = ""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            started = time.monotonic()
            try:
                if await self._write(self.model.refresh):
                    extra = {"event": "reload", "version": self.state.version}
                    LOG.info("The model was edited by another process.", extra=extra)
                last = ""
            except (AttnKNNError, OSError) as error:
                if str(error) != last:
                    LOG.error(
                        "The model cannot be read any more; answers come from its last state.",
                        exc_info=error,
                        extra={"event": "unreadable"},
                    )
                last = str(error)
            self.uploads.forget_old()
            await asyncio.sleep(min(10.0, 5 * (time.monotonic() - started)))  # a slow disk
