"""Audits and hypothetical edits as DataFrames, HTML and plots."""

from __future__ import annotations

import re

import numpy as np
import pytest
from strategies import blobs

from attnknn import AttnKNNClassifier
from attnknn.insight import audit, what_if
from attnknn.research.evaluation.corruption import symmetric_noise


@pytest.fixture(scope="module")
def clf():
    X, y = blobs(120, spread=0.4)
    names = np.array(["<i>ape</i>", "bee", "cat"])[symmetric_noise(y, 0.2, random_state=1)]
    settings = {"attention": "distance", "label_noise": "symmetric", "random_state": 0}
    return AttnKNNClassifier(8, **settings).fit(X, names)


def test_html_of_an_audit_lists_the_first_entries_and_is_escaped(clf):
    found = audit(clf)
    html = found._repr_html_()
    assert "<i>" not in html
    widths = [float(width) for width in re.findall(r"width: ([\d.]+)%", html)]
    assert widths[::2] == pytest.approx(100 * found.wrong[found.order[:10]], abs=0.06)
    assert widths[1::2] == pytest.approx(100 * found.label_error_score[found.order[:10]], abs=0.06)
    for name in found.ranking[:10]:
        assert f"#{name}<" in html
    for line in found.summary().splitlines():
        assert line[18:] in html


def test_frame_and_html_of_what_if_agree_with_its_text(clf):
    X, _ = blobs(15, seed=3)
    tried = what_if(clf, X, relabel=dict.fromkeys(range(60), "bee"))
    frame = tried.to_frame()
    assert np.flatnonzero(frame["is_changed"]).tolist() == tried.changed.tolist()
    assert frame["shift"].tolist() == tried.shift.tolist()
    for row, line in frame.iterrows():
        before = f"{line['label_before']} {line['probability_before']:.3f}"
        assert (
            tried.line(row) == f"{before} → {line['label_after']} {line['probability_after']:.3f}"
        )
    html = tried._repr_html_()
    assert "<i>" not in html
    assert tried.sentence() in html


def test_plots_draw_every_entry_and_row(clf):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    ax = audit(clf).plot()
    assert sum(len(points.get_offsets()) for points in ax.collections) == 120
    _, ax = pyplot.subplots()
    X, _ = blobs(15, seed=3)
    assert what_if(clf, X, forget=[0]).plot(ax) is ax
    assert len(ax.collections[0].get_offsets()) == 15
    pyplot.close("all")
