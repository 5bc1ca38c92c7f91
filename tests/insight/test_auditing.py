"""The audit: wrong labels, copies and values, each against a plain way to compute it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import ATTENTIONS, blobs

from attnknn import AttnKNNClassifier
from attnknn.calibration import Calibration
from attnknn.errors import InvalidInputError, InvalidSettingError, NotFittedYetError
from attnknn.insight import audit
from attnknn.insight.auditing import label_posterior
from attnknn.research.evaluation.corruption import symmetric_noise


def fitted(attention="distance", *, n=90, rate=0.2, **settings):
    X, y = blobs(n, spread=0.4)
    noisy = symmetric_noise(y, rate, random_state=1, n_classes=3)
    settings = {"n_neighbors": 8, "random_state": 0, "label_noise": "symmetric", **settings}
    clf = AttnKNNClassifier(attention=ATTENTIONS[attention], **settings)
    return clf.fit(X, noisy), y, noisy


@pytest.mark.parametrize("label_noise", ["symmetric", "by_class"])
def test_probability_of_a_wrong_label_follows_from_leave_one_out_and_noise(label_noise):
    clf, _, observed = fitted(label_noise=label_noise, n=300)
    found, p = audit(clf), clf.leave_one_out_proba()
    rows, confusions = np.arange(len(p)), clf.model_.confusions()  # of the current labels
    right = np.diag(confusions)
    expected = 1 - right[observed] * p[rows, observed] / (p @ confusions)[rows, observed]
    assert found.label_noise == pytest.approx(clf.label_noise_, abs=0.03)
    assert found.label_noise > 0.05
    assert np.allclose(found.wrong, expected, atol=1e-12)
    assert np.allclose(found.label_error_score, 1 - p[rows, observed])
    assert found.expected_wrong == pytest.approx(expected.sum())
    agrees = found.suggested == found.labels
    assert np.allclose(found.suggested_probability[agrees], 1 - found.wrong[agrees])


def test_wrong_labels_are_found_counted_and_corrected():
    clf, true, observed = fitted(n=600)
    found = audit(clf)
    is_wrong = observed != true
    assert found.expected_wrong == pytest.approx(is_wrong.sum(), rel=0.2)
    assert is_wrong[found.order[:60]].mean() > 0.9
    likely = found.wrong > 0.9
    assert (found.suggested[likely] == true[likely]).mean() > 0.9
    assert found.value[is_wrong].mean() < 0 < found.value[~is_wrong].mean()


@pytest.mark.parametrize("label_noise", ["symmetric", "by_class"])
def test_labels_that_were_corrected_are_no_longer_found_wrong(label_noise):
    clf, true, observed = fitted(n=600, label_noise=label_noise)
    assert audit(clf).expected_wrong > 60
    half = np.flatnonzero(observed != true)[::2]
    clf.relabel(half, true[half])
    assert audit(clf).expected_wrong == pytest.approx(len(half), rel=0.3)
    clf.relabel(np.arange(600), true)
    found = audit(clf)
    assert found.expected_wrong < 5
    assert not (found.wrong > 0.5).any()


def test_without_label_noise_there_is_no_probability_and_label_error_score_ranks():
    clf, true, observed = fitted(label_noise=None, n=300)
    found = audit(clf)
    assert np.isnan(found.wrong).all()
    assert np.isnan(found.expected_wrong)
    assert np.isnan(found.label_noise)
    assert (found.suggested == clf.classes_[clf.leave_one_out_proba().argmax(axis=1)]).all()
    assert (np.diff(found.label_error_score[found.order]) <= 0).all()
    assert (observed != true)[found.order[:30]].mean() > 0.8
    assert "no probabilities (label noise not modeled: label_noise=None)" in str(found)
    assert "wrong  score" not in str(found)
    assert "<th>wrong</th>" not in found._repr_html_()
    assert found.to_frame()["wrong"].isna().all()


def test_labels_that_show_no_noise_have_no_probability_to_be_wrong():
    clf, *_ = fitted(rate=0.0, label_noise="auto", n=300)
    found = audit(clf)
    assert found.label_noise == clf.label_noise_ == 0.0
    assert "no probabilities (label noise none found, at most 0.0" in found.summary()
    assert np.isnan(found.wrong).all()


def test_labels_whose_noise_is_not_estimable_are_ranked_only(rng):
    X, y = rng.normal(size=(200, 3)), rng.integers(0, 2, 200)
    clf = AttnKNNClassifier(8, attention="distance", random_state=0).fit(X, y)
    found = audit(clf)
    assert np.isnan(clf.label_noise_)
    assert np.isnan(found.label_noise)
    assert "no probabilities (label noise not estimable: " in found.summary()
    assert (np.diff(found.label_error_score[found.order]) <= 0).all()


def test_noise_of_less_than_one_label_is_none():
    clf, true, _ = fitted()
    assert audit(clf).label_noise > 0.0
    clf.relabel(np.arange(90), true)
    assert audit(clf).label_noise == 0.0
    assert (audit(clf).wrong == 0).all()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"label_noise": "by_class"},
        {"label_noise": None},
        {"n_neighbors": 1, "attention": "uniform"},
    ],
)
def test_value_is_the_log_loss_that_the_others_lose_without_the_entry(settings):
    clf, _, _ = fitted(n=45, **settings)
    everyone = clf.model_.leave_one_out()

    def loss(may_vote):
        shares = clf.model_.answer_left_out(everyone.restricted(may_vote)).shares
        return clf.calibration_.losses(shares, everyone.own)

    now = loss(np.ones(45, dtype=bool))
    expected = [(loss(np.arange(45) != i) - now).sum() for i in range(45)]
    assert np.allclose(audit(clf).value, expected, atol=1e-9)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_an_audit_changes_nothing(attention):
    clf, _, _ = fitted(attention)
    X, _ = blobs(20, seed=5)
    before = clf.predict_proba(X).tobytes(), clf.leave_one_out_proba().tobytes()
    audit(clf)
    assert (clf.predict_proba(X).tobytes(), clf.leave_one_out_proba().tobytes()) == before


def test_copies_near_copies_and_conflicts_are_sets_of_ids():
    X, y = blobs(40)
    X = np.vstack([X, X[:1], X[1:2], X[2:3] + 1e-4, X[:1]])
    y = np.concatenate([y, [y[0], (y[1] + 1) % 3, y[2], y[0]]])
    ids = [f"row {i}" for i in range(44)]
    clf = AttnKNNClassifier(5, attention="distance").fit(X, y, ids=ids)
    found = audit(clf)
    assert set(found.exact_duplicates) == {
        frozenset({"row 0", "row 40", "row 43"}),
        frozenset({"row 1", "row 41"}),
    }
    assert found.near_duplicates == (frozenset({"row 2", "row 42"}),)
    assert found.conflicts == (frozenset({"row 1", "row 41"}),)
    assert audit(clf, near=0.0).near_duplicates == ()
    frame = found.to_frame().set_index("id")
    assert frame.loc["row 0", "duplicates"] == ("row 0", "row 40", "row 43")
    assert frame.loc["row 42", "near_duplicates"] == ("row 2", "row 42")
    assert frame["is_conflict"].sum() == 2


def test_contradicting_neighbors_carry_another_label():
    clf, _, _ = fitted()
    found = audit(clf)
    label = dict(zip(found.ids.tolist(), found.labels.tolist(), strict=True))
    assert max(len(those) for those in found.contradicted_by) == 3
    for own, those in zip(found.labels, found.contradicted_by, strict=True):
        assert all(label[one] != own for one in those.tolist())


def test_the_frame_is_in_the_order_of_the_ranking_and_says_the_same():
    clf, _, _ = fitted()
    found = audit(clf)
    frame = found.to_frame()
    assert frame["id"].tolist() == found.ranking.tolist()
    assert frame["wrong"].is_monotonic_decreasing
    assert np.array_equal(frame["value"], found.value[found.order])


@pytest.mark.parametrize(
    ("X", "y"),
    [([[0.0]], [0]), ([[0.0], [0.0]], [0, 1]), ([[0.0], [1.0], [2.0]], ["a", "a", "a"])],
)
def test_few_entries_and_one_class_have_an_audit(X, y):
    found = audit(AttnKNNClassifier(attention="distance").fit(X, y))
    assert len(found) == len(y)
    assert np.isfinite(found.label_error_score).all()
    assert np.isfinite(found.value).all()
    assert str(found)


@pytest.mark.parametrize("metric", ["cosine", "inner_product"])
def test_other_metrics_have_an_audit(metric):
    clf, _, _ = fitted(metric=metric)
    found = audit(clf)
    assert np.isfinite(found.value).all()
    assert metric == "cosine" or found.near_distance == 0.0


def test_exact_duplicates_within_a_group_are_found():
    X, y = blobs(30)
    X, y = np.repeat(X, 2, axis=0), np.repeat(y, 2)
    clf = AttnKNNClassifier(5, attention="distance").fit(X, y, groups=np.repeat(np.arange(30), 2))
    assert len(audit(clf).exact_duplicates) == 30


def test_errors_name_what_cannot_be_audited():
    with pytest.raises(NotFittedYetError, match="Call `fit` before `audit`"):
        audit(AttnKNNClassifier())
    clf, _, _ = fitted()
    with pytest.raises(InvalidSettingError, match="`near` must be a finite number"):
        audit(clf, near=-1.0)
    with pytest.raises(InvalidInputError, match="every entry was forgotten"):
        audit(clf.forget(np.arange(90)))


rows_of_chances = st.lists(st.integers(1, 100), min_size=3, max_size=3).map(
    lambda counts: np.array(counts) / sum(counts)
)


@given(
    p=st.lists(rows_of_chances, min_size=1, max_size=5),
    noise=st.floats(0.01, 0.6),
    own=st.integers(0, 2),
)
def test_symmetric_noise_is_a_transition_with_equal_others(p, noise, own):
    transition = np.full((3, 3), noise / 2)
    np.fill_diagonal(transition, 1 - noise)
    labels = np.full(len(p), own)
    plain = label_posterior(np.array(p), labels, Calibration(label_noise=noise))
    by_class = label_posterior(np.array(p), labels, Calibration(1.0, noise, transition))
    assert np.allclose(plain.wrong, by_class.wrong)
    assert ((plain.wrong >= 0) & (plain.wrong <= 1 + 1e-12)).all()
    right = (1 - noise) * np.array(p)[:, own]
    observed = right + noise / 2 * (1 - np.array(p)[:, own])
    assert np.allclose(plain.wrong, 1 - right / observed)


def test_a_confusion_that_never_happens_is_never_suggested():
    transition = np.array([[0.8, 0.2, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    p = np.array([[0.3, 0.1, 0.6]])
    found = label_posterior(p, np.array([1]), Calibration(1.0, 0.1, transition))
    assert found.suggested.tolist() == [1]
    assert found.wrong[0] == pytest.approx(0.3 * 0.2 / (0.3 * 0.2 + 0.1))


def test_without_noise_the_others_suggest():
    found = label_posterior(np.array([[0.3, 0.7]]), np.array([0]), Calibration())
    assert (found.wrong.tolist(), found.suggested.tolist()) == ([0.0], [1])
    assert found.label_error_score.tolist() == pytest.approx([0.7])


def test_small_probabilities_keep_their_digits():
    found = label_posterior(np.array([[1 - 1e-14, 1e-14]]), np.array([0]), Calibration(1.0, 0.1))
    assert found.wrong[0] == pytest.approx(1e-14 / 9, rel=1e-6)


def test_long_labels_are_cut_in_the_text_table():
    X, y = blobs(60)
    names = np.array(["sixteen letters!", "seventeen letters", "c"])[y]
    table = audit(AttnKNNClassifier(5, attention="distance").fit(X, names)).table(60)
    assert "sixteen letters! " in table
    assert "seventeen lette… " in table
    assert "seventeen letters" not in table
