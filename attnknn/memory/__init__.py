"""What is remembered, and its search."""

from attnknn.memory.auto import AutoMemory
from attnknn.memory.base import METRICS, Memory, Metric, make_memory
from attnknn.memory.entries import Entries, make_entries
from attnknn.memory.faiss_memory import FaissMemory
from attnknn.memory.numpy_memory import NumpyMemory
from attnknn.memory.torch_memory import TorchMemory

__all__ = [
    "METRICS",
    "AutoMemory",
    "Entries",
    "FaissMemory",
    "Memory",
    "Metric",
    "NumpyMemory",
    "TorchMemory",
    "make_entries",
    "make_memory",
]
