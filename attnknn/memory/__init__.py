"""Memories hold labeled embeddings (entries) and find those nearest to a query.

- `AutoMemory` ("auto"): exact while that is fast, an approximate index for large memories
- `TorchMemory` ("torch"): exact, by blocked matrix products on CPU or GPU
- `NumpyMemory` ("numpy"): exact, by definition; the reference for the others
- `FaissMemory` ("faiss"): exact or approximate FAISS indexes; needs the extra `faiss`
- `PostgresMemory` ("postgres"): vectors in a PostgreSQL database; needs the extra `postgres`

`make_entries` builds the entries and `make_memory` finds a memory by name. Every memory supports
`search`, `add`, `forget` and `relabel`. To write your own, subclass `Memory`.
"""

from attnknn.memory.auto import AutoMemory
from attnknn.memory.base import METRICS, Memory, Metric, make_memory
from attnknn.memory.entries import Entries, EntryColumns, make_entries
from attnknn.memory.faiss_memory import FaissMemory
from attnknn.memory.numpy_memory import NumpyMemory
from attnknn.memory.postgres import PostgresMemory
from attnknn.memory.torch_memory import TorchMemory
from attnknn.memory.vectors import EntryVectors

__all__ = [
    "METRICS",
    "AutoMemory",
    "Entries",
    "EntryColumns",
    "EntryVectors",
    "FaissMemory",
    "Memory",
    "Metric",
    "NumpyMemory",
    "PostgresMemory",
    "TorchMemory",
    "make_entries",
    "make_memory",
]
