"""Votes in the space of a cross-fitted linear classifier's scores."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from attnknn import AttnKNNClassifier
from attnknn.attention import MixtureAttention, ProjectionAttention
from attnknn.attention.projection import cross_fit
from attnknn.errors import InvalidSettingError, ModelFolderError

X, Y = load_breast_cancer(return_X_y=True)
TRAIN, LABELS, TEST = X[::2], Y[::2], X[1::2]


def fitted(attention="projection", **settings) -> AttnKNNClassifier:
    return AttnKNNClassifier(attention=attention, random_state=0, **settings).fit(TRAIN, LABELS)


def straight_line(n: int, seed: int = 0):
    """Many weak columns, of which a weighted sum decides."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(size=(n, 30))
    weights = np.random.default_rng(1).normal(size=30)
    return rows, (rows @ weights + generator.normal(size=n) > 0).astype(int)


def test_votes_on_scores_are_better_where_a_straight_line_separates_the_classes():
    (rows, labels), (new, truth) = straight_line(400), straight_line(400, seed=5)
    losses = {
        name: log_loss(
            truth, AttnKNNClassifier(attention=name).fit(rows, labels).predict_proba(new)
        )
        for name in ("distance", "projection")
    }
    linear = log_loss(truth, LogisticRegression().fit(rows, labels).predict_proba(new))
    assert losses["projection"] < 0.7 * losses["distance"]
    assert losses["projection"] < 1.3 * linear


def test_the_labels_of_a_fold_do_not_move_its_own_projection():
    folds = np.arange(len(TRAIN)) % 5
    rows = TRAIN.astype(np.float32)
    swapped = [7, next(i for i in range(12, len(TRAIN), 5) if LABELS[i] != LABELS[7])]
    changed = LABELS.copy()  # class frequencies, which all folds share, stay as they are
    changed[swapped] = 1 - LABELS[swapped]
    one, other = (
        cross_fit(rows, labels, np.ones(len(rows)), folds, 5)[0] for labels in (LABELS, changed)
    )
    np.testing.assert_array_equal(one[folds[7]], other[folds[7]])
    assert not np.array_equal(one[(folds[7] + 1) % 5], other[(folds[7] + 1) % 5])


def test_rows_of_a_group_are_in_one_fold():
    groups = np.arange(len(TRAIN)) // 4
    clf = AttnKNNClassifier(attention="projection").fit(TRAIN, LABELS, groups=groups)
    voters = clf.attention_.left_out_voters(clf.model_, np.arange(len(TRAIN)))
    own = groups[voters.neighbors.positions] == groups[:, None]
    assert not (own & voters.neighbors.mask).any()


def test_random_labels_are_predicted_at_chance():
    rows = np.random.default_rng(0).normal(size=(300, 20))
    labels = np.random.default_rng(1).integers(2, size=300)
    clf = AttnKNNClassifier(attention="projection").fit(rows, labels)
    assert (clf.leave_one_out_proba().argmax(axis=1) == labels).mean() < 0.58


def test_the_scale_of_the_columns_does_not_matter():
    stretched = TRAIN * np.logspace(-3, 3, TRAIN.shape[1])
    one = fitted().fit_report_.log_loss
    other = AttnKNNClassifier(attention="projection", random_state=0).fit(stretched, LABELS)
    assert other.fit_report_.log_loss == pytest.approx(one, abs=0.02)


def test_a_class_of_one_row_and_a_new_class_can_be_predicted():
    labels = LABELS.copy()
    labels[3] = 2
    clf = AttnKNNClassifier(attention="projection", random_state=0).fit(TRAIN, labels)
    assert np.isfinite(clf.predict_proba(TEST)).all()
    before = clf.predict_proba(TRAIN[:1] * 3).shape
    clf.add(TRAIN[:1] * 3, [7])
    assert clf.predict_proba(TEST).shape == (len(TEST), 4)
    assert before == (1, 3)
    clf.add(np.repeat(TRAIN[:1] * 3, 60, axis=0), np.full(60, 7))
    assert clf.predict(TRAIN[:1] * 3).tolist() == [7]


@pytest.mark.parametrize(
    "attention", ["projection", MixtureAttention(("distance", "projection"))], ids=str
)
def test_a_stored_projection_predicts_the_same_bytes(tmp_path, attention):
    clf = fitted(attention)
    clf.save(tmp_path / "model")
    loaded = AttnKNNClassifier.load(tmp_path / "model")
    assert loaded.predict_proba(TEST).tobytes() == clf.predict_proba(TEST).tobytes()
    edits = (lambda c: c.forget([2, 9]).relabel([4], 1 - LABELS[4]).add(TEST[:2], [0, 1]),)
    for edit in edits:
        assert edit(loaded).predict_proba(TEST).tobytes() == edit(clf).predict_proba(TEST).tobytes()


def test_stored_projections_that_do_not_fit_are_refused():
    values, tensors = fitted().attention_.state()
    with pytest.raises(ModelFolderError, match="projections"):
        ProjectionAttention().restore(values, tensors, dim=3, n_classes=2)


def test_one_fold_is_refused():
    with pytest.raises(InvalidSettingError, match="n_folds"):
        fitted(ProjectionAttention(n_folds=1))
