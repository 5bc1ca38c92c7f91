"""Queries seen in several views: their votes are averaged, and the map is fitted afterward."""

from __future__ import annotations

import numpy as np
import pytest

from attnknn import AttnKNNClassifier
from attnknn.encoders import ImageEncoder
from attnknn.encoders.image import ImageTraining
from attnknn.errors import InvalidSettingError
from attnknn.fitting.views import views_factor
from attnknn.training.views import Views
from attnknn.vote import class_prior
from tests.fitting.shapes import shapes

VIEWS = Views(("original", "flip", "shift"), count=4)


def fitted(views: Views | None, **settings: object) -> AttnKNNClassifier:
    images, codes = shapes(160)
    encoder = ImageEncoder(
        widths=(8, 16, 16),
        views=views,
        training=ImageTraining.of(epochs=2, batch_size=32, patience=2),
        holdout=0.4,
    )
    settings = {"attention": "distance", "random_state": 0, "n_neighbors": 16} | settings
    return AttnKNNClassifier(encoder=encoder, **settings).fit(images, codes)


@pytest.fixture(scope="module")
def several() -> AttnKNNClassifier:
    return fitted(VIEWS)


def test_probabilities_are_those_of_the_mean_shares(several):
    asked, _ = shapes(20, seed=1)
    parts = several.model_
    embedded = several.encoder_.embeddings(asked, VIEWS)
    shares = np.mean([parts.answer(several.memory_.prepare(v)).shares for v in embedded], axis=0)
    exponent = several.calibration_.exponent * several.model_.views_factor
    powers = shares**exponent
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(several.predict_proba(asked), expected, rtol=1e-9)


def test_the_evidence_of_several_views_adds_up(several):
    asked, _ = shapes(6, seed=2)
    found = several.explain(asked)
    np.testing.assert_allclose(
        [evidence.probabilities for evidence in found], several.predict_proba(asked), rtol=1e-9
    )
    for evidence in found:
        assert len(set(evidence.ids.tolist())) == len(evidence.ids)
        assert len(evidence.ids) > several.n_neighbors_  # of more than one view
        assert (np.diff(evidence.weights) <= 0).all()
        shares = [evidence.weights[evidence.labels == c].sum() for c in evidence.classes]
        shares += evidence.prior_weight * evidence.prior
        np.testing.assert_allclose(shares, evidence.shares, rtol=1e-9)
        powers = evidence.shares**evidence.exponent
        np.testing.assert_allclose(powers / powers.sum(), evidence.probabilities, rtol=1e-9)


def test_the_map_is_fitted_on_held_out_rows_after_averaging(several):
    images, codes = shapes(160)
    rows = np.flatnonzero(several.held_out_)
    parts, calibration = several.model_, several.model_.view_calibration
    embedded = several.encoder_.embeddings(images[rows], VIEWS)
    prepared = [parts.memory.prepare(view) for view in embedded]
    shares = np.mean([parts.left_out_view_shares(rows, view) for view in prepared], axis=0)

    prior = class_prior(parts.counts)

    def loss(factor: float) -> float:
        """Of the held-out rows and one row of any label; far from single views costs as one row."""
        powers = shares ** (calibration.exponent * factor)
        found = np.log(powers / powers.sum(axis=1, keepdims=True))
        of_any = -(found @ prior).mean() + 0.5 * np.log(several.model_.views_factor * factor) ** 2
        return of_any - found[np.arange(len(rows)), codes[rows]].sum()

    assert loss(1.0) <= min(loss(0.9), loss(1.1))
    assert loss(1.0) < loss(1 / several.model_.views_factor)  # better than the map of single views


def test_few_rows_that_are_all_right_do_not_make_answers_sure(rng):
    X = np.concatenate([rng.normal(0, 1, (30, 2)), rng.normal(4, 1, (30, 2))])
    clf = AttnKNNClassifier(attention="distance", n_neighbors=16).fit(X, np.repeat([0, 1], 30))
    parts, sure = clf.model_, np.arange(4)
    assert (clf.predict(X[sure]) == 0).all()
    assert views_factor(parts, sure, [X[sure].astype(np.float32)] * 2) < np.exp(1.5)


def test_one_view_is_as_none():
    asked, _ = shapes(8, seed=3)
    plain, same = fitted(None), fitted(Views(), calibration=None)
    assert plain.model_.views_factor == same.model_.views_factor == 1.0
    without = fitted(None, calibration=None)
    np.testing.assert_array_equal(same.predict_proba(asked), without.predict_proba(asked))


def test_views_and_their_map_are_stored(several, tmp_path):
    asked, _ = shapes(8, seed=4)
    several.save(tmp_path / "model")
    back = AttnKNNClassifier.load(tmp_path / "model")
    assert back.encoder_.views == back.encoder.views == VIEWS
    np.testing.assert_array_equal(back.predict_proba(asked), several.predict_proba(asked))


def test_an_edit_moves_the_answers_of_all_views(several):
    asked, _ = shapes(4, seed=5)
    edited = fitted(VIEWS)
    edited.forget(several.explain(asked[:1])[0].ids[:8])
    assert np.abs(edited.predict_proba(asked[:1]) - several.predict_proba(asked[:1])).max() > 1e-6
    edited.refit()
    assert edited.model_.views_factor == several.model_.views_factor


def test_what_is_no_view_is_refused():
    with pytest.raises(InvalidSettingError, match="`views` must be"):
        ImageEncoder(views="flip").fit(shapes(8)[0])
