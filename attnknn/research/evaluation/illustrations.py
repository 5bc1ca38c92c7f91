"""What a page draws of test rows: curves of the classes, embeddings in two dimensions, images.

All of it is stored in few bytes of a report.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.metrics import (
    average_precision_score,
    precision_recall_curve,
    roc_auc_score,
    roc_curve,
)

from attnknn.encoders.image.rows import image_rows
from attnknn.records import Floats, Integers

N_CURVES = 10  # classes whose curves are kept: those with the lowest average precision
N_POINTS = 100  # of a curve
MAX_POINTS = 1000
MAX_SIDE = 48  # pixels
Image = NDArray[np.uint8]  # (channels, height, width)
LARGEST = np.iinfo(np.uint16).max


@dataclass(frozen=True, eq=False)
class ClassCurves:
    """The curves of one class."""

    code: int  # of the class
    roc: Floats  # (2, n) false and true positive rates
    precision_recall: Floats  # (2, n) recalls and precisions


@dataclass(frozen=True, eq=False)
class OneVsRest:
    """Areas under the curves of all classes, and the curves of those that are ranked worst."""

    roc_auc: Floats  # (C,) NaN for a class with no rows or all of them, as the next
    average_precision: Floats
    curves: tuple[ClassCurves, ...] = ()  # in the order of the classes

    def to_dict(self) -> dict[str, Any]:
        """Areas and curves as JSON stores them; points are 16-bit numbers in base64."""
        return {
            "roc_auc": _without_nan(self.roc_auc),
            "average_precision": _without_nan(self.average_precision),
            "curves": [
                {
                    "code": found.code,
                    "roc": pack_shares(found.roc),
                    "precision_recall": pack_shares(found.precision_recall),
                }
                for found in self.curves
            ],
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore what `to_dict` gave."""
        curves = tuple(
            ClassCurves(found["code"], _points(found["roc"]), _points(found["precision_recall"]))
            for found in stored["curves"]
        )
        roc_auc, precision = (
            np.array(stored[name], dtype=np.float64) for name in ("roc_auc", "average_precision")
        )
        return cls(roc_auc, precision, curves)


def one_vs_rest(codes: Integers, probabilities: Floats, n_curves: int = N_CURVES) -> OneVsRest:
    """ROC and precision-recall curves of each class against all others.

    Parameters
    ----------
    codes : (n,) true classes
    probabilities : (n, C)
    n_curves : number of classes whose curves are kept, those with the lowest average precision

    >>> found = one_vs_rest(np.array([0, 1, 1]), np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]))
    >>> found.roc_auc.tolist(), found.curves[0].roc.tolist()
    ([1.0, 1.0], [[0.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    """
    n_classes = probabilities.shape[1]
    areas = np.full((2, n_classes), np.nan)
    usable = [code for code in range(n_classes) if 0 < (codes == code).sum() < len(codes)]
    for code in usable:
        is_class, scores = codes == code, probabilities[:, code]
        areas[:, code] = roc_auc_score(is_class, scores), average_precision_score(is_class, scores)
    worst = sorted(sorted(usable, key=lambda code: float(areas[1, code]))[:n_curves])
    curves = tuple(_curves(code, codes == code, probabilities[:, code]) for code in worst)
    return OneVsRest(areas[0], areas[1], curves)


def _curves(code: int, is_class: np.ndarray, scores: Floats) -> ClassCurves:
    roc = np.stack(roc_curve(is_class, scores)[:2])
    precision, recall, _ = precision_recall_curve(is_class, scores, drop_intermediate=True)
    return ClassCurves(code, _thinned(roc), _thinned(np.stack([recall, precision])[:, ::-1]))


def _thinned(points: Floats) -> Floats:
    """At most `N_POINTS` of the points (2, n), with both ends."""
    n_points = points.shape[1]
    if n_points <= N_POINTS:
        return points
    return points[:, np.linspace(0, n_points - 1, N_POINTS).round().astype(int)]


def _points(text: str) -> Floats:
    return unpack_shares(text).reshape(2, -1)


def _without_nan(areas: Floats) -> list[float | None]:
    return [None if np.isnan(area) else round(float(area), 6) for area in areas]


@dataclass(frozen=True, eq=False)
class EmbeddingMap:
    """Rows in the plane of the first two principal components of their embeddings."""

    classes: tuple[str, ...]
    rows: Integers  # (n,) positions among the test rows
    codes: Integers  # (n,) true classes
    points: Floats  # (n, 2) from 0 to 1, one scale for both axes
    explained: tuple[float, float]  # shares of the variance

    def to_dict(self) -> dict[str, Any]:
        """The map as JSON stores it."""
        return {
            "classes": self.classes,
            "rows": pack(self.rows, "<u4"),
            "codes": pack(self.codes, "<u2"),
            "points": pack_shares(self.points),
            "explained": self.explained,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore what `to_dict` gave."""
        rows, codes = unpack(stored["rows"], "<u4"), unpack(stored["codes"], "<u2")
        points = unpack_shares(stored["points"]).reshape(len(rows), 2)
        explained = tuple(stored["explained"])
        return cls(
            tuple(stored["classes"]),
            rows.astype(np.int64),
            codes.astype(np.int64),
            points,
            explained,
        )


def map_rows(n_rows: int) -> Integers:
    """Positions of the rows that a map shows: all, or `MAX_POINTS` at equal distances.

    >>> map_rows(4).tolist(), len(map_rows(5000))
    ([0, 1, 2, 3], 1000)
    """
    return np.linspace(0, n_rows - 1, min(n_rows, MAX_POINTS)).round().astype(np.int64)


def embedding_map(
    embeddings: NDArray[Any], rows: Integers, codes: Integers, classes: Iterable[str]
) -> EmbeddingMap:
    """The map of embeddings (n, D) of test rows with these positions and true classes.

    >>> line = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
    >>> found = embedding_map(line, np.arange(3), np.array([0, 0, 1]), ["a", "b"])
    >>> found.points[:, 0].tolist(), found.explained
    ([0.0, 0.5, 1.0], (1.0, 0.0))
    """
    embeddings = np.asarray(embeddings, dtype=np.float64)
    points, explained = np.zeros((len(embeddings), 2)), np.zeros(2)
    spread = embeddings.var(axis=0).sum()
    if spread > 0:
        components = PCA(min(2, *embeddings.shape), svd_solver="full").fit(embeddings)
        found = components.transform(embeddings)
        points[:, : found.shape[1]] = found - found.min(axis=0)
        points /= points.max()
        explained[: found.shape[1]] = components.explained_variance_ratio_
    first, second = explained.round(6).tolist()
    return EmbeddingMap(tuple(classes), rows, codes, points, (first, second))


@dataclass(frozen=True, eq=False)
class Thumbnails:
    """Small images of some test and training rows, by position."""

    test: Mapping[int, Image]
    train: Mapping[int, Image]

    def to_dict(self) -> dict[str, Any]:
        """The images as JSON stores them."""
        first = next(iter([*self.test.values(), *self.train.values()]), np.empty((0, 0, 0)))
        return {"shape": first.shape, "test": _packed(self.test), "train": _packed(self.train)}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore what `to_dict` gave."""
        test, train = (
            {int(row): unpack(text, "u1").reshape(stored["shape"]) for row, text in part.items()}
            for part in (stored["test"], stored["train"])
        )
        return cls(test, train)


def _packed(images: Mapping[int, Image]) -> dict[str, str]:
    return {str(row): pack(image, "u1") for row, image in images.items()}


def thumbnails(X_test: Any, test: Iterable[int], X_train: Any, train: Iterable[int]) -> Thumbnails:
    """Thumbnails of these rows of images, at most `MAX_SIDE` pixels high and wide.

    >>> images = np.zeros((5, 100, 60), dtype=np.uint8)
    >>> found = thumbnails(images, [3], images, [0, 4])
    >>> found.test[3].shape, sorted(found.train)
    ((1, 48, 48), [0, 4])
    """
    wanted = sorted(set(test)), sorted(set(train))
    items = [X[row] for X, rows in zip((X_test, X_train), wanted, strict=True) for row in rows]
    if not items:
        return Thumbnails({}, {})
    is_array = isinstance(items[0], np.ndarray)
    found = image_rows(np.stack(items) if is_array else items)
    size: tuple[int, int] | None = (MAX_SIDE, MAX_SIDE)
    if is_array and max((own := found.shape(None)).height, own.width) <= MAX_SIDE:
        size = None
    images = found.take(np.arange(len(items)), found.shape(size), may_resize=True)
    n_test = len(wanted[0])
    return Thumbnails(
        dict(zip(wanted[0], images[:n_test], strict=True)),
        dict(zip(wanted[1], images[n_test:], strict=True)),
    )


@dataclass(frozen=True, eq=False)
class Illustrations:
    """What a page shows of the rows of one cell and seed."""

    embedding_map: EmbeddingMap
    thumbnails: Thumbnails | None = None  # of mistakes and their neighbors, if rows are images

    def to_dict(self) -> dict[str, Any]:
        """The illustrations as JSON stores them."""
        images = {} if self.thumbnails is None else {"thumbnails": self.thumbnails.to_dict()}
        return {"embedding_map": self.embedding_map.to_dict(), **images}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore what `to_dict` gave."""
        images = stored.get("thumbnails")
        return cls(
            EmbeddingMap.from_dict(stored["embedding_map"]),
            None if images is None else Thumbnails.from_dict(images),
        )


def pack(values: NDArray[Any], kind: str) -> str:
    """The bytes of an array in base64, as numbers of this little-endian dtype.

    >>> unpack(pack(np.array([3, 500]), "<u2"), "<u2").tolist()
    [3, 500]
    """
    return base64.b64encode(np.ascontiguousarray(values).astype(kind).tobytes()).decode()


def unpack(text: str, kind: str) -> NDArray[Any]:
    """The numbers of `pack`, in one dimension."""
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def pack_shares(values: Floats) -> str:
    """Numbers from 0 to 1 in 16 bits each.

    >>> unpack_shares(pack_shares(np.array([0.25, 1.0]))).round(4).tolist()
    [0.25, 1.0]
    """
    return pack(np.round(values * LARGEST), "<u2")


def unpack_shares(text: str) -> Floats:
    """The numbers of `pack_shares`, in one dimension."""
    return unpack(text, "<u2").astype(np.float64) / LARGEST
