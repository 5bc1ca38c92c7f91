"""What weighing and voting cost each query beside the search for its neighbors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from attnknn.attention import DistanceAttention, LearnedAttention, UniformAttention
from attnknn.research.evaluation.measurements import Row
from attnknn.research.experiments.measures.measured import Measured
from attnknn.research.experiments.measures.timing import medians
from attnknn.research.experiments.methods import Stage

NOTES = (
    "Milliseconds for each query, medians in turns: {n} queries asked at once, and one alone; the "
    "overhead is what the answer takes beyond the search of the same neighbors."
)


def overhead_numbers(stage: Stage, settings: Mapping[str, Any]) -> Measured:
    """Search alone, then whole answers by uniform, distance and learned weights."""
    k, repeats = int(settings["neighbors"]), int(settings["repeats"])
    memory = stage.kept.memory
    queries = memory.prepare(stage.scene.asked[0][: int(settings["queries"])])
    attentions = {
        "uniform": UniformAttention(),
        "distance": DistanceAttention(),
        "learned": LearnedAttention(),
    }
    fitted = {  # of K neighbors each, whatever the fit would choose
        name: replace(stage.kept.fitted(attention, k, stage.scene.seed), n_neighbors=k)
        for name, attention in attentions.items()
    }
    ways: dict[str, Any] = {"search": lambda q: memory.search_prepared(q, k)}
    ways |= {name: parts.answer for name, parts in fitted.items()}
    times = {
        column: medians({n: _asking(way, rows) for n, way in ways.items()}, repeats)
        for column, rows in {"at once": queries, "alone": queries[:1]}.items()
    }
    rows = tuple(_row(name, times, len(queries)) for name in ways)
    return Measured(rows, (NOTES.format(n=len(queries)),))


def _asking(way: Any, rows: Any) -> Any:
    return lambda: way(rows)


def _row(name: str, times: Mapping[str, Mapping[str, float]], n_queries: int) -> Row:
    at_once, alone = (
        {way: 1000 * seconds / n for way, seconds in times[column].items()}
        for column, n in (("at once", n_queries), ("alone", 1))
    )
    row: Row = {"what": name, "ms at once": at_once[name], "ms alone": alone[name]}
    if name != "search":
        row["overhead at once"] = at_once[name] - at_once["search"]
        row["overhead alone"] = alone[name] - alone["search"]
    return row
