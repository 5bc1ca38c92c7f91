"""Contract checks for your own encoders, memories and attentions.

`check_encoder`, `check_memory` and `check_attention` raise an `AssertionError` that says what is
wrong. The built-in classes pass the same checks.
"""

from attnknn.testing.attention import check_attention
from attnknn.testing.encoder import check_encoder
from attnknn.testing.memory import check_memory

__all__ = ["check_attention", "check_encoder", "check_memory"]
