"""Figures show what they are given, from where it starts, with nothing cut off."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from attnknn.metrics import reliability_bins, risk_coverage
from attnknn.metrics.calibration import bins_of_confidence
from attnknn.research.evaluation.illustrations import embedding_map, one_vs_rest
from attnknn.research.evaluation.intervals import Interval
from attnknn.research.reports import figures
from attnknn.training.config import TrainResult

Y, P = np.array([0, 1, 1, 0]), np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [1.0, 0.0]])

FIVE = {f"a method of a long name, number {n}": reliability_bins(Y, P) for n in range(5)}

GRAY = np.zeros((1, 4, 4), dtype=np.uint8)

WITH_TERMS = TrainResult(
    [0.5, 0.4],
    [0.9, 0.6, 0.7],
    components={name: [0.3, 0.2] for name in ("vote", "head", "c", "d")},
)


def map_of(n_classes, names=None):
    """The map of 40 random rows."""
    X, codes = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % n_classes
    return embedding_map(X, np.arange(40), codes, names or [f"class {n}" for n in range(n_classes)])


def assert_all_inside(figure):
    """Everything that is drawn lies on the figure."""
    box = figure.get_tightbbox(figure.canvas.get_renderer())  # inches
    width, height = figure.get_size_inches()
    assert box.x0 >= -0.02
    assert box.y0 >= -0.02
    assert box.x1 <= width + 0.02
    assert box.y1 <= height + 0.02


FIGURES = [
    "reliability",
    "reliabilities",
    "comparison",
    "lines",
    "training_curves",
    "risk",
    "confusions",
    "many",
    "one_vs_rest",
    "embedding_map",
    "many_classes",
    "image_rows",
    "components",
]


@pytest.fixture(params=FIGURES, scope="module")
def figure(request):
    value = Interval(0.5, 0.4, 0.6)
    return {
        "reliability": lambda: figures.reliability(reliability_bins(Y, P), "title"),
        "reliabilities": lambda: figures.reliabilities(FIVE, dict.fromkeys(FIVE, 0.1), "title"),
        "one_vs_rest": lambda: figures.one_vs_rest(one_vs_rest(Y, P), ["of a long name", "b"], "t"),
        "embedding_map": lambda: figures.embedding_map(map_of(3), np.arange(40) < 4, "title"),
        "many_classes": lambda: figures.embedding_map(map_of(30), np.arange(40) < 4, "title"),
        "image_rows": lambda: figures.image_rows(
            [[(np.zeros((3, 4, 4), dtype=np.uint8), "row 1\na")] * 2, [(GRAY, "row 2\nb")]], "title"
        ),
        "components": lambda: figures.component_curves(dict.fromkeys("ab", WITH_TERMS), "title"),
        "comparison": lambda: figures.comparison(
            {"a method of a long name": value, "b": value}, "title", ours="b"
        ),
        "lines": lambda: figures.lines(
            [1, 2, 4], {"a": [value] * 3}, "title", across="K", up="log-loss", is_log=True
        ),
        "training_curves": lambda: figures.training_curves(
            {"a run of a long name": TrainResult([0.5, 0.4], [0.9, 0.6, 0.7])}, "title"
        ),
        "risk": lambda: figures.risk_and_coverage({"a": risk_coverage(Y, P)}, "title"),
        "confusions": lambda: figures.confusions(
            np.eye(3, dtype=int), ["a class of a long name", "b", "c"], "title"
        ),
        "many": lambda: figures.confusions(np.eye(77, dtype=int), list(map(str, range(77))), "t"),
    }[request.param]()


def test_nothing_is_cut_off(figure):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    figure.canvas.draw()
    assert_all_inside(figure)


def test_figures_become_files_the_same_every_time(figure):
    for ending, start in (("png", b"\x89PNG"), ("pdf", b"%PDF")):
        first = figures.as_bytes(figure, ending)
        assert first.startswith(start)
        assert first == figures.as_bytes(figure, ending)


def test_reliability_diagrams_stand_side_by_side_on_the_same_axes():
    figure = figures.reliabilities(FIVE, dict.fromkeys(FIVE, 0.1), "title")
    shown = [panel for panel in figure.axes if panel.get_visible()]
    assert len(shown) == len(FIVE)
    assert (
        {panel.get_xlim() for panel in shown} == {panel.get_ylim() for panel in shown} == {(0, 1)}
    )
    assert [panel.get_subplotspec().rowspan.start for panel in shown] == [0, 0, 0, 0, 1]


def test_errors_are_crosses_in_a_map_of_the_classes():
    found, is_wrong = map_of(3), np.arange(40) < 4
    figure = figures.embedding_map(found, is_wrong, "title")
    (panel,), (legend,) = figure.axes, figure.legends
    *classes, crosses = panel.collections
    assert [len(points.get_offsets()) for points in classes] == [14, 13, 13]
    assert np.allclose(crosses.get_offsets(), found.points[:4])
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["class 0", "class 1", "class 2", "error"]
    (legend,) = figures.embedding_map(map_of(30), is_wrong, "title").legends
    assert [text.get_text() for text in legend.get_texts()] == ["test rows", "error"]


def test_axes_start_where_the_quantity_starts():
    above, below = figures.reliability(reliability_bins(Y, P), "title").axes
    assert above.get_ylim() == (0, 1)
    assert above.get_xlim() == (0, 1)
    assert below.get_ylim()[0] == 0
    (panel,) = figures.risk_and_coverage({"a": risk_coverage(Y, P)}, "title").axes
    assert panel.get_ylim()[0] == 0
    assert panel.get_xlim() == (0, 1)


def test_a_long_range_without_errors_is_named_and_not_drawn():
    truth, sure = np.zeros(100, dtype=int), np.linspace(0.99, 0.6, 100)
    truth[93:] = 1
    curve = risk_coverage(truth, np.c_[sure, 1 - sure])
    (panel,) = figures.risk_and_coverage({"a": curve}, "title").axes
    assert panel.get_xlim() == (0.9, 1)
    assert "no errors up to 0.9" in panel.get_xlabel()
    at_the_border = risk_coverage((np.arange(100) == 89).astype(int), np.c_[sure, 1 - sure])
    (panel,) = figures.risk_and_coverage({"a": at_the_border}, "title").axes
    assert panel.get_xlim() == (0.85, 1)  # at 0.9 an answer is wrong
    right = risk_coverage(np.zeros(100, dtype=int), np.c_[sure, 1 - sure])
    (panel,) = figures.risk_and_coverage({"a": right}, "title").axes
    assert panel.get_xlim() == (0, 1)


def test_whiskers_stay_between_zero_and_one():
    reach = figures._inside(np.array([0.0, 0.5, 1.0]), np.array([0.2, 0.2, 0.2]))
    assert reach.tolist() == [[0.0, 0.2, 0.2], [0.2, 0.2, 0.0]]


def test_every_line_looks_like_no_other():
    n_lines = 2 * len(figures.COLORS) + 1
    curves = {str(place): risk_coverage(Y, P) for place in range(n_lines)}
    figure = figures.risk_and_coverage(curves, "title")
    (panel,), (legend,) = figure.axes, figure.legends
    assert len({(line.get_color(), line.get_linestyle()) for line in panel.lines}) == n_lines
    assert len(legend.get_texts()) == n_lines
    value = Interval(0.5, 0.4, 0.6)
    values = {str(place): [value, value] for place in range(n_lines)}
    (panel,) = figures.lines([1, 2], values, "title", across="K", up="log-loss").axes
    assert len({(line.get_color(), line.get_linestyle()) for line in panel.lines}) == n_lines


@pytest.mark.parametrize("n_lines", [10, 34, 75])
def test_a_long_legend_stands_whole_beside_the_panel(n_lines):
    curves = {f"method {place}, views": risk_coverage(Y, P) for place in range(n_lines)}
    figure = figures.risk_and_coverage(curves, "title")
    figure.draw_without_rendering()
    (panel,), (legend,) = figure.axes, figure.legends
    names, measurements = legend.get_window_extent(), figure.bbox
    assert measurements.x0 <= names.x0
    assert names.x1 <= measurements.x1
    assert measurements.y0 <= names.y0
    assert names.y1 <= measurements.y1
    assert panel.get_tightbbox().x1 <= names.x0
    assert panel.bbox.width > 200


def test_lines_in_one_place_have_other_strokes():
    looks = figures._looks(9)
    assert all(a["linestyle"] != b["linestyle"] for a, b in pairwise(looks))


def test_one_line_needs_no_legend():
    (panel,) = figures.risk_and_coverage({"a": risk_coverage(Y, P)}, "title").axes
    assert panel.get_legend() is None


def test_few_answers_are_seen_beside_many():
    confidence = np.r_[np.full(5000, 0.99), 0.3]
    bins = bins_of_confidence(confidence, np.ones(5001, dtype=bool), 15)
    above, below = figures.reliability(bins, "title").axes
    assert [text.get_text() for text in below.texts] == ["1", "5,000"]
    points = above.lines[1]
    assert points.get_ydata().max() == 1
    assert not points.get_clip_on()


def test_counts_of_a_confusion_matrix_can_be_read():
    matrix = np.array([[3, 0], [1, 5]])
    (panel,) = figures.confusions(matrix, ["a", "b"], "title").axes
    assert sorted(text.get_text() for text in panel.texts) == ["1", "3", "5"]


ODD = ["$x^{", "a_b$c", r"\frac", "^{", "100 % {#&~}"]


def odd_figures():
    value = Interval(0.5, 0.4, 0.6)
    yield figures.reliability(reliability_bins(Y, P), ODD[0])
    bins = dict.fromkeys(ODD, reliability_bins(Y, P))
    yield figures.reliabilities(bins, dict.fromkeys(ODD, 0.1), ODD[0])
    yield figures.one_vs_rest(one_vs_rest(Y, P), ODD, ODD[0])
    yield figures.embedding_map(map_of(len(ODD), ODD), np.arange(40) < 4, ODD[0])
    yield figures.image_rows([[(GRAY, ODD[0])]], ODD[1])
    terms = {name: [0.5] for name in ODD}
    odd = TrainResult([0.5], [0.9, 0.6], components=terms)
    yield figures.component_curves(dict.fromkeys(ODD, odd), ODD[0])
    yield figures.comparison(dict.fromkeys(ODD, value), ODD[0])
    values = {name: [value, value] for name in ODD}
    yield figures.lines([1, 2], values, ODD[0], across=ODD[1], up=ODD[0])
    yield figures.training_curves({name: TrainResult([0.5], [0.9, 0.6]) for name in ODD}, ODD[0])
    yield figures.risk_and_coverage({name: risk_coverage(Y, P) for name in ODD}, ODD[0])
    yield figures.confusions(np.eye(len(ODD), dtype=int), ODD, ODD[0])


def test_signs_in_names_begin_no_formula():
    for figure in odd_figures():
        assert figures.as_bytes(figure, "png").startswith(b"\x89PNG")
        assert figures.as_bytes(figure, "pdf").startswith(b"%PDF")


def test_dollars_in_names_are_drawn():
    """Between two dollars a formula would be drawn, without them and without spaces."""
    figure = figures.confusions(np.eye(2, dtype=int), ["$a b$", "c"], "$t i$")
    (panel,) = figure.axes
    texts = [panel.title, *panel.get_xticklabels(), *panel.get_yticklabels()]
    assert not any(text.get_parse_math() for text in texts)
