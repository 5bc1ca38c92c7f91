"""A network on top of the vote, which trades exact evidence for lower log-loss.

`ValueHead` computes class probabilities from a query and the weighted values of its neighbors.
`AttnKNNClassifier(value_head=True)` trains one after everything else.
"""

from attnknn.value_head.head import ValueHead

__all__ = ["ValueHead"]
