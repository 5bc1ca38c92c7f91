"""Attention that is trained over many small tasks, and votes in new ones without training."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest
import torch
from sklearn.base import clone

from attnknn import AttnKNNClassifier, MetaLearnedAttention, meta_train
from attnknn.attention.base import NeighborBatch
from attnknn.attention.meta_learned import MetaWeights, read_weights
from attnknn.errors import InvalidInputError, InvalidSettingError, ModelFolderError
from attnknn.fitting.meta_training import Episode, EpisodeVote
from attnknn.memory import NumpyMemory, make_entries
from attnknn.testing.attention import check_attention
from attnknn.training import TrainConfig

WIDTH = 6
QUICK = TrainConfig(epochs=3, learning_rate=0.03)


def rows_of(n_classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Classes differ in the first two columns; the others are louder and say nothing."""
    generator = np.random.default_rng(seed)
    centers = np.zeros((n_classes, WIDTH))
    centers[:, :2] = generator.normal(size=(n_classes, 2)) * 3
    labels = np.repeat(np.arange(n_classes), 20)
    noise = generator.normal(size=(len(labels), WIDTH)) * [0.3, 0.3, 3, 3, 3, 3]
    return centers[labels] + noise, labels


@cache
def trained() -> bytes:
    rows, labels = rows_of(20, seed=0)
    return pickle.dumps(meta_train(rows, labels, n_way=4, training=QUICK, random_state=0))


def attention() -> MetaLearnedAttention:
    return pickle.loads(trained())


def task(n_shot: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows of new classes: those that vote, and others."""
    rows, labels = rows_of(5, seed=7)
    votes = np.arange(len(rows)) % 20 < n_shot
    return rows[votes], labels[votes], rows[~votes], labels[~votes]


def few_shot(given, **settings) -> AttnKNNClassifier:
    return AttnKNNClassifier(
        encoder="identity", attention=given, calibration=None, label_noise=None, **settings
    )


def test_what_was_learned_helps_with_new_classes():
    X, y, new, truth = task()
    meta = few_shot(attention()).fit(X, y).score(new, truth)
    distance = few_shot("distance").fit(X, y).score(new, truth)
    assert meta > distance + 0.2


def test_one_row_of_each_class_is_enough():
    X, y, new, truth = task(n_shot=1)
    assert few_shot(attention()).fit(X, y).score(new, truth) > 0.5


def test_the_vote_is_that_of_the_training():
    weights = attention().meta_weights_
    X, y, new, truth = task()
    module = EpisodeVote(torch.from_numpy(weights.projection), 1.0)
    with torch.no_grad():
        module.log_temperature.fill_(np.log(weights.temperature))
        module.raw_mixing.fill_(np.log(weights.class_mixing / (1 - weights.class_mixing)))
        module.prior_score.fill_(weights.prior_score)
    both = torch.from_numpy(np.concatenate([X, new])).float()
    votes = torch.arange(len(X)).reshape(5, 5)
    asked = torch.arange(len(X), len(both)).reshape(5, -1)
    proba = few_shot(attention()).fit(X, y).predict_proba(new)
    loss = -np.log(proba[np.arange(len(truth)), truth]).mean()
    expected = module(both, Episode(votes, asked)).item()
    assert loss == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("mixing", [0.0, 0.4, 1.0])
def test_neighbors_move_toward_the_mean_of_their_class(mixing):
    memory = NumpyMemory().remember(make_entries([[0.0], [2.0], [10.0]], [0, 0, 1]))
    given = MetaLearnedAttention()
    given.meta_weights_ = MetaWeights(np.eye(1, dtype=np.float32), 2.0, mixing, -3.0)
    queries = memory.prepare([[1.0]])
    batch = NeighborBatch.of(queries, memory.search_prepared(queries, 3), memory)
    scores = given.scores(batch)
    expected = -np.array([(1 - mixing) ** 2, (1 - mixing) ** 2, 81.0]) / 2
    np.testing.assert_allclose(np.sort(scores.neighbors.ravel()), np.sort(expected), rtol=1e-6)
    assert scores.prior.tolist() == [[-3.0]]


@pytest.mark.parametrize("scalars", ["kept", "fitted"])
def test_meta_learned_attention_keeps_the_contract(scalars):
    rows, labels = rows_of(8, seed=0)
    small = meta_train(rows[:, :4], labels, n_way=3, training=QUICK, random_state=0)
    check_attention(small.set_params(scalars=scalars))


def test_kept_scalars_are_those_of_the_training_and_fitted_ones_are_not():
    rows, labels = rows_of(5, seed=3)
    kept = AttnKNNClassifier(encoder="identity", attention=attention()).fit(rows, labels)
    assert (kept.attention_.temperature_, kept.attention_.prior_score_) == (1.0, 0.0)
    other = attention().set_params(scalars="fitted")
    fitted = AttnKNNClassifier(encoder="identity", attention=other).fit(rows, labels)
    assert fitted.attention_.temperature_ != 1.0


def test_clones_files_and_model_folders_keep_the_weights(tmp_path):
    X, y, new, _ = task()
    given = attention()
    expected = few_shot(given).fit(X, y).predict_proba(new)
    given.save_weights(tmp_path / "meta.safetensors")
    from_file = MetaLearnedAttention(str(tmp_path / "meta.safetensors"))
    for other in (clone(given), from_file):
        np.testing.assert_array_equal(few_shot(other).fit(X, y).predict_proba(new), expected)
    clf = few_shot(from_file).fit(X, y)
    clf.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict_proba(new), expected)
    edited = loaded.add(new[:2], [7, 7]).forget([0]).predict_proba(new)
    np.testing.assert_array_equal(edited, clf.add(new[:2], [7, 7]).forget([0]).predict_proba(new))
    np.testing.assert_array_equal(loaded.refit().classes_, [0, 1, 2, 3, 4, 7])


def test_two_trainings_with_one_seed_are_equal():
    rows, labels = rows_of(8, seed=0)
    one, other = (meta_train(rows, labels, n_way=3, training=QUICK, random_state=1) for _ in "ab")
    np.testing.assert_array_equal(one.meta_weights_.projection, other.meta_weights_.projection)


def test_attention_without_weights_says_how_to_get_them():
    with pytest.raises(InvalidSettingError, match="meta_train"):
        few_shot("meta-learned").fit(*task()[:2])


def test_embeddings_of_another_size_are_refused():
    X, y, *_ = task()
    with pytest.raises(InvalidInputError, match="6 columns, got 4"):
        few_shot(attention()).fit(X[:, :4], y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_way": 1}, "n_way"),
        ({"n_shot": 0}, "n_shot"),
        ({"n_shot": ()}, "n_shot"),
        ({"validation": 1.0}, "validation"),
        ({"n_queries": 19}, "at least 4 classes with 24 rows"),
        ({"dim": 0}, "dim"),
    ],
)
def test_impossible_tasks_are_refused(settings, message):
    rows, labels = rows_of(6, seed=0)
    with pytest.raises((InvalidSettingError, InvalidInputError), match=message):
        meta_train(rows, labels, **settings)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "meta.safetensors"
    with pytest.raises(InvalidSettingError, match="save_weights"):
        read_weights(path)
    path.write_bytes(b"not weights")
    with pytest.raises(InvalidSettingError, match="save_weights"):
        read_weights(path)
    with pytest.raises(ModelFolderError, match="must hold a projection"):
        MetaWeights.from_arrays({"projection": np.eye(2, dtype=np.float32)})
    good = attention().meta_weights_.arrays()
    for change in ({"temperature": np.array(0.0)}, {"class_mixing": np.array(1.5)}):
        with pytest.raises(ModelFolderError, match="positive temperature"):
            MetaWeights.from_arrays({**good, **change})
    with pytest.raises(ModelFolderError, match="finite"):
        MetaWeights.from_arrays({**good, "projection": good["projection"] * np.nan})
