"""Contract checks for your own encoders, memories and attentions.

`check_encoder`, `check_memory`, `check_remote_memory` (for memories that processes share) and
`check_attention` raise an `AssertionError` that says what is
wrong. The built-in classes pass the same checks.
"""

from attnknn.testing.attention import check_attention
from attnknn.testing.encoder import check_encoder
from attnknn.testing.memory import check_memory
from attnknn.testing.remote_memory import check_remote_memory

__all__ = ["check_attention", "check_encoder", "check_memory", "check_remote_memory"]
