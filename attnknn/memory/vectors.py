"""The vectors of a memory's entries, wherever they are kept."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from attnknn.memory.distances import Vectors
from attnknn.records import Integers

BLOCK = 1 << 22  # numbers that are read at once


class EntryVectors(ABC):
    """The prepared vectors of the entries of one state of a memory, read by position.

    They are an array in this process, or somewhere else, such as in a database. An object of this
    class never changes: an edit of the entries gives the memory another one, while copies of a
    memory, and edits of its columns alone, share it. So `one is other` says that two memories have
    the same vectors at the same positions.

    Attributes
    ----------
    width : int
        Number of columns of the vectors.
    is_local : bool
        Whether the vectors are an array in this process, so that reading all costs nothing.

    Examples
    --------
    >>> from attnknn.memory import NumpyMemory, make_entries
    >>> memory = NumpyMemory().remember(make_entries([[0.0], [1.0], [5.0]], [0, 0, 1]))
    >>> memory.vectors[np.array([2, 0])].tolist()
    [[3.0], [-2.0]]
    """

    width: int
    is_local: bool = False

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def __getitem__(self, positions: Any) -> Vectors:
        """Vectors at `positions`: an array of integers or booleans of any shape, or a slice."""

    def all(self) -> Vectors:
        """Read all vectors, which may take long and much memory where they are not local.

        Returns
        -------
        ndarray of shape (n_entries, width)
            The vectors. They must not be changed.
        """
        return self[slice(None)]

    def blocks(self) -> Iterator[tuple[slice, Vectors]]:
        """Read all vectors block by block, so that few are in memory at once.

        Yields
        ------
        tuple
            The positions of the block, as a slice, and its vectors.
        """
        step = max(1, BLOCK // max(1, self.width))
        for start in range(0, len(self), step):
            rows = slice(start, min(start + step, len(self)))
            yield rows, self[rows]

    def gather(self, positions: Integers) -> tuple[Vectors, Integers]:
        """Read an array that contains the vectors at some positions.

        Parameters
        ----------
        positions : ndarray
            Positions, in an array of any shape; they may repeat.

        Returns
        -------
        vectors : ndarray of shape (n, width)
            All vectors where they are local, without a copy; otherwise those that are needed.
        places : ndarray
            The row of `vectors` of each position.
        """
        used, places = np.unique(positions, return_inverse=True)
        return self[used], places.reshape(positions.shape)


class ArrayVectors(EntryVectors):
    """Vectors in an array of this process.

    Parameters
    ----------
    array : ndarray of shape (n_entries, width)
        The vectors. They are not copied.

    Examples
    --------
    >>> ArrayVectors(np.array([[1.0], [2.0]], dtype=np.float32))[:1].tolist()
    [[1.0]]
    """

    is_local = True

    def __init__(self, array: Vectors) -> None:
        self._array = array
        self.width = int(array.shape[1])

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, positions: Any) -> Vectors:
        return self._array[positions]

    def all(self) -> Vectors:
        return self._array

    def blocks(self) -> Iterator[tuple[slice, Vectors]]:
        yield slice(0, len(self._array)), self._array

    def gather(self, positions: Integers) -> tuple[Vectors, Integers]:
        return self._array, positions
