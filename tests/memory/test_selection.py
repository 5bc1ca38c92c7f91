"""Groups find what a full sort finds."""

from __future__ import annotations

import numpy as np
import pytest

from attnknn.memory import selection

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("small", [0, 1 << 30])
@pytest.mark.parametrize(("width", "m"), [(128, 1), (128, 128), (4096, 5), (8192, 100), (300, 7)])
@pytest.mark.parametrize("kind", ["distinct", "tied", "mostly missing"])
def test_groups_find_the_largest(small, width, m, kind, rng, monkeypatch) -> None:
    monkeypatch.setattr(selection, "SMALL", small)
    values = rng.standard_normal((6, width)).astype(np.float32)
    if kind == "tied":
        values = np.round(values)
    if kind == "mostly missing":
        values[:, 3:] = -np.inf
    top, columns = selection.largest(torch.from_numpy(values), m)
    expected = -np.sort(-values, axis=1)[:, :m]
    np.testing.assert_array_equal(-np.sort(-top.numpy(), axis=1), expected)
    np.testing.assert_array_equal(np.take_along_axis(values, columns.numpy(), 1), top.numpy())
    assert all(len(set(row)) == m for row in columns.tolist())
