"""The contract of an attention, for our own and for those of users."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import clone

from attnknn.attention import Attention, Situation, Weights, make_attention
from attnknn.classifier import AttnKNNClassifier
from attnknn.memory.base import Memory
from attnknn.pipeline import situation_of

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
    situation = _situation(classifier.memory_, fitted, random_state)
    weights = fitted.weigh(situation)
    _check_scores(fitted, situation)
    _check_weights(weights, situation)
    _check_queries_stand_alone(fitted, situation, weights)
    _check_nobody_found(fitted, situation)
    _check_copies(given, fitted, situation, weights)
    again = _fitted(given, random_state).attention_.weigh(situation)
    _must(_same(again, weights), "two fits with one random state must give the same weights")


def _fitted(attention: Attention, random_state: int) -> AttnKNNClassifier:
    generator = np.random.default_rng(random_state)
    labels = np.arange(N_ROWS) % N_CLASSES
    rows = generator.normal(size=(N_ROWS, WIDTH)) + 2.0 * np.eye(N_CLASSES, WIDTH)[labels]
    classifier = AttnKNNClassifier(
        K, attention=attention, memory="numpy", random_state=random_state
    )
    return classifier.fit(rows, labels, importance=generator.uniform(0.5, 2.0, N_ROWS))


def _situation(memory: Memory, fitted: Attention, random_state: int) -> Situation:
    """Queries of which one has half of its places empty."""
    generator = np.random.default_rng(random_state + 1)
    queries = memory.prepare(generator.normal(size=(9, WIDTH)))
    found = memory.search_prepared(queries, K)
    found.mask[0, K // 2 :] = False
    found.distances[~found.mask] = np.inf
    trust = generator.uniform(size=found.positions.shape) if fitted.needs_trust else None
    return situation_of(queries, found, memory, trust)


def _check_scores(fitted: Attention, situation: Situation) -> None:
    scores = fitted.scores(situation)
    n_heads = scores.prior.shape[1]
    _must(
        scores.neighbors.shape == (len(situation.queries), n_heads, K),
        f"`scores` must give (B, H, K) for the neighbors, got {scores.neighbors.shape}",
    )
    _must(scores.neighbors.dtype == np.float64, "`scores` must be float64")
    present = scores.neighbors[
        np.broadcast_to(situation.neighbors.mask[:, None], scores.neighbors.shape)
    ]
    _must(not (np.isnan(present) | np.isposinf(present)).any(), "scores must not be NaN or +inf")
    if scores.mixing is not None:
        _must(np.allclose(scores.mixing.sum(axis=1), 1), "`mixing` must sum to one per query")


def _check_weights(weights: Weights, situation: Situation) -> None:
    total = weights.neighbors.sum(axis=1) + weights.prior
    _must(np.allclose(total, 1, rtol=0, atol=1e-12), "weights and the prior's must sum to one")
    _must(weights.neighbors.dtype == np.float64, "weights must be float64")
    _must(bool((weights.neighbors >= 0).all()), "weights must not be negative")
    _must(bool((weights.prior >= 0).all()), "the prior's weight must not be negative")
    missing = ~situation.neighbors.mask
    _must(not weights.neighbors[missing].any(), "a place without an entry must have no say")


def _check_queries_stand_alone(fitted: Attention, situation: Situation, weights: Weights) -> None:
    backward = np.arange(len(situation.queries))[::-1]
    turned = fitted.weigh(situation.rows(backward))
    _must(
        np.allclose(turned.neighbors, weights.neighbors[backward], atol=1e-6),
        "the order of the queries must not change their weights",
    )
    alone = fitted.weigh(situation.rows(slice(1, 2)))
    _must(
        np.allclose(alone.neighbors, weights.neighbors[1:2], atol=1e-6),
        "a query alone must get the weights it gets in company",
    )


def _check_nobody_found(fitted: Attention, situation: Situation) -> None:
    found = situation.neighbors
    nobody = replace(
        situation, neighbors=replace(found, mask=np.zeros_like(found.mask, dtype=bool))
    )
    weights = fitted.weigh(nobody)
    _must(np.allclose(weights.prior, 1), "where nobody was found the prior must have all the say")


def _check_copies(
    given: Attention, fitted: Attention, situation: Situation, weights: Weights
) -> None:
    _must(given.get_params() == clone(given).get_params(), "`clone` must keep the settings")
    twins = {"copy": fitted.copy(), "a pickle": pickle.loads(pickle.dumps(fitted))}
    for name, twin in twins.items():
        _must(_same(twin.weigh(situation), weights), f"{name} must give the same weights")
    fitted.copy().admit_class(situation.queries[:2])
    _must(
        _same(fitted.weigh(situation), weights), "a change of a `copy` must not reach the original"
    )


def _same(left: Weights, right: Weights) -> bool:
    return np.array_equal(left.neighbors, right.neighbors) and np.array_equal(
        left.prior, right.prior
    )


def _must(holds: bool, promise: str) -> None:
    if not holds:
        raise AssertionError(f"Attention contract: {promise}.")
