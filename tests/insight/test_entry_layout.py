"""The layout of entries on a map: quality, determinism, and what edits do to it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness
from strategies import blobs

from attnknn import AttnKNNClassifier, ForestAttention, MixtureAttention
from attnknn.errors import InvalidSettingError, NotFittedYetError
from attnknn.insight import Layout, layout

QUICK = {
    "forest": ForestAttention(n_trees=20),
    "mixture": MixtureAttention(["distance", ForestAttention(n_trees=20)]),
}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X[:900], y[:900])
    return clf, X, y, layout(clf)


def test_neighbors_stay_together_better_than_in_principal_components(digits):
    _, X, _, drawn = digits
    pca = trustworthiness(X[:900], PCA(2, random_state=0).fit_transform(X[:900]), n_neighbors=10)
    ours = trustworthiness(X[:900], drawn.positions, n_neighbors=10)
    assert pca < 0.87
    assert ours > 0.96


def test_the_same_entries_and_seed_give_the_same_layout(digits):
    clf, _, _, drawn = digits
    assert (layout(clf).positions == drawn.positions).all()
    assert not np.allclose(layout(clf, random_state=1).positions, drawn.positions)
    assert np.allclose(drawn.positions.mean(axis=0), 0, atol=1e-6)


def test_new_rows_are_placed_in_the_group_of_their_class(digits):
    clf, X, y, drawn = digits
    placed = drawn.place(clf, X[900:1100])
    distances = np.linalg.norm(placed[:, None] - drawn.positions, axis=2)
    assert (drawn.labels[distances.argmin(axis=1)] == y[900:1100]).mean() > 0.9
    known = drawn.place(clf, X[:50])
    assert np.median(np.linalg.norm(known - drawn.positions[:50], axis=1)) < 0.5


def test_a_layout_does_not_jump_when_entries_are_added_and_forgotten(digits):
    _, X, y, drawn = digits
    edited = AttnKNNClassifier(attention="distance", random_state=0).fit(X[:900], y[:900])
    edited.add(X[900:1000], y[900:1000]).forget(np.arange(20))
    again = layout(edited, start=drawn)
    assert again.ids.tolist() == list(range(20, 1000))
    moved = np.linalg.norm(again.positions[:880] - drawn.positions[20:], axis=1)
    assert np.median(moved) < 0.1 * drawn.positions.std()
    trust = trustworthiness(X[20:1000], again.positions, n_neighbors=10)
    assert trust > 0.95
    fresh = layout(edited)
    assert np.median(
        np.linalg.norm(fresh.positions[:880] - drawn.positions[20:], axis=1)
    ) > np.median(moved)


def test_a_layout_is_rotated_and_mirrored_onto_the_earlier_one(digits):
    clf, _, _, drawn = digits
    mirrored = Layout(drawn.ids, drawn.labels, drawn.positions @ [[0.0, 1.0], [1.0, 0.0]] + 7)
    again = layout(clf, start=mirrored)
    moved = np.linalg.norm(again.positions - mirrored.positions, axis=1)
    assert np.median(moved) < 0.1 * drawn.positions.std()


@pytest.mark.parametrize("attention", ["forest", "mixture", "projection"])
def test_models_that_do_not_search_have_a_layout_too(attention):
    X, y = blobs(90, spread=0.3)
    clf = AttnKNNClassifier(attention=QUICK.get(attention, attention), random_state=0).fit(X, y)
    drawn = layout(clf)
    distances = np.linalg.norm(drawn.positions[:, None] - drawn.positions, axis=2)
    np.fill_diagonal(distances, np.inf)
    assert (y[distances.argmin(axis=1)] == y).mean() > 0.9
    assert np.isfinite(drawn.place(clf, X[:5] + 0.01)).all()


@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.filterwarnings("ignore:`y` has only one class")
def test_few_and_equal_entries_are_laid_out(n):
    clf = AttnKNNClassifier(attention="uniform").fit(np.ones((n, 2)), ["a"] * n)
    drawn = layout(clf)
    assert drawn.positions.shape == (n, 2)
    assert np.isfinite(drawn.positions).all()


def test_extreme_numbers_give_finite_positions():
    X = np.array([[0.0, 0.0], [1e15, 0.0], [0.0, 1e15], [1.0, 1.0], [2.0, 1.0]])
    clf = AttnKNNClassifier(attention="uniform").fit(X, list("aabbb"))
    assert np.isfinite(layout(clf).positions).all()


def test_string_ids_are_looked_up():
    X, y = blobs(30, spread=0.3)
    names = [f"row {place}" for place in range(30)]
    clf = AttnKNNClassifier(attention="distance").fit(X, y, ids=names)
    drawn = layout(clf)
    found = drawn.positions_of(np.array(["row 3", "row 29", "unknown"], dtype=object))
    assert (found[:2] == drawn.positions[[3, 29]]).all()
    assert np.isnan(found[2]).all()


def test_rows_are_placed_where_the_map_knows_their_neighbors():
    X, y = blobs(40, spread=0.3)
    clf = AttnKNNClassifier(attention="distance").fit(X[:30], y[:30])
    drawn = layout(clf)
    clf.add(X[30:], y[30:])  # the map does not show these
    assert np.isfinite(drawn.place(clf, X[30:])).all()
    clf.forget(np.arange(30))
    assert np.isnan(drawn.positions_of(clf.memory_.entries.ids)).all()
    assert drawn.place(clf, X[30:]).shape == (10, 2)


def test_progress_is_reported_and_may_end_the_computation():
    X, y = blobs(30, spread=0.3)
    clf = AttnKNNClassifier(attention="distance").fit(X, y)
    seen = []
    layout(clf, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0

    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        layout(clf, progress=stop)


def test_layouts_are_shown_as_text_frame_and_plot(digits):
    pytest.importorskip("matplotlib").use("Agg")
    _, _, _, drawn = digits
    assert str(drawn) == "Layout of 900 entries of 10 classes"
    assert drawn.to_frame().columns.tolist() == ["id", "label", "x", "y"]
    assert len(drawn.plot().collections) == 10
    assert "900 entries" in drawn._repr_html_()


def test_error_messages_name_the_setting_and_the_value():
    X, y = blobs(30, spread=0.3)
    clf = AttnKNNClassifier(attention="distance").fit(X, y)
    with pytest.raises(InvalidSettingError, match="`n_neighbors` must be an integer of at least 2"):
        layout(clf, n_neighbors=1)
    with pytest.raises(NotFittedYetError, match="layout"):
        layout(AttnKNNClassifier())
