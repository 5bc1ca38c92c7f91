"""Curves of the classes, embeddings in two dimensions, and small images of rows."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.metrics import auc, roc_auc_score

from attnknn.research.evaluation.illustrations import (
    MAX_SIDE,
    N_POINTS,
    EmbeddingMap,
    Illustrations,
    OneVsRest,
    Thumbnails,
    embedding_map,
    map_rows,
    one_vs_rest,
    thumbnails,
)


@pytest.fixture
def found(rng):
    rows = map_rows(2500)
    return embedding_map(rng.normal(size=(1000, 5)), rows, rows % 3, ["a", "b", "c"])


def test_distances_in_the_map_are_those_of_the_principal_components(rng):
    X = rng.normal(size=(40, 6)) * [9, 5, 1, 1, 1, 1]
    found = embedding_map(X, np.arange(40), np.zeros(40, dtype=int), ["a"])
    components = PCA(2).fit(X)
    wanted = components.transform(X)
    ours, theirs = (np.linalg.norm(p[:, None] - p[None], axis=2) for p in (found.points, wanted))
    scale = theirs.max() / ours.max()
    assert np.allclose(ours * scale, theirs)
    assert found.explained == pytest.approx(components.explained_variance_ratio_, abs=1e-6)
    assert found.points.min() == 0
    assert found.points.max() == 1


@pytest.mark.parametrize("X", [np.arange(4.0)[:, None], np.ones((4, 3)), np.ones((1, 3))])
def test_embeddings_without_a_plane_are_mapped_too(X):
    found = embedding_map(X, np.arange(len(X)), np.zeros(len(X), dtype=int), ["a"])
    assert found.points.shape == (len(X), 2)
    assert np.isfinite(found.points).all()
    assert found.explained[1] == 0


def test_json_gives_back_maps_and_images(found, rng):
    images = rng.integers(256, size=(9, 8, 6, 3), dtype=np.uint8)
    small = thumbnails(images, [2, 2, 7], images, [0])
    stored = json.loads(json.dumps(Illustrations(found, small).to_dict()))
    back = Illustrations.from_dict(stored)
    assert isinstance(back.embedding_map, EmbeddingMap)
    for name in ("rows", "codes", "classes", "explained"):
        assert np.array_equal(getattr(back.embedding_map, name), getattr(found, name))
    assert np.allclose(back.embedding_map.points, found.points, atol=1e-4)
    assert isinstance(back.thumbnails, Thumbnails)
    assert sorted(back.thumbnails.test) == [2, 7]
    assert np.array_equal(back.thumbnails.train[0], images[0].transpose(2, 0, 1))
    assert Illustrations.from_dict(Illustrations(found).to_dict()).thumbnails is None


def test_large_images_and_files_become_small(tmp_path, rng):
    pillow = pytest.importorskip("PIL.Image")
    images = rng.integers(256, size=(2, 90, 120), dtype=np.uint8)
    paths = []
    for place, image in enumerate(images):
        paths.append(tmp_path / f"{place}.png")
        pillow.fromarray(image).save(paths[-1])
    by_array, by_file = (thumbnails(X, [1], X, [0]) for X in (images, np.array(paths)))
    assert by_array.test[1].shape == (1, MAX_SIDE, MAX_SIDE)
    assert np.array_equal(by_array.train[0], by_file.train[0])
    nothing = thumbnails(images, [], images, [])
    assert Thumbnails.from_dict(nothing.to_dict()).test == {}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    codes = rng.integers(12, size=3000)
    probabilities = rng.dirichlet(np.ones(12), size=3000)
    probabilities[np.arange(3000), codes] += rng.uniform(0, 0.1 * (1 + codes))  # later are easier
    return codes, probabilities / probabilities.sum(axis=1, keepdims=True)


def test_curves_are_those_of_the_classes_with_the_lowest_average_precision(rows):
    found = one_vs_rest(*rows, n_curves=4)
    kept = [curves.code for curves in found.curves]
    assert kept == sorted(np.argsort(found.average_precision)[:4].tolist())
    assert found.roc_auc[5] == pytest.approx(roc_auc_score(rows[0] == 5, rows[1][:, 5]))


def test_curves_are_thinned_without_a_visible_difference(rows):
    found = one_vs_rest(*rows)
    for curves in found.curves:
        assert curves.roc.shape[1] <= N_POINTS
        assert auc(*curves.roc) == pytest.approx(found.roc_auc[curves.code], abs=0.005)
        assert curves.roc[:, [0, -1]].tolist() == [[0, 1], [0, 1]]
        assert (np.diff(curves.precision_recall[0]) >= 0).all()


def test_json_gives_back_what_was_stored(rows):
    codes, probabilities = rows
    found = one_vs_rest(np.where(codes == 7, 6, codes), probabilities)
    assert np.isnan(found.roc_auc[7])
    back = OneVsRest.from_dict(json.loads(json.dumps(found.to_dict(), allow_nan=False)))
    assert np.allclose(back.roc_auc, found.roc_auc, atol=1e-6, equal_nan=True)
    for ours, theirs in zip(back.curves, found.curves, strict=True):
        assert ours.code == theirs.code
        assert np.allclose(ours.roc, theirs.roc, atol=1e-5)
        assert np.allclose(ours.precision_recall, theirs.precision_recall, atol=1e-5)
