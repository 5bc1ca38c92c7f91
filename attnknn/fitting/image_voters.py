"""Which images vote in a training step: the batch and a queue, or a bank; hard negatives."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnknn.leave_one_out import leave_one_out_batch
from attnknn.memory import TorchMemory, make_entries
from attnknn.records import Integers

N_SEARCHED = 64  # nearest rows among which negatives are hard
N_NEIGHBORS = 16  # nearest rows that agree or disagree with a label


@dataclass(frozen=True)
class Voters:
    """Embedded images that may vote."""

    embeddings: Tensor  # (M, D) of unit length
    labels: Tensor  # class probabilities (M, C)
    # (M, S) numbers of what each image was made of; images that share one do not vote on each
    # other; S is 2 where images are mixed of two
    sources: Tensor

    def __len__(self) -> int:
        return len(self.embeddings)

    def joined(self, other: Voters) -> Voters:
        """These voters followed by the `other` ones."""
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Voters(*(torch.cat(pair) for pair in pairs))


def share_source(queries: Tensor, voters: Tensor) -> Tensor:
    """Whether a query (B, S) and a voter (M, S) share what they were made of: (B, M).

    >>> share_source(torch.tensor([[0, 1]]), torch.tensor([[2, 3], [1, 4]])).tolist()
    [[False, True]]
    """
    shared = torch.zeros(len(queries), len(voters), dtype=torch.bool, device=queries.device)
    for mine in queries.unbind(1):
        for theirs in voters.unbind(1):
            shared |= mine[:, None] == theirs
    return shared


class Queue:
    """The last `size` voters, without a gradient; the oldest leave first.

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
        """Append the voters of a batch."""
        if not self.size:
            return
        new = Voters(new.embeddings.detach(), new.labels, new.sources)
        joined = new if self.voters is None else self.voters.joined(new)
        self.voters = Voters(*(getattr(joined, f.name)[-self.size :] for f in fields(joined)))

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


class Bank:
    """A memory bank: the embeddings of all n training rows, without a gradient.

    `refresh_steps` are the steps between two encodings of all rows; None encodes them once per
    epoch.
    """

    def __init__(self, labels: Tensor, sources: Tensor, refresh_steps: int | None) -> None:
        self.labels, self.sources = labels, sources  # (n, C) and (n, 1)
        self.refresh_steps = refresh_steps
        self.embeddings: Tensor | None = None
        self.n_steps = 0  # since all rows were encoded

    @property
    def is_due(self) -> bool:
        """Whether all rows must be encoded before the next step."""
        return self.embeddings is None or self.n_steps == self.refresh_steps

    def refresh(self, embeddings: Tensor) -> None:
        """Replace all embeddings."""
        self.embeddings, self.n_steps = embeddings, 0

    def replace(self, places: Tensor, embeddings: Tensor) -> None:
        """Replace the embeddings of the rows at these places, those of a batch."""
        assert self.embeddings is not None
        self.embeddings[places.to(self.embeddings.device)] = embeddings.detach()

    @property
    def voters(self) -> Voters:
        """All rows, as they were last encoded."""
        assert self.embeddings is not None
        device = self.embeddings.device
        return Voters(self.embeddings, self.labels.to(device), self.sources.to(device))

    def state_dict(self) -> dict[str, Any]:
        return {"embeddings": self.embeddings, "n_steps": self.n_steps}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.embeddings, self.n_steps = saved["embeddings"], saved["n_steps"]


class MomentumEncoder:
    """A second encoder whose weights are a moving average of those of the trained one."""

    def __init__(self, network: nn.Module, decay: float) -> None:
        self.network, self.decay = deepcopy(network).eval().requires_grad_(False), decay

    def follow(self, network: nn.Module) -> None:
        """Move the weights a step towards those of `network`; statistics of norms are copied."""
        with torch.no_grad():
            for mine, theirs in zip(self.network.parameters(), network.parameters(), strict=True):
                mine.lerp_(theirs, 1 - self.decay)
            for copied, known in zip(self.network.buffers(), network.buffers(), strict=True):
                copied.copy_(known)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.network.state_dict())

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.network.load_state_dict(saved)


class HardNegatives:
    """Near rows of other classes, and rows whose neighbors disagree, by a search of all rows."""

    def __init__(self, n_negatives: int) -> None:
        self.n_negatives = n_negatives
        self.embeddings: Tensor | None = None  # (n, D)
        self.negatives = torch.zeros(0, n_negatives, dtype=torch.int64)  # (n, M) positions of rows
        self.is_negative = torch.zeros(0, n_negatives, dtype=torch.bool)
        self.disagreement = torch.zeros(0)  # (n,) share of the nearest with another label

    def refresh(
        self, embeddings: NDArray[np.float32], labels: Integers, groups: Integers, n_classes: int
    ) -> None:
        """Search the neighbors of all rows again; rows of one group are not neighbors."""
        entries = make_entries(embeddings, labels, groups=groups)
        memory = TorchMemory().remember(entries, "euclidean")
        counts = np.bincount(labels, minlength=n_classes)
        neighbors = leave_one_out_batch(memory, counts, N_SEARCHED).batch.neighbors
        is_other = (neighbors.labels != labels[:, None]) & neighbors.mask
        nearest_first = np.argsort(~is_other, axis=1, kind="stable")[:, : self.n_negatives]
        self.embeddings = torch.from_numpy(embeddings)
        taken = np.take_along_axis(neighbors.positions, nearest_first, axis=1)
        self.negatives = torch.from_numpy(taken)
        self.is_negative = torch.from_numpy(np.take_along_axis(is_other, nearest_first, axis=1))
        n_found = np.maximum(neighbors.mask[:, :N_NEIGHBORS].sum(axis=1), 1)
        share = is_other[:, :N_NEIGHBORS].sum(axis=1) / n_found
        self.disagreement = torch.from_numpy(share.astype(np.float32))

    def draw_boundary(self, n_rows: int, generator: torch.Generator) -> Tensor | None:
        """Positions of `n_rows` rows, the more likely the more their neighbors disagree.

        None if all neighbors agree.
        """
        if not bool((self.disagreement > 0).any()):
            return None
        return torch.multinomial(self.disagreement, n_rows, replacement=True, generator=generator)

    def state_dict(self) -> dict[str, Any]:
        return dict(vars(self))

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        vars(self).update(saved)
