"""What is remembered, and its search."""

from attnknn.memory.base import METRICS, Memory, Metric
from attnknn.memory.entries import Entries, make_entries
from attnknn.memory.in_numpy import NumpyMemory

__all__ = ["METRICS", "Entries", "Memory", "Metric", "NumpyMemory", "make_entries"]
