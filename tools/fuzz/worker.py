"""Run cases in forked processes with limits of time and memory."""

from __future__ import annotations

import base64
import json
import os
import resource
import shutil
import signal
import tempfile
import time
import traceback
import warnings
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from select import select
from typing import Any

import numpy as np

from attnknn.errors import AttnKNNError
from tools.fuzz.mutations import mutate
from tools.fuzz.targets import TARGETS, resign, resign_sentences

MEMORY = 2 << 30  # bytes that a case may use beyond what the process has
SECONDS = 20.0
CASES_PER_PROCESS = 100
NAMES = sorted(TARGETS)
SHARES = np.array([TARGETS[name].share for name in NAMES])
SHARES /= SHARES.sum()


@dataclass(frozen=True)
class Outcome:
    """What came of a case.

    Parameters
    ----------
    outcome : "works", the name of an error of `attnknn.errors`, or a failure with "!"
    """

    case: int
    target: str
    file: str
    mutation: str
    outcome: str
    detail: str = ""

    @property
    def is_failure(self) -> bool:
        """Whether neither an answer nor an error of ours came."""
        return self.outcome.startswith("!")


def build_samples(folder: Path, names: Iterable[str] = NAMES) -> None:
    """Write the unchanged files of the targets."""
    for name in names:
        if not (folder / name).exists():
            (folder / name).mkdir(parents=True)
            TARGETS[name].build(folder / name)


def warm_up(samples: Path) -> None:
    """Use the unchanged files once, so that no case has to wait for an import."""
    for name in NAMES:
        with tempfile.TemporaryDirectory(dir=_scratch()) as scratch:
            shutil.copytree(samples / name, Path(scratch) / "case")
            outcome, detail = attempt(name, Path(scratch) / "case")
        assert not outcome.startswith("!"), f"{name}: {detail}"


def attempt(target: str, folder: Path) -> tuple[str, str]:
    """Use the files of a folder; returns the outcome and the detail of a failure."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            TARGETS[target].use(folder)
    except AttnKNNError as error:
        return type(error).__name__, ""
    except TimeoutError:
        return "!too slow", traceback.format_exc()
    except BaseException as error:
        return f"!{type(error).__name__}", traceback.format_exc()
    return "works", ""


def prepare(case: int, seed: int, samples: Path, folder: Path) -> tuple[str, Path, str]:
    """Copy the files of the target of a case to `folder`, and change one."""
    rng = np.random.default_rng([seed, case])
    target = str(rng.choice(NAMES, p=SHARES))
    shutil.copytree(samples / target, folder)
    files = sorted(p for p in folder.glob(TARGETS[target].mutated) if p.is_file())
    path = files[int(rng.integers(len(files)))]
    done = mutate(rng, path)
    if rng.random() < 0.8:
        _resign(folder, path)
    return target, path, done


def _resign(folder: Path, path: Path) -> None:
    if path.parent.name == "model" and path.name != "manifest.json":
        resign(path.parent, path.name)
    elif "sentences" in path.parts:
        resign_sentences(folder)


def run_case(case: int, seed: int, samples: Path, failures: Path) -> Outcome:
    """Run one case in this process; the bytes of a failure are stored."""
    with tempfile.TemporaryDirectory(dir=_scratch()) as scratch:
        folder = Path(scratch) / "case"
        target, path, done = prepare(case, seed, samples, folder)
        content = path.read_bytes()
        outcome, detail = attempt(target, folder)
        found = Outcome(case, target, str(path.relative_to(folder)), done, outcome, detail)
    if found.is_failure:
        store_failure(found, content, failures)
    return found


def store_failure(found: Outcome, content: bytes, failures: Path) -> None:
    """Write the outcome and the changed file, in the format of the corpus."""
    failures.mkdir(parents=True, exist_ok=True)
    packed = base64.b64encode(zlib.compress(content, 9)).decode()
    text = json.dumps({**asdict(found), "bytes": packed}, indent=1)
    (failures / f"case-{found.case}.json").write_text(text + "\n")


def replay(stored: dict[str, Any], samples: Path, folder: Path) -> tuple[str, str]:
    """Use the sample of a stored case with its changed file; returns as `attempt` does."""
    shutil.copytree(samples / stored["target"], folder)
    path = folder / stored["file"]
    path.write_bytes(zlib.decompress(base64.b64decode(stored["bytes"])))
    _resign(folder, path)
    return attempt(stored["target"], folder)


def _scratch() -> str | None:
    return "/dev/shm" if os.path.isdir("/dev/shm") else None


def run_cases(cases: list[int], seed: int, samples: Path, failures: Path) -> list[Outcome]:
    """Run cases in forked processes; one that dies or hangs is a failure of its case."""
    found: list[Outcome] = []
    while len(found) < len(cases):
        found += _run_in_child(cases[len(found) :][:CASES_PER_PROCESS], seed, samples, failures)
    return found


def _run_in_child(cases: list[int], seed: int, samples: Path, failures: Path) -> list[Outcome]:
    """The outcomes up to the first case that ends its process, and of that one."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        _child(cases, seed, samples, failures, sender)
    os.close(sender)
    found: list[Outcome] = []
    with os.fdopen(receiver, "rb") as pipe:
        while len(found) < len(cases):
            is_ready = select([pipe], [], [], 2 * SECONDS)[0]
            line = pipe.readline() if is_ready else b""
            if not line:
                break
            found.append(Outcome(**json.loads(line)))
    if len(found) < len(cases):
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    if len(found) < len(cases):
        case = cases[len(found)]
        with tempfile.TemporaryDirectory(dir=_scratch()) as scratch:
            folder = Path(scratch) / "case"
            target, path, done = prepare(case, seed, samples, folder)
            name = str(path.relative_to(folder))
            dead = Outcome(case, target, name, done, "!process died", f"status {status}")
            store_failure(dead, path.read_bytes(), failures)
        found.append(dead)
    return found


def _child(cases: list[int], seed: int, samples: Path, failures: Path, sender: int) -> None:
    def too_slow(*_: object) -> None:
        raise TimeoutError

    try:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        signal.signal(signal.SIGALRM, too_slow)
        with os.fdopen(sender, "wb", buffering=0) as pipe:
            for case in cases:
                signal.setitimer(signal.ITIMER_REAL, SECONDS)
                found = run_case(case, seed, samples, failures)
                signal.setitimer(signal.ITIMER_REAL, 0)
                pipe.write(json.dumps(asdict(found)).encode() + b"\n")
    finally:
        os._exit(0)


def work(
    part: int, n_parts: int, n_cases: int, seed: int, samples: Path, results: Path
) -> dict[str, Any]:
    """Run every `n_parts`-th case from where the last run stopped; returns the counts."""
    path = results / f"part-{part}-of-{n_parts}.json"
    state = {"seed": seed, "done": 0, "seconds": 0.0, "outcomes": {}}
    if path.exists():
        stored = json.loads(path.read_text())
        state = stored if stored["seed"] == seed else state
    mine = list(range(part, n_cases, n_parts))
    while state["done"] < len(mine):
        started = time.monotonic()
        cases = mine[state["done"] :][:CASES_PER_PROCESS]
        for found in run_cases(cases, seed, samples, results / "failures"):
            counts = Counter(state["outcomes"].get(found.target, {}))
            counts[found.outcome] += 1
            state["outcomes"][found.target] = dict(counts)
        state["done"] += len(cases)
        state["seconds"] += time.monotonic() - started
        path.write_text(json.dumps(state))
    return state
