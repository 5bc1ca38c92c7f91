"""Mutated files load or are refused by name; `make fuzz` tries many more."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.fuzz.worker import build_samples, replay, run_cases, warm_up

CORPUS = Path(__file__).parent / "corpus"
STORED = [
    json.loads(line)
    for path in sorted(CORPUS.glob("*.jsonl"))
    for line in path.read_text().splitlines()
]
N_CASES = 600


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("samples")


@pytest.mark.parametrize(
    "stored", STORED, ids=lambda stored: f"{stored['target']}-{stored['case']}"
)
def test_a_file_that_once_did_harm_does_none(
    stored: dict[str, Any], samples: Path, tmp_path: Path
) -> None:
    build_samples(samples, [stored["target"]])
    outcome, detail = replay(stored, samples, tmp_path / "case")
    assert not outcome.startswith("!"), detail


def test_the_corpus_is_small_and_has_every_reader() -> None:
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < 1 << 20
    assert {"plain", "learned", "store", "csv", "parquet", "npz"} <= {s["target"] for s in STORED}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the memory of forked processes")
def test_mutated_files_are_refused_by_name_or_used(samples: Path, tmp_path: Path) -> None:
    build_samples(samples)
    warm_up(samples)
    found = run_cases(list(range(N_CASES)), seed=7, samples=samples, failures=tmp_path)
    assert len(found) == N_CASES
    assert {"works", "ModelFolderError", "InvalidInputError"} <= {o.outcome for o in found}
    assert not [outcome for outcome in found if outcome.is_failure]
