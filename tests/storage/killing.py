"""Kill writers of a saved model again and again: `python killing.py MODEL N_KILLS KIND SEED`.

A writer of the kind `python` edits through `open_for_editing`, one of the kind `commands` runs
commands. Prints the kills, the writers that had acknowledged an edit, and all edits.

`python killing.py MODEL N_KILLS SUBJECT` kills erasures of a subject, each in a copy of the model,
before statements of SQL that are spread over all of the erasure.

A process of its own that has started no threads, so that writers can be forked from it: starting
Python again for each of hundreds would take a quarter of an hour.
"""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from attnknn import AttnKNNClassifier, open_for_editing
from attnknn.cli import main as commands
from attnknn.errors import UnknownEntryError
from attnknn.storage.editor import EditableModel
from attnknn.storage.store.history import EditRecord

KINDS = ("add", "forget", "relabel", "undo", "erase")
MAX_LIFE = 0.2  # the longest life of a writer in seconds
BETWEEN_READS = 0.02  # seconds


def write_until_killed(path: Path, seed: int, pipe: int) -> None:
    """Edit without end; report each acknowledged edit: its number, entries, sum of ids."""
    generator = np.random.default_rng(seed)
    with open_for_editing(path, wait=30) as model:
        os.write(pipe, b"\n")
        while True:
            edit_somehow(model, generator)
            os.write(pipe, b"%d %d %d\n" % state_of(model))


def run_until_killed(path: Path, seed: int, pipe: int) -> None:
    """The same with commands, each of which opens and closes the model."""
    generator = np.random.default_rng(seed)
    os.write(pipe, b"\n")
    while True:
        entries = AttnKNNClassifier.load(path).memory_.entries
        subjects = sorted(set(entries.subjects.tolist()) - {""})
        kind = generator.choice(["forget", "undo", "snapshot", "erase"], p=[0.5, 0.2, 0.1, 0.2])
        if kind == "forget" and len(entries) > 20:
            command = ["forget", str(path), str(generator.choice(entries.ids))]
        elif kind == "erase" and len(subjects) > 4:
            command = ["forget", str(path), "--subject", str(generator.choice(subjects))]
        elif kind == "snapshot":
            command = ["snapshot", str(path), f"at {seed} {generator.integers(10**9)}"]
        else:  # an undo that is impossible is an error in one line
            command = ["undo", str(path)]
        done = CliRunner().invoke(commands, command)
        assert done.exit_code in (0, 1), done.output
        assert done.exit_code == 0 or "Error: " in done.output, done.output
        edits = re.findall(r"edit (\d+)\)?\.$", done.stdout.strip())
        if done.exit_code == 0:
            ids = AttnKNNClassifier.load(path).memory_.entries.ids
            os.write(pipe, b"%d %d %d\n" % (int(edits[-1]), len(ids), int(ids.sum())))


def edit_somehow(model: EditableModel, generator: np.random.Generator) -> None:
    """Make a random edit; one that is impossible is skipped."""
    entries, head = model.classifier.memory_.entries, model.log()[-1]
    kind = generator.choice(KINDS, p=[0.4, 0.2, 0.2, 0.1, 0.1])
    if kind == "add":
        n = int(generator.integers(1, 4))
        labels = generator.choice(["ant", "bee", "eel"], n)
        model.add(generator.normal(size=(n, 3)), labels, subjects=[f"visitor-{head.edit}"] * n)
    elif kind == "forget" and len(entries) > 20:
        model.forget(generator.choice(entries.ids, 2, replace=False))
    elif kind == "relabel":
        model.relabel(generator.choice(entries.ids, 1), "ant" if head.edit % 2 else "bee")
    elif kind == "undo" and head.undo_target > 0 and head.action != "erase":
        model.undo()
    elif kind == "erase" and entries.subjects[-1].startswith("visitor"):
        model.forget(subject=entries.subjects[-1])


def state_of(model: EditableModel) -> tuple[int, int, int]:
    ids = model.classifier.memory_.entries.ids
    return model.log()[-1].edit, len(ids), int(ids.sum())


def killed_writer(path: Path, seed: int, delay: float, kind: str) -> tuple[int, ...] | None:
    """The last edit that a killed writer acknowledged; None if there is no such edit."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        {"python": write_until_killed, "commands": run_until_killed}[kind](path, seed, writer)
    os.close(writer)
    early = b""
    if seed % 4:  # else it may be killed while it opens the model
        early = os.read(reader, 1)
    if seed % 4 == 1:  # on a busy machine too, some writers get as far as this
        early += os.read(reader, 64)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    assert os.WTERMSIG(status) == signal.SIGKILL, "the writer ended by itself"
    with os.fdopen(reader) as rest:
        complete = (early.decode() + rest.read()).rpartition("\n")[0].split("\n")
    return tuple(map(int, complete[-1].split())) or None


@contextmanager
def reader_beside(path: Path) -> Iterator[None]:
    """Another process loads the model again and again; every load must succeed."""
    stop, until = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(until)
        os._exit(read_until_stopped(path, stop))
    os.close(stop)
    try:
        yield
    finally:
        os.close(until)
        status = os.waitpid(child, 0)[1]
    assert status == 0, f"the reader ended with {status}"


def read_until_stopped(path: Path, stop: int) -> int:
    try:
        while not select.select([stop], [], [], BETWEEN_READS)[0]:
            AttnKNNClassifier.load(path)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def checked(path: Path) -> list[EditRecord]:
    """Check that a model opens, is intact, and is the same for readers; returns its log."""
    queries = np.random.default_rng(1).normal(size=(5, 3))
    # A killed erasure may have been starting its search: that process holds the lock until `exec`.
    with open_for_editing(path, wait=30) as model:
        # Only now: opening brings in an edit whose writer was killed between its last byte and
        # publishing it to readers.
        reader = AttnKNNClassifier.load(path)
        assert model.database.execute("pragma integrity_check").fetchall() == [("ok",)]
        assert reader.memory_.entries.ids.tolist() == model.classifier.memory_.entries.ids.tolist()
        assert np.array_equal(
            reader.predict_proba(queries), model.classifier.predict_proba(queries)
        )
        return model.log()


def check_acknowledged(path: Path, state: tuple[int, ...], log: list[EditRecord]) -> None:
    """The last acknowledged edit is in the log, and its state can be brought back."""
    edit = state[0]
    assert len(log) > edit, f"edit {edit} was acknowledged and is lost"
    if any(line.action == "erase" for line in log[edit + 1 :]):
        return  # a later edit, which was not acknowledged, changed earlier states
    with open_for_editing(path) as model:
        model.rollback(edit)
        assert state_of(model)[1:] == state[1:]
        model.undo()


def main(path: Path, n_kills: int, kind: str, first_seed: int) -> None:
    generator = random.Random(first_seed)
    n_acknowledged = 0
    with reader_beside(path):
        for seed in range(first_seed, first_seed + n_kills):
            try:
                state = killed_writer(path, seed, generator.uniform(0, MAX_LIFE), kind)
                log = checked(path)
                if state is not None:
                    n_acknowledged += 1
                    check_acknowledged(path, state, log)
            except BaseException:
                sys.stderr.write(f"failed with seed {seed} of {kind}\n")
                raise
    sys.stdout.write(f"{n_kills} {n_acknowledged} {len(checked(path))}\n")


def kill_erasures(path: Path, n_kills: int, subject: str) -> None:
    """Print how many erasures were killed, and how many of these had deleted the entries."""
    with open_for_editing(path) as model:  # the statements of an erasure and of its receipt
        n_entries = len(model.classifier.memory_)
    n_statements = kill_erasure(path, subject, sys.maxsize)
    ats = sorted({round(at) for at in np.linspace(1, n_statements, n_kills)})
    n_deleted = sum(resumes(path, subject, at, n_entries) for at in ats)
    sys.stdout.write(f"{len(ats)} {n_deleted}\n")


def kill_erasure(path: Path, subject: str, at: int) -> int:
    """Kill an erasure in a copy of a model before a statement; returns the number of statements."""
    shutil.rmtree(path.with_name("copy"), ignore_errors=True)
    shutil.copytree(path, path.with_name("copy"))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        counted = 0

        def count(_: str) -> None:
            nonlocal counted
            counted += 1
            if counted == at:
                os.kill(os.getpid(), signal.SIGKILL)

        with open_for_editing(path.with_name("copy")) as model:
            model.database.set_trace_callback(count)
            model.forget(subject=subject, receipt=path.with_name("receipt.json"))
        os.write(writer, b"%d" % counted)
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as rest:
        return int(rest.read() or 0)


def resumes(path: Path, subject: str, at: int, n_entries: int) -> bool:
    """Whether a killed erasure had deleted the entries; check that it is resumed, or starts again.

    The receipt is written before the store drops its own, so one of the two is always there.
    """
    written, copied = path.with_name("receipt.json"), path.with_name("copy")
    written.unlink(missing_ok=True)
    assert kill_erasure(path, subject, at) == 0, f"statement {at} was not reached"
    n_left = len(AttnKNNClassifier.load(copied).memory_)
    with open_for_editing(copied) as model:
        assert len(model.classifier.memory_) == n_left
        assert model.head == (n_left < n_entries)
        try:
            receipt = model.forget(subject=subject)
            assert receipt.is_complete, f"statement {at}: {receipt}"
        except UnknownEntryError:
            assert json.loads(written.read_text())["is_complete"], f"statement {at}: no receipt"
        assert model.database.execute("pragma integrity_check").fetchall() == [("ok",)]
        model.relabel(model.classifier.memory_.entries.ids[:1], "cat")
    files = [file for file in copied.rglob("*") if file.is_file()]
    assert not any(subject.encode() in file.read_bytes() for file in files)
    return n_left < n_entries


if __name__ == "__main__":
    if len(sys.argv) == 4:
        kill_erasures(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
