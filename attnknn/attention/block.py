"""Block attention: another attention that sees some columns of the embeddings only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from attnknn._stored import fitted_fields
from attnknn.attention.base import Attention, Head
from attnknn.attention.direct import DirectAttention, DirectFit
from attnknn.attention.space import SpaceAttention, Vectors
from attnknn.errors import InvalidSettingError, ModelFolderError
from attnknn.memory.entries import Entries
from attnknn.registry import find, register

if TYPE_CHECKING:
    from attnknn._stored import Arrays


@dataclass(frozen=True, eq=False)
class Columns:
    """Some adjacent columns of the embeddings."""

    start: int
    stop: int

    def of_queries(self, queries: Vectors) -> Vectors:
        """The columns (B, S) of queries."""
        return np.ascontiguousarray(queries[:, self.start : self.stop])

    def of_entries(self, entries: Entries) -> Vectors:
        """The columns (N, S) of entries."""
        return self.of_queries(entries.embeddings)


@register("attention", "block")
class BlockAttention(SpaceAttention):
    """Another attention on one block of an embedding that `UnionEncoder` joined.

    Parameters
    ----------
    block : str, default=""
        Name of the block; the empty name is the first one.
    attention : str or attention, default='distance'
        The attention, by name or as an object.
    prior_score : float, default=None
        Logit of the weight of the prior, in addition to its weight in the vote. None fits it by
        leave-one-out log-loss.

    Attributes
    ----------
    map_ : Columns
        The columns of the block.
    inner_ : Attention or DirectAttention
        The fitted attention.
    n_neighbors_ : int
        Number of neighbors that vote.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier(attention=BlockAttention(), encoder="identity").fit(X, y)
    >>> clf.predict(X[[0, 60, 120]]).tolist()
    [0, 1, 2]
    """

    map_: Columns

    def __init__(
        self, block: str = "", attention: Any = "distance", prior_score: float | None = None
    ) -> None:
        self.block = block
        self.attention = attention
        self.prior_score = prior_score

    def fit_entries(self, problem: DirectFit) -> None:
        blocks = problem.blocks
        if self.block and self.block not in blocks:
            raise InvalidSettingError(
                f"`block` must be one of {', '.join(blocks)}, got {self.block!r}."
            )
        name = self.block or next(iter(blocks))
        self.map_, self.inner_ = Columns(*blocks[name]), self._unfitted()
        self.n_neighbors_ = problem.fit_head(
            self.inner_, self.mapped(problem.memory), are_scores=name in problem.score_blocks
        )

    def _unfitted(self) -> Attention | DirectAttention:
        given = self.attention
        head = clone(given) if isinstance(given, Head) else find("attention", given)()
        assert isinstance(head, Attention | DirectAttention)
        return head

    def state(self) -> tuple[dict[str, Any], Arrays]:
        values, arrays = self.inner_.state()
        columns = {"start": self.map_.start, "stop": self.map_.stop}
        return {**columns, **self._inner_scalars(), "inner": values}, arrays

    def restore(self, values: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:
        fields, self.inner_ = fitted_fields(values), self._unfitted()
        start, stop = fields.integer("start"), fields.integer("stop", least=1)
        if not start < stop <= dim:
            raise ModelFolderError(f"The stored block must be columns of {dim}, got {stop}.")
        self.map_ = Columns(start, stop)
        self._restore_inner_scalars(fields)
        self.inner_.restore(fields.of("inner").to_dict(), arrays, stop - start, n_classes)
