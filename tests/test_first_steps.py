"""What people try first: each works, or says in words what to do."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from strategies import blobs

from attnknn import (
    AttnKNNClassifier,
    PredictionSets,
    SvdEncoder,
    TableEncoder,
    _limits,
    open_for_editing,
)
from attnknn.errors import InvalidInputError, ModelFolderError, TooLargeError

TEXTS = ["my card is lost", "what is the fee", "lost it", "which fees"] * 3


# ---- texts


@pytest.mark.parametrize("column", [list, np.array, pd.Series, lambda t: np.array(t, dtype=object)])
def test_a_column_of_texts_is_recognized(column):
    y = [0, 1, 0, 1] * 3
    with pytest.raises(InvalidInputError, match=r"'my card is lost'.*encoder='tfidf'.*'text'"):
        AttnKNNClassifier(encoder="identity").fit(column(TEXTS), y)
    clf = AttnKNNClassifier().fit(column(TEXTS), y)
    assert clf.predict(TEXTS[:1]) == [0]
    assert clf.fit_report_.encoder.endswith("rows are texts")


def test_a_table_with_a_column_of_texts_names_it_and_the_encoder_of_tables():
    y = [0, 1, 0, 1] * 3
    table = pd.DataFrame({"amount": range(12), "question": TEXTS})
    numeric = AttnKNNClassifier(encoder="identity")
    with pytest.raises(
        InvalidInputError, match=r"Column 'question' .*encoder='tabular'"
    ) as refused:
        numeric.fit(table, y)
    assert "tfidf" not in str(refused.value)
    with pytest.raises(InvalidInputError, match=r"Column 'question' .*'tabular'.*'tfidf'"):
        numeric.fit(table[["question"]], y)


# ---- sparse rows


def test_a_pipeline_of_tfidf_and_the_classifier_works():
    y = np.array(["lost", "fee"] * 6)
    clf = make_pipeline(TfidfVectorizer(), AttnKNNClassifier(random_state=0)).fit(TEXTS, y)
    assert (clf.predict(TEXTS) == y).all()


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.coo_array, sparse.csc_array])
def test_sparse_rows_are_answered_like_dense_ones(form):
    X, y = blobs(60)
    X = np.maximum(X, 0)
    weights = np.r_[0.0, np.ones(59)]
    settings = {"n_neighbors": 8, "attention": "distance", "random_state": 0}
    dense = AttnKNNClassifier(**settings).fit(X, y, weights)
    clf = AttnKNNClassifier(**settings).fit(form(X), y, weights)
    assert (clf.predict_proba(form(X)) == dense.predict_proba(X)).all()
    clf.add(form(X[:3]), y[:3], [1.0, 0.0, 1.0])
    dense.add(X[:3], y[:3], [1.0, 0.0, 1.0])
    assert clf.explain(form(X[:1]))[0].weights.tolist() == dense.explain(X[:1])[0].weights.tolist()
    assert (clf.predict_set(form(X)).members == dense.predict_set(X).members).all()
    assert (clf.predict(X) == dense.predict(form(X))).all()


def test_wide_sparse_rows_are_reduced_and_survive_saving(tmp_path, rng):
    y = np.arange(80) % 2
    topics = np.where(np.arange(5000) % 2 == y[:, None], 0.02, 0.005)
    X = sparse.csr_array(rng.random((80, 5000)) < topics, dtype=np.float64)
    clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X, y)
    assert isinstance(clf.encoder_, SvdEncoder)
    assert clf.embed(X).shape == (80, 80)
    assert (clf.leave_one_out_proba().argmax(axis=1) == y).mean() > 0.8
    clf.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert (loaded.predict_proba(X) == clf.predict_proba(X)).all()
    with pytest.raises(ValueError, match="5000"):
        loaded.predict(X[:, :4000])


@pytest.mark.parametrize("encoder", ["tabular", "learned-tabular", "tfidf", "text", "image"])
def test_encoders_of_dense_rows_refuse_sparse_ones_by_name(encoder):
    with pytest.raises(InvalidInputError, match=f"encoder='{encoder}'` needs dense rows.*'svd'"):
        AttnKNNClassifier(encoder=encoder).fit(sparse.eye_array(12), [0, 1, 0, 1] * 3)


def test_sparse_rows_that_do_not_fit_as_dense_ones_are_refused(monkeypatch):
    clf = AttnKNNClassifier(attention="uniform").fit(np.eye(60), np.arange(60) % 2)
    monkeypatch.setattr(_limits, "available_bytes", lambda _=None: 1_000_000)
    with pytest.raises(TooLargeError, match=r"`X` as dense rows would need 48\.0 MB"):
        clf.predict(sparse.csr_array((100_000, 60)))


# ---- rows of a DataFrame


def people(n=40, **columns):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(20, 60, n), "height": rng.normal(170, 9, n)})
    return table.assign(**columns)


@pytest.mark.parametrize(
    "index", [np.arange(40)[::-1] * 3, [f"person {i}" for i in range(40)]], ids=["int", "str"]
)
def test_the_index_of_a_table_names_its_rows(index):
    table = people().set_index(pd.Index(index))
    clf = AttnKNNClassifier(3, attention="uniform").fit(table, table["age"] > 40)
    ids = clf.explain(table[:1])[0].ids
    assert ids[0] == index[0]
    assert table.loc[ids].shape == (3, 2)
    weights = np.r_[0.0, np.ones(39)]
    clf.fit(table, table["age"] > 40, weights)
    assert clf.memory_.entries.ids.tolist() == list(index[1:])


@pytest.mark.parametrize(
    "index",
    [[0] * 40, np.linspace(0, 1, 40), pd.date_range("2024-01-01", periods=40), [2**63, *range(39)]],
    ids=["repeated", "floats", "dates", "too large"],
)
def test_rows_are_numbered_if_the_index_is_no_name(index):
    table = people().set_index(pd.Index(index))
    clf = AttnKNNClassifier(3, attention="uniform").fit(table, np.arange(40) % 2)
    assert clf.memory_.entries.ids.tolist() == list(range(40))


def test_rows_that_are_added_keep_their_index_if_it_is_new():
    index = np.random.default_rng(0).permutation(np.arange(100, 140))
    table, y = people().set_index(pd.Index(index)), np.arange(40) % 2
    clf = AttnKNNClassifier(3, attention="uniform").fit(table[:20], y[:20])
    clf.add(table[20:22], y[20:22])
    assert clf.memory_.entries.ids[20:].tolist() == index[20:22].tolist()
    top = clf.memory_.entries.ids.max() + 1
    clf.add(table[21:23], y[21:23])  # one of the two is known
    clf.add(table[23:25].reset_index(drop=True), y[23:25])
    assert clf.memory_.entries.ids[22:].tolist() == [*range(top, top + 4)]
    clf.add(table[25:26], y[25:26], ids=[7])
    assert clf.memory_.entries.ids[26:].tolist() == [7]


def test_rows_are_shown_as_evidence_on_request_and_survive_saving(tmp_path):
    table = people(
        since=pd.date_range("2024-01-01", periods=40),
        job=pd.Categorical(["cook", None] * 20),
        note=["x" * 500] * 40,
        size=pd.array([1, None] * 20, dtype="Int64"),
        seventh=0.5,
    )
    clf = AttnKNNClassifier(3, encoder="tabular", attention="uniform")
    y = np.arange(40) % 2
    clf.fit(table, y, payloads=True)
    shown = clf.explain(table[1:2])[0].payloads[0]
    assert list(shown) == ["age", "height", "since", "job", "note", "size"]
    assert (shown["age"], shown["job"], shown["size"]) == (table["age"][1], None, None)
    assert shown["since"].startswith("2024-01-02")
    assert len(shown["note"]) == 200
    clf.save(tmp_path / "model")
    assert AttnKNNClassifier.load(tmp_path / "model").explain(table[1:2])[0].payloads[0] == shown
    clf.add(table[:2], y[:2], payloads=True)
    assert clf.memory_.entries.payloads[-1] == shown
    for nothing in (False, None):
        assert clf.fit(table, y, payloads=nothing).explain(table[:1])[0].payloads is None
    with pytest.raises(InvalidInputError, match="rows of a DataFrame, got a ndarray"):
        clf.fit(np.eye(40), y, payloads=True)


# ---- one class, log probabilities


def test_one_class_is_named_in_a_warning():
    X, _ = blobs(20)
    with pytest.warns(UserWarning, match="only one class, 'only'") as caught:
        clf = AttnKNNClassifier(4, attention="distance").fit(X, np.full(20, "only"))
    assert caught[0].filename == __file__
    assert clf.add(X[:4] + 50, ["other"] * 4).predict(X[:1] + 50).tolist() == ["other"]


def test_log_probabilities_are_the_logarithms_and_never_warn():
    X, y = blobs(60)
    clf = AttnKNNClassifier(4, attention="uniform").fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = clf.predict_log_proba(X)
    assert np.isneginf(found).any()  # a class without a vote, as in scikit-learn's classifiers
    assert np.allclose(np.exp(found), clf.predict_proba(X), atol=0, rtol=1e-12)


# ---- outliers


@pytest.mark.parametrize("encoder", ["identity", "tabular"])
@pytest.mark.parametrize("value", [1e3, -1e9])
def test_a_value_far_from_all_others_is_named_with_its_row_and_column(rng, encoder, value):
    table = pd.DataFrame(rng.normal(size=(400, 3)), columns=["age", "height", "weight"])
    y = (table["age"] > 0).to_numpy()
    clf = AttnKNNClassifier(4, encoder=encoder, attention="uniform")
    clf.fit(table, y)  # no warning, which would be an error
    table.loc[7, "age"] = value
    with pytest.warns(UserWarning, match="Row 7 has .* column 'age': .* median abs") as caught:
        clf.fit(table, y)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match=r"Row 7 .*column (0|'x0').*scaling='quantile'"):
        clf.fit(table.to_numpy(), y)


def test_ranks_limit_the_effect_of_an_outlier(rng):
    X = rng.normal(size=(200, 2))
    y = (X[:, 0] > 0).astype(int)
    X[7, 0] = 1e9
    clf = AttnKNNClassifier(4, encoder=TableEncoder(scaling="quantile"), attention="uniform")
    assert (clf.fit(X, y).leave_one_out_proba().argmax(axis=1) == y).mean() > 0.9


def test_an_enormous_value_among_equal_ones_is_named_and_rare_values_are_not():
    X, y = np.ones((100, 2)), np.arange(100) % 2
    X[:, 1] = np.arange(100)
    X[[3, 4], 0] = [50.0, 2.0]
    AttnKNNClassifier(4, attention="uniform").fit(X, y)
    X[3, 0] = 1e9
    with pytest.warns(UserWarning, match="Row 3 .* column 0: .* is enormous"):
        AttnKNNClassifier(4, attention="uniform").fit(X, y)


def test_outliers_of_several_columns_make_one_warning(rng):
    X, y = rng.normal(size=(60, 40)), np.arange(60) % 2
    X[5] *= 1e6
    ids = [f"row {i}" for i in range(60)]
    with pytest.warns(UserWarning, match="Row 'row 5' .*in 39 more columns") as caught:
        AttnKNNClassifier(4, attention="uniform").fit(X, y, ids=ids)
    assert len(caught) == 1


# ---- empty sets


@pytest.fixture
def with_empty_sets():
    X, y = blobs(200, spread=0.3)
    clf = AttnKNNClassifier(8, attention="distance", random_state=0).fit(X, y)
    between = np.linspace(X[y == 0].mean(axis=0), X[y == 1].mean(axis=0), 21)
    assert (clf.predict_set(between, 0.5).sizes == 0).any()
    return clf, between


@pytest.mark.parametrize("method", ["leave_one_out", "jackknife+"])
def test_empty_sets_can_be_given_the_most_probable_class(with_empty_sets, method):
    clf, X = with_empty_sets
    plain = clf.predict_set(X, 0.5, method=method)
    full = clf.predict_set(X, 0.5, method=method, allow_empty=False)
    empty = plain.sizes == 0
    assert empty.any()
    assert (full.members[~empty] == plain.members[~empty]).all()
    assert [[label] for label in clf.predict(X[empty])] == np.array(full.labels())[empty].tolist()


def test_empty_sets_are_explained_where_they_are_shown(with_empty_sets):
    clf, X = with_empty_sets
    sets = clf.predict_set(X, 0.5)
    for shown in (str(sets), sets._repr_html_()):
        assert f"Empty sets: {(sets.sizes == 0).sum()}." in shown
        assert "allow_empty=False" in shown
    assert "Empty" not in str(PredictionSets(np.ones((2, 2), bool), np.arange(2), 0.9))


# ---- a second time


def test_saving_replaces_a_model_unless_that_is_refused(tmp_path):
    X, y = blobs(40)
    first = AttnKNNClassifier(4, attention="uniform").fit(X, y)
    second = AttnKNNClassifier(4, attention="uniform").fit(X[:30], y[:30])
    first.save(tmp_path / "model", overwrite=False)
    with pytest.raises(ModelFolderError, match=r"holds a model already.*`overwrite=True`"):
        second.save(tmp_path / "model", overwrite=False)
    assert len(AttnKNNClassifier.load(tmp_path / "model").memory_) == 40
    second.save(tmp_path / "model")
    assert len(AttnKNNClassifier.load(tmp_path / "model").memory_) == 30


def test_relabeling_to_the_same_labels_changes_nothing():
    X, y = blobs(60)
    clf = AttnKNNClassifier(8, attention="distance").fit(X, y)
    model = clf.relabel([3, 4], [2, 0]).model_
    assert clf.relabel([4, 3], [0, 2]).model_ is model


def test_relabeling_a_stored_model_to_the_same_labels_makes_no_log_entry(tmp_path):
    X, y = blobs(60)
    AttnKNNClassifier(8, attention="distance").fit(X, y).save(tmp_path / "model")
    with open_for_editing(tmp_path / "model") as model:
        model.relabel([3], (y[3] + 1) % 3)
        log = model.log()
        model.relabel([3], (y[3] + 1) % 3)
        assert model.log() == log
    with open_for_editing(tmp_path / "model") as model:
        model.relabel([3, 4], [(y[3] + 1) % 3, y[4]])
        assert model.log() == log
