"""The contract of an attention, for our own and for those of users."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from attnknn.attention import Attention, NeighborBatch, Weights, make_attention
from attnknn.classifier import AttnKNNClassifier
from attnknn.memory.base import Memory
from attnknn.pipeline import make_neighbor_batch

N_ROWS, WIDTH, N_CLASSES, K = 60, 4, 3, 8


def check_attention(attention: Any, *, random_state: int = 0) -> None:
    """Raise an AssertionError that says which promise of `attention.base.Attention` is broken.

    Parameters
    ----------
    attention : anything `make_attention` takes; it stays unfitted
    random_state : of the made-up rows on which it is fitted and asked

    Examples
    --------
    >>> check_attention("distance")
    """
    given = make_attention(attention)
    classifier = _fitted(given, random_state)
    fitted = classifier.attention_
    batch = _situation(classifier.memory_, fitted, random_state)
    weights = fitted.weigh(batch)
    _check_scores(fitted, batch)
    _check_weights(weights, batch)
    _check_queries_stand_alone(fitted, batch, weights)
    _check_nobody_found(fitted, batch)
    _check_copies(given, fitted, batch, weights)
    again = _fitted(given, random_state).attention_.weigh(batch)
    _must(_same(again, weights), "two fits with one random state must give the same weights")


def _fitted(attention: Attention, random_state: int) -> AttnKNNClassifier:
    generator = np.random.default_rng(random_state)
    labels = np.arange(N_ROWS) % N_CLASSES
    rows = generator.normal(size=(N_ROWS, WIDTH)) + 2.0 * np.eye(N_CLASSES, WIDTH)[labels]
    classifier = AttnKNNClassifier(
        K, attention=attention, memory="numpy", random_state=random_state
    )
    return classifier.fit(rows, labels, sample_weight=generator.uniform(0.5, 2.0, N_ROWS))


def _situation(memory: Memory, fitted: Attention, random_state: int) -> NeighborBatch:
    """Queries of which one has half of its places empty."""
    generator = np.random.default_rng(random_state + 1)
    queries = memory.prepare(generator.normal(size=(9, WIDTH)))
    found = memory.search_prepared(queries, K)
    found.mask[0, K // 2 :] = False
    found.distances[~found.mask] = np.inf
    trust = generator.uniform(size=found.positions.shape) if fitted.needs_trust else None
    return make_neighbor_batch(queries, found, memory, trust)


def _check_scores(fitted: Attention, batch: NeighborBatch) -> None:
    scores = fitted.scores(batch)
    n_heads = scores.prior.shape[1]
    _must(
        scores.neighbors.shape == (len(batch.queries), n_heads, K),
        f"`scores` must give (B, H, K) for the neighbors, got {scores.neighbors.shape}",
    )
    _must(scores.neighbors.dtype == np.float64, "`scores` must be float64")
    present = scores.neighbors[
        np.broadcast_to(batch.neighbors.mask[:, None], scores.neighbors.shape)
    ]
    _must(not (np.isnan(present) | np.isposinf(present)).any(), "scores must not be NaN or +inf")
    if scores.mixing is not None:
        _must(np.allclose(scores.mixing.sum(axis=1), 1), "`mixing` must sum to one per query")


def _check_weights(weights: Weights, batch: NeighborBatch) -> None:
    total = weights.neighbors.sum(axis=1) + weights.prior
    _must(np.allclose(total, 1, rtol=0, atol=1e-12), "weights and the prior's must sum to one")
    _must(weights.neighbors.dtype == np.float64, "weights must be float64")
    _must(bool((weights.neighbors >= 0).all()), "weights must not be negative")
    _must(bool((weights.prior >= 0).all()), "the prior's weight must not be negative")
    missing = ~batch.neighbors.mask
    _must(not weights.neighbors[missing].any(), "a place without an entry must have no say")


def _check_queries_stand_alone(fitted: Attention, batch: NeighborBatch, weights: Weights) -> None:
    backward = np.arange(len(batch.queries))[::-1]
    turned = fitted.weigh(batch.rows(backward))
    _must(
        np.allclose(turned.neighbors, weights.neighbors[backward], atol=1e-6),
        "the order of the queries must not change their weights",
    )
    alone = fitted.weigh(batch.rows(slice(1, 2)))
    _must(
        np.allclose(alone.neighbors, weights.neighbors[1:2], atol=1e-6),
        "a query alone must get the weights it gets in company",
    )


def _check_nobody_found(fitted: Attention, batch: NeighborBatch) -> None:
    found = batch.neighbors
    nobody = replace(batch, neighbors=replace(found, mask=np.zeros_like(found.mask, dtype=bool)))
    weights = fitted.weigh(nobody)
    _must(np.allclose(weights.prior, 1), "where nobody was found the prior must have all the say")


def _check_copies(
    given: Attention, fitted: Attention, batch: NeighborBatch, weights: Weights
) -> None:
    _must(given.get_params() == clone(given).get_params(), "`clone` must keep the settings")
    twins = {"copy": fitted.copy(), "a pickle": pickle.loads(pickle.dumps(fitted))}
    for name, twin in twins.items():
        _must(_same(twin.weigh(batch), weights), f"{name} must give the same weights")
    fitted.copy().admit_class(batch.queries[:2])
    _must(_same(fitted.weigh(batch), weights), "a change of a `copy` must not reach the original")


def _same(left: Weights, right: Weights) -> bool:
    return np.array_equal(left.neighbors, right.neighbors) and np.array_equal(
        left.prior, right.prior
    )


def _must(holds: bool, spec: str) -> None:
    if not holds:
        raise AssertionError(f"Attention contract: {spec}.")
