"""The public contracts that every part must keep, ours or yours."""

from attnknn.testing.attention import check_attention
from attnknn.testing.encoder import check_encoder
from attnknn.testing.memory import check_memory

__all__ = ["check_attention", "check_encoder", "check_memory"]
