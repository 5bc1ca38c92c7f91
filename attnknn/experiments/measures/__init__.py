"""Claims about numbers other than scores: indexes, theory, the cost of a query."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attnknn.evaluation.sheet import Row
from attnknn.experiments.measures.index import NOTES as INDEX_NOTES
from attnknn.experiments.measures.index import index_rows
from attnknn.experiments.measures.overhead import NOTES as OVERHEAD_NOTES
from attnknn.experiments.measures.overhead import overhead_rows
from attnknn.experiments.measures.theory import NOTES as THEORY_NOTES
from attnknn.experiments.measures.theory import theory_rows
from attnknn.experiments.methods import Stage

Measure = Callable[[Stage, Mapping[str, Any]], list[Row]]

MEASURES: dict[str, tuple[Measure, tuple[str, ...]]] = {
    "index": (index_rows, INDEX_NOTES),
    "theory": (theory_rows, THEORY_NOTES),
    "overhead": (overhead_rows, OVERHEAD_NOTES),
}
