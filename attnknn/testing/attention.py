"""The contract of attentions."""

from __future__ import annotations

import json
import pickle
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from attnknn.attention import (
    Attention,
    DirectAttention,
    NeighborBatch,
    Weights,
    make_attention,
)
from attnknn.attention.base import Head, Voters
from attnknn.classifier import AttnKNNClassifier
from attnknn.memory.base import Memory
from attnknn.vote import class_prior, vote

N_ROWS, WIDTH, N_CLASSES, K = 60, 4, 3, 8


def check_attention(attention: Any, *, random_state: int = 0) -> None:
    """Check that an attention keeps the contract of `Attention` or `DirectAttention`.

    Parameters
    ----------
    attention : str, Attention or DirectAttention
        Anything that `make_attention` takes; it stays unfitted.
    random_state : int, default=0
        Seed of the test rows.

    Raises
    ------
    AssertionError
        With a sentence that says what is wrong.

    Examples
    --------
    >>> check_attention("distance")
    """
    given = make_attention(attention)
    classifier = _fitted(given, random_state)
    fitted = classifier.attention_
    if isinstance(given, DirectAttention):
        _check_direct(given, classifier, random_state)
        return
    batch = _neighbor_batch(classifier.memory_, fitted, random_state)
    weights = fitted.weigh(batch)
    _check_scores(fitted, batch)
    _check_weights(weights, batch)
    _check_queries_are_independent(fitted, batch, weights)
    _check_no_neighbors(fitted, batch)
    _check_copies(given, fitted, batch, weights)
    again = _fitted(given, random_state).attention_.weigh(batch)
    _must(_same(again, weights), "two fits with one random state must have the same weights")


def _fitted(attention: Any, random_state: int) -> AttnKNNClassifier:
    generator = np.random.default_rng(random_state)
    labels = np.arange(N_ROWS) % N_CLASSES
    rows = generator.normal(size=(N_ROWS, WIDTH)) + 2.0 * np.eye(N_CLASSES, WIDTH)[labels]
    classifier = AttnKNNClassifier(
        K, attention=attention, memory="numpy", random_state=random_state
    )
    return classifier.fit(rows, labels, sample_weight=generator.uniform(0.5, 2.0, N_ROWS))


def _neighbor_batch(memory: Memory, fitted: Attention, random_state: int) -> NeighborBatch:
    """Queries, one of which has too few neighbors."""
    generator = np.random.default_rng(random_state + 1)
    queries = memory.prepare(generator.normal(size=(9, WIDTH)))
    found = memory.search_prepared(queries, K)
    found.mask[0, K // 2 :] = False
    found.distances[~found.mask] = np.inf
    trust = generator.uniform(size=found.positions.shape) if fitted.needs_trust else None
    return NeighborBatch.of(queries, found, memory, trust)


def _check_scores(fitted: Attention, batch: NeighborBatch) -> None:
    scores = fitted.scores(batch)
    n_heads = scores.prior.shape[1]
    _must(
        scores.neighbors.shape == (len(batch.queries), n_heads, K),
        f"`scores` must return (B, H, K) for the neighbors, got {scores.neighbors.shape}",
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
    _must(not weights.neighbors[missing].any(), "a place without an entry must have weight 0")


def _check_queries_are_independent(
    fitted: Attention, batch: NeighborBatch, weights: Weights
) -> None:
    backward = np.arange(len(batch.queries))[::-1]
    turned = fitted.weigh(batch.rows(backward))
    _must(
        np.allclose(turned.neighbors, weights.neighbors[backward], atol=1e-6),
        "the order of the queries must not change their weights",
    )
    alone = fitted.weigh(batch.rows(slice(1, 2)))
    _must(
        np.allclose(alone.neighbors, weights.neighbors[1:2], atol=1e-6),
        "a query must have the same weights alone and in a batch",
    )


def _check_no_neighbors(fitted: Attention, batch: NeighborBatch) -> None:
    found = batch.neighbors
    empty = replace(batch, neighbors=replace(found, mask=np.zeros_like(found.mask, dtype=bool)))
    weights = fitted.weigh(empty)
    _must(np.allclose(weights.prior, 1), "without neighbors the prior must have weight 1")


def _check_copies(
    given: Attention, fitted: Attention, batch: NeighborBatch, weights: Weights
) -> None:
    _must(_settings(given) == _settings(clone(given)), "`clone` must keep the settings")
    twins = {"copy": fitted.copy(), "a pickle": pickle.loads(pickle.dumps(fitted))}
    for name, twin in twins.items():
        _must(_same(twin.weigh(batch), weights), f"{name} must have the same weights")
    fitted.copy().admit_class(batch.queries[:2])
    _must(_same(fitted.weigh(batch), weights), "a change of a copy must not change the original")
    values, arrays = fitted.state()
    restored = clone(given)
    restored.temperature_, restored.prior_score_ = fitted.temperature_, fitted.prior_score_
    restored.restore(json.loads(json.dumps(values)), arrays, WIDTH, N_CLASSES)
    _must(_same(restored.weigh(batch), weights), "`restore` must set what `state` returned")


def _check_direct(given: DirectAttention, classifier: AttnKNNClassifier, random_state: int) -> None:
    """The contract of an attention that finds its voters itself."""
    model, rows = classifier.model_, np.arange(0, N_ROWS, 7)
    fitted, prior = model.direct_attention, class_prior(model.counts)
    assert fitted is not None
    queries = np.random.default_rng(random_state + 1).normal(size=(9, WIDTH)).astype(np.float32)
    left_out = fitted.left_out_voters(model, rows)
    without = class_prior(model.counts, model.memory.entries.labels[rows])
    pairs = {
        "queries": (fitted.voters(model, queries), fitted.shares(model, queries), prior),
        "entries": (left_out, fitted.left_out_shares(model, rows), without),
    }
    for name, (voters, shares, of_prior) in pairs.items():
        _check_voters(voters, name)
        counted = vote(voters.neighbors.labels, voters.weights, of_prior)
        agree = np.allclose(counted, shares, rtol=0, atol=1e-9)
        _must(agree, f"the shares of {name} must be those of their voters")
    is_own = left_out.neighbors.positions == rows[:, None]
    _must(not (is_own & left_out.neighbors.mask).any(), "an entry must not vote for itself")
    forgotten = model.memory.read(rows)
    rest = replace(model, memory=_without(model.memory, rows))
    _check_voters(fitted.voters_of_forgotten(rest, forgotten), "forgotten entries")
    _check_direct_copies(given, classifier, queries, pairs["queries"][1])
    again = _fitted(given, random_state).model_
    same = np.array_equal(again.predict_proba(queries), model.predict_proba(queries))
    _must(same, "two fits with one random state must have the same shares")


def _check_voters(voters: Voters, name: str) -> None:
    weights, mask = voters.weights.neighbors, voters.neighbors.mask
    total = weights.sum(axis=1) + voters.weights.prior
    _must(np.allclose(total, 1, rtol=0, atol=1e-12), f"the weights of {name} must sum to one")
    _must(bool((weights >= 0).all()), f"the weights of {name} must not be negative")
    _must(not weights[~mask].any(), "a place without an entry must have weight 0")
    _must(bool((np.diff(weights, axis=1) <= 1e-12).all()), f"voters of {name} must be by weight")


def _check_direct_copies(
    given: DirectAttention, classifier: AttnKNNClassifier, queries: Any, shares: Any
) -> None:
    model, fitted = classifier.model_, classifier.attention_
    _must(_settings(given) == _settings(clone(given)), "`clone` must keep the settings")
    values, arrays = fitted.state()
    restored = clone(given)
    restored.temperature_, restored.prior_score_ = fitted.temperature_, fitted.prior_score_
    restored.restore(json.loads(json.dumps(values)), arrays, WIDTH, N_CLASSES)
    twins = {
        "copy": fitted.copy(),
        "a pickle": pickle.loads(pickle.dumps(fitted)),
        "`restore`": restored,
    }
    for name, twin in twins.items():
        found = twin.shares(replace(model, attention=twin), queries)
        _must(np.array_equal(found, shares), f"{name} must give the same shares")


def _without(memory: Memory, rows: Any) -> Memory:
    smaller = copy(memory)
    smaller.forget(memory.entries.ids[rows])
    return smaller


def _settings(part: Any) -> Any:
    """The settings of an attention, and of attentions in them."""
    if isinstance(part, Head):
        params = part.get_params(deep=False)
        return type(part), {name: _settings(value) for name, value in params.items()}
    return tuple(map(_settings, part)) if isinstance(part, list | tuple) else part


def _same(left: Weights, right: Weights) -> bool:
    return np.array_equal(left.neighbors, right.neighbors) and np.array_equal(
        left.prior, right.prior
    )


def _must(holds: bool, rule: str) -> None:
    if not holds:
        raise AssertionError(f"Attention contract: {rule}.")
