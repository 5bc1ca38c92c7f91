"""Answers from the query and the weighed values of its neighbors, which are no exact evidence."""

from attnknn.value_head.head import ValueHead

__all__ = ["ValueHead"]
