"""Every memory keeps the contract, and the contract notices those that do not."""

from __future__ import annotations

import numpy as np
import pytest

from attnknn.memory import AutoMemory, FaissMemory, Memory, NumpyMemory, TorchMemory
from attnknn.testing import check_memory

PLAIN = [NumpyMemory(), TorchMemory(), AutoMemory()]
THROUGH_FAISS = [
    FaissMemory(),
    FaissMemory("hnsw"),
    FaissMemory("hnsw", rebuild_share=0.9),
    FaissMemory("ivf", n_lists=1),
    AutoMemory(exact_up_to=0),
]


@pytest.mark.parametrize("memory", PLAIN, ids=str)
def test_memory_keeps_the_contract(memory: Memory) -> None:
    check_memory(memory)


@pytest.mark.parametrize("memory", THROUGH_FAISS, ids=str)
def test_memory_through_faiss_keeps_the_contract(memory: Memory) -> None:
    pytest.importorskip("faiss")
    check_memory(memory)


@pytest.mark.usefixtures("many_blocks")
def test_products_in_many_blocks_keep_the_contract() -> None:
    check_memory(TorchMemory())


class SquaredMemory(NumpyMemory):
    """Squared L2 called L2."""

    def distances_of(self, keys):
        return keys


class LeakyMemory(NumpyMemory):
    """Each row finds itself."""

    def find_nearest(self, queries, k, exclude):
        return super().find_nearest(queries, k, None)


class PaddedMemory(NumpyMemory):
    """Missing places filled with entry 0."""

    def find_nearest(self, queries, k, exclude):
        positions, keys = super().find_nearest(queries, k, exclude)
        return np.where(np.isfinite(keys), positions, 0), np.where(np.isfinite(keys), keys, 9.0)


class FirstComeMemory(NumpyMemory):
    """Ties in the order of the rows."""

    def find_nearest(self, queries, k, exclude):
        positions, keys = super().find_nearest(queries, len(self), exclude)
        order = np.lexsort((positions, keys), axis=1)[:, :k]
        return np.take_along_axis(positions, order, 1), np.take_along_axis(keys, order, 1)


class ShortMemory(NumpyMemory):
    """Half of what was asked for, the rest missing."""

    def find_nearest(self, queries, k, exclude):
        positions, keys = super().find_nearest(queries, k, exclude)
        keys[:, -(k // 2) or k :] = np.inf
        return positions, keys


class ForgetfulMemory(NumpyMemory):
    """Half an edit stays behind when the other half is refused."""

    def forget(self, ids):
        for given in np.unique(ids):
            super().forget([given])


@pytest.mark.parametrize(
    "memory",
    [
        SquaredMemory(),
        LeakyMemory(),
        PaddedMemory(),
        FirstComeMemory(),
        ShortMemory(),
        ForgetfulMemory(),
    ],
    ids=str,
)
def test_contract_notices_a_memory_that_breaks_it(memory: Memory) -> None:
    with pytest.raises(AssertionError):
        check_memory(memory)
