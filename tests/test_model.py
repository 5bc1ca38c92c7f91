"""What must always hold of an answer, whatever the data: weights, shares, evidence, edits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Table, blobs, swap, tables

from attnknn import (
    AdaptiveAttention,
    AttnKNNClassifier,
    DistanceAttention,
    KEnsembleAttention,
    LearnedAttention,
    UniformAttention,
)
from attnknn.attention.base import squared_distances
from attnknn.memory import NumpyMemory, make_entries
from attnknn.training import TrainConfig

SCALARS = {
    "uniform": UniformAttention(),
    "uniform with a prior": UniformAttention(prior_weight=0.2),
    "distance": DistanceAttention(),
    "distance by hand": DistanceAttention(temperature=0.5, prior_score=-2.0),
    "k-ensemble": KEnsembleAttention(weighting="fitted"),
    "adaptive": AdaptiveAttention(rule="learned"),
    "adaptive by confidence": AdaptiveAttention(by="confidence"),
}
METRICS = ["euclidean", "inner_product"]  # cosine refuses rows of zeros


def fitted(table: Table, name: str, **settings) -> AttnKNNClassifier:
    settings = {"n_neighbors": 8, "random_state": 0} | settings
    clf = AttnKNNClassifier(attention=SCALARS[name], **settings)
    return clf.fit(table.X, table.y, sample_weight=table.sample_weight)


everyone = pytest.mark.parametrize("name", SCALARS)


@everyone
@given(table=tables(), metric=st.sampled_from(METRICS))
def test_weights_and_probabilities_sum_to_one(name, table, metric):
    clf = fitted(table, name, metric=metric)
    probabilities = clf.predict_proba(table.queries)
    assert probabilities.dtype == np.float64
    assert np.allclose(probabilities.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert (probabilities >= 0).all()
    for evidence in clf.explain(table.queries):
        assert evidence.weights.sum() + evidence.prior_weight == pytest.approx(1, abs=1e-12)
        assert (evidence.weights >= 0).all()


@pytest.mark.parametrize("name", sorted(set(SCALARS) - {"uniform"}))
@given(table=tables(), noise=st.sampled_from(["auto", "symmetric", None]))
def test_no_class_is_impossible_where_the_prior_votes(name, table, noise):
    probabilities = fitted(table, name, label_noise=noise).predict_proba(table.queries)
    assert (probabilities > 0).all()


@everyone
@given(table=tables())
def test_what_explain_shows_adds_up_to_the_answer_and_the_map_keeps_the_winner(name, table):
    clf = fitted(table, name)
    probabilities = clf.predict_proba(table.queries)
    labels = clf.predict(table.queries)
    for row, evidence in enumerate(clf.explain(table.queries)):
        shares = evidence.prior_weight * evidence.prior
        for label, weight in zip(evidence.labels, evidence.weights, strict=True):
            shares[clf.classes_ == label] += weight
        assert np.allclose(shares, evidence.shares, rtol=0, atol=1e-12)
        powers = evidence.shares**evidence.exponent
        assert np.allclose(powers / powers.sum(), evidence.probabilities, rtol=0, atol=1e-12)
        assert evidence.probabilities.tobytes() == probabilities[row].tobytes()
        assert evidence.label == labels[row]
        winner = evidence.shares.argmax()
        assert evidence.probabilities[winner] == evidence.probabilities.max()


@everyone
@given(table=tables(), seed=st.integers(0, 100))
def test_the_order_of_the_entries_does_not_matter(name, table, seed):
    order = np.random.default_rng(seed).permutation(len(table.y))
    settings = {"encoder": "identity", "attention": SCALARS[name], "random_state": 0}
    plain = AttnKNNClassifier(8, **settings)
    plain.fit(table.X, table.y, sample_weight=table.sample_weight, ids=np.arange(len(order)))
    mixed = AttnKNNClassifier(8, **settings, calibration=None)
    mixed.fit(table.X[order], table.y[order], sample_weight=table.sample_weight[order], ids=order)
    # What is fitted goes through sums in another order, and so may round otherwise: it is shared.
    parts = {n: getattr(plain.model_, n) for n in ("attention", "calibration", "n_neighbors")}
    swap(mixed, **parts)
    assert np.allclose(
        plain.predict_proba(table.queries), mixed.predict_proba(table.queries), atol=1e-12
    )
    for one, two in zip(plain.explain(table.queries), mixed.explain(table.queries), strict=True):
        assert sorted(one.ids.tolist()) == sorted(two.ids.tolist())


@everyone
@given(table=tables(least_rows=4), data=st.data())
def test_add_then_forget_is_as_never(name, table, data):
    n_first = data.draw(st.integers(2, len(table.y) - 1))
    first = Table(
        table.X[:n_first], table.y[:n_first], table.queries, table.sample_weight[:n_first]
    )
    clf = fitted(first, name)
    before = clf.predict_proba(table.queries)
    clf.add(table.X[n_first:], table.y[n_first:], sample_weight=table.sample_weight[n_first:])
    clf.forget(np.arange(n_first, len(table.y)))
    after = clf.predict_proba(table.queries)
    assert after[:, : before.shape[1]].shape == before.shape
    if after.shape == before.shape:  # else the new classes stay, with half an example each
        assert after.tobytes() == before.tobytes()


@pytest.mark.parametrize("name", ["uniform with a prior", "distance by hand"])
@given(table=tables(least_rows=3))
def test_forgetting_equals_never_having_been_added(name, table):
    gone = np.arange(len(table.y)) % 3 == 2
    whole = fitted(table, name, calibration=None)
    whole.forget(np.flatnonzero(gone))
    part = AttnKNNClassifier(8, attention=SCALARS[name], calibration=None)
    # Classes that only the forgotten rows had stay known.
    part.partial_fit(table.X[~gone], table.y[~gone], classes=whole.classes_)
    swap(part, n_neighbors=whole.n_neighbors_)
    part.memory_.entries.sample_weight[:] = table.sample_weight[~gone]
    assert np.allclose(
        whole.predict_proba(table.queries), part.predict_proba(table.queries), atol=1e-6
    )


@everyone
@given(table=tables(least_rows=3))
def test_relabel_everything_to_one_class_and_that_class_wins(name, table):
    clf = fitted(table, name)
    clf.relabel(np.arange(len(table.y)), int(table.y[0]))
    assert (clf.predict(table.queries) == table.y[0]).all()


@given(table=tables(least_rows=3), k=st.integers(1, 40), grouped=st.booleans())
def test_a_row_is_never_its_own_neighbor_leave_one_out_nor_is_its_group(table, k, grouped):
    groups = np.arange(len(table.y)) // 2 if grouped else None
    clf = AttnKNNClassifier(k, attention="uniform").fit(table.X, table.y, groups=groups)
    found = clf.model_.leave_one_out().batch.neighbors
    own = np.arange(len(table.y))[:, None]
    kin = own // 2 if grouped else own
    theirs = found.positions // 2 if grouped else found.positions
    assert not ((theirs == kin) & found.mask).any()


@given(table=tables(ties=False))
def test_sample_weight_two_is_two_copies_in_the_same_place(table):
    made = DistanceAttention(1.0, -3.0)
    n = len(table.y)
    heavy = AttnKNNClassifier(n, encoder="identity", attention=made, calibration=None)
    heavy.fit(table.X, table.y, sample_weight=np.r_[2.0, np.ones(n - 1)])
    twice = AttnKNNClassifier(n + 1, encoder="identity", attention=made, calibration=None)
    twice.fit(np.vstack([table.X, table.X[:1]]), np.append(table.y, table.y[0]))
    for one, two in zip(heavy.explain(table.queries), twice.explain(table.queries), strict=True):
        say = two.weights[np.isin(two.ids, [0, n])].sum()
        assert one.weights[one.ids == 0].sum() == pytest.approx(say, abs=1e-6)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "inner_product"])
def test_learned_attention_has_the_same_properties(metric):
    X, y = blobs(80)
    attention = LearnedAttention(
        n_heads=2,
        terms=("distance_bias", "support", "prototypes", "query_prior"),
        training=TrainConfig(epochs=1),
    )
    clf = AttnKNNClassifier(8, attention=attention, metric=metric, random_state=0).fit(X, y)
    probabilities = clf.predict_proba(X)
    assert np.allclose(probabilities.sum(axis=1), 1, rtol=0, atol=1e-12)
    assert (probabilities > 0).all()
    order = np.random.default_rng(0).permutation(80)
    mixed = AttnKNNClassifier(8, attention=attention, metric=metric, random_state=0)
    mixed.fit(X[order], y[order], ids=order)
    parts = {
        name: getattr(clf.model_, name) for name in ("attention", "calibration", "n_neighbors")
    }
    swap(mixed, **parts)
    assert np.allclose(mixed.predict_proba(X), probabilities, atol=1e-5)
    for evidence in clf.explain(X[:9]):
        shares = evidence.prior_weight * evidence.prior
        for label, weight in zip(evidence.labels, evidence.weights, strict=True):
            shares[clf.classes_ == label] += weight
        assert np.allclose(shares, evidence.shares, rtol=0, atol=1e-12)


def test_many_queries_are_answered_as_few_are(monkeypatch):
    X, y = blobs(50)
    clf = AttnKNNClassifier(8, attention="distance", memory="numpy").fit(X, y)
    whole = clf.predict_proba(X)
    monkeypatch.setattr("attnknn.model.ROWS_AT_ONCE", 7)
    assert np.allclose(clf.predict_proba(X), whole, atol=1e-12)
    assert np.allclose(clf.leave_one_out_proba().sum(axis=1), 1)
    assert len(clf.explain(X)) == 50


def test_the_default_answers_one_row_as_many():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(300, 5)), columns=list("uvwxy"))
    table["kind"], table["size"] = rng.choice(list("abc"), 300), rng.integers(9, size=300)
    y = (table["u"] + table["v"] * table["w"] + (table["kind"] == "a") > 0.3).astype(int)
    clf = AttnKNNClassifier(random_state=0).fit(table[:250], y[:250])
    assert len(clf.attention_.heads_) > 2
    many = clf.predict_proba(table[250:])
    for n_rows in (1, 2):
        parts = [clf.predict_proba(table[i : i + n_rows]) for i in range(250, 300, n_rows)]
        np.testing.assert_allclose(np.concatenate(parts), many, rtol=0, atol=1e-12)


def test_squared_distances_of_unit_vectors_are_twice_the_cosine_distance(rng):
    unit = rng.normal(size=(10, 4))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    memory = NumpyMemory().remember(make_entries(unit, np.zeros(10)), "cosine")
    found = memory.search(unit[:3], 5)
    direct = np.square(unit[:3, None] - unit[found.positions]).sum(axis=2)
    assert np.allclose(squared_distances(found.distances, "cosine"), direct, atol=1e-6)
