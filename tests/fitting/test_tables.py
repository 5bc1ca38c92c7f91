"""Training a table encoder through the vote: it learns, honestly, and the same way each time."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch

from attnknn import AttnKNNClassifier
from attnknn.encoders import LearnedTableEncoder
from attnknn.encoders.learned_table import NETWORKS, TableLayers
from attnknn.errors import InvalidInputError
from attnknn.fitting import tables
from attnknn.fitting.encoders import train_encoder
from attnknn.fitting.tables import TableObjective, TrainingData, train_table
from attnknn.training import LossTerms, TrainConfig
from attnknn.vote import class_prior, vote_in_torch


def small(**settings: object) -> LearnedTableEncoder:
    chosen: dict[str, object] = {
        "embed_dim": 8,
        "width": 32,
        "n_candidates": 64,
        "network": "waves",
    }
    names = {field.name for field in fields(TrainConfig)}
    training = {name: settings.pop(name) for name in names & set(settings)}
    config = TrainConfig(**{"epochs": 6, "batch_size": 32, **training})
    layers = {
        name: settings.pop(name) for name in ("n_blocks", "column_dropout") if name in settings
    }
    layers = TableLayers(**layers) if layers else None
    return LearnedTableEncoder(**{**chosen, **settings}, layers=layers, training=config)


def spiral(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two columns of which the second means nothing, and labels that change along the first."""
    generator = np.random.default_rng(seed)
    rows = generator.uniform(-2, 2, size=(n, 6))
    return rows, (np.floor(2 * rows[:, 0]) % 2).astype(int)


def trained(X, y, encoder, groups=None, seed=0):
    groups = np.full(len(y), -1) if groups is None else groups
    return train_encoder(encoder, X, y, n_classes=2, groups=groups, random_state=seed)


def accuracy(encoder) -> float:
    held_out, own = spiral(seed=1)
    clf = AttnKNNClassifier(encoder=encoder, attention="distance", random_state=0)
    return clf.fit(*spiral()).score(held_out, own)


@pytest.fixture(scope="module")
def accuracy_untrained() -> float:
    return accuracy("tabular")


@pytest.mark.parametrize("candidates", ["sampled", "nearest"])
def test_it_finds_the_column_that_matters(candidates, accuracy_untrained):
    encoder = small(epochs=15, candidates=candidates)
    assert accuracy(encoder) > accuracy_untrained + 0.1


def test_the_network_is_trained_that_held_out_rows_like_best_in_trials():
    X, y = spiral(200)
    losses, kept = {}, {}
    for network, epochs in (*((name, 3) for name in NETWORKS), ("auto", 15)):
        encoder = small(network=network, epochs=epochs).fit(X)
        outcome = train_table(
            encoder,
            encoder.inputs(X),
            y,
            n_classes=2,
            groups=np.full(200, -1),
            is_trained_on=np.arange(200) % 5 > 0,
            random_state=0,
        )
        losses[network], kept[network] = min(outcome.validation_losses), encoder.network_
    assert kept["auto"] == min(NETWORKS, key=losses.__getitem__)
    assert losses["auto"] < losses[kept["auto"]]  # trained longer than its trial


def test_a_trial_is_kept_that_is_better_than_the_long_training(monkeypatch):
    X, y = spiral(200)
    modules, trials, train_network = [], {}, tables._train_network

    def worse_when_long(encoder, *arguments, share=1.0, joint=None):
        result = train_network(encoder, *arguments, share=share, joint=joint)
        if share == 1.0:
            return replace(result, validation_losses=[9.0] * len(result.validation_losses))
        modules.append(encoder.module_)
        trials[encoder.network_] = result
        return result

    monkeypatch.setattr(tables, "_train_network", worse_when_long)
    encoder = small(network="auto", epochs=3)
    result = trained(X, y, encoder).training
    best = min(trials, key=lambda name: min(trials[name].validation_losses))
    assert encoder.network_ == best
    assert encoder.module_ is modules[list(NETWORKS).index(best)]
    assert result == trials[best]


def test_random_labels_are_not_learned():
    X, _ = spiral()
    y = np.random.default_rng(3).integers(0, 2, len(X))
    classifier = AttnKNNClassifier(encoder=small(), random_state=0).fit(X, y)
    own = classifier.leave_one_out_proba().argmax(axis=1)
    assert abs((own == y)[classifier.held_out_].mean() - 0.5) < 0.2
    assert classifier.fit_report_.log_loss > 0.65


def test_the_same_seed_gives_the_same_embeddings_and_another_seed_others():
    X, y = spiral(120)
    first, second = trained(X, y, small(n_blocks=1)), trained(X, y, small(n_blocks=1))
    assert np.array_equal(first.embeddings, second.embeddings)
    assert not np.array_equal(first.embeddings, trained(X, y, small(n_blocks=1), seed=1).embeddings)


def test_groups_stay_whole_and_held_out_rows_are_not_trained_on():
    X, y = spiral(90)
    groups = np.arange(90) // 3
    held_out = trained(X, y, small(), groups).held_out
    assert 0 < held_out.sum() < 45
    assert all(len(set(held_out[groups == group])) == 1 for group in range(30))


def objective(settings: LearnedTableEncoder, groups: np.ndarray) -> TableObjective:
    X, y = spiral(len(groups))
    settings.fit(X)
    data = TrainingData(settings.inputs(X), y, groups, len(groups) - 5, 2)
    return TableObjective(settings, data, torch.Generator().manual_seed(0))


def prior_of(made: TableObjective, rows: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(class_prior(made.counts, made.codes[rows].numpy())).float()


def test_no_row_votes_for_itself_or_its_group():
    groups = np.array([-1, -1, 4, 4, 4, 6, 6, -1, -1, -1])
    made = objective(small(), groups)
    may_vote = made._may_vote(torch.arange(5), torch.tensor([0, 1, 2, 3, 0]))
    assert may_vote.int().tolist() == [
        [0, 1, 1, 1, 0],
        [1, 0, 1, 1, 1],
        [1, 1, 0, 0, 1],
        [1, 1, 0, 0, 1],
        [1, 1, 0, 0, 1],
    ]


def test_the_loss_is_the_vote_written_out(monkeypatch):
    made = objective(small(n_candidates=0, column_dropout=0.0), np.full(20, -1))
    rows = torch.arange(15)
    made.net.eval()
    embedded = made.net(made.inputs[rows])
    total = 0.0
    for i in range(15):
        others = [j for j in range(15) if j != i]
        scores = [-(embedded[i] - embedded[j]).square().sum() * 4.0 for j in others]
        weights = torch.softmax(torch.stack([*scores, made.prior_score]), dim=0)[None]
        prior = prior_of(made, rows[i : i + 1])
        labels = made.codes[others][None]
        shares = vote_in_torch(labels, weights[:, :-1], weights[:, -1], prior)[0]
        total -= shares[made.codes[i]].log()
    monkeypatch.setattr(made, "train", lambda: None)  # the norms stand still
    assert made.loss(rows).item() == pytest.approx(total.item() / 15, rel=1e-4)


def test_smoothing_spreads_a_share_of_each_label():
    losses, rows = [], torch.arange(15)
    for smoothing in (0.0, 0.5):
        made = objective(
            small(n_candidates=0, column_dropout=0.0, label_smoothing=smoothing), np.full(20, -1)
        )
        losses.append(made.loss(rows).item())
        logs = made._vote_of_sample(rows, prior_of(made, rows))[1].log()
    assert losses[1] == pytest.approx(0.5 * losses[0] - 0.5 * logs.mean().item(), rel=1e-4)


SELECTIVE = LossTerms(selective_weight=1.0)
LOSS = {
    "entropy_weight": (None, LossTerms(entropy_weight=0.5)),
    "calibration_weight": (None, LossTerms(calibration_weight=2.0)),
    "selective_weight": (None, SELECTIVE),
    "selective_coverage": (SELECTIVE, replace(SELECTIVE, selective_coverage=0.3)),
}


@pytest.mark.parametrize("term", LOSS)
def test_every_term_of_the_loss_moves_what_is_learned(term):
    gradients = []
    for terms in LOSS[term]:
        made = objective(small(n_candidates=0, column_dropout=0.0, loss=terms), np.full(20, -1))
        made.loss(torch.arange(15)).backward()
        gradients.append(made.log_sharpness.grad.item())
    assert gradients[0] != pytest.approx(gradients[1], rel=1e-3)


def test_no_term_of_the_loss_is_forgotten_here():
    assert set(LOSS) == {field.name for field in fields(LossTerms)}


def test_candidates_that_are_all_the_nearest_give_the_same_vote():
    made = objective(small(candidates="nearest", n_candidates=14), np.full(20, -1))
    rows = torch.arange(15)
    made.refresh(0)
    made.net.eval()
    prior = prior_of(made, rows)
    by_nearest = made._vote_of_nearest(rows, prior)[1]
    embedded = made.net(made.inputs[rows])
    by_all = made._vote(embedded, rows, embedded, rows, prior)[1]
    assert torch.allclose(by_nearest, by_all, atol=1e-5)


def test_scalars_are_fitted_on_held_out_rows_and_a_refit_keeps_them_held_out():
    X, y = spiral()
    classifier = AttnKNNClassifier(encoder=small(), random_state=0, attention="distance").fit(X, y)
    before = classifier.held_out_.copy()
    assert classifier.fit_report_.n_rows == before.sum() < len(y)
    classifier.refit()
    assert np.array_equal(classifier.held_out_, before)
    assert classifier.fit_report_.n_rows == before.sum()


def test_learned_attention_is_trained_on_the_rows_the_encoder_saw():
    X, y = spiral()
    classifier = AttnKNNClassifier(32, encoder=small(), attention="learned", random_state=0)
    classifier.fit(X, y)
    assert classifier.fit_report_.n_rows == classifier.held_out_.sum() < len(y)


def test_too_few_rows_are_refused_by_name():
    with pytest.raises(InvalidInputError, match="at least 4 rows"):
        AttnKNNClassifier(encoder=small()).fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    with pytest.raises(InvalidInputError, match="3 labels"):
        AttnKNNClassifier(encoder=small()).fit([[0.0], [1.0], [2.0], [3.0]], [0, 1, 1])


def test_one_class_only_is_remembered_as_such():
    X, _ = spiral(30)
    classifier = AttnKNNClassifier(encoder=small(epochs=1), random_state=0).fit(X, ["a"] * 30)
    assert classifier.predict_proba(X[:2]).tolist() == [[1.0], [1.0]]


def test_a_stop_by_hand_in_a_trial_ends_the_training(monkeypatch):
    from attnknn.training import loop

    X, y = spiral(200)
    n_steps = 0
    step = loop._step

    def interrupted(*arguments):
        nonlocal n_steps
        n_steps += 1
        if n_steps > 7:  # in the second trial: a trial is one epoch of five steps
            raise KeyboardInterrupt
        return step(*arguments)

    monkeypatch.setattr(loop, "_step", interrupted)
    encoder = small(network="auto", epochs=4).fit(X)
    with pytest.warns(UserWarning, match="interrupted"):
        AttnKNNClassifier(encoder=encoder, attention="distance", random_state=0).fit(X, y)
    assert n_steps == 8
