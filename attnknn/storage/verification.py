"""Check every checksum of a model folder, and copy a model that may be in use."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from attnknn._output_files import refuse_model_folder, sync
from attnknn.classifier import AttnKNNClassifier
from attnknn.errors import ModelFolderError
from attnknn.storage import has_store
from attnknn.storage.files import (
    MAX_ATTEMPTS,
    ModelFolder,
    copy_files,
    read_folder,
    write_manifest,
)
from attnknn.storage.folder import STORE, STORE_VERSION, replace_folder
from attnknn.storage.locking import folder_lock
from attnknn.storage.store.erasing import UNFINISHED
from attnknn.storage.store.head import check_head, head_of, read_head, write_head
from attnknn.storage.store.schema import open_to_read
from attnknn.storage.store.state import ROW_COLUMNS, VERSION_COLUMNS, digest_of
from attnknn.storage.unpacking import unpack

OVERLAPPING = (
    "select count(*) from {table} a join {table} b on a.{key} = b.{key} and a.since < b.since "
    "and (a.until is null or a.until > b.since)"
)


@dataclass(frozen=True)
class Verification:
    """The result of `verify`: what was checked in a model folder, and every problem.

    Attributes
    ----------
    path : Path
        The model folder.
    checked : list of str
        What was checked, in the order of the checks.
    problems : list of str
        Every problem; empty if the model is intact.

    Examples
    --------
    >>> print(Verification(Path("model"), ["the checksums of 9 files"]))
    checked the checksums of 9 files
    model is intact.
    """

    path: Path
    checked: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_intact(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def __str__(self) -> str:
        found = [f"PROBLEM: {problem}" for problem in self.problems]
        n = len(self.problems)
        last = "is intact" if self.is_intact else f"has {n} problem{'s' if n > 1 else ''}"
        checked = [f"checked {each}" for each in self.checked]
        return "\n".join([*checked, *found, f"{self.path} {last}."])


def verify(path: str | Path) -> Verification:
    """Check a model folder completely: all checksums of all states, and that the model loads.

    If the model was edited, the structure of its SQLite file and the presence of the last
    acknowledged edit are checked too. Other processes may use the model at the same time.

    Parameters
    ----------
    path : str or Path
        The model folder.

    Returns
    -------
    Verification
        What was checked, and every problem.

    Examples
    --------
    >>> import tempfile
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf.save(folder + "/model")
    ...     verify(folder + "/model").is_intact
    True
    """
    path = Path(path).resolve()
    found = _verify(path)
    if not found.is_intact:  # perhaps because the folder was being replaced
        with folder_lock(path.parent, shared=True):
            found = _verify(path)
    return found


def backup(path: str | Path, out: str | Path) -> Verification:
    """Copy a model to a new folder, even while others edit it, and verify the copy.

    The copy of a model that was edited holds the state after the last acknowledged edit, with log,
    snapshots and all earlier states.

    Parameters
    ----------
    path : str or Path
        The model folder.
    out : str or Path
        The folder to create; it must not exist.

    Returns
    -------
    Verification
        What was checked of the copy.

    Raises
    ------
    ModelFolderError
        If the model is damaged or `out` exists. Nothing is written then.

    Examples
    --------
    >>> import tempfile
    >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], ["a", "a", "b"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clf.save(folder + "/model")
    ...     _ = backup(folder + "/model", folder + "/copy")
    ...     AttnKNNClassifier.load(folder + "/copy").predict([[3.5]]).tolist()
    ['b']
    """
    path, out = Path(path).resolve(), Path(out).resolve()
    _check_free(out)
    refuse_model_folder(out)
    with replace_folder(out, check=_check_free) as new:
        for _ in range(MAX_ATTEMPTS):
            before = _inode(path)
            try:
                return _copy(path, new)
            except ModelFolderError:
                if _inode(path) == before:  # else the model was replaced meanwhile
                    raise
        raise ModelFolderError(
            f"The model {path} was replaced during each of {MAX_ATTEMPTS} attempts to copy it. Try "
            "again later."
        )


def _inode(path: Path) -> int | None:
    return path.stat().st_ino if path.exists() else None


def _check_free(out: Path) -> None:
    if os.path.lexists(out):
        raise ModelFolderError(
            f"{out} must not exist: a backup replaces nothing. Choose another path."
        )


def _copy(folder: Path, new: Path) -> Verification:
    for file in new.iterdir():  # of an attempt while the model was being replaced
        file.unlink()
    if has_store(folder):
        _copy_store(folder, new)
    else:
        copy_files(folder, new)
    found = _verify(new)
    if not found.is_intact:
        raise ModelFolderError(f"The model {folder} was not copied: {found.problems[0]}")
    return found


def _copy_store(folder: Path, new: Path) -> None:
    with open_to_read(folder) as database:
        copy = sqlite3.connect(new / STORE)
        try:
            database.backup(copy)
            head = head_of(copy)
        finally:
            copy.close()
    sync(new / STORE)
    write_head(new, head)
    write_manifest(new, {"version": STORE_VERSION, "files": {}})


def _verify(path: Path) -> Verification:
    found = Verification(path)
    check = _check_store if has_store(path) else _check_files
    _note(found, lambda: check(found))
    _note(found, lambda: _check_model(found))
    return found


def _note(found: Verification, check: Callable[[], None]) -> None:
    """Run a check, and note its error as a problem unless it is known."""
    try:
        check()
    except ModelFolderError as error:
        if str(error) not in found.problems:
            found.problems.append(str(error))


def _check_model(found: Verification) -> None:
    model = read_folder(found.path, lambda folder: unpack(folder, AttnKNNClassifier))
    n_entries = len(model.memory_)
    found.checked.append(f"that the model loads, with {n_entries:,} entries")


def _check_files(found: Verification) -> None:
    folder = ModelFolder(found.path)
    for name in folder.names:
        _note(found, lambda name=name: folder.check(name))  # type: ignore[misc]
    found.checked.append(f"the checksums of {len(folder.names)} files")


def _check_store(found: Verification) -> None:
    noted = read_head(found.path)
    with open_to_read(found.path, may_be_behind=True) as database:
        head = head_of(database)
        _note(found, lambda: check_head(found.path, noted, head))
        found.checked.append(f"that the last acknowledged edit ({head.edit}) is present")
        problems = [row[0] for row in database.execute("pragma integrity_check")]
        found.problems.extend(f"{STORE}: {problem}" for problem in problems if problem != "ok")
        found.checked.append(f"the structure of {STORE}")
        _check_digests(database, found)
        _check_history(database, found)


def _check_digests(database: sqlite3.Connection, found: Verification) -> None:
    for table, columns, what in (
        ("rows", ROW_COLUMNS, "entries"),
        ("versions", VERSION_COLUMNS, "versions of entries"),
    ):
        n_lines = n_damaged = 0
        for *values, digest in database.execute(f"select seq, {columns}, digest from {table}"):
            n_lines += 1
            n_damaged += digest_of(*values) != digest
        found.checked.append(f"{n_lines:,} checksums of {what}, in all states")
        if n_damaged:
            found.problems.append(f"{STORE}: the checksums of {n_damaged} {what} do not match.")
    n_parts = 0
    for name, since, sha256, content in database.execute(
        "select name, since, sha256, content from parts"
    ):
        n_parts += 1
        if not isinstance(content, bytes) or hashlib.sha256(content).hexdigest() != sha256:
            found.problems.append(f"{STORE}: {name} of edit {since} is not what was written.")
    found.checked.append(f"{n_parts:,} checksums of fitted parts, in all states")


def _check_history(database: sqlite3.Connection, found: Verification) -> None:
    """Check that every edit is in the log, with the entries and parts that it had."""
    counts: dict[int, int] = {}
    for column, sign in (("since", 1), ("until", -1)):
        query = f"select {column}, count(*) from versions where {column} is not null group by 1"
        for edit, n in database.execute(query):
            counts[edit] = counts.get(edit, 0) + sign * n
    total = 0
    lines = database.execute("select edit, n_entries from log order by edit").fetchall()
    for number, (edit, n_entries) in enumerate(lines):
        total += counts.pop(edit, 0)
        if edit != number:
            found.problems.append(f"{STORE}: edit {number} is missing in the log.")
            return
        if total != n_entries:
            message = f"holds {total} entries after edit {edit}, but {n_entries} were written."
            found.problems.append(f"{STORE} {message}")
    if counts:
        found.problems.append(f"{STORE}: the log lacks edits {sorted(counts)}.")
    for table, key in (("versions", "seq"), ("parts", "name")):
        if database.execute(OVERLAPPING.format(table=table, key=key)).fetchone()[0]:
            found.problems.append(f"{STORE}: a state has two of the same {table}.")
    query = "select name from snapshots where edit not in (select edit from log)"
    for (name,) in database.execute(query):
        found.problems.append(f"{STORE}: the edit of snapshot {name!r} is not in the log.")
    if database.execute("select 1 from cache where name = ?", (UNFINISHED,)).fetchone():
        found.problems.append("An erasure is not finished; open the model for editing.")
    found.checked.append(f"the entries, parts and snapshots of {len(lines):,} states")
