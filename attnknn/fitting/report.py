"""What `fit` did and found, for people."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnknn.leave_one_out import LeaveOneOutBatch
from attnknn.pipeline import Parts


@dataclass(frozen=True)
class FitReport:
    """What `fit` did and found; the numbers are leave-one-out, on held-out rows.

    Parameters
    ----------
    attention : the one in use, and the `reason` for it
    n_neighbors : the K in use
    n_rows : held-out rows that the numbers below were computed on
    effective_neighbors : how many equal voters the weights are worth, on average
    oracle_accuracy : share of rows with at least one neighbor of their label: what the best
        weighting of these neighbors could reach, the prior aside
    accuracy, log_loss : of the observed labels
    duplicates : share of rows with an exact copy among the others
    value_head : how it compares with the vote, whose numbers the others are; empty if not asked for
    """

    attention: str
    reason: str
    n_neighbors: int
    n_rows: int
    effective_neighbors: float
    oracle_accuracy: float
    accuracy: float
    log_loss: float
    label_noise: float
    exponent: float
    duplicates: float
    value_head: str = ""

    def __str__(self) -> str:
        lines = {
            "attention": f"{self.attention}: {self.reason}",
            "neighbors": f"{self.n_neighbors}, worth {self.effective_neighbors:.1f} equal voters",
            "leave-one-out": f"accuracy {self.accuracy:.4f} (any neighbor right "
            f"{self.oracle_accuracy:.4f}), log-loss {self.log_loss:.4f}, {self.n_rows} "
            f"held-out rows",
            "label noise": f"{self.label_noise:.3f}",
            "exact duplicates": f"{self.duplicates:.1%} of rows",
        }
        lines |= {"value head": self.value_head} if self.value_head else {}
        return "\n".join(f"{name:<17} {text}" for name, text in lines.items())


def describe(parts: Parts, left_out: LeaveOneOutBatch, reason: str) -> FitReport:
    """The report for fitted parts, measured on `left_out` entries."""
    left_out = left_out.nearest(parts.n_neighbors)
    neighbors = left_out.batch.neighbors
    answer = left_out.answer(parts)
    has_own = ((neighbors.labels == left_out.own[:, None]) & neighbors.mask).any(axis=1)
    nearest = left_out.batch.entries[neighbors.positions[:, :1]]  # (B, 1, D)
    is_copy = (nearest == left_out.batch.queries[:, None]).all(axis=2) & neighbors.mask[:, :1]
    return FitReport(
        attention=type(parts.attention).__name__.removesuffix("Attention").lower(),
        reason=reason,
        n_neighbors=min(parts.n_neighbors, len(parts.memory)),
        n_rows=len(left_out),
        effective_neighbors=_mean(answer.weights.effective_neighbors),
        oracle_accuracy=_mean(has_own),
        accuracy=_mean(answer.probabilities.argmax(axis=1) == left_out.own),
        log_loss=_mean(parts.calibration.losses(answer.shares, left_out.own)),
        label_noise=parts.calibration.label_noise,
        exponent=parts.calibration.exponent,
        duplicates=_mean(is_copy.any(axis=1)),
    )


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if len(values) else float("nan")
