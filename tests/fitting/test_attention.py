"""Learned attention: honest training, no dead parts, and one forward pass for training and use."""

from __future__ import annotations

import gc
import weakref
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
import torch
from strategies import batch, blobs

from attnknn import AttnKNNClassifier, LearnedAttention
from attnknn.attention import DistanceAttention
from attnknn.attention.learned import LIMITS, TERMS, features_of, first_support, support_of
from attnknn.attention.numpy_scorer import numpy_scorer
from attnknn.attention.scores import (
    NeighborScores,
    Shape,
    learned_distances,
)
from attnknn.encoders.image import ImageLoss
from attnknn.errors import InvalidSettingError, NotFittedYetError
from attnknn.fitting.attention import main_axes
from attnknn.memory.vectors import ArrayVectors
from attnknn.training import LossTerms, TrainConfig, WarmRestarts

ALL_ON = Shape(
    dim=3,
    n_classes=3,
    n_heads=2,
    head_dim=2,
    temperature_bounds=(0.01, 2.0),
    distance_bias=True,
    support=True,
    trust=True,
    prototypes=True,
    self_attention=True,
    query_prior=True,
)


def module(shape=ALL_ON, seed=0):
    """A module away from its start, where every part is in play."""
    generator = torch.Generator().manual_seed(seed)
    made = NeighborScores(shape)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(0.5 * torch.randn(parameter.shape, generator=generator) + 0.1)
    return made


def forward(made, seen):
    features = features_of(seen, DistanceAttention())
    entries = made.project(torch.from_numpy(seen.vectors.all()))
    places = torch.from_numpy(seen.neighbors.positions)
    queries = made.project(features.queries)
    learned = learned_distances(made, queries, entries, places, features.mask)
    return made(learned, features)


# ---- fast path and plain path


@pytest.mark.parametrize("n_heads", [1, 3])
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_blocks_give_what_the_plain_formula_gives_forward_and_backward(n_heads, block, monkeypatch):
    monkeypatch.setattr("attnknn.attention.scores.BLOCK", block)
    shape = Shape(**{**vars(ALL_ON), "self_attention": False, "n_heads": n_heads})
    made, seen = module(shape).double(), batch()
    entries = torch.from_numpy(seen.vectors.all()).double()
    queries = torch.from_numpy(seen.queries).double()
    places = torch.from_numpy(seen.neighbors.positions)
    mask = torch.from_numpy(seen.neighbors.mask)
    pull = torch.randn(len(queries), n_heads, 6, dtype=torch.float64)
    results = []
    for is_plain in (True, False):
        made.zero_grad()
        q, e = made.project(queries), made.project(entries)
        if is_plain:
            learned = (q[:, None] - e[places]).square().sum(dim=3).transpose(1, 2)
        else:
            learned = learned_distances(made, q, e, places, mask)
        (learned * pull).sum().backward()
        results.append((learned.detach(), made.projection.grad.clone()))
    assert torch.allclose(results[0][0], results[1][0], atol=1e-10)
    assert torch.allclose(results[0][1], results[1][1], atol=1e-10)


def mixed_plainly(made, neighbors, mask):
    """Each neighbor moved towards the mean of those near it, by all differences."""
    between = (neighbors[:, :, None] - neighbors[:, None]).square().sum(-1)  # (B, K, K, H)
    spread = made.unit * torch.nn.functional.softplus(made.raw_mixing_temperature)
    closeness = (-between / spread).masked_fill(~mask[:, None, :, None], -torch.inf)
    mean = torch.einsum("bijh,bjhe->bihe", closeness.softmax(dim=2), neighbors)
    return neighbors + made.mixing[:, None] * (mean - neighbors)


@pytest.mark.parametrize(("dtype", "far"), [(torch.float64, 1e3), (torch.float32, 0.0)])
def test_neighbors_are_mixed_as_by_their_differences_forward_and_backward(dtype, far):
    made = module().to(dtype)
    generator = torch.Generator().manual_seed(1)
    neighbors = torch.randn(4, 6, 2, 5, generator=generator, dtype=dtype) + far
    neighbors[1, 3] = neighbors[1, 2]  # copies have the distance zero
    mask = torch.ones(4, 6, dtype=torch.bool)
    mask[2, 4:] = False
    pull = torch.randn(neighbors.shape, generator=generator, dtype=dtype)
    results = []
    for mix in (made.mix, lambda *given: mixed_plainly(made, *given)):
        made.zero_grad()
        asked = neighbors.clone().requires_grad_()
        moved = mix(asked, mask)
        (moved * pull).sum().backward()
        results.append((moved.detach(), asked.grad, made.raw_mixing_temperature.grad.clone()))
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_scores_in_training_are_the_scores_of_predict():
    from attnknn.fitting.attention import AttentionObjective
    from attnknn.fitting.objective import log_losses

    X, y = blobs(80)
    attention = LearnedAttention(
        n_heads=2,
        terms=("distance_bias", "support", "prototypes"),
        training=TrainConfig(epochs=2, batch_size=32),
    )
    clf = AttnKNNClassifier(8, attention=attention, calibration="scores", random_state=0).fit(X, y)
    left_out = clf.model_.leave_one_out()
    trained = clf.attention_.copy()
    trained.temperature_, trained.prior_score_ = 1.0, 0.0
    objective = AttentionObjective(trained, left_out, clf.calibration_, torch.Generator())
    rows = torch.arange(80)
    with torch.no_grad():
        in_training = objective._weights(rows, objective._project(rows), 0.0).numpy()
    at_predict = trained.weigh(left_out.batch)
    assert np.allclose(in_training[:, :-1], at_predict.neighbors, atol=1e-5)
    assert np.allclose(in_training[:, -1], at_predict.prior, atol=1e-5)
    with torch.no_grad():
        logs = objective._log_probabilities(torch.from_numpy(in_training), rows)
        losses = log_losses(logs, objective.own, objective._noise()).numpy()
    from attnknn.vote import vote

    shares = vote(left_out.batch.neighbors.labels, at_predict, left_out.prior)
    assert np.allclose(losses, clf.calibration_.losses(shares, left_out.own), atol=1e-3)


@pytest.mark.parametrize("terms", [("support", "prototypes"), TERMS])
def test_many_queries_are_scored_as_few_are(terms, monkeypatch):
    X, y = blobs(60)
    attention = LearnedAttention(terms=terms, training=TrainConfig(epochs=1))
    clf = AttnKNNClassifier(8, attention=attention, random_state=0).fit(X, y)
    seen = clf.model_.leave_one_out().batch
    few = clf.attention_.scores(seen).neighbors
    monkeypatch.setattr("attnknn.attention.learned.FEW", 0)
    whole = clf.attention_.scores(seen).neighbors
    monkeypatch.setattr("attnknn.attention.learned.BLOCK", 1)
    in_blocks = clf.attention_.scores(seen).neighbors
    assert np.allclose(few, whole, atol=1e-5)
    assert np.allclose(in_blocks, whole, atol=1e-5)


PARTS = ["distance_bias", "support", "trust", "prototypes", "query_prior"]


@pytest.mark.parametrize("n_queries", [1, 5])
@pytest.mark.parametrize("parts", [[], *([part] for part in PARTS), PARTS], ids=str)
def test_numpy_scores_a_few_as_torch_does(parts, n_queries):
    made = module(replace(ALL_ON, self_attention=False, **{p: p in parts for p in PARTS}))
    seen = batch(seed=2).rows(slice(n_queries))
    seen.queries[:1] = 0.0  # no direction at all
    support = first_support(seen, DistanceAttention())
    with torch.no_grad():
        entries = made.project(torch.from_numpy(seen.vectors.all())).numpy()
        neighbors, prior = forward(made, seen)
    few = numpy_scorer(made).scores(seen, support, entries, seen.neighbors.positions)
    assert few.neighbors.shape == neighbors.shape
    assert np.allclose(few.neighbors, neighbors.numpy(), rtol=1e-5, atol=1e-5)
    assert np.allclose(few.prior, prior.detach().numpy(), rtol=1e-5, atol=1e-5)


def test_one_query_is_answered_as_among_many(monkeypatch):
    X, y = blobs(80)
    clf = AttnKNNClassifier(
        8, attention=LearnedAttention(training=TrainConfig(epochs=1)), random_state=0
    ).fit(X, y)
    monkeypatch.setattr("attnknn.attention.learned.FEW", 8 * X.shape[1] + 1)  # of one query
    alone = np.concatenate([clf.predict_proba(row[None]) for row in X])
    assert np.allclose(alone, clf.predict_proba(X), atol=1e-6)


def test_arrays_of_a_module_end_with_it():
    made = module()
    before = numpy_scorer(made)
    assert numpy_scorer(made) is before
    order = np.arange(made.shape.n_classes)[::-1].copy()
    moved = numpy_scorer(made.reordered(order)).prototypes[0]
    assert np.array_equal(moved, before.prototypes[0][:, order])
    gone = weakref.ref(before)
    del made, before
    gc.collect()
    assert gone() is None


# ---- no dead parts


@pytest.mark.parametrize("name", [name for name, _ in module().named_parameters()])
def test_every_learnable_number_moves_the_weights(name):
    made, seen = module(), batch(seed=1)
    parameter = dict(made.named_parameters())[name]
    plain = [part.detach().clone() for part in forward(made, seen)]

    def weights(parts):
        scores = torch.cat([parts[0], parts[1][..., None]], dim=2)
        return torch.softmax(scores.double(), dim=2).mean(dim=1)

    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        parameter.add_(0.3 * torch.rand(parameter.shape, generator=generator))
        moved = forward(made, seen)
    assert (weights(plain) - weights(moved)).abs().max() > 1e-4


def test_every_learnable_number_gets_a_gradient():
    made, seen = module(), batch(seed=1)
    neighbors, prior = forward(made, seen)
    together = torch.softmax(torch.cat([neighbors, prior[..., None]], dim=2), dim=2)
    together.mean(dim=1)[:, 0].log().sum().backward()
    for name, parameter in made.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 1e-7, name


OPTIONS = {
    "n_heads": 2,
    "head_dim": 2,
    "temperature": 1.5,
    "temperature_bounds": (0.5, 0.6),
    "terms": ("prototypes",),
    "trust": False,
    "dropout": 0.0,
    "loss": LossTerms(entropy_weight=0.5),
    "holdout": 0.4,
    "max_rows": 60,
    "training": TrainConfig(epochs=1),
}
QUICK = TrainConfig(epochs=3, batch_size=64, learning_rate=0.02)
TRAINING = {
    "epochs": 1,
    "batch_size": 32,
    "learning_rate": 0.05,
    "weight_decay": 5.0,
    "optimizer": "sgd",
    "schedule": "linear",
    "warmup": 0.5,
    "patience": 1,
    "clip": 0.01,
    "label_smoothing": 0.3,
    "average": 0.9,
    "lookahead": 2,
}
LOSS = {"entropy_weight": -0.5, "calibration_weight": 1.0, "selective_weight": 1.0}


def test_the_test_of_options_knows_all_of_them():
    with_encoder = {"joint"}  # see test_joint.py
    assert set(OPTIONS) | with_encoder == set(LearnedAttention().get_params())
    checked = {"temperature_bounds", "terms", "trust", "loss", "training"}
    assert set(LIMITS) | checked == set(OPTIONS)
    assert set(TRAINING) == {field.name for field in fields(TrainConfig)}
    assert {*LOSS, "selective_coverage"} == {field.name for field in fields(LossTerms)}


@cache
def answers_of(**options):
    X, y = blobs(160, spread=1.0)
    attention = LearnedAttention(**{"training": QUICK} | options)
    return AttnKNNClassifier(8, attention=attention, random_state=0).fit(X, y).predict_proba(X)


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_moves_the_answer(option):
    assert np.abs(answers_of() - answers_of(**{option: OPTIONS[option]})).max() > 1e-5


@pytest.mark.parametrize("term", TERMS)
def test_every_term_moves_the_answer(term):
    usual = LearnedAttention().terms
    terms = tuple(t for t in usual if t != term) if term in usual else (*usual, term)
    assert np.abs(answers_of() - answers_of(terms=terms)).max() > 1e-5


@pytest.mark.parametrize("setting", [name for name in TRAINING if name != "patience"])
def test_every_setting_of_the_training_moves_the_answer(setting):
    training = replace(QUICK, **{setting: TRAINING[setting]})
    assert np.abs(answers_of() - answers_of(training=training)).max() > 1e-5


@pytest.mark.parametrize("term", LOSS)
def test_every_term_of_the_loss_moves_the_answer(term):
    terms = LossTerms(**{term: LOSS[term]})
    assert np.abs(answers_of() - answers_of(loss=terms)).max() > 1e-5


def test_the_coverage_of_the_selective_term_moves_the_answer():
    few, many = (answers_of(loss=LossTerms(0.0, 0.0, 1.0, share)) for share in (0.3, 0.9))
    assert np.abs(few - many).max() > 1e-5


@pytest.mark.parametrize("restarts", ["restarts", WarmRestarts(2), WarmRestarts(1, 1.5)])
def test_the_cycles_of_warm_restarts_move_the_answer(restarts):
    plain, moved = (replace(QUICK, schedule=s) for s in (WarmRestarts(1), restarts))
    assert np.abs(answers_of(training=plain) - answers_of(training=moved)).max() > 1e-5


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("n_heads", 0),
        ("n_heads", 1.5),
        ("n_heads", True),
        ("head_dim", 0),
        ("temperature", 0.0),
        ("temperature", "warm"),
        ("temperature_bounds", (2.0, 0.1)),
        ("temperature_bounds", (0.0, 1.0)),
        ("temperature_bounds", 1.0),
        ("terms", "support"),
        ("terms", ("support", "suport")),
        ("trust", "yes"),
        ("training", {"epochs": 1}),
        ("dropout", 1),
        ("dropout", -0.1),
        ("loss", {"entropy_weight": 0.1}),
        ("loss", ImageLoss()),
        ("holdout", 0.0),
        ("holdout", 1.5),
        ("max_rows", 1),
    ],
)
def test_options_out_of_range_are_refused_by_name(option, value):
    attention = LearnedAttention(**{option: value})
    with pytest.raises(InvalidSettingError, match=f"`{option}` must be"):
        AttnKNNClassifier(8, attention=attention).fit(*blobs(30))


# ---- honest training


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_heads": 2, "terms": ("distance_bias", "support", "prototypes", "query_prior")},
        {"terms": ("support", "prototypes", "self_attention")},
    ],
    ids=str,
)
def test_random_labels_cannot_be_learned(settings, rng):
    X, y = rng.normal(size=(400, 20)), rng.integers(0, 4, 400)
    attention = LearnedAttention(
        training=TrainConfig(epochs=4, batch_size=64, learning_rate=0.01), **settings
    )
    clf = AttnKNNClassifier(16, attention=attention, random_state=0).fit(X, y)
    is_right = clf.leave_one_out_proba().argmax(axis=1) == y
    # Chance is a quarter; three standard errors of 400 rows are 0.065, of 60 rows 0.17.
    assert is_right.mean() < 0.25 + 0.065
    assert is_right[clf.held_out_].mean() < 0.25 + 0.17
    test_y = rng.integers(0, 4, 400)
    assert (clf.predict(rng.normal(size=(400, 20))) == test_y).mean() < 0.25 + 0.065


def test_copies_of_a_row_do_not_tell_its_label(rng):
    once, labels = rng.normal(size=(120, 6)), rng.integers(0, 3, 120)
    group = np.repeat(np.arange(120), 3)
    X = once[group] + 0.01 * rng.normal(size=(360, 6))
    attention = LearnedAttention(
        trust=True, training=TrainConfig(epochs=6, batch_size=64, learning_rate=0.02)
    )
    clf = AttnKNNClassifier(16, attention=attention, random_state=0)
    clf.fit(X, labels[group], groups=group)
    is_right = clf.leave_one_out_proba().argmax(axis=1) == labels[group]
    # 120 independent rows: three standard errors are 0.13.
    assert is_right.mean() < 1 / 3 + 0.13


def test_the_start_of_training_does_not_see_the_labels_of_held_out_rows():
    from attnknn.fitting.attention import train_attention

    X, y = blobs(90)
    clf = AttnKNNClassifier(8, attention="distance", random_state=0).fit(X, y)
    left_out = clf.model_.leave_one_out()
    is_trained_on = np.arange(90) < 60
    states = []
    for moved in (0, 1):
        own = np.where(is_trained_on, left_out.own, (left_out.own + moved) % 3)
        lesson = type(left_out)(
            **{f.name: getattr(left_out, f.name) for f in fields(left_out)} | {"own": own}
        )
        attention = LearnedAttention(training=TrainConfig(epochs=1, learning_rate=1e-12))
        train_attention(
            attention,
            lesson,
            first_look=clf.attention_,
            noise=clf.calibration_,
            is_trained_on=is_trained_on,
            random_state=0,
        )
        states.append(attention.module_.prototypes.detach().numpy())
    assert np.allclose(states[0], states[1], atol=1e-6)


# ---- what the parts mean


def test_support_is_the_share_of_the_others_with_the_same_label(rng):
    labels, weights = rng.integers(0, 3, (5, 6)), rng.random((5, 6))
    found = support_of(labels, weights, 3)
    for row in range(5):
        for i in range(6):
            others = np.arange(6) != i
            same = others & (labels[row] == labels[row, i])
            assert found[row, i] == pytest.approx(
                weights[row, same].sum() / weights[row, others].sum()
            )


def test_temperatures_stay_inside_their_bounds():
    made = module()
    with torch.no_grad():
        for extreme in (-50.0, 50.0):
            made.raw_temperature.fill_(extreme)
            assert (made.temperatures >= 0.01 * 0.999).all()
            assert (made.temperatures <= 2.0 * 1.001).all()


def test_heads_start_on_both_sides_of_the_temperature_they_are_given():
    alone, three = (NeighborScores(replace(ALL_ON, n_heads=n)) for n in (1, 3))
    for made in (alone, three):
        made.start_at(0.2, -1.5)
        assert made.prior_score.tolist() == [-1.5] * made.shape.n_heads
    assert alone.temperatures.item() == pytest.approx(0.2, rel=1e-5)
    low, middle, high = three.temperatures.flatten().tolist()
    assert middle == pytest.approx(0.2, rel=1e-5)
    assert low < 0.99 * middle < high
    assert middle / low == pytest.approx(high / middle, rel=0.1)


def test_the_size_of_a_projection_does_nothing():
    made, seen = module(), batch()
    before = made.project(torch.from_numpy(seen.queries)).detach()
    with torch.no_grad():
        made.projection.mul_(7.0)
    assert torch.allclose(made.project(torch.from_numpy(seen.queries)), before, atol=1e-5)


def test_the_distance_bias_rises_from_zero():
    made = module()
    squared = torch.linspace(0, 9, 50)[None, None]
    bias = made._distance_bias(squared)[0]
    assert bias[:, 0].abs().max() < 1e-4
    assert (bias.diff(dim=1) >= 0).all()


def test_training_must_come_before_scores():
    with pytest.raises(NotFittedYetError):
        LearnedAttention().scores(batch())


def test_the_main_axes_of_wide_rows_are_those_of_their_covariance():
    rows = np.random.default_rng(0).normal(size=(30, 50)) * np.geomspace(1, 100, 50)
    axes = main_axes(ArrayVectors(rows.astype(np.float32)), 4).numpy()
    expected = np.linalg.eigh(np.cov(rows, rowvar=False))[1][:, ::-1][:, :4]
    np.testing.assert_allclose(np.abs(axes @ expected), np.eye(4), atol=1e-4)
