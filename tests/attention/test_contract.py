"""Every attention keeps the contract, and the contract notices one that does not."""

from __future__ import annotations

import numpy as np
import pytest

from attnknn.attention import (
    AdaptiveAttention,
    DistanceAttention,
    KEnsembleAttention,
    LearnedAttention,
    Scores,
    UniformAttention,
    Weights,
    make_attention,
)
from attnknn.errors import InvalidSettingError
from attnknn.registry import registered
from attnknn.testing.attention import check_attention
from attnknn.training import TrainConfig

EVERYTHING = LearnedAttention(
    n_heads=2,
    head_dim=3,
    trust=True,
    terms=("distance_bias", "support", "prototypes", "self_attention", "query_prior"),
    training=TrainConfig(epochs=1),
)


@pytest.mark.parametrize(
    "attention",
    [
        *sorted(set(registered("attention")) - {"learned", "meta-learned"}),
        UniformAttention(prior_weight=0.3),
        DistanceAttention(temperature=0.5, prior_score=0.0),
        KEnsembleAttention(sizes=(1, 8), weighting="fitted"),
        AdaptiveAttention(rule="learned"),
        AdaptiveAttention(by="attention_entropy"),
        AdaptiveAttention(by="confidence", rule="learned"),
        KEnsembleAttention(weighting="fitted", attention=EVERYTHING),
        AdaptiveAttention(by="attention_entropy", attention=EVERYTHING),
        AdaptiveAttention(by="confidence", rule="learned", attention=EVERYTHING),
        LearnedAttention(training=TrainConfig(epochs=1)),
        LearnedAttention(trust=False, terms=(), training=TrainConfig(epochs=1)),
        LearnedAttention(n_heads=2, terms=("dot_product",), training=TrainConfig(epochs=1)),
        EVERYTHING,
    ],
    ids=str,
)
def test_every_attention_keeps_the_contract(attention):
    check_attention(attention)


class Overgenerous(DistanceAttention):
    def weigh(self, batch):
        weights = super().weigh(batch)
        return Weights(weights.neighbors * 1.1, weights.prior)


class Forgetful(DistanceAttention):
    def weigh(self, batch):
        weights = super().weigh(batch)
        return Weights(
            np.full_like(weights.neighbors, 1 / weights.neighbors.shape[1]), weights.prior * 0
        )


class Sociable(DistanceAttention):
    def scores(self, batch):
        plain = super().scores(batch)
        return Scores(plain.neighbors * (1 + batch.squared[:1, :1, None]), plain.prior)


class Headless(DistanceAttention):
    def scores(self, batch):
        plain = super().scores(batch)
        return Scores(plain.neighbors, np.zeros((len(plain.prior), 2)))


class Amnesiac(DistanceAttention):
    factor_ = 1.0

    def fit_parameters(self, problem):
        self.factor_ = 2.0

    def scores(self, batch):
        plain = super().scores(batch)
        return Scores(self.factor_ * plain.neighbors, plain.prior)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Overgenerous(), "sum to one"),
        (Forgetful(), "weight 0"),
        (Sociable(), "order of the queries"),
        (Headless(), r"\(B, H, K\)"),
        (Amnesiac(), "`restore` must set what `state` returned"),
    ],
)
def test_the_contract_notices_a_broken_rule(broken, rule):
    with pytest.raises(AssertionError, match=rule):
        check_attention(broken)


def test_names_give_new_attentions_and_objects_are_cloned():
    given = DistanceAttention(3.0)
    assert make_attention(given) is not given
    assert make_attention(given).temperature == 3.0
    assert all(
        isinstance(make_attention(name), kind) for name, kind in registered("attention").items()
    )


def test_unknown_names_are_refused_with_a_guess():
    with pytest.raises(InvalidSettingError, match="Did you mean 'uniform'"):
        make_attention("unifrom")
    with pytest.raises(InvalidSettingError, match="short name"):
        make_attention(7)
