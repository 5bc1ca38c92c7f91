"""Prediction sets and decisions as DataFrames, HTML and plots."""

from __future__ import annotations

import re

import numpy as np
import pytest
from strategies import blobs

from attnknn import AttnKNNClassifier, PredictionSets


@pytest.fixture(scope="module")
def clf():
    X, y = blobs(300, spread=0.6)
    names = np.array(["<b>ape</b>", "bee", "cat"])[y]
    return AttnKNNClassifier(8, attention="distance", random_state=0).fit(X, names)


@pytest.fixture(scope="module")
def rows():
    return blobs(60, spread=0.6, seed=1)[0]


def test_frame_of_sets_agrees_with_their_labels(clf, rows):
    sets = clf.predict_set(rows, coverage=0.98)
    frame = sets.to_frame()
    assert frame["labels"].map(list).tolist() == sets.labels()
    assert frame["size"].tolist() == sets.sizes.tolist()
    assert frame["has_bee"].tolist() == sets.members[:, 1].tolist()


def test_html_of_sets_is_escaped_and_its_bars_sum_to_one(clf, rows):
    html = clf.predict_set(rows, coverage=0.98)._repr_html_()
    assert "<b>" not in html
    assert "&lt;b&gt;ape" in html
    assert "50 more rows" in html
    widths = [float(width) for width in re.findall(r"width: ([\d.]+)%", html)]
    assert sum(widths) == pytest.approx(100, abs=0.3)


def test_an_empty_set_is_shown():
    sets = PredictionSets(np.zeros((1, 2), bool), np.array(["a", "b"]), 0.9)
    assert "∅" in sets._repr_html_()
    assert len(PredictionSets(np.zeros((0, 2), bool), np.array(["a", "b"]), 0.9)._repr_html_())


def test_frame_and_html_of_decisions_agree(clf, rows):
    decisions = clf.decide(rows, min_confidence=0.9)
    frame = decisions.to_frame()
    assert frame["label"].tolist() == decisions.labels()
    assert frame["reason"].tolist() == decisions.reasons
    html = decisions._repr_html_()
    assert "<b>" not in html
    assert f"{decisions.is_answered.sum()} of 60 rows answered" in html
    assert "50 more rows" in html
    assert html.count("abstains") == (~decisions.is_answered[:10]).sum() > 0


def test_plots_draw_every_row(clf, rows):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    ax = clf.predict_set(rows).plot()
    assert sum(bar.get_height() for bar in ax.patches) == 60
    assert ax.get_title() == "Prediction sets, coverage 0.9"
    _, ax = pyplot.subplots()
    assert clf.decide(rows, min_confidence=0.9).plot(ax) is ax
    assert sum(len(points.get_offsets()) for points in ax.collections) == 60
    pyplot.close("all")
