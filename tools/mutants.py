"""`python -m tools.mutants` changes the package in small ways and counts what its tests notice.

A mutant is one change of one line: another comparison, constant or operator, a statement left out,
arguments swapped (see `tools.mutations`). A random sample of mutants, stratified over rooms by
their lines of code, meets the tests of its own room: those that call the changed function, the
quickest first, until one fails. Everything happens in a temporary copy of the checkout.

    python -m tools.mutants --sample 300 --seed 0        # all rooms; resumable
    python -m tools.mutants --rooms vote,memory          # some rooms
    python -m tools.mutants --again                      # survivors again, after new tests
    python -m tools.mutants --report                     # write benchmarks/results/mutants.json

Results are kept in build/mutants.jsonl; remove it to begin again.

A mutant that survives is a missing test, or equivalent: nothing can observe the change. Equivalent
ones are listed with the reason in tools/mutants_equivalent.toml.
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import Any

import pytest

from tools.mutations import Mutant, mutants_of

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "build" / "mutants.jsonl"
REPORT = ROOT / "benchmarks" / "results" / "mutants.json"
EQUIVALENT = ROOT / "tools" / "mutants_equivalent.toml"
ROOMS = {  # the source files of a room, and its own tests beside its doctests
    "vote": (["attnknn/vote.py"], ["tests/test_vote.py"]),
    "calibration": (["attnknn/calibration"], ["tests/test_calibration.py"]),
    "leave_one_out": (["attnknn/leave_one_out.py"], ["tests/test_leave_one_out.py"]),
    "memory": (["attnknn/memory"], ["tests/memory"]),
    "attention": (["attnknn/attention"], ["tests/attention", "tests/fitting/test_attention.py"]),
    "conformal": (["attnknn/conformal"], ["tests/conformal"]),
    "editing": (["attnknn/editing.py"], ["tests/test_editing.py"]),
    "insight": (["attnknn/insight"], ["tests/insight"]),
    "storage": (["attnknn/storage"], ["tests/storage"]),
}
COPIED = ("attnknn", "tests", "tools", "experiments", "benchmarks", "examples", "pyproject.toml")
PRELOADED = ("pandas", "scipy.optimize", "sklearn.neighbors", "torch")  # seconds for each mutant
TIME_LIMIT = 30.0  # seconds, and five times what the tests take otherwise
KILLED, SURVIVED, TIMEOUT = "killed", "survived", "timeout"
OUTPUT = "output.txt"


@dataclass(frozen=True)
class Tests:
    """The tests of a room: seconds by id, and the ids that call each function of each file."""

    seconds: dict[str, float]
    callers: dict[str, set[str]]

    def of(self, mutant: Mutant) -> list[str]:
        """Ids of the tests that run the changed code, the quickest first."""
        chosen: Iterable[str] = self.seconds
        if mutant.function:
            chosen = self.callers.get(f"{mutant.path} {mutant.function}", set())
        return sorted(chosen, key=lambda test: (self.seconds[test], test))


def files_of(room: str) -> list[str]:
    """The source files of a room, without those that only export names."""
    found = []
    for place in ROOMS[room][0]:
        path = ROOT / place
        found += [path] if path.suffix else sorted(path.glob("*.py"))
    return [str(path.relative_to(ROOT)) for path in found if path.name != "__init__.py"]


def sampled(rooms: list[str], n: int, seed: int) -> dict[str, list[Mutant]]:
    """About `n` mutants, shared among the rooms by their lines.

    They are sampled by a hash of their description: the others stay the same when one changes.
    """
    lines = {
        room: sum(len((ROOT / path).read_text().splitlines()) for path in files_of(room))
        for room in rooms
    }
    chosen = {}
    for room in rooms:
        mutants = [mutant for path in files_of(room) for mutant in mutants_of(ROOT, path)]
        mutants.sort(key=lambda mutant: hashlib.sha256(f"{seed} {mutant.key}".encode()).digest())
        chosen[room] = mutants[: max(1, round(n * lines[room] / sum(lines.values())))]
    return chosen


class Copy:
    """A temporary copy of the checkout, in which tests run with one file changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in COPIED:
            source = ROOT / name
            ignored = shutil.ignore_patterns("__pycache__", "results")
            if source.is_dir():
                shutil.copytree(source, folder / name, ignore=ignored)
            elif source.exists():
                shutil.copy(source, folder / name)
        # By hash, since a mutant may have the size and the time of the file that it replaces.
        compileall.compile_dir(
            folder / "attnknn", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH
        )

    def tests(self, room: str) -> Tests:
        """Run all tests of a room once, and note what each calls; those that fail are left out."""
        found = self.folder / "calls.json"
        arguments = [*ROOMS[room][1], *files_of(room)]
        if self.run(arguments, 1200.0, calls=found) not in (0, 1):
            raise SystemExit((self.folder / OUTPUT).read_text())
        stored = json.loads(found.read_text())
        for test in stored["failed"]:
            print("fails without a mutant:", test, flush=True)
        callers = {function: set(tests) for function, tests in stored["callers"].items()}
        return Tests(stored["seconds"], callers)

    def meet(self, mutant: Mutant, tests: Tests) -> dict[str, Any]:
        """What the tests say about a mutant."""
        chosen = tests.of(mutant)
        started = time.perf_counter()
        code: int | None = 0
        if chosen:
            limit = TIME_LIMIT + 5 * sum(tests.seconds[test] for test in chosen)
            code = self._run_changed(mutant, chosen, limit)
        return {
            "key": mutant.key,
            "path": mutant.path,
            "line": mutant.line,
            "result": {0: SURVIVED, None: TIMEOUT}.get(code, KILLED),
            "tests": len(chosen),
            "seconds": round(time.perf_counter() - started, 1),
        }

    def _run_changed(self, mutant: Mutant, tests: list[str], limit: float) -> int | None:
        path = self.folder / mutant.path
        original = path.read_text()
        path.write_text(mutant.source())
        try:
            return self.run(["-x", *tests], limit)
        finally:
            path.write_text(original)

    def run(self, arguments: list[str], limit: float, calls: Path | None = None) -> int | None:
        """Exit code of pytest in a forked process, None after `limit` seconds.

        The fork has the large libraries imported already, and nothing of this package.
        """
        child = os.fork()
        if child == 0:
            _run_pytest(self.folder, arguments, calls)
        ends = time.monotonic() + limit
        while time.monotonic() < ends:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return None


def _run_pytest(folder: Path, arguments: list[str], calls: Path | None) -> None:
    """Run pytest in this process, and end it."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ["PYTHONPATH"] = str(folder)
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        sys.dont_write_bytecode = True
        sys.path[:] = [str(folder), *(p for p in sys.path if p not in ("", str(ROOT)))]
        quiet = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"]
        plugins = [] if calls is None else [Calls(folder, calls)]
        code = int(pytest.main([*quiet, *arguments], plugins=plugins))
    except BaseException:  # a fork must not go on as its parent would
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Calls:
    """A plugin of pytest: which functions of the package each test calls, and how long it takes."""

    def __init__(self, folder: Path, found: Path) -> None:
        self.package, self.folder, self.found = str(folder / "attnknn"), str(folder), found
        self.called: set[str] = set()
        self.by_test: dict[str, set[str]] = {}
        self.by_file: dict[str, set[str]] = {}  # by fixtures that several tests share
        self.seconds: Counter[str] = Counter()
        self.failed: set[str] = set()

    def trace(self, frame: Any, event: str, arg: Any) -> None:  # noqa: ARG002
        """Note a call; lines are not traced."""
        code = frame.f_code
        if code.co_filename.startswith(self.package):
            outermost = code.co_qualname.partition(".<locals>")[0]
            self.called.add(f"{code.co_filename[len(self.folder) + 1 :]} {outermost}")

    def pytest_sessionstart(self) -> None:
        """Trace from now on, in all threads."""
        import threading

        sys.settrace(self.trace)
        threading.settrace(self.trace)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Any:
        """What a shared fixture calls belongs to all tests of its file, or to all tests."""
        before = self.called
        if fixturedef.scope != "function":
            self.called = self.by_file.setdefault(request.node.nodeid.partition("::")[0], set())
        try:
            return (yield)
        finally:
            self.called = before

    def pytest_runtest_setup(self, item: Any) -> None:
        """Begin with a new set of calls."""
        self.called = self.by_test.setdefault(item.nodeid, set())
        sys.settrace(self.trace)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Add up the seconds of set-up, call and tear-down."""
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        """Store everything by function."""
        sys.settrace(None)
        callers: dict[str, set[str]] = {}
        for test in self.failed:
            del self.seconds[test]
        for test in self.seconds:
            file = test.partition("::")[0]
            shared = self.by_file.get(file, set()) | self.by_file.get("", set())
            for function in self.by_test.get(test, set()) | shared:
                callers.setdefault(function, set()).add(test)
        stored = {function: sorted(tests) for function, tests in callers.items()}
        found = {"seconds": self.seconds, "callers": stored, "failed": sorted(self.failed)}
        self.found.write_text(json.dumps(found))


def read_results() -> dict[str, dict[str, Any]]:
    """Stored results by key, the last of each."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {found["key"]: found for found in map(json.loads, lines)}


def read_equivalent() -> dict[str, str]:
    """Reasons by key of the mutants that nothing can observe."""
    return tomllib.loads(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}


def run(chosen: dict[str, list[Mutant]], again: bool) -> None:
    """Let all mutants without a result meet their tests; `again` also those that survived."""
    for name in PRELOADED:
        importlib.import_module(name)
    known = read_results()
    skipped = {key for key, found in known.items() if not (again and found["result"] == SURVIVED)}
    skipped |= set(read_equivalent())
    RESULTS.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, RESULTS.open("a") as stored:
        checkout = Copy(Path(folder))
        for room, mutants in chosen.items():
            left = [mutant for mutant in mutants if mutant.key not in skipped]
            tests = checkout.tests(room) if left else Tests({}, {})
            for mutant in left:
                found = {"room": room, **checkout.meet(mutant, tests)}
                stored.write(json.dumps(found, ensure_ascii=False) + "\n")
                stored.flush()
                print(found["result"], found["seconds"], found["key"], flush=True)


def report(chosen: dict[str, list[Mutant]], seed: int) -> dict[str, Any]:
    """Counts by room over the mutants with a result, and the keys of those that survived."""
    known, equivalent = read_results(), read_equivalent()
    rooms, survivors = {}, []
    for room, mutants in chosen.items():
        keys = [mutant.key for mutant in mutants]
        tried = [key for key in keys if key in known or key in equivalent]
        results = Counter(known[key]["result"] for key in tried if key not in equivalent)
        alike = sum(key in equivalent for key in tried)
        rooms[room] = {"mutants": len(tried), **results, "equivalent": alike}
        survivors += [
            key for key in tried if key not in equivalent and known[key]["result"] == SURVIVED
        ]
    total = Counter()
    for counts in rooms.values():
        total.update(counts)
    noticed = (total[KILLED] + total[TIMEOUT]) / max(1, total["mutants"] - total["equivalent"])
    return {
        "command": f"python -m tools.mutants --seed {seed}",
        "killed_share": round(noticed, 4),
        "total": dict(total),
        "rooms": rooms,
        "survivors": survivors,
    }


def main(arguments: list[str] | None = None) -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument("--sample", type=int, default=300, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--rooms", default=",".join(ROOMS), help="separated by commas")
    parser.add_argument("--again", action="store_true", help="try survivors again")
    parser.add_argument("--report", action="store_true", help="only write the report")
    options = parser.parse_args(arguments)
    chosen = sampled(list(ROOMS), options.sample, options.seed)
    if options.report:
        REPORT.write_text(
            json.dumps(report(chosen, options.seed), indent=1, ensure_ascii=False) + "\n"
        )
        return 0
    run({room: chosen[room] for room in options.rooms.split(",")}, options.again)
    print(json.dumps(report(chosen, options.seed), indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
