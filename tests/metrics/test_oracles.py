"""Metrics agree with scikit-learn and torchmetrics wherever those define them."""

from __future__ import annotations

import inspect
import warnings
from importlib import import_module

import numpy as np
import pytest
import sklearn.metrics as oracle
from hypothesis import given, settings

from attnknn import metrics

from .answers import HARD, any_answers, random_answers

ANSWERS = [random_answers(seed, sharpness=1.0 + 3.0 * seed) for seed in range(3)]
ANSWERS += [random_answers(3, n=1), random_answers(4, n=7, n_classes=30), *HARD.values()]
CLOSE = 1e-9
BINS = (1, 10, 15)
ONE_NOW = [ANSWERS[0], *(pytest.param(*pair, marks=pytest.mark.slow) for pair in ANSWERS[1:])]


def scikit_learn_scores(y, p):
    """Every score that scikit-learn defines."""
    predicted, codes = p.argmax(axis=1), np.arange(p.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of predicted classes that are never true
        return {
            "accuracy": oracle.accuracy_score(y, predicted),
            "balanced_accuracy": oracle.balanced_accuracy_score(y, predicted),
            "macro_f1": oracle.f1_score(y, predicted, average="macro"),
            "nll": oracle.log_loss(y, p, labels=codes),
            "brier": len(codes) * oracle.mean_squared_error(np.eye(len(codes))[y], p),
        }


def check_scikit_learn(y, p):
    y = np.asarray(y)
    expected, found = scikit_learn_scores(y, p), metrics.score_all(y, p).to_dict()
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=CLOSE)
    for name, value in expected.items():
        assert getattr(metrics, name)(y, p) == pytest.approx(value, abs=CLOSE)
    counts = oracle.confusion_matrix(y, p.argmax(axis=1), labels=np.arange(p.shape[1]))
    assert (metrics.confusion_matrix(y, p) == counts).all()


@pytest.mark.parametrize(("y", "p"), ANSWERS)
def test_scores_equal_those_of_scikit_learn(y, p):
    check_scikit_learn(y, p)


@given(any_answers())
@settings(max_examples=30)
def test_scores_of_any_answers_equal_those_of_scikit_learn(pair):
    check_scikit_learn(*pair)


def test_scores_equal_scikit_learn_where_classes_are_missing_from_truth_or_prediction():
    y = np.array([0, 0, 2, 2, 2])
    p = np.eye(4)[[0, 1, 2, 1, 2]]  # class 1 never true, class 3 neither true nor predicted
    check_scikit_learn(y, p)


@pytest.mark.skipif(
    "scale_by_half" not in inspect.signature(oracle.brier_score_loss).parameters,
    reason="this scikit-learn has the Brier score of two classes only",
)
@pytest.mark.parametrize(("y", "p"), ANSWERS)
def test_the_brier_score_equals_that_of_scikit_learn(y, p):
    codes = np.arange(p.shape[1])
    expected = oracle.brier_score_loss(y, p, labels=codes, scale_by_half=False)
    assert metrics.brier(y, p) == pytest.approx(expected, abs=CLOSE)


# What follows needs torchmetrics, whose import takes two or three seconds: ordinary tests hold each
# family of metrics to it once, slow ones in every case. Its public functions round to float32;
# those below them keep the precision that they are given.


@pytest.fixture(scope="module")
def calibration_error():
    """Theirs in float64, of confidences and whether each was right; 1 belongs to the last bin.

    torchmetrics gives a confidence of exactly 1 a bin of its own, which none of the published
    definitions has: it is handed the largest number below 1 instead.
    """
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchmetrics")
    theirs = import_module("torchmetrics.functional.classification.calibration_error")._ce_compute

    def compute(confidence, is_right, n_bins, norm):
        below_one = np.minimum(confidence, np.nextafter(1.0, 0.0))
        edges = torch.tensor(np.linspace(0, 1, n_bins + 1))
        right = torch.tensor(is_right, dtype=torch.float64)
        return float(theirs(torch.tensor(below_one), right, edges, norm=norm))

    return compute


def check_calibration(y, p, calibration_error):
    confidence, is_right = p.max(axis=1), p.argmax(axis=1) == y
    for n_bins in BINS:
        for norm, metric in (("l1", metrics.ece), ("max", metrics.mce)):
            expected = calibration_error(confidence, is_right, n_bins, norm)
            assert metric(y, p, n_bins=n_bins) == pytest.approx(expected, abs=CLOSE)
        by_class = [
            calibration_error(predicted, np.asarray(y) == code, n_bins, "l1")
            for code, predicted in enumerate(p.T)
        ]
        found = metrics.ece_by_class(y, p, n_bins=n_bins)
        assert found == pytest.approx(by_class, abs=CLOSE)


@pytest.mark.parametrize(("y", "p"), ONE_NOW)
def test_calibration_errors_equal_those_of_torchmetrics(y, p, calibration_error):
    check_calibration(y, p, calibration_error)


@pytest.mark.slow
def test_ties_and_edges_of_bins_equal_those_of_torchmetrics(calibration_error):
    y, p = random_answers(0)
    p[:3] = [[0.2] * 5, [1 / 3, 1 / 3, 1 / 3, 0, 0], [0.5, 0.5, 0, 0, 0]]
    check_calibration(y, p, calibration_error)


@pytest.mark.slow
@given(pair=any_answers())
@settings(max_examples=50)
def test_calibration_errors_of_any_answers_equal_those_of_torchmetrics(pair, calibration_error):
    check_calibration(*pair, calibration_error)


@pytest.mark.parametrize(("y", "p"), ONE_NOW)
def test_counts_and_their_means_equal_those_of_torchmetrics(y, p):
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("torchmetrics.functional.classification")
    n_classes = p.shape[1]
    asked = torch.tensor(p), torch.tensor(np.asarray(y))
    counts = functional.multiclass_confusion_matrix(*asked, num_classes=n_classes)
    assert (metrics.confusion_matrix(y, p) == counts.numpy()).all()
    scores = functional.multiclass_stat_scores(*asked, num_classes=n_classes, average=None)
    hits, false_alarms, rest, misses = scores[:, :4].double().T
    f_beta = import_module("torchmetrics.functional.classification.f_beta")._fbeta_reduce
    expected = f_beta(hits, false_alarms, rest, misses, beta=1.0, average="macro")
    assert metrics.macro_f1(y, p) == pytest.approx(float(expected), abs=CLOSE)
    reduce = import_module("torchmetrics.functional.classification.accuracy")._accuracy_reduce
    expected = reduce(hits, false_alarms, rest, misses, average="micro")
    assert metrics.accuracy(y, p) == pytest.approx(float(expected), abs=CLOSE)
    if (hits + misses > 0)[false_alarms > 0].all():  # else theirs counts classes without rows
        expected = reduce(hits, false_alarms, rest, misses, average="macro")
        assert metrics.balanced_accuracy(y, p) == pytest.approx(float(expected), abs=CLOSE)


@pytest.mark.slow
def test_ece_equals_the_public_torchmetrics_function_up_to_float32():
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("torchmetrics.functional.classification")
    y, p = random_answers(0)
    for norm, metric in (("l1", metrics.ece), ("max", metrics.mce)):
        theirs = functional.multiclass_calibration_error(
            torch.tensor(p), torch.tensor(y), num_classes=5, n_bins=15, norm=norm
        )
        assert metric(y, p) == pytest.approx(float(theirs), abs=1e-6)
