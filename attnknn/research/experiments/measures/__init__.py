"""Claims about numbers other than scores: indexes, theory, the cost of a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attnknn.research.experiments.measures.index import index_numbers
from attnknn.research.experiments.measures.measured import Measured
from attnknn.research.experiments.measures.overhead import overhead_numbers
from attnknn.research.experiments.measures.theory import theory_numbers
from attnknn.research.experiments.methods import Stage

MEASURES: dict[str, Callable[[Stage, Mapping[str, Any]], Measured]] = {
    "index": index_numbers,
    "theory": theory_numbers,
    "overhead": overhead_numbers,
}
