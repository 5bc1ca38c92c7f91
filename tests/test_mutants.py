"""Mutation testing finds changes of code, and never makes them in the checkout."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tools import mutants  # noqa: E402
from tools.mutations import mutants_of  # noqa: E402

SOURCE = '''
"""A module."""
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    SIZE = 1

LIMIT = 3

def clipped(values: list[int], low: int = 0, strict: bool = False) -> list[int]:
    """Values from `low` to the limit."""
    if strict and not values:
        raise ValueError(f"{1} value is needed")
    found = {}
    found["low"] = low
    return [max(low, v) for v in values if v < LIMIT + low]
'''


def of_source(tmp_path, source=SOURCE):
    (tmp_path / "module.py").write_text(source)
    return mutants_of(tmp_path, "module.py")


def test_mutants_change_operators_constants_statements_and_results(tmp_path):
    keys = [mutant.key.removeprefix("module.py ") for mutant in of_source(tmp_path)]
    assert keys == [
        "module: 3 → 4 in LIMIT = 3",
        "clipped: 0 → 1 in values: list[int], low: int=0, strict: bool=False",
        "clipped: False → True in values: list[int], low: int=0, strict: bool=False",
        "clipped: if strict and (not values) → if not (strict and (not values))",
        "clipped: strict and (not values) → strict or not values",
        "clipped: not values → values",
        "clipped: found['low'] = low → pass",
        "clipped: return [max(low, v) for v in values if v < LIMIT + low] → return None",
        "clipped: v < LIMIT + low → v <= LIMIT + low",
        "clipped: LIMIT + low → LIMIT - low",
    ]


def test_each_mutant_differs_from_the_source_and_from_the_others(tmp_path):
    sources = [mutant.source() for mutant in of_source(tmp_path)]
    assert len({*sources, ast.unparse(ast.parse(SOURCE))}) == len(sources) + 1
    assert (tmp_path / "module.py").read_text() == SOURCE


def test_code_that_runs_at_import_belongs_to_no_function(tmp_path):
    functions = [mutant.function for mutant in of_source(tmp_path)]
    assert functions == ["", "", "", *["clipped"] * 7]


def test_a_larger_sample_contains_a_smaller_one_and_every_room():
    rooms = ["vote", "editing"]
    small, large = (mutants.sampled(rooms, n, seed=0) for n in (10, 20))
    for room in rooms:
        keys = [{mutant.key for mutant in sample[room]} for sample in (small, large)]
        assert keys[0]
        assert keys[0] <= keys[1]


def test_equivalent_mutants_have_a_reason():
    reasons = mutants.read_equivalent()
    assert all(key.startswith("attnknn/") and len(reason) > 10 for key, reason in reasons.items())
