"""Scores of labels: by hand, in order, and randomized."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnknn.conformal import Aps, Lac, Raps, make_score
from attnknn.conformal.scores import ranks
from attnknn.errors import InvalidSettingError

SCORES = [Lac(), Aps(), Raps(k_reg=1, penalty=0.1)]


def probabilities(seed: int, n: int = 20, n_classes: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.ones(n_classes), n)


@pytest.mark.parametrize("score", SCORES)
@given(st.integers(0, 1000))
def test_more_probable_labels_are_less_novel(score, seed):
    p = probabilities(seed)
    assert (np.argsort(score.of_all(p), axis=1) == np.argsort(-p, axis=1)).all()


@given(st.integers(0, 1000))
def test_randomized_scores_lie_above_the_others_by_part_of_the_label(seed):
    p = probabilities(seed)
    uniform = np.random.default_rng(seed).random(len(p))
    gap = Aps().of_all(p, uniform) - Aps().of_all(p)
    assert gap == pytest.approx(uniform[:, None] * p)


def test_the_most_probable_label_is_never_novel():
    p = probabilities(0, n=200, n_classes=30)
    rows, best = np.arange(len(p)), p.argmax(axis=1)
    assert (Aps().of_all(p)[rows, best] == 0.0).all()
    assert (Raps().of_all(p)[rows, best] == 0.0).all()


def test_labels_of_equal_probability_rank_by_column():
    assert ranks(np.full((1, 4), 0.25)).tolist() == [[1, 2, 3, 4]]


def test_a_penalty_of_nothing_is_aps_and_a_larger_one_costs_more_beyond_the_rank():
    p = probabilities(3)
    assert (Raps(k_reg=0, penalty=0.0).of_all(p) == Aps().of_all(p)).all()
    grown = Raps(k_reg=2, penalty=0.3).of_all(p) - Raps(k_reg=2, penalty=0.1).of_all(p)
    assert grown == pytest.approx(0.2 * np.maximum(ranks(p) - 2, 0))


def test_unknown_names_and_settings_out_of_range_are_refused():
    with pytest.raises(InvalidSettingError, match=r"No score is called 'lca'\. Did you mean 'lac'"):
        make_score("lca")
    with pytest.raises(InvalidSettingError, match="`penalty` must be"):
        Raps(penalty=-1.0)
    assert make_score(Raps(2)) == Raps(2)
