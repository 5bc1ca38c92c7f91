"""The vote of a batch equals the vote of the library, and kin have no say."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional as F

from attnknn.attention.base import Weights
from attnknn.fitting.images.batch_vote import (
    Voters,
    are_kin,
    ballot,
    prior_without,
    scores_of,
)
from attnknn.fitting.images.mining import Mine
from attnknn.fitting.images.queue import Queue
from attnknn.vote import class_prior, vote


def unit(n_rows, seed):
    return F.normalize(torch.randn(n_rows, 5, generator=torch.Generator().manual_seed(seed)), dim=1)


def test_a_ballot_is_the_vote_of_the_library():
    queries, entries = unit(3, 0), unit(7, 1)
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    scores = scores_of(queries, entries, torch.tensor(0.3))
    assert torch.allclose(scores, -torch.cdist(queries, entries).square() / 0.3, atol=1e-4)
    prior = torch.tensor([0.5, 0.3, 0.2])
    voted = ballot(scores, F.one_hot(labels).float(), torch.tensor(-2.0), prior)
    weights = Weights(voted.weights[:, :-1].numpy(), voted.weights[:, -1].numpy())
    expected = vote(np.tile(labels, (3, 1)), weights, prior.numpy())
    assert np.allclose(voted.shares.numpy(), expected, atol=1e-6)
    assert torch.allclose(voted.weights.sum(dim=1), torch.ones(3))


def test_a_row_without_anyone_to_ask_gets_the_prior():
    prior = torch.tensor([0.75, 0.25])
    voted = ballot(
        torch.full((1, 3), -torch.inf), torch.eye(2)[[0, 0, 1]], torch.tensor(0.0), prior
    )
    assert torch.allclose(voted.shares[0], prior)
    assert torch.isfinite(voted.losses(torch.tensor([[0.0, 1.0]]))).all()


def test_mixed_images_are_kin_of_both_that_they_were_made_of():
    queries = torch.tensor([[0, 1], [2, 2]])
    voters = torch.tensor([[1, 5], [3, 0], [4, 5], [2, 9]])
    expected = [[True, True, False, False], [False, False, False, True]]
    assert are_kin(queries, voters).tolist() == expected


def test_the_prior_without_a_row_is_that_of_the_library():
    counts = np.array([3, 1, 2])
    own = np.array([0, 2])
    labels = F.one_hot(torch.from_numpy(own), 3).float()
    found = prior_without(torch.from_numpy(counts).float(), labels)
    assert np.allclose(found.numpy(), class_prior(counts, own))
    soft = prior_without(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([[0.5, 0.5, 0.0]]))
    assert torch.allclose(soft.sum(), torch.tensor(1.0))


def test_the_queue_keeps_the_last_voters_without_their_gradient():
    queue = Queue(4)
    assert len(queue.beside(voters_at(0))) == 3
    for step in range(3):
        queue.push(voters_at(step))
    assert queue.voters.kin.flatten().tolist() == [1, 2, 2, 2]
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
    mine = Mine(n_negatives=4)
    mine.refresh(rows, labels, groups, 3)
    distances = np.linalg.norm(rows[:, None] - rows, axis=2)
    for row in range(60):
        is_other = (labels != labels[row]) & ((groups != groups[row]) | (groups < 0))
        order = np.argsort(np.where(is_other, distances[row], np.inf))[:4]
        assert sorted(mine.negatives[row].tolist()) == sorted(order.tolist())
    assert mine.is_negative.all()


def test_boundary_rows_are_those_whose_neighbors_disagree(rng):
    rows = np.concatenate([rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + 20])
    labels = np.repeat([0, 1], 40)
    mine = Mine(n_negatives=2)
    generator = torch.Generator().manual_seed(0)
    mine.refresh(rows.astype(np.float32), labels, np.full(80, -1), 2)
    assert mine.draw_boundary(10, generator) is None
    labels[3] = 1  # a stranger among the first
    mine.refresh(rows.astype(np.float32), labels, np.full(80, -1), 2)
    assert mine.disagreement[3] == 1
    drawn = mine.draw_boundary(200, generator)
    assert (mine.disagreement[drawn] > 0).all()
    assert (drawn == 3).float().mean() > 3 / 40
