"""The embeddings of the last batches, which vote beside the present one."""

from __future__ import annotations

from typing import Any

from attnknn.fitting.images.batch_vote import Voters


class Queue:
    """The last `size` voters, without a gradient; the oldest leave first.

    >>> import torch
    >>> queue = Queue(3)
    >>> for number in range(2):
    ...     rows = torch.full((2, 1), float(number))
    ...     queue.push(Voters(rows, rows, rows.long()))
    >>> queue.voters.embeddings.flatten().tolist()
    [0.0, 1.0, 1.0]
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.voters: Voters | None = None

    def push(self, new: Voters) -> None:
        """Take in the voters of a batch."""
        if not self.size:
            return
        new = Voters(new.embeddings.detach(), new.labels, new.kin)
        joined = new if self.voters is None else self.voters.joined(new)
        self.voters = Voters(
            joined.embeddings[-self.size :], joined.labels[-self.size :], joined.kin[-self.size :]
        )

    def beside(self, batch: Voters) -> Voters:
        """The voters of a batch, followed by those of the queue."""
        if self.voters is None:
            return batch
        device = batch.embeddings.device  # a checkpoint is read to the CPU
        self.voters = Voters(**{name: part.to(device) for name, part in vars(self.voters).items()})
        return batch.joined(self.voters)

    def state_dict(self) -> dict[str, Any]:
        return {} if self.voters is None else dict(vars(self.voters))

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.voters = Voters(**saved) if saved else None
