"""The fit report as text, DataFrame, HTML and plot."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
from strategies import blobs

from attnknn import AttnKNNClassifier


@pytest.fixture(scope="module")
def report():
    return AttnKNNClassifier(8, attention="distance", random_state=0).fit(*blobs(60)).fit_report_


def test_frame_has_one_column_per_attribute(report):
    expected = asdict(report) | {"candidates": "; ".join(map(str, report.candidates))}
    assert report.to_frame().iloc[0].to_dict() == expected


def test_html_shows_what_the_text_says_and_is_escaped(report):
    html = replace(report, reason="<script>", value_head="a < b")._repr_html_()
    assert "<script>" not in html
    assert "a &lt; b" in html
    assert f"log-loss {report.log_loss:.4f}" in html
    for share in (report.accuracy, report.oracle_accuracy, report.label_noise, report.duplicates):
        assert f"width: {100 * share:.1f}%" in html


def test_label_noise_is_shown_with_its_error_or_the_reason_why_there_is_none(report):
    found = replace(report, label_noise=0.148, label_noise_error=0.012, no_estimate="")
    assert "label noise       0.148 ± 0.012" in str(found)
    assert "0.148 ± 0.012" in found._repr_html_()
    reason = "not estimable: there is one class"
    unknown = replace(report, label_noise=float("nan"), no_estimate=reason)
    assert f"label noise       {reason}" in str(unknown)
    assert reason in unknown._repr_html_()
    assert "nan" not in str(unknown) + unknown._repr_html_()


def test_plot_leaves_out_noise_that_is_not_estimable(report):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    unknown = replace(report, label_noise=float("nan"), no_estimate="not estimable: …")
    assert len(unknown.plot().patches) == len(report.plot(pyplot.figure().gca()).patches) - 1
    pyplot.close("all")


def test_plot_draws_shares(report):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    ax = report.plot()
    assert ax.patches[0].get_width() == pytest.approx(report.accuracy)
    pyplot.close("all")
