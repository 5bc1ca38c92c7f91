"""What attention sees: distances of every metric, and neighbors that may be left out."""

from __future__ import annotations

import numpy as np
import pytest
from strategies import batch

from attnknn.attention.base import squared_distances


def test_squared_distances_of_every_metric():
    distances = np.array([[0.5, 1.0, 3.0], [2.0, np.inf, np.inf]])
    assert squared_distances(distances, "euclidean").tolist()[0] == [0.25, 1.0, 9.0]
    assert squared_distances(distances, "cosine").tolist()[0] == [1.0, 2.0, 6.0]
    relative = squared_distances(distances, "inner_product")
    assert relative.tolist() == [[0.0, 1.0, 5.0], [0.0, np.inf, np.inf]]
    nobody = squared_distances(np.full((1, 2), np.inf), "inner_product")
    assert nobody.tolist() == [[np.inf, np.inf]]


@pytest.mark.parametrize("metric", ["euclidean", "inner_product"])
def test_neighbors_that_are_left_out_make_room_for_the_next(metric, rng):
    seen = batch(metric=metric)
    is_allowed = rng.random(seen.squared.shape) < 0.6
    is_allowed[0] = False
    kept = seen.restricted(is_allowed)
    for row, allowed in enumerate(is_allowed):
        n = allowed.sum()
        assert kept.neighbors.mask[row].tolist() == [True] * n + [False] * (6 - n)
        for name in ("positions", "labels", "distances"):
            was, now = (getattr(b.neighbors, name)[row] for b in (seen, kept))
            assert now[:n].tolist() == was[allowed].tolist()
        assert kept.trust[row, :n].tolist() == seen.trust[row, allowed].tolist()
        assert kept.sample_weight[row, :n].tolist() == seen.sample_weight[row, allowed].tolist()
        expected = squared_distances(kept.neighbors.distances[[row]], metric)[0]
        assert kept.squared[row] == pytest.approx(expected)
        assert np.isinf(kept.neighbors.distances[row, n:]).all()
        assert (kept.sample_weight[row, n:] == 1).all()


def test_the_nearest_and_single_rows_of_a_batch_are_parts_of_all_its_arrays():
    seen = batch()
    part = seen.rows(slice(2, 4)).nearest(3)
    assert part.queries.tolist() == seen.queries[2:4].tolist()
    for name in ("squared", "sample_weight", "trust"):
        assert getattr(part, name).tolist() == getattr(seen, name)[2:4, :3].tolist()
    assert part.neighbors.positions.tolist() == seen.neighbors.positions[2:4, :3].tolist()
