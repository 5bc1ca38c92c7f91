"""Numbers near the ends of float32 and float64: finite probabilities, or an error that says why."""

from __future__ import annotations

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.torch import load_file, save_file

from attnknn import AttnKNNClassifier, LearnedAttention, TableEncoder
from attnknn.cli import main
from attnknn.errors import AttnKNNError, InvalidInputError
from attnknn.memory.distances import unit_length
from attnknn.training import TrainConfig

from .samples import resign

N = 90
SCALES = [1e-300, 1e-46, 1e-38, 1e-30, 1e-20, 1e-10, 1e10, 1e18, 1e19, 1e30, 1e38, 1e300]
EXTREMES = [1e-300, 1e18, 1e19, 1e30, 3e38, 1e300, -1e300]
LEARNED = LearnedAttention(training=TrainConfig(epochs=1))


def rows(seed=0, n=N):
    return np.random.default_rng(seed).normal(size=(n, 3)) + 2.0 * (np.arange(n) % 3)[:, None]


def labels(n=N):
    return np.array(["ant", "bee", "cat"])[np.arange(n) % 3]


def fitted(X, attention="distance", **settings):
    settings = {"encoder": "identity", "attention": attention, "random_state": 0, **settings}
    return AttnKNNClassifier(8, **settings).fit(X, labels())


def attempt(call):
    """What a call returns, or what it says when it refuses."""
    try:
        return call(), ""
    except InvalidInputError as error:
        return None, str(error)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("attention", ["uniform", "power", "learned"])
def test_a_model_of_any_scale_is_refused_in_words_or_predicts_and_loads(attention, scale, tmp_path):
    X = rows() * scale
    clf, said = attempt(lambda: fitted(X, LEARNED if attention == "learned" else attention))
    if clf is None:
        assert "Scale the columns" in said
        return
    found = clf.predict_proba(X[:20])
    assert (clf.predict(X) == labels()).mean() > 0.6
    clf.save(tmp_path / "model")
    assert (AttnKNNClassifier.load(tmp_path / "model").predict_proba(X[:20]) == found).all()


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("settings", [{"encoder": TableEncoder()}, {"metric": "cosine"}], ids=str)
def test_tables_and_cosines_take_every_scale(settings, scale):
    """Tables are standardized in float64, and a direction has no size."""
    assert (fitted(rows() * scale, **settings).predict(rows() * scale) == labels()).mean() > 0.6


@pytest.mark.parametrize("scale", [1e-30, 1e20])
def test_auto_does_not_learn_where_float32_cannot_hold_the_distances(scale):
    clf = AttnKNNClassifier(8, encoder="identity", value_head=True, random_state=0)
    clf.fit(np.tile(rows(), (5, 1)) * scale, labels(5 * N))
    assert clf.fit_report_.attention == "distance"
    assert "typical distances" in clf.fit_report_.reason


@pytest.mark.parametrize("value_head", [False, True])
@pytest.mark.parametrize("attention", ["distance", "learned", "k-ensemble"])
def test_extreme_queries_get_finite_probabilities_or_a_named_error(attention, value_head):
    clf = fitted(rows(), LEARNED if attention == "learned" else attention, value_head=value_head)
    for value in EXTREMES:
        for query in ([value] * 3, [value, 0.0, 0.0], [value, -value, 1.0]):
            found, said = attempt(lambda query=query: clf.predict_proba([query]))
            assert found is None or np.isfinite(found).all()
            assert found is not None or "float32" in said


def test_rows_of_any_size_have_a_direction():
    for size in (1e-300, 1e-160, 1.0, 1e160, 1e300):
        assert unit_length(np.array([[3.0, 4.0]]) * size).ravel() == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("weight", [1e-308, 1e308])
def test_extreme_sample_weights_do_not_give_nan(weight):
    weights = np.where(np.arange(N) % 2, weight, 1.0)
    try:
        clf = AttnKNNClassifier(8, attention="uniform", random_state=0)
        found = clf.fit(rows(), labels(), sample_weight=weights).predict_proba(rows(1))
    except AttnKNNError:
        return
    assert np.isfinite(found).all()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    attention = LearnedAttention(
        n_heads=2,
        terms=("distance_bias", "support", "prototypes", "self_attention", "query_prior"),
        training=TrainConfig(epochs=1),
    )
    folder = tmp_path_factory.mktemp("extremes") / "model"
    fitted(rows(), attention, value_head=True).save(folder)
    return folder


@pytest.mark.parametrize("file", ["attention.safetensors", "value_head.safetensors"])
@pytest.mark.parametrize("value", [3e38, -3e38, 1e-45, 0.0])
def test_extreme_stored_weights_never_give_nan_in_silence(file, value, stored):
    whole, outcomes = (stored / file).read_bytes(), set()
    for name in load_file(stored / file):
        tensors = load_file(stored / file)
        tensors[name].fill_(value)
        save_file(tensors, stored / file)
        resign(stored, file)
        try:
            found = AttnKNNClassifier.load(stored).predict_proba(rows(1))
        except AttnKNNError as error:
            outcomes.add(type(error).__name__)
        else:
            outcomes.add("finite")
            assert np.isfinite(found).all(), name
        (stored / file).write_bytes(whole)
    resign(stored, file)
    assert outcomes & {"finite"}


def test_a_fit_whose_distances_vanish_keeps_the_good_model(tmp_path):
    good, bad = tmp_path / "good.npz", tmp_path / "bad.npz"
    np.savez(good, X=rows(), y=labels())
    np.savez(bad, X=rows() * 1e-30, y=labels())
    model = str(tmp_path / "model")
    done = CliRunner().invoke(main, ["fit", str(good), "-o", model, "--attention", "distance"])
    assert done.exit_code == 0, done.output
    before = (tmp_path / "model" / "manifest.json").read_bytes()
    again = CliRunner().invoke(
        main,
        ["fit", str(bad), "-o", model, "--attention=learned", "--encoder=identity", "--force"],
    )
    assert again.exit_code == 1
    assert "typical distances" in again.output
    assert (tmp_path / "model" / "manifest.json").read_bytes() == before
