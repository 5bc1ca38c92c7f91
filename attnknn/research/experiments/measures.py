"""Measurements of indexes, of the cost of a query, and of what theory assumes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from attnknn._optional import require
from attnknn.attention import (
    DistanceAttention,
    KEnsembleAttention,
    LearnedAttention,
    UniformAttention,
)
from attnknn.memory import FaissMemory, TorchMemory, make_entries
from attnknn.memory.base import Memory
from attnknn.model import FittedModel
from attnknn.research.evaluation.measurements import Row
from attnknn.research.experiments.methods import Workspace


def medians(ways: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of several functions, called in turns after a warm-up."""
    for way in ways.values():
        way()
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            taken[name].append(time.perf_counter() - started)
    return {name: float(np.median(seconds)) for name, seconds in taken.items()}


@dataclass(frozen=True, eq=False)
class Measured:
    """Measured rows, with notes on their columns."""

    rows: tuple[Row, ...]
    notes: tuple[str, ...]


QUERIES, BUILDS, REPEATS, REPEATS_ALONE = 512, 3, 5, 9

INDEX_NOTES = (
    "Build in seconds, with one question since some indexes are finished by it; search in "
    "milliseconds for each of {n} queries asked at once, and of one asked alone; medians in turns "
    "after a first time that does not count; recall of the nearest; MB of embeddings and index."
)


def indexes() -> dict[str, tuple[Callable[[], Memory], str]]:
    """Constructors and metrics of the indexes that are compared; FAISS is an extra."""
    require("faiss", extra="faiss", needed_by="The claim 'index'")
    return {
        "ours, exact, Euclidean": (TorchMemory, "euclidean"),
        "ours, exact, inner product": (TorchMemory, "inner_product"),
        "FAISS flat, Euclidean": (partial(FaissMemory, "flat"), "euclidean"),
        "FAISS flat, inner product": (partial(FaissMemory, "flat"), "inner_product"),
        "FAISS HNSW": (partial(FaissMemory, "hnsw"), "euclidean"),
        "FAISS IVF": (partial(FaissMemory, "ivf"), "euclidean"),
    }


def index_numbers(workspace: Workspace, settings: Mapping[str, Any]) -> Measured:
    """One row for each index over the entries of embedded data."""
    embedded, k = workspace.embedded, int(settings["neighbors"])
    entries = make_entries(embedded.entries, embedded.codes)
    queries = embedded.queries[0][:QUERIES]
    built: dict[str, Memory] = {}

    def build(name: str, make: Callable[[], Memory], metric: str) -> None:
        built[name] = make().remember(entries, metric)
        built[name].search(queries[:1], k)

    builds = {name: partial(build, name, *made) for name, made in indexes().items()}
    building = medians(builds, BUILDS)
    at_once = medians({n: partial(m.search, queries, k) for n, m in built.items()}, REPEATS)
    alone = medians({n: partial(m.search, queries[:1], k) for n, m in built.items()}, REPEATS_ALONE)
    rows: list[Row] = [
        {
            "what": name,
            "build s": building[name],
            "ms per query": 1000 * at_once[name] / len(queries),
            "one query ms": 1000 * alone[name],
            "recall": memory.recall(queries, k) if isinstance(memory, FaissMemory) else 1.0,
            "MB": memory.n_bytes / 1e6,
        }
        for name, memory in built.items()
    ]
    return Measured(tuple(rows), (INDEX_NOTES.format(n=len(queries)),))


OVERHEAD_NOTES = (
    "Milliseconds for each query, medians in turns: {n} queries asked at once, and one alone; the "
    "overhead is what the answer takes beyond the search of the same neighbors."
)


def overhead_numbers(workspace: Workspace, settings: Mapping[str, Any]) -> Measured:
    """Times of search alone, and of predictions by uniform, distance and learned weights."""
    k, repeats = int(settings["neighbors"]), int(settings["repeats"])
    memory = workspace.memory
    queries = memory.prepare(workspace.embedded.queries[0][: int(settings["queries"])])
    attentions = {
        "uniform": UniformAttention(),
        "distance": DistanceAttention(),
        "learned": LearnedAttention(),
    }
    fitted = {  # of K neighbors each, whatever the fit would choose
        name: replace(workspace.fitted(attention, k), n_neighbors=k)
        for name, attention in attentions.items()
    }
    ways: dict[str, Any] = {"search": lambda q: memory.search_prepared(q, k)}
    ways |= {name: parts.answer for name, parts in fitted.items()}
    times = {
        column: medians({n: partial(way, rows) for n, way in ways.items()}, repeats)
        for column, rows in {"at once": queries, "alone": queries[:1]}.items()
    }
    rows = tuple(_row(name, times, len(queries)) for name in ways)
    return Measured(rows, (OVERHEAD_NOTES.format(n=len(queries)),))


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


THEORY_NOTES = (
    "Norms of embeddings; the K in use beside √n; temperatures of heads in units of the typical "
    "squared distance, with their bounds, and how many equal voters the weights are worth; "
    "neighbors that inner product and Euclidean distance have in common; for each K the error of "
    "the vote by distance, and how far its shares are from those over all neighbors in sight (half "
    "the sum of absolute differences).",
)


def theory_numbers(workspace: Workspace, settings: Mapping[str, Any]) -> Measured:
    """Norms, K against √n, temperatures, metrics, and the error against K."""
    distance = workspace.fitted(DistanceAttention(), workspace.most)
    learned = workspace.fitted(LearnedAttention(), workspace.most)
    rows: list[Row] = [
        _norms(workspace),
        {
            "what": "K of distance attention",
            "value": distance.n_neighbors,
            "√n": float(np.sqrt(len(workspace.embedded.codes))),
        },
        *_temperatures(learned),
        _voters("distance", distance, workspace),
        _voters("learned", learned, workspace),
        _in_common(workspace, workspace.few),
        *_errors(workspace, settings["neighbors"]),
    ]
    return Measured(tuple(rows), THEORY_NOTES)


def _norms(workspace: Workspace) -> Row:
    norms = np.linalg.norm(workspace.embedded.entries.astype(np.float64), axis=1)
    return {
        "what": "norm of embeddings",
        "value": float(norms.mean()),
        "least": float(norms.min()),
        "largest": float(norms.max()),
    }


def _temperatures(learned: FittedModel) -> list[Row]:
    module = getattr(learned.attention, "module_", None)
    assert module is not None
    found = module.temperatures.detach().double().numpy()
    low, high = module.shape.temperature_bounds
    heads: list[Row] = [
        {"what": f"temperature of head {n}", "value": float(t), "least": low, "largest": high}
        for n, t in enumerate(found.ravel(), 1)
    ]
    factor = float(learned.attention.temperature_)
    return [*heads, {"what": "factor of calibration for temperatures", "value": factor}]


def _voters(name: str, parts: FittedModel, workspace: Workspace) -> Row:
    queries = parts.memory.prepare(workspace.embedded.queries[0][:QUERIES])
    voters = parts.answer(queries).weights.effective_neighbors
    return {
        "what": f"equal voters, {name}",
        "value": float(voters.mean()),
        "least": float(voters.min()),
        "largest": float(voters.max()),
    }


def _in_common(workspace: Workspace, k: int) -> Row:
    """The share of neighbors that two metrics have in common."""
    entries = make_entries(workspace.embedded.entries, workspace.embedded.codes)
    queries = workspace.embedded.queries[0][:QUERIES]
    found = [
        TorchMemory().remember(entries, metric).search(queries, k).positions
        for metric in ("euclidean", "inner_product")
    ]
    shares = [np.isin(ours, theirs).mean() for ours, theirs in zip(*found, strict=True)]
    return {"what": "neighbors in common, two metrics", "value": float(np.mean(shares))}


def _errors(workspace: Workspace, sizes: Sequence[int]) -> list[Row]:
    """Error of the vote over K neighbors, and distance of its shares to those of all neighbors."""
    everyone = workspace.fitted(KEnsembleAttention(sizes=(workspace.most,)), workspace.most, 0)
    queries = everyone.memory.prepare(workspace.embedded.queries[0])
    whole = everyone.answer(queries).shares
    rows: list[Row] = []
    for k in dict.fromkeys([*sizes, workspace.most]):
        shares = _cut(everyone, k).answer(queries).shares
        wrong = float((shares.argmax(axis=1) != workspace.embedded.data.y_test).mean())
        gap = float(0.5 * np.abs(shares - whole).sum(axis=1).mean())
        rows.append({"what": f"K = {k}", "error": wrong, "distance to all": gap})
    return rows


def _cut(parts: FittedModel, k: int) -> FittedModel:
    """The same model with the K nearest neighbors only."""
    attention = KEnsembleAttention(sizes=(k,))
    attention.prepare_fit(k)
    attention.temperature_ = parts.attention.temperature_
    attention.prior_score_ = parts.attention.prior_score_
    return replace(parts, attention=attention, n_neighbors=k)


MEASURES: dict[str, Callable[[Workspace, Mapping[str, Any]], Measured]] = {
    "index": index_numbers,
    "theory": theory_numbers,
    "overhead": overhead_numbers,
}
