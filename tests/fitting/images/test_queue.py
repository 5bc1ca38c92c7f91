"""The queue of voters follows the batch to its device."""

from __future__ import annotations

import torch

from attnknn.fitting.images.batch_vote import Voters
from attnknn.fitting.images.queue import Queue


def voters(device: str) -> Voters:
    rows = torch.ones(2, 3, device=device)
    return Voters(rows, rows, rows.long())


def test_voters_of_a_checkpoint_join_a_batch_on_another_device():
    queue = Queue(4)
    queue.push(voters("cpu"))
    other = Queue(4)
    other.load_state_dict(queue.state_dict())
    both = other.beside(voters("meta"))
    assert both.embeddings.device.type == both.kin.device.type == "meta"
    assert len(both.labels) == 4
