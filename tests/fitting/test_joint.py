"""Encoder and attention are trained together: one vote, and its gradient reaches every part."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnknn import AttnKNNClassifier
from attnknn.attention import DistanceAttention, LearnedAttention
from attnknn.attention.learned import TERMS, support_of
from attnknn.encoders import LearnedTableEncoder
from attnknn.encoders.image import ImageEncoder, ImageInference, ImageTraining
from attnknn.encoders.learned_table import TableLayers
from attnknn.errors import InvalidSettingError
from attnknn.fitting.image_objective import ImageObjective
from attnknn.fitting.image_voters import Bank, MomentumEncoder
from attnknn.fitting.joint import JointVote, nearest, support_in_torch
from attnknn.leave_one_out import leave_one_out_batch
from attnknn.memory import NumpyMemory, make_entries
from attnknn.training import LossTerms, TrainConfig
from tests.fitting.shapes import shapes

EVERY_TERM = LearnedAttention(
    n_heads=2, terms=TERMS, trust=False, dropout=0.0, training=TrainConfig(epochs=2)
)


def rows_of(n_rows=60, dim=5, n_classes=3, seed=0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(n_classes, size=n_rows)
    rows = generator.normal(size=(n_rows, dim)) + np.eye(n_classes, dim)[labels] * 2
    return rows.astype(np.float32), labels


def joint_vote(attention=EVERY_TERM, dim=5, n_classes=3):
    vote = JointVote(attention, dim, n_classes, random_state=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():  # away from the start, where several terms are zero
        for parameter in vote.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return vote


def test_support_has_a_twin_with_a_gradient(rng):
    labels, weights = rng.integers(3, size=(7, 6)), rng.dirichlet(np.ones(6), size=7)
    expected = support_of(labels, weights, 3)
    found = support_in_torch(torch.from_numpy(labels), torch.from_numpy(weights), 3)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_the_nearest_are_those_that_may_vote():
    scores = torch.tensor([[1.0, -torch.inf, 3.0], [-torch.inf, -torch.inf, 0.0]])
    places, mask = nearest(scores, 2)
    assert places[0].tolist() == [2, 0]
    assert mask.tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize(
    ("terms", "tolerance"),
    # Support is a difference of weights, and dot products are large: float32 rounds both.
    [(tuple(term for term in TERMS if term != "dot_product"), 3e-4), (TERMS, 2e-3)],
)
def test_weights_in_training_are_those_of_the_attention_that_goes_on(terms, tolerance):
    rows, labels = rows_of()
    memory = NumpyMemory().remember(make_entries(rows, labels), "euclidean")
    left_out = leave_one_out_batch(memory, np.bincount(labels), 8)
    vote = joint_vote(LearnedAttention(**EVERY_TERM.get_params() | {"terms": terms})).eval()
    vote.center.copy_(torch.from_numpy(memory.center_))
    attention = LearnedAttention(n_heads=2, terms=terms, trust=False)
    attention.module_ = vote.scores
    attention.first_look_ = DistanceAttention()
    temperature = vote.scores.unit * vote.scores.temperatures.mean()
    attention.first_look_.temperature_ = temperature.item()
    attention.first_look_.prior_score_ = -np.inf
    attention.temperature_, attention.prior_score_ = 1.0, 0.0
    expected = attention.weigh(left_out.batch)
    neighbors, queries = left_out.batch.neighbors, torch.from_numpy(rows[left_out.rows])
    entries = torch.from_numpy(rows)
    places, mask = torch.from_numpy(neighbors.positions), torch.from_numpy(neighbors.mask)
    found = vote.weigh(queries, entries, places, mask, torch.from_numpy(labels))
    np.testing.assert_allclose(found[:, :-1].detach(), expected.neighbors, atol=tolerance)
    np.testing.assert_allclose(found[:, -1].detach(), expected.prior, atol=tolerance)


def test_the_gradient_reaches_queries_entries_and_every_parameter():
    rows, labels = rows_of()
    vote = joint_vote()
    queries, entries = (torch.from_numpy(rows).requires_grad_() for _ in range(2))
    scores = -torch.cdist(queries, entries).fill_diagonal_(torch.inf)
    places, mask = nearest(scores, 6)
    weights = vote.weigh(queries, entries, places, mask, torch.from_numpy(labels))
    agree = torch.from_numpy(labels)[places] == torch.from_numpy(labels)[:, None]
    (weights[:, :-1] * agree).sum().backward()
    for name, parameter in [*vote.named_parameters(), ("queries", queries), ("entries", entries)]:
        assert parameter.grad is not None, name
        assert bool((parameter.grad != 0).any()), name


def test_the_unit_follows_the_embeddings_only_in_training():
    rows, labels = rows_of()
    vote, codes = joint_vote(), torch.from_numpy(labels)
    entries = torch.from_numpy(rows)
    places, mask = nearest(-torch.cdist(entries, entries), 4)
    vote.weigh(entries, entries, places, mask, codes)
    squared = (entries[:, None] - entries[places]).square().sum(-1)
    assert vote.scores.unit.item() == pytest.approx(squared.mean().item(), rel=1e-5)
    vote.weigh(2 * entries, 2 * entries, places, mask, codes)
    followed = vote.scores.unit.item()
    assert squared.mean() < followed < 4 * squared.mean()
    vote.eval().weigh(9 * entries, 9 * entries, places, mask, codes)
    assert vote.scores.unit.item() == followed


def small_table(**changes):
    return LearnedTableEncoder(
        **{
            "embed_dim": 8,
            "width": 16,
            "network": "deep",
            "layers": TableLayers(n_frequencies=2, number_dim=2, n_blocks=0),
            "training": TrainConfig(epochs=3, batch_size=64),
            **changes,
        }
    )


@pytest.mark.parametrize("candidates", ["sampled", "nearest"])
def test_a_table_encoder_is_trained_through_the_attention(candidates):
    X, y = rows_of(200)
    encoder = small_table(candidates=candidates, n_candidates=20)
    embeddings = {}
    for joint in (False, True):
        attention = LearnedAttention(n_heads=2, joint=joint, training=TrainConfig(epochs=1))
        clf = AttnKNNClassifier(
            encoder=encoder, attention=attention, n_neighbors=8, random_state=0
        ).fit(X, y)
        embeddings[joint] = clf.embed(X)
        assert clf.score(X, y) > 0.6
    assert not np.allclose(embeddings[False], embeddings[True])


def test_attention_goes_on_from_what_was_trained_with_the_encoder():
    X, y = rows_of(200)
    attention = LearnedAttention(
        n_heads=2, terms=TERMS, joint=True, training=TrainConfig(epochs=1, learning_rate=1e-12)
    )
    clf = AttnKNNClassifier(
        encoder=small_table(), attention=attention, n_neighbors=8, random_state=0
    ).fit(X, y)
    bends = clf.attention_.module_.raw_bends
    assert not torch.allclose(bends, torch.full_like(bends, -4.0), atol=1e-4)


def test_auto_keeps_the_way_with_the_lower_loss_of_held_out_rows():
    X, y = rows_of(200)
    settings = {"n_heads": 2, "training": TrainConfig(epochs=1)}
    losses, reports = {}, {}
    for joint in (False, True, "auto"):
        clf = AttnKNNClassifier(
            encoder=small_table(),
            attention=LearnedAttention(**settings, joint=joint),
            n_neighbors=8,
            random_state=0,
        ).fit(X, y)
        losses[joint], reports[joint] = clf.fit_report_.log_loss, clf.fit_report_.reason
    assert losses["auto"] == min(losses.values())
    best = "jointly" if losses[True] < losses[False] else "in stages"
    assert f"trained {best}: log-loss of held-out rows is" in reports["auto"]
    assert f"{losses[False]:.4f} in stages and {losses[True]:.4f} jointly" in reports["auto"]


def test_joint_needs_an_encoder_that_learns():
    X, y = rows_of(40)
    with pytest.raises(InvalidSettingError, match="'image' or 'learned-tabular', got 'identity'"):
        AttnKNNClassifier(encoder="identity", attention=LearnedAttention(joint=True)).fit(X, y)
    with pytest.raises(InvalidSettingError, match="`joint` must be one of True, False, 'auto'"):
        AttnKNNClassifier(attention=LearnedAttention(joint="both")).fit(X, y)
    quick = LearnedAttention(joint="auto", training=TrainConfig(epochs=1))
    AttnKNNClassifier(encoder="identity", attention=quick, n_neighbors=4).fit(X, y)


IMAGES, CODES = shapes(160)


def image_encoder(**changes):
    training = ImageTraining.of(
        **{"epochs": 4, "batch_size": 32, "learning_rate": 0.05, "device": "cpu", **changes}
    )
    return ImageEncoder(
        widths=(8, 16, 16), training=training, inference=ImageInference(device="cpu")
    )


@pytest.mark.parametrize("bank", [False, True])
def test_an_image_encoder_is_trained_through_the_attention(bank):
    attention = LearnedAttention(n_heads=2, joint=True, training=TrainConfig(epochs=1))
    clf = AttnKNNClassifier(
        encoder=image_encoder(bank=bank, k_train=8, queue_size=64, head_weight=0.0),
        attention=attention,
        n_neighbors=8,
        random_state=0,
    ).fit(IMAGES, CODES)
    losses = clf.encoder_training_.validation_losses
    assert losses[-1] < losses[0]
    assert clf.score(IMAGES, CODES) > 0.5


@pytest.mark.parametrize("refresh_steps", [None, 1, 3])
def test_the_bank_is_encoded_again_as_often_as_asked(refresh_steps, monkeypatch):
    sizes, embeddings_of = [], ImageObjective.embeddings_of

    def counted(objective, rows, network=None):
        sizes.append(len(rows))
        return embeddings_of(objective, rows, network)

    monkeypatch.setattr(ImageObjective, "embeddings_of", counted)
    encoder = image_encoder(epochs=2, bank=True, refresh_steps=refresh_steps, validation_entries=7)
    AttnKNNClassifier(encoder=encoder, attention="distance", random_state=0).fit(IMAGES, CODES)
    n_trained = 144
    n_steps = 2 * -(-n_trained // 32)
    expected = 2 if refresh_steps is None else -(-n_steps // refresh_steps)
    assert sizes.count(n_trained) == expected


def test_a_step_replaces_the_embeddings_of_its_batch(monkeypatch):
    seen, replace = [], Bank.replace

    def watched(bank, places, embeddings):
        before = bank.embeddings.clone()
        replace(bank, places, embeddings)
        changed = (bank.embeddings != before).any(dim=1)
        seen.append((set(places.tolist()), set(torch.nonzero(changed)[:, 0].tolist())))
        assert torch.equal(bank.voters.embeddings[places], embeddings)

    monkeypatch.setattr(Bank, "replace", watched)
    encoder = image_encoder(epochs=1, bank=True)
    AttnKNNClassifier(encoder=encoder, attention="distance", random_state=0).fit(IMAGES, CODES)
    assert len(seen) == 5
    assert all(places == changed for places, changed in seen)


def test_a_momentum_encoder_follows_slowly():
    trained = torch.nn.Linear(2, 2)
    momentum = MomentumEncoder(trained, decay=0.9)
    before = trained.weight.detach().clone()
    with torch.no_grad():
        trained.weight += 1.0
    momentum.follow(trained)
    torch.testing.assert_close(momentum.network.weight, before + 0.1)
    assert not momentum.network.weight.requires_grad


def test_refresh_steps_need_a_bank():
    with pytest.raises(InvalidSettingError, match="needs `bank=True`"):
        image_encoder(refresh_steps=5)


@pytest.mark.parametrize("kind", ["table", "image"])
def test_terms_of_the_attention_count_in_joint_training(kind):
    X, y = rows_of(200) if kind == "table" else (IMAGES, CODES)
    losses = []
    for weight in (0.0, 5.0):
        terms = LossTerms(calibration_weight=weight)
        attention = LearnedAttention(joint=True, loss=terms, training=TrainConfig(epochs=1))
        encoder = small_table() if kind == "table" else image_encoder(epochs=1)
        clf = AttnKNNClassifier(encoder=encoder, attention=attention, n_neighbors=8, random_state=0)
        losses.append(clf.fit(X, y).encoder_training_.train_losses[0])
    assert losses[1] > losses[0] + 0.1
