"""Votes in a training step equal those of the library; shared sources, queue, hard negatives."""

from __future__ import annotations

import numpy as np
import torch

from attnknn.fitting.image_voters import HardNegatives, Queue, Voters, share_source


def test_mixed_images_share_a_source_with_both_that_they_were_made_of():
    queries = torch.tensor([[0, 1], [2, 2]])
    voters = torch.tensor([[1, 5], [3, 0], [4, 5], [2, 9]])
    expected = [[True, True, False, False], [False, False, False, True]]
    assert share_source(queries, voters).tolist() == expected


def test_the_queue_keeps_the_last_voters_without_their_gradient():
    queue = Queue(4)
    assert len(queue.beside(voters_at(0))) == 3
    for step in range(3):
        queue.push(voters_at(step))
    assert queue.voters.sources.flatten().tolist() == [1, 2, 2, 2]
    assert not queue.voters.embeddings.requires_grad
    again = Queue(4)
    again.load_state_dict(queue.state_dict())
    assert torch.equal(again.voters.embeddings, queue.voters.embeddings)
    empty = Queue(4)
    empty.load_state_dict(Queue(4).state_dict())
    assert empty.voters is None


def voters_at(step):
    rows = torch.full((3, 1), step)
    return Voters(rows.float().requires_grad_(), rows.float(), rows)


def test_hard_negatives_are_the_nearest_of_other_classes(rng):
    rows = rng.normal(size=(60, 3)).astype(np.float32)
    labels, groups = np.arange(60) % 3, np.full(60, -1)
    groups[:6] = 0
    hard = HardNegatives(n_negatives=4)
    hard.refresh(rows, labels, groups, 3)
    distances = np.linalg.norm(rows[:, None] - rows, axis=2)
    for row in range(60):
        is_other = (labels != labels[row]) & ((groups != groups[row]) | (groups < 0))
        order = np.argsort(np.where(is_other, distances[row], np.inf))[:4]
        assert sorted(hard.negatives[row].tolist()) == sorted(order.tolist())
    assert hard.is_negative.all()


def test_boundary_rows_are_those_whose_neighbors_disagree(rng):
    rows = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + 20])
    labels = np.repeat([0, 1], 40)
    hard = HardNegatives(n_negatives=2)
    generator = torch.Generator().manual_seed(0)
    hard.refresh(rows.astype(np.float32), labels, np.full(80, -1), 2)
    assert hard.draw_boundary(10, generator) is None
    labels[3] = 1  # another label among the first
    hard.refresh(rows.astype(np.float32), labels, np.full(80, -1), 2)
    assert hard.disagreement[3] == 1
    drawn = hard.draw_boundary(200, generator)
    assert (hard.disagreement[drawn] > 0).all()
    assert (drawn == 3).float().mean() > 3 / 40


def two_voters(device: str) -> Voters:
    rows = torch.ones(2, 3, device=device)
    return Voters(rows, rows, rows.long())


def test_voters_of_a_checkpoint_join_a_batch_on_another_device():
    queue = Queue(4)
    queue.push(two_voters("cpu"))
    other = Queue(4)
    other.load_state_dict(queue.state_dict())
    both = other.beside(two_voters("meta"))
    assert both.embeddings.device.type == both.sources.device.type == "meta"
    assert len(both.labels) == 4
