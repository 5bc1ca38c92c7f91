"""What a policy of forgetting did, and what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from attnknn.records import Floats


@dataclass(frozen=True)
class Change:
    """How well the same n rows are answered before and after.

    Parameters
    ----------
    accuracy_before, accuracy_after : higher is better
    log_loss_before, log_loss_after : of the observed labels, in nats; lower is better
    """

    n_rows: int
    accuracy_before: float
    accuracy_after: float
    log_loss_before: float
    log_loss_after: float

    @property
    def accuracy_lost(self) -> float:
        """Accuracy before minus accuracy after; below zero it rose."""
        return self.accuracy_before - self.accuracy_after

    @property
    def log_loss_added(self) -> float:
        """Log-loss after minus log-loss before; below zero it fell."""
        return self.log_loss_after - self.log_loss_before

    def __str__(self) -> str:
        points = -100 * self.accuracy_lost
        return (
            f"accuracy {self.accuracy_before:.4f} → {self.accuracy_after:.4f} "
            f"({points:+.2f} points), log-loss {self.log_loss_before:.4f} → "
            f"{self.log_loss_after:.4f} ({self.log_loss_added:+.4f})"
        )


@dataclass(frozen=True, eq=False)
class Forgetting:
    """What a policy did to a classifier, and the loss that was measured.

    Parameters
    ----------
    done : in a few words, as "Forgot 40 of 60 entries, the oldest"
    dropped : ids of the entries that are forgotten
    decay : (N,) what age leaves of the sample weight of each entry, or None where nothing fades
    held_out : the held-out entries of before, each judged without itself; None where there are
        none. An entry that was dropped is asked about like a row to come
    validation : the rows given for it, or None
    """

    done: str
    dropped: NDArray[Any]
    decay: Floats | None
    held_out: Change | None
    validation: Change | None = None

    def sentences(self) -> list[str]:
        """What was done, and the loss by each kind of rows."""
        found = [f"{self.done}."]
        if self.held_out is None:
            found.append("No held-out entries, so no loss by leave-one-out.")
        else:
            found.append(
                f"Leave-one-out, {self.held_out.n_rows:,} held-out entries: {self.held_out}."
            )
        if self.validation is not None:
            rows = f"{self.validation.n_rows:,} validation rows"
            found.append(f"{rows}: {self.validation}.")
        return found

    def __str__(self) -> str:
        return "\n".join(self.sentences())
