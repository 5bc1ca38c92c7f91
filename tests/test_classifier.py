"""The classifier as scikit-learn and its users meet it."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from strategies import ATTENTIONS, blobs

from attnknn import (
    AdaptiveAttention,
    AttnKNNClassifier,
    DistanceAttention,
    KEnsembleAttention,
    LearnedAttention,
    UniformAttention,
    editing,
)
from attnknn.errors import (
    InvalidInputError,
    InvalidSettingError,
    NotFittedYetError,
)
from attnknn.training import TrainConfig

EXPECTED_FAILURES = {
    f"check_sample_weight_equivalence_on_{kind}_data": "two copies of a row take two of K places"
    for kind in ("dense", "sparse")
}


@parametrize_with_checks(
    [AttnKNNClassifier(n_neighbors=8, attention="distance")],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_the_classifier_passes_every_check_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        AttnKNNClassifier(),
        AttnKNNClassifier(attention="uniform"),
        AttnKNNClassifier(n_neighbors=8, attention="distance", memory="numpy"),
        AttnKNNClassifier(
            n_neighbors=8, attention=LearnedAttention(training=TrainConfig(epochs=1))
        ),
        AttnKNNClassifier(n_neighbors=8, attention="k-ensemble", label_noise="symmetric"),
        AttnKNNClassifier(n_neighbors=8, attention="adaptive", calibration=None),
        AttnKNNClassifier(n_neighbors=8, attention="distance", value_head=True),
        AttnKNNClassifier(attention="uniform", memory="faiss"),
    ],
    expected_failed_checks=lambda _: EXPECTED_FAILURES,
)
def test_other_attentions_pass_every_check_of_scikit_learn(estimator, check):
    check(estimator)


# ---- the oracle: scikit-learn's own vote


@pytest.mark.parametrize("memory", ["numpy", "torch", "faiss", "auto"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("data", [load_iris, load_wine, blobs])
def test_uniform_attention_is_the_nearest_neighbor_vote_of_scikit_learn(data, metric, memory, rng):
    X, y = data() if data is blobs else data(return_X_y=True)
    X = X + 1e-3 * rng.normal(size=X.shape)
    train = rng.permutation(len(X))[: len(X) // 2]
    test = np.setdiff1d(np.arange(len(X)), train)
    for k in (1, 5, 11):
        peer = KNeighborsClassifier(k, metric=metric, algorithm="brute").fit(X[train], y[train])
        distances, _ = peer.kneighbors(X[test], k + 1)
        is_clear = distances[:, k] - distances[:, k - 1] > 1e-6
        assert is_clear.mean() > 0.5
        ours = AttnKNNClassifier(
            k, encoder="identity", attention="uniform", memory=memory, metric=metric
        )
        found = ours.fit(X[train], y[train]).predict_proba(X[test])
        assert np.allclose(found[is_clear], peer.predict_proba(X[test])[is_clear], atol=1e-12)
        assert (ours.predict(X[test]) == peer.predict(X[test]))[is_clear].all()


# ---- scikit-learn's tools


def test_the_classifier_works_in_a_pipeline_and_in_cross_validation():
    X, y = blobs()
    pipeline = make_pipeline(StandardScaler(), AttnKNNClassifier(8, attention="distance"))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.6


def test_grid_search_reaches_the_settings_of_the_attention():
    X, y = blobs(60)
    search = GridSearchCV(
        AttnKNNClassifier(
            8, attention=LearnedAttention(training=TrainConfig(epochs=1)), random_state=0
        ),
        {"attention__n_heads": [1, 2], "n_neighbors": [4, 8]},
        cv=2,
    ).fit(X, y)
    assert search.best_estimator_.attention_.module_.shape.n_heads in (1, 2)
    assert {row["attention__n_heads"] for row in search.cv_results_["params"]} == {1, 2}


def test_a_clone_is_unfitted_and_shares_no_part():
    clf = AttnKNNClassifier(8, attention=DistanceAttention(2.0)).fit(*blobs())
    copy = clone(clf)
    assert copy.get_params()["attention__temperature"] == 2.0
    assert copy.attention is not clf.attention
    with pytest.raises(NotFittedError):
        copy.predict(blobs()[0])


def test_fitting_leaves_the_attention_that_was_given_as_it_was():
    given = LearnedAttention(training=TrainConfig(epochs=1))
    clf = AttnKNNClassifier(8, attention=given, random_state=0).fit(*blobs())
    assert not hasattr(given, "module_")
    assert clf.attention is given


def test_tables_go_in_with_their_column_names():
    X, y = blobs()
    table = pd.DataFrame(X, columns=list("abcd"))
    clf = AttnKNNClassifier(8, attention="distance", random_state=0).fit(table, pd.Series(y))
    assert clf.feature_names_in_.tolist() == list("abcd")
    assert np.array_equal(
        clf.predict_proba(table),
        AttnKNNClassifier(8, attention="distance", random_state=0)
        .fit(table.to_numpy(), y)
        .predict_proba(X),
    )
    with pytest.raises(ValueError, match="feature names"):
        clf.predict(table[list("dcba")])


def test_a_transformer_before_the_classifier_may_give_tables():
    X, y = blobs()
    scaler = StandardScaler().set_output(transform="pandas")
    clf = make_pipeline(scaler, AttnKNNClassifier(8, attention="distance"))
    clf.fit(pd.DataFrame(X, columns=list("abcd")), y)
    assert clf[-1].feature_names_in_.tolist() == list("abcd")


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_pickle_answers_the_same_bytes_and_holds_no_caches(attention):
    X, y = blobs()
    clf = AttnKNNClassifier(8, attention=ATTENTIONS[attention], random_state=0).fit(X, y)
    before = len(pickle.dumps(clf))
    expected = clf.predict_proba(X)
    clf.leave_one_out_proba()
    stored = pickle.dumps(clf)
    assert len(stored) < before + 200
    assert pickle.loads(stored).predict_proba(X).tobytes() == expected.tobytes()


def test_an_encoder_that_learns_from_labels_gets_them():
    from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

    X, y = blobs()
    clf = AttnKNNClassifier(8, attention="uniform", encoder=LinearDiscriminantAnalysis())
    assert clf.fit(X, y).embed(X).shape == (len(X), 2)


# ---- what people ask for


def test_the_neighbors_are_named_by_the_ids_given():
    X, y = blobs(30)
    ids = [f"row {i}" for i in range(30)]
    clf = AttnKNNClassifier(5, attention="uniform").fit(X, y, ids=ids)
    distances, found = clf.kneighbors(X[:4], 3)
    assert found[:, 0].tolist() == ids[:4]
    assert np.allclose(distances[:, 0], 0, atol=1e-6)
    assert (np.diff(distances) >= 0).all()


def test_payloads_come_back_with_the_evidence():
    X, y = blobs(30)
    clf = AttnKNNClassifier(5, attention="uniform").fit(
        X, y, payloads=[{"n": i} for i in range(30)]
    )
    evidence = clf.explain(X[:1])[0]
    assert evidence.payloads == [{"n": int(i)} for i in evidence.ids]


def test_a_wrong_label_is_outvoted_leave_one_out():
    X, y = blobs(spread=0.2)
    wrong = y.copy()
    wrong[0] = (y[0] + 1) % 3
    clf = AttnKNNClassifier(8, attention="distance").fit(X, wrong)
    assert clf.leave_one_out_proba()[0].argmax() == y[0]


def test_rows_of_one_group_do_not_vote_for_each_other(rng):
    X, _ = blobs(60)
    y = rng.integers(0, 2, 60)
    twice = np.repeat(np.arange(60), 2)
    clf = AttnKNNClassifier(1, attention="uniform")
    alone = clf.fit(X[twice], y[twice]).leave_one_out_proba()
    assert (alone.argmax(axis=1) == y[twice]).all()
    apart = clf.fit(X[twice], y[twice], groups=twice).leave_one_out_proba()
    assert (apart.argmax(axis=1) == y[twice]).mean() < 0.7


def test_the_learned_attention_must_be_better_to_be_kept(rng):
    X, y = rng.normal(size=(320, 4)), rng.integers(0, 2, 320)
    clf = AttnKNNClassifier(16, random_state=0, value_head=True).fit(X, y)
    assert isinstance(clf.attention_, DistanceAttention)
    assert "log-loss on 48 held-out rows is" in clf.fit_report_.reason


def test_the_learned_attention_is_kept_where_it_helps(rng):
    X = rng.normal(size=(600, 12))
    X[:, 1:] *= 3.0  # what does not matter lies far apart
    y = (X[:, 0] > 0).astype(int)
    clf = AttnKNNClassifier(16, encoder="identity", random_state=0, value_head=True).fit(X, y)
    assert isinstance(clf.attention_, LearnedAttention)
    assert clf.fit_report_.reason.startswith("significantly better, log-loss")


def test_the_report_states_effective_neighbors_and_the_oracle():
    X, y = blobs()
    report = AttnKNNClassifier(8, attention="uniform").fit(X, y).fit_report_
    assert report.effective_neighbors == pytest.approx(8)
    assert report.accuracy <= report.oracle_accuracy <= 1
    assert "8 (effective number 8.0)" in str(report)


# ---- repeatable, quiet, and stopped by hand


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_two_fits_with_one_random_state_give_the_same_bytes(attention):
    X, y = blobs()
    first, second = (
        AttnKNNClassifier(8, attention=ATTENTIONS[attention], random_state=3)
        .fit(X, y)
        .predict_proba(X)
        for _ in range(2)
    )
    assert first.tobytes() == second.tobytes()


def test_the_random_state_moves_what_is_learned():
    X, y = blobs()
    attention = LearnedAttention(training=TrainConfig(epochs=1))
    first, second = (
        AttnKNNClassifier(8, attention=attention, random_state=seed).fit(X, y).predict_proba(X)
        for seed in (0, 1)
    )
    assert not np.array_equal(first, second)


def test_fit_and_predict_leave_the_global_generators_alone():
    X, y = blobs()
    np.random.seed(5)  # noqa: NPY002
    torch.manual_seed(5)
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    AttnKNNClassifier(8, attention=ATTENTIONS["learned"], random_state=0).fit(X, y).predict(X)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), torch_state)


def test_progress_goes_to_the_error_stream_only_and_only_when_asked(capsys):
    X, y = blobs()
    clf = AttnKNNClassifier(8, attention=ATTENTIONS["learned"], random_state=0)
    clf.fit(X, y).predict(X)
    assert capsys.readouterr() == ("", "")
    clf.set_params(verbose=2).fit(X, y)
    out, err = capsys.readouterr()
    assert out == ""
    assert "effective number" in err


def test_a_stop_by_hand_keeps_the_best_so_far_and_says_so(monkeypatch):
    from attnknn.training import loop

    plain_step, calls = loop._step, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return plain_step(*arguments)

    monkeypatch.setattr(loop, "_step", interrupted)
    X, y = blobs()
    attention = LearnedAttention(training=TrainConfig(epochs=50, batch_size=32))
    with pytest.warns(UserWarning, match="stopped by hand; the best so far was kept"):
        clf = AttnKNNClassifier(8, attention=attention, random_state=0).fit(X, y)
    assert len(calls) == 5
    assert "stopped by hand, the best so far was kept" in clf.fit_report_.reason
    assert np.isfinite(clf.predict_proba(X)).all()


# ---- sizes and shapes at the edge


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_more_neighbors_than_entries_means_that_all_vote(attention):
    X, y = blobs(6)
    clf = AttnKNNClassifier(64, attention=ATTENTIONS[attention], random_state=0).fit(X, y)
    evidence = clf.explain(X[:1])[0]
    assert sorted(evidence.ids.tolist()) == list(range(6))
    assert clf.fit_report_.n_neighbors <= 6


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("label_noise", ["auto", "symmetric", "by_class", None])
def test_with_one_class_it_is_certain(attention, label_noise):
    X, _ = blobs(20)
    clf = AttnKNNClassifier(4, attention=ATTENTIONS[attention], label_noise=label_noise)
    clf.fit(X, np.full(20, "only"))
    assert clf.predict_proba(X).tolist() == [[1.0]] * 20
    assert clf.predict(X[:1]).tolist() == ["only"]


@pytest.mark.parametrize("attention", sorted(set(ATTENTIONS) - {"learned"}))
def test_one_entry_decides_alone(attention):
    clf = AttnKNNClassifier(attention=ATTENTIONS[attention]).fit([[1.0, 2.0]], ["a"])
    assert clf.predict([[9.0, 9.0]]).tolist() == ["a"]


def test_learning_from_one_entry_is_refused():
    with pytest.raises(InvalidInputError, match="at least 2 rows"):
        AttnKNNClassifier(attention="learned").fit([[1.0]], ["a"])


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_rows_that_are_all_alike_get_the_class_frequencies(attention):
    X, y = np.ones((40, 2)), np.repeat([0, 1], [30, 10])
    clf = AttnKNNClassifier(64, attention=ATTENTIONS[attention], random_state=0).fit(X, y)
    assert clf.predict([[1.0, 1.0]]).tolist() == [0]
    assert clf.fit_report_.duplicates == 1.0


def test_far_from_everything_the_prior_decides():
    X, y = blobs()
    clf = AttnKNNClassifier(16, attention="distance").fit(X, y)
    evidence = clf.explain([[1e6] * 4])[0]
    assert evidence.prior_weight > 0.999
    assert np.allclose(evidence.probabilities, 1 / 3, atol=0.01)


def test_ties_in_distance_go_by_id():
    X, y = [[0.0], [1.0], [-1.0]], [0, 1, 2]
    clf = AttnKNNClassifier(2, attention="uniform").fit(X, y, ids=[5, 9, 7])
    assert clf.kneighbors([[0.0]])[1].tolist() == [[5, 7]]


# ---- clear errors


def bad_rows():
    return {
        "not a number": ([[np.nan, 1, 1, 1]], "NaN"),
        "infinite": ([[np.inf, 1, 1, 1]], "infinity"),
        "too narrow": ([[1.0, 2.0]], "2 features"),
        "one row without brackets": ([1.0, 2.0, 3.0, 4.0], "Reshape your data"),
        "text": ([["a", "b", "c", "d"]], "must be numeric"),
        "beyond float32": ([[1e300, 1, 1, 1]], "float32"),
    }


@pytest.mark.parametrize("case", bad_rows())
def test_rows_that_cannot_be_used_are_refused_by_name(case):
    rows, message = bad_rows()[case]
    clf = AttnKNNClassifier(8, attention="uniform").fit(*blobs())
    for ask in (clf.predict, clf.predict_proba, clf.kneighbors, clf.explain, clf.embed):
        if case == "beyond float32" and ask == clf.embed:
            continue  # the embedding itself is in range
        with pytest.raises(ValueError, match=message):
            ask(rows)


@pytest.mark.parametrize(
    "method",
    ["predict", "predict_proba", "explain", "kneighbors", "embed", "add", "forget", "relabel"],
)
def test_before_fit_the_missing_step_is_named(method):
    clf = AttnKNNClassifier()
    arguments = [[[1.0]]] * (2 if method in ("add", "relabel") else 1)
    with pytest.raises(NotFittedYetError, match=rf"Call `fit` before `{method}`"):
        getattr(clf, method)(*arguments)


@pytest.mark.parametrize("name", ["label_noise_", "held_out_"])
def test_fitted_attributes_are_absent_before_fit(name):
    with pytest.raises(NotFittedError):
        getattr(AttnKNNClassifier(), name)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_neighbors": 0}, "`n_neighbors` must be an integer of at least 1, got 0"),
        ({"n_neighbors": 2.5}, "`n_neighbors` must be an integer"),
        ({"attention": "distnace"}, "Did you mean 'distance'"),
        ({"attention": 3}, "`attention` must be a short name"),
        ({"memory": "nunpy"}, "Did you mean 'numpy'"),
        ({"metric": "manhattan"}, "metric"),
        ({"encoder": "tabluar"}, "Did you mean 'tabular'"),
        ({"calibration": "yes"}, "Known: None, auto, scores"),
        ({"label_noise": "assymetric"}, "Did you mean 'symmetric'"),
        ({"device": "tpu"}, "device"),
        ({"attention": DistanceAttention(temperature=0.0)}, "`temperature` must be"),
        ({"attention": DistanceAttention(prior_score=np.nan)}, "`prior_score` must be"),
        ({"attention": UniformAttention(prior_weight=1.0)}, "`prior_weight` must be"),
        ({"attention": KEnsembleAttention(sizes=(4, 64)), "n_neighbors": 8}, "must not exceed"),
        ({"attention": KEnsembleAttention(sizes=(8, 4))}, "must be increasing"),
        ({"attention": KEnsembleAttention(sizes=(0, 4))}, "`sizes` must be an integer"),
        ({"attention": KEnsembleAttention(weighting="even")}, "weighting"),
        ({"attention": AdaptiveAttention(rule="treshold")}, "Did you mean 'threshold'"),
        ({"attention": AdaptiveAttention(threshold=-1.0)}, "`threshold` must be at least 0"),
    ],
)
def test_settings_out_of_range_are_refused_at_fit(settings, message):
    with pytest.raises(InvalidSettingError, match=message):
        AttnKNNClassifier(**settings).fit(*blobs(20))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, None, 1], "row 1 has none"),
        ([0.0, 1.0, np.nan], "row 2 has none"),
        ([0.0, 1.0, np.inf], "finite"),
        ([0.5, 1.25, 2.0], "continuous"),
        ([0, 1], "inconsistent numbers of samples"),
    ],
)
def test_labels_that_cannot_be_used_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        AttnKNNClassifier().fit([[1.0], [2.0], [3.0]], labels)


# ---- sample weight


@pytest.mark.parametrize("attention", ["uniform", "distance"])
def test_sample_weight_two_counts_like_two_copies(attention):
    X, y = blobs(30)
    made = DistanceAttention(1.0, -3.0) if attention == "distance" else UniformAttention()
    settings = {"encoder": "identity", "attention": made, "calibration": None}
    heavy = AttnKNNClassifier(30, **settings).fit(X, y, sample_weight=[2.0] + [1.0] * 29)
    twice = AttnKNNClassifier(31, **settings).fit(np.vstack([X, X[:1]]), np.append(y, y[0]))
    for one, two in zip(heavy.explain(X), twice.explain(X), strict=True):
        say = one.weights[one.ids == 0].sum()
        assert say == pytest.approx(two.weights[np.isin(two.ids, [0, 30])].sum(), abs=1e-12)
        assert one.prior_weight == pytest.approx(two.prior_weight, abs=1e-12)


# ---- every setting does something


def noisy_blobs():
    X, y = blobs(150, spread=1.2)
    X[:, 0] *= 5
    chance = np.random.default_rng(0)
    return X, np.where(chance.random(150) < 0.3, chance.integers(0, 3, 150), y)


@cache
def plain_answers(attention):
    X, y = noisy_blobs()
    clf = AttnKNNClassifier(16, encoder="identity", attention=attention, random_state=0)
    return clf.fit(X, y).predict_proba(X)


@pytest.mark.parametrize(
    "settings",
    [
        {"n_neighbors": 3},
        {"encoder": "tabular"},
        {"metric": "cosine"},
        {"attention": "uniform"},
        {"calibration": None},
        {"label_noise": "symmetric"},
        {"label_noise": "by_class"},
        {"random_state": 1, "attention": LearnedAttention(training=TrainConfig(epochs=1))},
    ],
    ids=str,
)
def test_every_setting_of_the_classifier_moves_the_answer(settings):
    X, y = noisy_blobs()
    attention = settings["attention"] if "random_state" in settings else "distance"
    clf = AttnKNNClassifier(16, encoder="identity", attention=attention, random_state=0)
    clf.set_params(**settings)
    moved = clf.fit(X, y).predict_proba(X)
    assert np.abs(plain_answers(attention) - moved).max() > 1e-6


def test_the_map_sharpens_a_timid_vote_unless_it_is_left_out():
    X, y = blobs(200, spread=1.0)
    timid = DistanceAttention(temperature=200.0, prior_score=-5.0)
    exponents = [
        AttnKNNClassifier(64, attention=timid, calibration=calibration)
        .fit(X, y)
        .calibration_.exponent
        for calibration in ("auto", "scores")
    ]
    assert exponents[0] > 1.5
    assert exponents[1] == 1.0


def test_memory_and_device_choose_where_it_is_searched():
    X, y = blobs(30)
    clf = AttnKNNClassifier(4, attention="uniform", memory="numpy").fit(X, y)
    assert type(clf.memory_).__name__ == "NumpyMemory"
    clf = AttnKNNClassifier(4, attention="uniform", memory="torch", device="cpu").fit(X, y)
    assert clf.memory_.device == "cpu"


@pytest.mark.parametrize(
    "attention", ["distance", LearnedAttention(training=TrainConfig(epochs=1))]
)
@pytest.mark.parametrize("label_noise", ["auto", "by_class"])
def test_a_class_that_is_added_takes_its_sorted_place(attention, label_noise):
    X, y = blobs(90)
    names = np.array(["b", "d", "f"])[y % 3]
    clf = AttnKNNClassifier(attention=attention, label_noise=label_noise, random_state=0).fit(
        X, names
    )
    before = clf.predict_proba(X)
    clf.add(X[:6] + 50, ["a"] * 6)
    assert clf.classes_.tolist() == ["a", "b", "d", "f"]
    after = clf.predict_proba(X)
    assert (
        clf.classes_[after.argmax(axis=1)] == np.array(["b", "d", "f"])[before.argmax(axis=1)]
    ).mean() > 0.95
    assert (clf.predict(X[:6] + 50) == "a").all()
    evidence = clf.explain(X[:1])[0]
    votes = [evidence.weights[evidence.labels == name].sum() for name in evidence.classes]
    assert evidence.shares == pytest.approx(votes + evidence.prior_weight * evidence.prior)


def test_an_edit_cut_short_leaves_the_default_memory_as_it_was(monkeypatch):
    X, y = blobs(90)
    clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X, y)
    before = clf.predict_proba(X)
    monkeypatch.setattr(editing, "_next", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        clf.add(X[:5] + 1, y[:5])
    monkeypatch.undo()
    assert (clf.predict_proba(X) == before).all()


def everything_said(clf, X):
    """All that a classifier says of rows and of its entries; it fills every cache."""
    sets = clf.predict_set(X, 0.8).members
    decided = clf.decide(X, max_risk=0.9, novelty_level=0).is_answered
    loo = clf.leave_one_out_proba()
    return tuple(a.tobytes() for a in (clf.predict_proba(X), loo, sets, decided, clf.classes_))


@pytest.mark.parametrize(
    "attention", ["distance", LearnedAttention(training=TrainConfig(epochs=2))]
)
@pytest.mark.parametrize("n_classes", [2, 5])
def test_a_second_fit_knows_nothing_of_the_first(attention, n_classes):
    X, y = blobs(90, n_features=4, n_classes=3)
    others, labels = blobs(150, n_features=4, n_classes=n_classes, seed=1)
    others *= 20
    clf = AttnKNNClassifier(8, attention=attention, random_state=0).fit(X, y)
    everything_said(clf, X)

    clf.fit(others, labels)
    anew = AttnKNNClassifier(8, attention=attention, random_state=0).fit(others, labels)

    assert everything_said(clf, others) == everything_said(anew, others)


def test_a_second_fit_that_fails_leaves_the_first_whole(monkeypatch):
    X, y = blobs(90, n_features=4, n_classes=3)
    clf = AttnKNNClassifier(8, attention="distance", random_state=0).fit(X, y)
    before = everything_said(clf, X)

    def fails(*_):
        raise RuntimeError("half-way")

    monkeypatch.setattr(AttnKNNClassifier, "_with_view_calibration", fails)
    with pytest.raises(RuntimeError, match="half-way"):
        clf.fit(X[:40], y[:40] % 2)

    assert everything_said(clf, X) == before


def test_labels_that_classes_does_not_name_are_refused():
    with pytest.raises(ValueError, match="must name every label, 2 is missing"):
        AttnKNNClassifier().partial_fit([[0.0], [1.0]], [0, 2], classes=[0, 1])


def test_a_memory_that_began_small_uses_all_the_neighbors_asked_for():
    X, y = blobs(90)
    clf = AttnKNNClassifier(16, attention="distance").partial_fit(
        X[:3], y[:3], classes=np.unique(y)
    )
    assert len(clf.partial_fit(X[3:], y[3:]).explain(X[:1])[0].ids) == 16


def test_a_table_is_matched_by_the_names_of_its_columns():
    X, y = blobs(60)
    table = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    clf = AttnKNNClassifier(encoder="tabular", attention="distance").fit(table, y)
    expected = clf.predict_proba(table)
    shuffled = table[table.columns[::-1]].assign(further=1)
    assert (clf.predict_proba(shuffled) == expected).all()
    with pytest.raises(ValueError, match="c0"):
        clf.predict(table.drop(columns="c0"))


def test_one_label_for_several_ids_must_be_meant():
    X, y = blobs(60)
    clf = AttnKNNClassifier(attention="distance").fit(X, y)
    assert (clf.relabel([0, 1], 2).memory_.entries.labels[:2] == 2).all()
    with pytest.raises(ValueError, match="one for each of the 2 ids"):
        clf.relabel([0, 1], [1])


def test_metadata_is_routed_to_fit():
    X, y = blobs(90)
    weights, groups = np.linspace(0.5, 2.0, 90), np.arange(90) // 3
    received = []

    class Spy(AttnKNNClassifier):
        def fit(self, X, y, sample_weight=None, *, groups=None, ids=None, subjects=None):
            received.append((sample_weight, groups, ids, subjects))
            metadata = {"groups": groups, "ids": ids, "subjects": subjects}
            return super().fit(X, y, sample_weight, **metadata)

    with config_context(enable_metadata_routing=True):
        names = ("sample_weight", "groups", "ids", "subjects")
        clf = Spy(8, attention="distance").set_fit_request(**dict.fromkeys(names, True))
        clf.set_score_request(sample_weight=False)
        params = dict(zip(names, (weights, groups, np.arange(90), groups.astype(str)), strict=True))
        found = cross_validate(clf, X, y, cv=3, params=params)
    assert (found["test_score"] > 0.8).all()
    for sample_weight, *others in received:
        assert sample_weight.tolist() == weights[others[1]].tolist()  # in step with the ids
        assert others[0].tolist() == groups[others[1]].tolist()


def test_kneighbors_follows_scikit_learn():
    X, y = blobs(40)
    clf = AttnKNNClassifier(5, attention="uniform").fit(X, y)
    reference = KNeighborsClassifier(5).fit(X, y)
    distances, ids = clf.kneighbors()
    assert np.allclose(distances, reference.kneighbors()[0], atol=1e-5)
    assert (ids == reference.kneighbors(return_distance=False)).all()
    assert (clf.kneighbors(X[:4], 3, return_distance=False) == ids_of(reference, X[:4], 3)).all()


def ids_of(reference, X, k):
    return reference.kneighbors(X, k, return_distance=False)


def test_rows_of_weight_zero_are_left_out():
    X, y = blobs(60)
    weights = np.r_[np.zeros(10), np.ones(50)]
    settings = {"n_neighbors": 8, "attention": "distance", "random_state": 0}
    clf = AttnKNNClassifier(**settings).fit(X, y, weights)
    assert clf.memory_.entries.ids.tolist() == list(range(10, 60))
    part = AttnKNNClassifier(**settings).fit(X[10:], y[10:], ids=np.arange(10, 60))
    assert (clf.predict_proba(X) == part.predict_proba(X)).all()
    clf.add(X[:3], y[:3], sample_weight=[0.0, 2.0, 0.0])
    assert clf.memory_.entries.ids[-1] == 60
    assert clf.memory_.entries.sample_weight[-1] == 2.0
