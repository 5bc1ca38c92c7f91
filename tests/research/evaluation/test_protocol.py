"""The protocol: same rows and labels for all, test rows last, clean judgment, seeds resumed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.naive_bayes import GaussianNB

from attnknn.encoders import TableEncoder
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.metrics import score_all
from attnknn.research import datasets
from attnknn.research.datasets import Dataset
from attnknn.research.datasets.base import split_by_seed
from attnknn.research.evaluation.baselines import LinearProbe, UniformKNN
from attnknn.research.evaluation.corruption import LabelNoise
from attnknn.research.evaluation.protocol import Method, run
from attnknn.research.evaluation.report import add_table, read_report
from attnknn.research.evaluation.table import joined

UNIFORM = Method("uniform", lambda seed: UniformKNN(max_neighbors=8))
BAYES = Method("bayes", lambda seed: GaussianNB())
WINE = datasets.load("wine")


class Witness(ClassifierMixin, BaseEstimator):
    """Answers the class frequencies and remembers what it was shown."""

    seen: list = []  # noqa: RUF012  (shared on purpose: runs make their own estimators)

    def __init__(self, tag="", seed=0):
        self.tag = tag
        self.seed = seed

    def fit(self, X, y):
        self.seen.append(("fit", self.tag, self.seed, X.copy(), y.copy()))
        y[:] = 0  # a careless method must not harm the next one
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X):
        self.seen.append(("predict", self.tag, self.seed, X.copy(), None))
        return np.full((len(X), 2), 0.5)


@pytest.fixture
def seen():
    Witness.seen.clear()
    return Witness.seen


def witnesses(*tags):
    return [Method(tag, lambda seed, tag=tag: Witness(tag, seed)) for tag in tags]


def test_all_methods_of_a_seed_see_the_same_rows_and_corrupted_labels(seen):
    run(WINE, witnesses("a", "b"), [0, 1], corrupt=LabelNoise(0.5))
    fits = {(tag, seed): (X, y) for kind, tag, seed, X, y in seen if kind == "fit"}
    for seed in (0, 1):
        assert np.array_equal(fits["a", seed][0], fits["b", seed][0])
        assert np.array_equal(fits["a", seed][1], fits["b", seed][1])
        assert 0.3 < (fits["a", seed][1] != WINE.y_train).mean() < 0.7
    assert (fits["a", 0][1] != fits["a", 1][1]).any()


def test_test_rows_are_opened_once_after_every_method_is_fitted(seen):
    run(WINE, witnesses("a", "b"), [0])
    assert [(kind, tag) for kind, tag, *_ in seen] == [
        ("fit", "a"),
        ("fit", "b"),
        ("predict", "a"),
        ("predict", "b"),
    ]


def test_predictions_are_compared_with_clean_labels_of_all_classes(seen):
    table = run(WINE, witnesses("a"), [0], corrupt=LabelNoise(0.5))
    expected = np.zeros((len(WINE.y_test), 3))
    expected[:, :2] = 0.5  # the witness knows two of three classes
    assert table.runs[0].scores == score_all(WINE.y_test, expected)
    assert (WINE.y_train == datasets.load("wine").y_train).all()


def test_the_encoder_is_fitted_on_training_rows_only(seen):
    run(WINE, witnesses("a"), [0])
    embeddings = seen[0][3]
    assert np.abs(embeddings.mean(axis=0)).max() < 1e-9
    assert np.allclose(embeddings.std(axis=0), 1)


def test_raw_rows_are_handed_on_without_an_encoder(seen):
    table = run(WINE, witnesses("a"), [0], encoder=None)
    assert seen[0][3].equals(WINE.X_train)
    assert table.encoder == "none"


def test_images_become_pixels(seen):
    images = np.full((4, 2, 2), 255, dtype=np.uint8)
    y = np.array([0, 1, 0, 1])
    dataset = Dataset(images, y, images, y, ("a", "b"), name="white", kind="images")
    run(dataset, witnesses("a"), [0])
    assert seen[0][3].tolist() == [[1.0] * 4] * 4


def test_methods_without_randomness_agree_on_every_seed():
    table = run(WINE, [UNIFORM], [0, 1])
    first, second = table.of("uniform")
    assert first.scores == second.scores
    assert table.seeds == [0, 1]


def test_settings_choices_versions_and_times_are_recorded():
    table = run(WINE, [UNIFORM, Method("linear", lambda s: LinearProbe(random_state=s))], [3])
    uniform, linear = table.runs
    assert uniform.settings == {"max_neighbors": "8", "metric": "'euclidean'"}
    assert 1 <= uniform.chosen["n_neighbors_"] <= 8
    assert linear.settings["random_state"] == "3"
    assert {"python", "numpy", "attnknn"} <= set(table.versions)
    assert uniform.fit_seconds > 0
    assert table.checksum == WINE.checksum


def test_a_table_survives_its_report(tmp_path):
    table = run(WINE, [UNIFORM, BAYES], [0, 1], corrupt=LabelNoise(0.2))
    add_table(tmp_path / "report.json", table)
    loaded = read_report(tmp_path / "report.json").tables[""]
    assert loaded.corruption == "LabelNoise(rate=0.2, kind='symmetric')"
    assert [r.scores for r in loaded.runs] == [r.scores for r in table.runs]
    assert loaded.markdown(against="bayes") == table.markdown(against="bayes")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.json", "report.npz"]


def test_a_report_holds_what_is_needed_to_repeat_it(tmp_path):
    run(WINE, [UNIFORM], [7], folder=tmp_path)
    report = json.loads((tmp_path / "report.json").read_text())["tables"][""]
    assert sorted(report) == [
        *("checksum", "corruption", "dataset", "encoder", "n_test", "n_train", "runs", "versions"),
    ]
    assert sorted(report["runs"][0]) == [
        *("chosen", "fit_seconds", "method", "predict_seconds"),
        *("rows", "scores", "seed", "settings"),
    ]


def test_a_seed_with_a_report_is_not_run_again(tmp_path, seen):
    run(WINE, witnesses("a"), [0], folder=tmp_path)
    n_before = len(seen)
    table = run(WINE, witnesses("a"), [0, 1], folder=tmp_path)
    assert {seed for _, _, seed, *_ in seen[n_before:]} == {1}
    assert table.seeds == [0, 1]
    told = []
    run(WINE, witnesses("a"), [0, 1, 2], folder=tmp_path, progress=told.append)
    assert told == ["wine: a, seed 2"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"corrupt": LabelNoise(0.1)}, "other corruption"),
        ({"encoder": "identity"}, "other encoder"),
        ({"encoder": TableEncoder("normal")}, "other encoder"),
        ({"methods": [BAYES]}, "other methods"),
        ({"dataset": datasets.load("iris")}, "other data"),
    ],
)
def test_a_report_of_something_else_is_not_taken_for_this(tmp_path, other, message):
    asked = {"dataset": WINE, "methods": [UNIFORM], "seeds": [0], "folder": tmp_path}
    run(**asked)
    with pytest.raises(InvalidInputError, match=message):
        run(**{**asked, **other})


def test_an_encoder_that_must_be_trained_is_refused():
    with pytest.raises(InvalidSettingError, match="not trained for the vote"):
        run(WINE, [UNIFORM], [0], encoder="learned-tabular")


def test_the_table_pairs_methods_and_shows_intervals():
    table = run(WINE, [UNIFORM, BAYES], [0])
    text = table.markdown(metrics=["accuracy", "ece"], against="uniform")
    lines = text.splitlines()
    assert lines[0] == "| method | accuracy | ece | accuracy − uniform | fit s | predict s |"
    assert lines[2].startswith("| uniform | ")
    assert "142 training and 36 test rows, encoder tabular, seeds 0" in lines[-1]
    difference = table.difference("accuracy", "bayes", "uniform")
    gap = table.mean("accuracy", "bayes") - table.mean("accuracy", "uniform")
    assert difference.mean == pytest.approx(gap)
    assert table.interval("nll", "bayes").mean == pytest.approx(table.mean("nll", "bayes"))


def test_unknown_names_and_mixed_tables_are_refused():
    table = run(WINE, [UNIFORM], [0])
    with pytest.raises(InvalidSettingError, match="Did you mean 'uniform'"):
        table.mean("accuracy", "unifrom")
    with pytest.raises(InvalidSettingError, match="No metric is called 'ece'"):
        table.interval("ece", "uniform")
    with pytest.raises(InvalidInputError, match="same `dataset`"):
        joined([table, run(datasets.load("iris"), [UNIFORM], [1])])
    with pytest.raises(InvalidInputError, match="once on every seed"):
        joined([table, table])
    told = replace(table, settings={"rows": 50})
    with pytest.raises(InvalidInputError, match="same `settings`"):
        joined([table, told])
    heads = tuple(replace(r, seed=1, settings={"n_heads": "8"}) for r in table.runs)
    with pytest.raises(InvalidInputError, match="methods of the same settings"):
        joined([told, replace(told, runs=heads)])
    with pytest.raises(InvalidSettingError, match="different names"):
        run(WINE, [UNIFORM, UNIFORM], [0])
    with pytest.raises(InvalidSettingError, match="at least one seed"):
        run(WINE, [UNIFORM], [])
    with pytest.raises(InvalidInputError, match="`corrupt` must return 142 label codes"):
        run(WINE, [UNIFORM], [0], corrupt=lambda y, seed: y[:3])


def test_intervals_of_one_seed_are_not_said_to_be_over_seeds():
    table = run(WINE, [UNIFORM], [0, 1])
    assert "95 % intervals over rows and seeds" in table.caption()
    assert "95 % intervals over rows, of one seed" in run(WINE, [UNIFORM], [0]).caption()


def test_corruption_without_a_repr_writes_no_reports(tmp_path):
    with pytest.raises(InvalidSettingError, match="must show its settings"):
        run(WINE, [UNIFORM], [0], corrupt=lambda y, seed: y, folder=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_split_that_depends_on_the_seed_is_run_for_each_seed(seen):
    X, y = np.arange(40.0)[:, None], np.arange(40) % 2
    dataset = Dataset(**vars(split_by_seed(X, y, ("even", "odd"))), name="numbers")
    fixed = Method("fixed", lambda seed: Witness("fixed", 0), is_random=False)
    table = run(dataset, [fixed], [1, 2], encoder=None)
    tests = [set(X.ravel()) for kind, _, _, X, _ in seen if kind == "predict"]
    trained = [set(X.ravel()) for kind, _, _, X, _ in seen if kind == "fit"]
    assert len(tests) == 2
    assert tests[0] != tests[1]
    assert all(not test & train for test, train in zip(tests, trained, strict=True))
    assert (table.n_train, table.n_test) == (30, 10)
