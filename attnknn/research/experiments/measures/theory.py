"""What the theory of kNN attention assumes and foresees, beside what is measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attnknn.attention import DistanceAttention, KEnsembleAttention, LearnedAttention
from attnknn.memory import TorchMemory, make_entries
from attnknn.model import FittedModel
from attnknn.records import Floats
from attnknn.research.evaluation.measurements import Row
from attnknn.research.experiments.measures.measured import Measured
from attnknn.research.experiments.methods import Stage

QUERIES = 512
NOTES = (
    "Norms of embeddings; the K in use beside √n; temperatures of heads in units of the typical "
    "squared distance, with their bounds, and how many equal voters the weights are worth; "
    "neighbors that inner product and Euclidean distance have in common; for each K the error of "
    "the vote by distance, and how far its shares are from those over all neighbors in sight (half "
    "the sum of absolute differences).",
)


def theory_numbers(stage: Stage, settings: Mapping[str, Any]) -> Measured:
    """Norms, K against √n, temperatures, metrics, and the error against K."""
    distance = stage.kept.fitted(DistanceAttention(), stage.most, stage.scene.seed)
    learned = stage.kept.fitted(LearnedAttention(), stage.few, stage.scene.seed)
    rows: list[Row] = [
        _norms(stage),
        {
            "what": "K of distance attention",
            "value": distance.n_neighbors,
            "√n": float(np.sqrt(len(stage.scene.codes))),
        },
        *_temperatures(learned),
        _voters("distance", distance, stage),
        _voters("learned", learned, stage),
        _in_common(stage, stage.few),
        *_errors(stage, settings["neighbors"]),
    ]
    return Measured(tuple(rows), NOTES)


def _norms(stage: Stage) -> Row:
    norms = np.linalg.norm(stage.scene.entries.astype(np.float64), axis=1)
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


def _voters(name: str, parts: FittedModel, stage: Stage) -> Row:
    queries = parts.memory.prepare(stage.scene.asked[0][:QUERIES])
    voters = parts.answer(queries).weights.effective_neighbors
    return {
        "what": f"equal voters, {name}",
        "value": float(voters.mean()),
        "least": float(voters.min()),
        "largest": float(voters.max()),
    }


def _in_common(stage: Stage, k: int) -> Row:
    """The share of neighbors that two metrics agree on; all of them where norms are alike."""
    entries = make_entries(stage.scene.entries, stage.scene.codes)
    queries = stage.scene.asked[0][:QUERIES]
    found = [
        TorchMemory().remember(entries, metric).search(queries, k).positions
        for metric in ("euclidean", "inner_product")
    ]
    shares = [np.isin(ours, theirs).mean() for ours, theirs in zip(*found, strict=True)]
    return {"what": "neighbors in common, two metrics", "value": float(np.mean(shares))}


def _errors(stage: Stage, sizes: Sequence[int]) -> list[Row]:
    """The error of the vote over K neighbors, and how far it is from that over all in sight."""
    everyone = stage.kept.fitted(KEnsembleAttention(sizes=(stage.most,)), stage.most, 0)
    queries = everyone.memory.prepare(stage.scene.asked[0])
    whole = everyone.answer(queries).shares
    rows: list[Row] = []
    for k in dict.fromkeys([*sizes, stage.most]):
        shares = _cut(everyone, k).answer(queries).shares
        wrong = float((shares.argmax(axis=1) != stage.scene.truth).mean())
        rows.append({"what": f"K = {k}", "error": wrong, "distance to all": _gap(shares, whole)})
    return rows


def _cut(parts: FittedModel, k: int) -> FittedModel:
    """The same scalars over the K nearest."""
    attention = KEnsembleAttention(sizes=(k,))
    attention.prepare_fit(k)
    attention.temperature_ = parts.attention.temperature_
    attention.prior_score_ = parts.attention.prior_score_
    return replace(parts, attention=attention, n_neighbors=k)


def _gap(shares: Floats, whole: Floats) -> float:
    return float(0.5 * np.abs(shares - whole).sum(axis=1).mean())
