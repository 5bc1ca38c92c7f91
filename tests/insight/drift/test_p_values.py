"""Ranks among all before: equal to a plain loop and to crepes, uniform and independent."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest, spearmanr

from attnknn.insight.drift import p_values
from attnknn.insight.drift.p_values import online_p_values


def by_a_loop(scores, known, uniform):
    before, found = list(known), []
    for score, drawn in zip(scores, uniform, strict=True):
        above = sum(one > score for one in before)
        equal = sum(one == score for one in before)
        found.append((above + drawn * (1 + equal)) / (1 + len(before)))
        before.append(score)
    return found


@pytest.mark.parametrize("n_at_once", [1, 7, 1000])
@pytest.mark.parametrize("n_known", [0, 50])
def test_blocks_give_what_a_plain_loop_gives(n_at_once, n_known, rng, monkeypatch):
    monkeypatch.setattr(p_values, "ROWS_AT_ONCE", n_at_once)
    scores = rng.integers(0, 12, 90).astype(float)  # many are equal
    known, uniform = np.sort(rng.integers(0, 12, n_known).astype(float)), rng.random(90)
    found = online_p_values(scores, known, uniform)
    assert found == pytest.approx(by_a_loop(scores, known, uniform), abs=1e-15)


def test_they_are_those_of_crepes(rng):
    martingales = pytest.importorskip("crepes.martingales")
    scores = rng.normal(size=300).round(1)
    theirs = martingales.semi_online_p_values(scores, seed=5)
    drawn = np.random.RandomState(5).rand(300)
    assert online_p_values(scores, np.zeros(0), drawn) == pytest.approx(theirs, abs=1e-15)
    known = np.sort(scores[:100])
    rest = online_p_values(scores[100:], known, drawn[100:])
    assert rest == pytest.approx(theirs[100:], abs=1e-15)


def test_they_are_uniform_and_independent_for_exchangeable_scores(rng):
    streams = rng.integers(0, 30, (400, 60)).astype(float)
    found = np.array(
        [online_p_values(one[20:], np.sort(one[:20]), rng.random(40)) for one in streams]
    )
    assert kstest(found.ravel(), "uniform").pvalue > 0.01
    assert kstest(found[:, -1], "uniform").pvalue > 0.01
    assert spearmanr(found[:, 0], found[:, 1]).pvalue > 0.01


def test_ranks_among_the_known_ones_alone_would_share_their_chance(rng):
    """What ranking among the stream too is for: few known scores bend all p-values alike."""
    gaps = []
    for _ in range(40):
        known, scores = np.sort(rng.normal(size=20)), rng.normal(size=1000)
        alone = [online_p_values(scores[[i]], known, rng.random(1))[0] for i in range(0, 1000, 10)]
        together = online_p_values(scores, known, rng.random(1000))
        gaps.append([abs(np.mean(alone) - 0.5), abs(np.mean(together) - 0.5)])
    alone, together = np.mean(gaps, axis=0)
    assert alone > 3 * together
