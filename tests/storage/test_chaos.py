"""Killed writers, power cuts, full disks and damaged files lose no acknowledged edit unnoticed.

`ATTNKNN_CHAOS=10 pytest -m slow tests/storage/test_chaos.py` tries ten times as often, and
`ATTNKNN_CHAOS_SEED` chooses other tries. Failures name their seed; the counts are in the summary,
and in the JSON file that `ATTNKNN_CHAOS_OUT` names (`make chaos`).
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnknn import AttnKNNClassifier, backup, open_for_editing, verify
from attnknn.errors import ModelFolderError
from attnknn.storage.editor import list_edits

from .killing import edit_somehow, state_of
from .samples import fitted
from .test_crashes import kill_writers, load_quietly, saving_over_and_over
from .test_damage import LOST, wal_damages
from .test_erasure import no_file_longer_than
from .test_verification import writer_beside

TIMES = int(os.environ.get("ATTNKNN_CHAOS", "1"))
SEED = int(os.environ.get("ATTNKNN_CHAOS_SEED", "0"))
SECTOR = 512
NO_ROOM = (errno.ENOSPC, errno.EFBIG)

pytestmark = pytest.mark.slow


@pytest.fixture
def count(record_property: Any, request: pytest.FixtureRequest) -> Any:
    """Record the counts of a test that passed."""

    def record(tries: int, acknowledged: int, **more: int) -> None:
        zeros = {"lost": 0, "unnamed_errors": 0, "hangs": 0}  # any of them fails the test
        counts = {"tries": tries, "acknowledged_edits": acknowledged, **more, **zeros}
        record_property("chaos", {"test": request.node.name, **counts})

    return record


@pytest.mark.parametrize(("kind", "n_kills"), [("python", 200), ("commands", 40)])
def test_killed_writers_lose_nothing(tmp_path: Path, count: Any, kind: str, n_kills: int) -> None:
    n_kills, n_writers, n_edits = kill_writers(tmp_path / "model", n_kills * TIMES, kind, SEED)
    assert n_writers > n_kills // 10
    count(n_kills, n_writers, edits_in_the_log=n_edits)  # of each writer the last one is checked


def files_of(path: Path) -> dict[str, bytes]:
    """The files of a store as they are at this moment."""
    names = ("entries.sqlite", "entries.sqlite-wal", "head.jsonl")
    return {name: (path / name).read_bytes() for name in names if (path / name).exists()}


def torn(before: bytes, after: bytes, rng: np.random.Generator) -> bytes:
    """What a power cut leaves of a write: any of its sectors, up to any length."""
    length = int(rng.integers(min(len(before), len(after)), max(len(before), len(after)) + 1))
    content = bytearray(before[:length].ljust(length, b"\0"))
    for start in range(0, length, SECTOR):
        new = after[start : min(start + SECTOR, length)]
        if rng.random() < 0.5:
            content[start : start + len(new)] = new
    return bytes(content)


def cut_power(
    before: dict[str, bytes], after: dict[str, bytes], rng: np.random.Generator
) -> Iterator[dict[str, bytes]]:
    """The files after power cuts during an edit.

    SQLite syncs the write-ahead log when an edit is committed, then the note is written without
    waiting, so it may be old, torn or new. A checkpoint writes the main file while the log has all.
    """
    wal, head, main = "entries.sqlite-wal", "head.jsonl", "entries.sqlite"
    yield {**before, wal: torn(before.get(wal, b""), after[wal], rng)}
    yield {**before, wal: after[wal], head: torn(before[head], after[head], rng)}
    yield {**after, main: torn(before[main], after[main], rng)}


def test_power_cuts_lose_nothing(tmp_path: Path, count: Any) -> None:
    n_tries = n_edits = 0
    for seed in range(SEED, SEED + 4 * TIMES):
        rng, path = np.random.default_rng(seed), tmp_path / f"model {seed}"
        fitted(memory="numpy").save(path)
        with open_for_editing(path) as model:
            model.relabel([0], "cat")
            before, state = files_of(path), state_of(model)
            for _ in range(25):
                edit_somehow(model, rng)
                is_moved = rng.random() < 0.2  # the log is moved into the main file
                if model.head == state[0] or "entries.sqlite-wal" not in before:
                    before, state = files_of(path), state_of(model)
                    continue
                if is_moved:
                    model.database.execute("pragma wal_checkpoint(passive)")
                after, n_edits = files_of(path), n_edits + 1
                was_erased = model.log()[-1].action == "erase"  # emptied the log in between
                for files in () if was_erased else cut_power(before, after, rng):
                    n_tries += 1
                    check_after_cut(tmp_path / "cut", path, files, state, seed)
                before, state = after, state_of(model)
    count(n_tries, n_edits)


def check_after_cut(
    folder: Path, path: Path, files: dict[str, bytes], state: tuple[int, ...], seed: int
) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(path / "manifest.json", folder)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with open_for_editing(folder) as model:
        found = state_of(model)
        assert found[0] in (state[0], state[0] + 1), f"seed {seed}: {found} after {state}"
        assert found[0] > state[0] or found == state, f"seed {seed}"
    assert verify(folder).is_intact, f"seed {seed}"


@contextmanager
def small_disk(folder: Path, n_bytes: int) -> Iterator[Path]:
    """A disk with little room; where mounting is not allowed, short files."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={n_bytes}", "tmpfs", str(folder)]
    is_mounted = (
        shutil.which("mount")
        and not subprocess.run(command, capture_output=True, check=False).returncode
    )
    try:
        yield folder
    finally:
        if is_mounted:
            subprocess.run(["umount", str(folder)], check=True)


def test_full_disks_lose_nothing(tmp_path: Path, count: Any) -> None:
    n_tries = n_edits = n_refused = 0
    with small_disk(tmp_path / "disk", 3 << 20) as disk:
        path, filler = disk / "model", disk / "filler"
        for seed in range(SEED, SEED + 25 * TIMES):
            rng = np.random.default_rng(seed)
            fitted(memory="numpy").save(path, discard_history=True)
            with open_for_editing(path) as model:
                model.relabel([0], "cat")
            free = shutil.disk_usage(disk).free if disk.is_mount() else 0
            with suppress(OSError):
                filler.write_bytes(b"x" * max(0, free - int(rng.integers(0, 200_000))))
            with no_file_longer_than(int(rng.integers(60_000, 400_000))):
                head, refused = edit_on_full_disk(path, rng, seed)
            n_tries, n_edits, n_refused = n_tries + 1, n_edits + head, n_refused + refused
            filler.unlink(missing_ok=True)
            with open_for_editing(path) as model:  # there is room again
                assert model.head >= head, f"seed {seed}: edit {head} is lost"
                model.relabel([int(model.classifier.memory_.entries.ids[0])], "bee")
            assert verify(path).is_intact, f"seed {seed}"
    assert n_refused > n_tries // 3
    count(n_tries, n_edits, refused=n_refused)


def edit_on_full_disk(path: Path, rng: np.random.Generator, seed: int) -> tuple[int, int]:
    """The last acknowledged edit, and how many edits were refused; all by name."""
    head, n_refused = 1, 0
    try:
        model = open_for_editing(path)
    except ModelFolderError:  # SQLite needs some room to open a file
        return head, 1
    with model:
        for _ in range(15):
            try:
                edit_somehow(model, rng)
                head = model.head
            except ModelFolderError:
                n_refused += 1
            except OSError as error:
                if error.errno not in NO_ROOM:
                    raise
                n_refused += 1
            assert model.head >= head, f"seed {seed}"
    return head, n_refused


def test_damaged_logs_of_killed_writers_are_refused(path: Path, tmp_path: Path, count: Any) -> None:
    n_tries = n_edits = 0
    for seed in range(SEED, SEED + 2 * TIMES):
        rng = np.random.default_rng(seed)
        fitted().save(path, discard_history=True)
        with writer_beside(path) as process:
            assert process.stdout is not None
            heads = "".join(process.stdout.readline() for _ in range(12))
            process.kill()
            heads += process.stdout.read()
            acknowledged = int(heads.rpartition("\n")[0].split("\n")[-1])
        n_edits += acknowledged
        wal = (path / "entries.sqlite-wal").read_bytes()
        for damaged in wal_damages(wal, rng):
            n_tries += 1
            shutil.rmtree(tmp_path / "damaged", ignore_errors=True)
            folder = shutil.copytree(path, tmp_path / "damaged")
            (folder / "entries.sqlite-shm").unlink(missing_ok=True)
            file = folder / "entries.sqlite-wal"
            file.unlink() if damaged is None else file.write_bytes(damaged)
            if not verify(folder).is_intact:
                with pytest.raises(ModelFolderError, match=LOST):
                    AttnKNNClassifier.load(folder)
            else:  # what was not acknowledged may be lost
                assert list_edits(folder)[-1].edit >= acknowledged, f"seed {seed}"
    count(n_tries, n_edits)


def test_two_savers_at_once_leave_complete_models(tmp_path: Path, count: Any) -> None:
    path, n_loads = tmp_path / "model", 100 * TIMES
    with saving_over_and_over(path), saving_over_and_over(path):
        for _ in range(n_loads):
            assert len(AttnKNNClassifier.load(path).memory_) == 2000
    assert len(load_quietly(path).memory_) == 2000
    count(n_loads, 0)


def test_backups_beside_a_writer_are_complete(path: Path, tmp_path: Path, count: Any) -> None:
    n_copies, acknowledged = 20 * TIMES, 0
    rng = np.random.default_rng(SEED)
    with writer_beside(path) as process:
        assert process.stdout is not None
        for _ in range(n_copies):
            acknowledged = int(process.stdout.readline())
            backup(path, tmp_path / "copy")
            assert list_edits(tmp_path / "copy")[-1].edit >= acknowledged, f"seed {SEED}"
            assert verify(tmp_path / "copy").is_intact, f"seed {SEED}"
            shutil.rmtree(tmp_path / "copy")
            time.sleep(float(rng.uniform(0, 0.05)))
    count(n_copies, acknowledged)
