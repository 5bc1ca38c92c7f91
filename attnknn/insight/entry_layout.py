"""A map of the memory: two coordinates for each entry, so that neighbors stand together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from attnknn import _display
from attnknn._validation import check_at_least
from attnknn.insight.neighbor_forces import Links, arranged, links_of
from attnknn.memory.entries import make_entries
from attnknn.model import FittedModel, require_model
from attnknn.records import Floats, Integers, Neighbors

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from attnknn.attention.base import Voters
    from attnknn.classifier import AttnKNNClassifier

N_EPOCHS, N_EPOCHS_AGAIN = 250, 60  # from the principal components, and from earlier positions
SPREAD = 10.0  # standard deviation of the first coordinate at the start
SEARCHED_COLUMNS = 50  # principal components in which a memory without a graph is searched
MAX_MARKED = 10  # classes with a color of their own


@dataclass(frozen=True, eq=False)
class Layout:
    """Positions of the entries on a map, from `layout`.

    Attributes
    ----------
    ids, labels : ndarray of shape (n_entries,)
        Ids and labels of the entries.
    positions : ndarray of shape (n_entries, 2)
        Coordinates of the entries, centered. Directions and units have no meaning, only which
        entries stand together.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> clf = AttnKNNClassifier(attention="distance").fit(*load_iris(return_X_y=True))
    >>> drawn = layout(clf)
    >>> drawn.positions.shape, drawn.place(clf, [[5.0, 3.4, 1.5, 0.2]]).shape
    ((150, 2), (1, 2))
    """

    ids: NDArray[Any]
    labels: NDArray[Any]
    positions: Floats

    def __len__(self) -> int:
        return len(self.ids)

    def place(self, clf: AttnKNNClassifier, X: Any) -> Floats:
        """Find where new rows fall on the map.

        Parameters
        ----------
        clf : AttnKNNClassifier
            The classifier whose entries the map shows.
        X : array-like of shape (n_rows, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_rows, 2)
            For each row the weighted geometric median of the entries that vote for it: unlike a
            mean, it stands in the group that has most of the weight, and not between two groups.
            Entries that the map does not show have no weight.
        """
        model = require_model(clf, "Layout.place")
        queries = model.queries(X)
        first = queries if isinstance(queries, np.ndarray) else queries[0]
        order = np.argsort(self.ids, kind="stable")
        step = model.rows_at_once
        blocks = [
            self._place(model, first[start : start + step], order)
            for start in range(0, len(first), step)
        ]
        return np.concatenate(blocks) if blocks else np.zeros((0, 2))

    def to_frame(self) -> pd.DataFrame:
        """Convert to a DataFrame with one row per entry.

        Returns
        -------
        pandas.DataFrame
            Columns id, label, x and y.
        """
        import pandas as pd

        x, y = self.positions.T
        return pd.DataFrame({"id": self.ids, "label": self.labels, "x": x, "y": y})

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the map.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, default=None
            Axes to draw on; None creates new axes.

        Returns
        -------
        matplotlib.axes.Axes
            The axes. The ten most frequent classes have a color each, the others are gray.
        """
        ax = _display.axes(ax, "`Layout.plot`")
        classes, counts = np.unique(self.labels, return_counts=True)
        shown = classes[np.sort(np.argsort(-counts, kind="stable")[:MAX_MARKED])]
        rest = ~np.isin(self.labels, shown)
        if rest.any():
            x, y = self.positions[rest].T
            ax.scatter(x, y, s=4, color="0.75", label="other classes")
        for place, label in enumerate(shown):
            x, y = self.positions[self.labels == label].T
            ax.scatter(x, y, s=4, color=f"C{place}", label=str(label))
        ax.set_aspect("equal")
        ax.set_xticks([])
        ax.set_yticks([])
        ax.legend(markerscale=3, fontsize="small")
        return ax

    def positions_of(self, ids: NDArray[Any], order: Integers | None = None) -> Floats:
        """Look up positions by id.

        Parameters
        ----------
        ids : ndarray
            Ids of entries, in an array of any shape.
        order : ndarray of shape (n_entries,), default=None
            The order that sorts `self.ids`, if it is known.

        Returns
        -------
        ndarray of the shape of `ids` and a last axis of 2
            Coordinates; NaN for entries that the map does not show.
        """
        order = np.argsort(self.ids, kind="stable") if order is None else order
        if not len(self):
            return np.full((*ids.shape, 2), np.nan)
        place = np.searchsorted(self.ids, ids, sorter=order)
        rows = order[np.minimum(place, len(self) - 1)]
        is_known = np.expand_dims(self.ids[rows] == ids, -1)
        return np.where(is_known, self.positions[rows], np.nan)

    def _place(self, model: FittedModel, queries: NDArray[np.float32], order: Integers) -> Floats:
        found = model.voters(queries)
        positions, weights = self._weighted(model, found, order)
        if not weights.any(axis=1).all():  # only the prior, or entries that are not on the map
            nearest = model.memory.search_prepared(queries, min(model.n_neighbors, len(self)))
            instead = _uniform(nearest)
            others = self._weighted(model, instead, order)
            is_open = ~weights.any(axis=1, keepdims=True)
            return np.where(is_open, _medians(*others), _medians(positions, weights))
        return _medians(positions, weights)

    def _weighted(
        self, model: FittedModel, found: Voters, order: Integers
    ) -> tuple[Floats, Floats]:
        """Positions (B, K, 2) and weights (B, K) of voters."""
        ids = model.memory.entries.ids[found.neighbors.positions]
        positions = self.positions_of(ids, order)
        is_known = found.neighbors.mask & ~np.isnan(positions[..., 0])
        return np.nan_to_num(positions), np.where(is_known, found.weights.neighbors, 0.0)

    def _repr_html_(self) -> str:
        n_classes = len(np.unique(self.labels))
        return _display.page("Layout", f"{len(self):,} entries of {n_classes:,} classes")

    def __str__(self) -> str:
        n_classes = len(np.unique(self.labels))
        return f"Layout of {len(self):,} entries of {n_classes:,} classes"


def layout(
    clf: AttnKNNClassifier,
    *,
    start: Layout | None = None,
    n_neighbors: int = 15,
    random_state: int = 0,
    progress: Callable[[float], object] | None = None,
) -> Layout:
    """Lay the entries out in two dimensions, so that neighbors stand together.

    The positions start as the first two principal components of the embeddings, or as those of an
    earlier layout. Then each entry is pulled by its neighbors, as many times as there are epochs,
    and pushed away by random other entries, as in UMAP (McInnes et al., 2018), with the kernel of
    t-SNE. The result depends on the entries and `random_state` only.

    Parameters
    ----------
    clf : AttnKNNClassifier
        A fitted classifier. The neighbor graph that its model keeps is used if there is one.
    start : Layout, default=None
        An earlier layout of the same memory, before edits. Known entries start where they stood,
        new ones among their neighbors, and the result is rotated onto the earlier one, so that a
        map does not jump when entries are added.
    n_neighbors : int, default=15
        Neighbors that pull; more show the shape of the whole, fewer that of small groups.
    random_state : int, default=0
        Seed of the entries that push.
    progress : callable, default=None
        Called with the share that is done, from 0 to 1, after each epoch. What it raises ends the
        computation.

    Returns
    -------
    Layout
        One position for each entry, with `place` for new rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> drawn = layout(AttnKNNClassifier(attention="distance").fit(X, y))
    >>> bool((drawn.positions[y == 0].max(axis=0) < drawn.positions[y > 0].max(axis=0)).any())
    True
    """
    check_at_least("n_neighbors", n_neighbors, 2)
    model = require_model(clf, "layout")
    memory = model.memory
    ids, labels = memory.entries.ids, model.classes[memory.entries.labels]
    if len(memory) < 3:
        line = np.arange(len(memory)) - (len(memory) - 1) / 2
        return Layout(ids, labels, np.stack([line, np.zeros(len(memory))], axis=1))
    components = _components(memory.vectors.all())
    links = links_of(_nearest(model, components, min(n_neighbors, len(memory) - 1)))
    if start is None:
        positions, n_epochs = _begin(components), N_EPOCHS
    else:
        positions, n_epochs = _continued(start, ids, links, _begin(components)), N_EPOCHS_AGAIN
    rate = 1.0 if start is None else 0.3
    random = np.random.default_rng(random_state)
    positions = arranged(positions, links, n_epochs, rate, random, progress)
    known = None if start is None else start.positions_of(ids)
    return Layout(ids, labels, _aligned(positions, known))


def _components(embeddings: NDArray[np.float32]) -> NDArray[np.float32]:
    """The first principal components (N, ≤ 50), each with its largest loading positive."""
    centered = embeddings - embeddings.mean(axis=0)
    if centered.shape[1] < 2:
        return np.pad(centered, ((0, 0), (0, 2 - centered.shape[1])))
    spread = np.abs(centered).max(initial=0.0)
    scaled = centered / (spread or 1.0)  # else squares may overflow
    _, axes = np.linalg.eigh((scaled.T @ scaled).astype(np.float64))
    axes = axes[:, ::-1][:, :SEARCHED_COLUMNS]
    largest = np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0)
    return (scaled @ (axes * np.where(largest < 0, -1.0, 1.0))).astype(np.float32)


def _nearest(model: FittedModel, components: NDArray[np.float32], k: int) -> Neighbors:
    """The nearest others of each entry: from the neighbor graph if there is one."""
    memory, graph = model.memory, model.existing_graph()
    if graph is not None and graph.k >= k:
        found = graph.neighbors(memory, k)
        if found is not None:
            return found
    everyone = np.arange(len(memory))
    if memory.metric_ == "euclidean" and memory.vectors.width > SEARCHED_COLUMNS:
        plain = make_entries(components, memory.entries.labels, ids=memory.entries.ids)
        memory = clone(memory).restore(plain, "euclidean", np.zeros(components.shape[1]))
    return memory.search_prepared(memory.vectors.all(), k, exclude=everyone)


def _begin(components: NDArray[np.float32]) -> Floats:
    first = components[:, :2].astype(np.float64)
    return first * (SPREAD / max(float(first[:, 0].std()), 1e-12))


def _continued(start: Layout, ids: NDArray[Any], links: Links, instead: Floats) -> Floats:
    """Earlier positions; new entries stand at the mean of their neighbors that have one."""
    positions = start.positions_of(ids)
    for _ in range(3):  # a new entry may have new neighbors only
        is_new = np.isnan(positions[:, 0])
        if not is_new.any():
            return positions
        total = links.weights @ (~is_new).astype(float)
        mean = links.weights @ np.nan_to_num(positions) / np.maximum(total, 1e-12)[:, None]
        is_placed = is_new & (total > 0)
        positions = np.where(is_placed[:, None], mean, positions)
    return np.where(np.isnan(positions), instead, positions)


def _aligned(positions: Floats, earlier: Floats | None) -> Floats:
    """Centered positions, moved, rotated and mirrored to be near earlier ones (Procrustes)."""
    if earlier is None:
        return positions - positions.mean(axis=0)
    known = ~np.isnan(earlier[:, 0])
    if known.sum() < 3:
        return positions - positions.mean(axis=0)
    own, wanted = positions[known].mean(axis=0), earlier[known].mean(axis=0)
    left, _, right = np.linalg.svd((positions[known] - own).T @ (earlier[known] - wanted))
    return (positions - own) @ (left @ right) + wanted


def _medians(positions: Floats, weights: Floats) -> Floats:
    """Weighted geometric medians (B, 2) of points (B, K, 2), by Weiszfeld's steps."""
    total = np.maximum(weights.sum(axis=1), 1e-300)[:, None]
    middle = (positions * weights[..., None]).sum(axis=1) / total
    for _ in range(30):
        distance = np.linalg.norm(positions - middle[:, None], axis=2)
        near = weights / np.maximum(distance, 1e-3)
        total = np.maximum(near.sum(axis=1), 1e-300)[:, None]
        middle = (positions * near[..., None]).sum(axis=1) / total
    return middle


def _uniform(neighbors: Neighbors) -> Voters:
    """The neighbors with equal weights."""
    from attnknn.attention.base import Voters
    from attnknn.records import Weights

    weights = neighbors.mask / np.maximum(neighbors.mask.sum(axis=1, keepdims=True), 1)
    return Voters(neighbors, Weights(weights, np.zeros(len(weights))))
