"""The page, its PDF, and the files of its figures and tables."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from sklearn.metrics import (
    average_precision_score,
    f1_score,
    precision_recall_fscore_support,
    roc_auc_score,
)

from attnknn._escape import markdown_text
from attnknn.errors import InvalidInputError
from attnknn.research.evaluation.error_analysis import Mistake, worst_mistakes
from attnknn.research.evaluation.report import add_table
from attnknn.research.reports.collecting import collected
from attnknn.research.reports.model import model_sections
from attnknn.research.reports.page import Drawing, Grid, Section, html_page
from attnknn.research.reports.tables import best_places, bins_of, curve, table_section
from attnknn.research.reports.writing import (
    ACROSS,
    _columns,
    _paged,
    _sheets,
    _text,
    latex,
    markdown,
    write_report,
)


class Checked(HTMLParser):
    """Collects tags, and that each is closed."""

    empty = frozenset({"meta", "img", "br"})

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.links, self.ids = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href")]
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in self.empty:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(page):
    parser = Checked()
    parser.feed(page)
    assert parser.open == []
    assert len(set(parser.ids)) == len(parser.ids)
    return parser


def test_a_report_is_whole_and_needs_nothing_else(section, tmp_path):
    page = write_report(tmp_path / "out", "A title", [section], ["Where from."])
    content = page.read_text()
    parser = checked(content)
    assert parser.seen.count("img") == 6
    assert all(link.startswith("data:image/png") for link in parser.links)
    assert "http" not in content
    assert "A title" in content
    assert "Where from." in content
    names = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert {f"wine-reliability.{ending}" for ending in ("png", "pdf")} <= names
    assert (tmp_path / "out" / "report.pdf").read_bytes().startswith(b"%PDF")
    assert "attnknn" in (tmp_path / "out" / "tables" / "wine.tex").read_text()


def test_every_number_of_the_table_stands_on_the_page(table, section):
    page = html_page("t", [section])
    for method in table.methods:
        for metric in ("accuracy", "macro_f1", "nll", "brier", "ece", "debiased_ece"):
            assert f"{table.mean(metric, method):.4f}" in page


def test_figures_compare_the_calibration_of_all_methods(table, section):
    figure_of = {drawing.name: drawing.figure for drawing in section.drawings}
    (panel,) = figure_of["wine-ece"].axes
    for place, method in enumerate(table.methods):
        points = [line for line in panel.lines if line.get_ydata()[0] == place]
        shown = [float(line.get_xdata()[0]) for line in points[1:]]
        wanted = [table.ece_interval(method).mean, table.mean("ece", method)]
        assert shown == pytest.approx(wanted)
    titles = [panel.get_title() for panel in figure_of["wine-reliabilities"].axes]
    assert titles == [f"{m}\nECE {table.mean('ece', m):.4f}" for m in table.methods]


def test_names_cannot_become_tags():
    grid = Grid("t", ["<b>"], [["<script>alert(1)</script>"]], note="a & b")
    page = html_page("<i>", [Section("<u>", ["<p>"], [grid])])
    assert "<script>" not in page
    assert "<u>" not in page
    checked(page)


def test_tables_for_text_and_for_papers():
    grid = Grid("t", ["method", "a_b"], [["x & y", "5 % − 1"], ["a|b", "#"]], note="why")
    assert r"| a\|b | # |" in markdown(grid)
    assert markdown(grid).endswith("\nwhy\n")
    assert r"x \& y & 5 \% $-$ 1 \\" in latex(grid)
    assert "\\caption{why}\n\\label{tab:t}\n\\begin{tabular}{lr}" in latex(grid)


def test_the_best_of_each_column_is_bold(table, section):
    (grid,) = section.tables
    means = [table.mean("nll", method) for method in table.methods]
    at, place = int(np.argmin(means)), list(grid.head).index("nll")
    cell = grid.rows[at][place]
    assert f"<td><b>{cell}</b></td>" in html_page("t", [section])
    assert f"\\textbf{{{cell}}}" in latex(grid)
    assert grid.rows[1 - at][place] not in "".join(latex(grid).split("textbf{")[1:]).split("}")
    assert f"| **{markdown_text(cell)}** |" in markdown(grid)
    assert "Best values in bold.}" in latex(grid)


def test_equal_values_are_all_best_and_a_single_one_is_not():
    assert best_places([0.5, 0.50001, 0.6], "nll") == [0, 1]
    assert best_places([0.5, None], "nll") == []


def test_labels_have_only_signs_that_latex_takes():
    assert "\\label{tab:main-a-b-50}" in latex(Grid("main-a_b, {50 %}", ["m"], [["1"]]))


def test_names_begin_neither_tags_nor_options():
    grid = Grid("t", ["m"], [["[unk] <b>"], ["*star | bar"]])
    assert "| \\[unk\\] \\<b\\> |" in markdown(grid)
    assert r"{}[unk] \textless{}b\textgreater{} \\" in latex(grid)
    assert r"{}*star \textbar{} bar \\" in latex(grid)


def test_a_new_report_leaves_nothing_of_the_old(tmp_path):
    out = tmp_path / "out"
    old, new = Grid("old", ["m"], [["1"]]), Grid("new", ["m"], [["2"]])
    write_report(out, "t", [Section("s", [], [old])])
    (out / "tables" / "notes.txt").write_text("mine")
    write_report(out, "t", [Section("s", [], [new])], force=True)
    assert sorted(path.name for path in (out / "tables").iterdir()) == [
        *("new.md", "new.tex", "notes.txt")
    ]


def test_a_wide_table_is_cut_between_columns_and_not_in_numbers():
    cell = "0.9778 [0.9701, 0.9972]"
    grid = Grid("t", ["method", *(f"{n}, views" for n in range(16))], [["ours", *[cell] * 16]])
    lines = _columns(grid)
    assert max(map(len, lines)) <= ACROSS
    assert sum(line.count("0.9972]") for line in lines) == 16
    assert sum(line.startswith("ours") for line in lines) > 1


def test_every_sign_of_a_paper_is_printed():
    said = latex(Grid("t", ["m"], [[r"\ { } ^ ~ # $ % & _ √n − × ±"]], note="two\nlines"))
    assert (
        r"\textbackslash{} \{ \} \textasciicircum{} \textasciitilde{} \# \$ \% \& \_ "
        r"$\surd$n $-$ $\times$ $\pm$ \\" in said
    )
    assert "\\caption{two lines}\n" in said
    assert "| two lines |" in markdown(Grid("t", ["m"], [["two\nlines"]]))


def test_odd_names_can_be_printed_on_paper(tmp_path):
    grid = Grid("t", ["$x^{"], [["a$b$c ^{"]], note="$^{")
    page = write_report(tmp_path / "out", "$^{", [Section("$^{", ["$x$ ^{"], [grid])])
    assert "a$b$c ^{" in page.read_text()
    assert (tmp_path / "out" / "report.pdf").read_bytes().startswith(b"%PDF")


class Broken:
    """A figure that cannot be drawn."""

    def get_layout_engine(self):
        raise ValueError("no")


def test_a_report_that_cannot_be_drawn_leaves_nothing(section, tmp_path):
    broken = Section("Broken", [], [], [Drawing("x", Broken(), "")])
    with pytest.raises(ValueError, match="no"):
        write_report(tmp_path / "new", "t", [section, broken])
    assert not (tmp_path / "new").exists()


def test_a_report_that_cannot_be_drawn_leaves_the_old_one(section, tmp_path):
    out = tmp_path / "out"
    page = write_report(out, "Old", [section])
    (out / "mine.txt").write_text("mine")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(ValueError, match="no"):
        write_report(out, "New", [section, Section("x", [], [], [Drawing("x", Broken(), "")])])
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    assert "Old" in page.read_text()
    write_report(out, "New", [section], force=True)
    assert "New" in page.read_text()
    assert (out / "mine.txt").exists()
    assert not (out / ".unfinished").exists()


def test_numbers_stand_right_and_words_left():
    grid = Grid("t", ["row", "loss", "why"], [["7", "0.1 [0.0, 0.2]", "near " * 10]])
    assert grid.are_numbers() == [False, True, False]
    page = html_page("t", [Section("s", [], [grid])])
    assert '<td class="words">7</td><td>0.1 [0.0, 0.2]</td><td class="words long">near' in page
    assert "| --- | --: | --- |" in markdown(grid)
    assert r"\begin{tabular}{lrl}" in latex(grid)


def test_a_wide_table_stays_on_its_sheet():
    words = "page 0047 of the archive (one) 0.32; " * 4
    grid = Grid("t", ["row", "loss", "why"], [["7", "0.1", words], ["8", "0.2", "near"]])
    lines = _columns(grid)
    assert max(map(len, lines)) <= ACROSS
    start = lines[0].index("why")
    assert " ".join(line[start:] for line in lines[1:-1]).split() == words.split()
    assert lines[-1].split() == ["8", "0.2", "near"]
    assert _columns(Grid("t", ["a", "b"], [["x", "1"], ["yy", "10"]])) == [
        "a    b",
        "x    1",
        "yy  10",
    ]


def test_sheets_of_a_report_cut_nothing_off(table):
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    section = table_section(table, "A title of many words " * 6, "attnknn", "digits")
    wide = Grid("t", ["row", "why"], [["7", "W" * 300]], note="many words " * 40)
    sections = [section, Section("Wide", ["many words " * 40], [wide])]
    for measurements in _sheets(
        _text("A title of many words " * 6, sections, ["many words " * 40])
    ):
        canvas = FigureCanvasAgg(measurements)
        canvas.draw()
        box = measurements.get_tightbbox(canvas.get_renderer())
        assert box.x1 <= measurements.get_size_inches()[0]
        assert box.y0 >= 0


def test_tables_are_not_torn_where_they_fit_on_a_sheet():
    blocks = [[(f"{name}{i}", {}) for i in range(n)] for name, n in (("a", 3), ("b", 4), ("c", 9))]
    measurements = [[line for line, _ in measurements] for measurements in _paged(blocks, 5)]
    assert [len(measurements) for measurements in measurements] == [3, 5, 5, 3]
    assert measurements[1][:4] == ["b0", "b1", "b2", "b3"]


def test_figures_have_the_size_they_were_drawn_in(section):
    page = html_page("t", [section])
    for drawing in section.drawings:
        width = round(96 * drawing.figure.get_size_inches()[0])
        assert f'alt="{drawing.caption}" width="{width}"' in page


def test_seeds_do_not_make_more_rows_than_there_are(table):
    """Twice the same seed tells what one tells."""
    seed = replace(table, runs=tuple(run for run in table.runs if run.seed == 0))
    again = tuple(replace(run, seed=7) for run in seed.runs)
    one, two = (
        bins_of(found, "attnknn").nonempty()
        for found in (seed, replace(seed, runs=seed.runs + again))
    )
    for field in ("counts", "confidence", "accuracy", "noise"):
        assert np.allclose(getattr(one, field), getattr(two, field))
    assert one.counts.sum() == table.n_test
    assert "over 36 test rows, the mean of 2 seeds" in section_captions(table)


def section_captions(table):
    return " ".join(d.caption for d in table_section(table, "Wine", "attnknn", "wine").drawings)


def test_risk_is_that_of_all_seeds(table):
    risk = curve(table, "attnknn").risk[-1]
    assert risk == pytest.approx(1 - table.mean("accuracy", "attnknn"))


def test_tables_are_found_by_their_seeds(table, tmp_path):
    for run in (table.runs[:2], table.runs[2:]):
        part = type(table)(**{**vars(table), "runs": run})
        add_table(tmp_path / "claim" / "digits" / "report.json", part)
    found = collected(tmp_path).tables
    assert list(found) == ["claim/digits"]
    assert found["claim/digits"].seeds == [0, 1]


def test_folders_are_an_axis_only_where_they_can_be_one(table, tmp_path):
    other = replace(table, checksum="other")
    places = {"K-1": table, "K-2": table, "run-1": table, "run-01": table, "own-1": table}
    for name, found in {**places, "own-2": other, "left-07": table}.items():
        add_table(tmp_path / name / "report.json", found)
    found = collected(tmp_path)
    assert {word: list(places) for word, places in found.sweeps.items()} == {"K": [1.0, 2.0]}
    assert sorted(found.tables) == ["left-07", "own-1", "own-2", "run-01", "run-1"]


def test_folders_without_reports_and_broken_ones_are_named(tmp_path):
    with pytest.raises(InvalidInputError, match=r"no report\.json below"):
        collected(tmp_path)
    (tmp_path / "report.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="no report of an experiment"):
        collected(tmp_path)


def test_a_model_is_reported_with_its_worst_mistakes():
    codes = np.array([0, 1, 1, 0, 1])
    found = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.05, 0.95], [0.3, 0.7]])
    assert worst_mistakes(codes, found, 9).tolist() == [3, 2]
    mistake = Mistake("3", "cat", "dog", 0.95, "7 (dog) 0.51")
    sections = model_sections(codes, found, ["cat", "dog"], [mistake])
    page = html_page("model", sections)
    assert "Of 5 rows 3 were predicted correctly and 2 incorrectly (accuracy 60.00%)." in page
    assert "7 (dog) 0.51" in page
    assert "The most confident mistake is row 3: “dog” at 0.9500" in page


def test_a_model_that_is_always_right_has_no_mistakes():
    sections = model_sections(np.array([0, 1]), np.eye(2), ["a", "b"])
    page = html_page("model", sections)
    assert "All rows were predicted correctly." in page


def test_classes_have_precision_recall_and_areas():
    rng = np.random.default_rng(0)
    codes, found = rng.integers(3, size=200), rng.dirichlet(np.ones(3), size=200)
    section = model_sections(codes, found, ["a", "b", "c"])[2]
    (grid,), (drawing,) = section.tables, section.drawings
    wanted = precision_recall_fscore_support(codes, found.argmax(axis=1))
    for code, row in enumerate(grid.rows[:-1]):
        assert row[1] == str(wanted[3][code])
        assert row[2:5] == [f"{values[code]:.4f}" for values in wanted[:3]]
        assert row[5] == f"{roc_auc_score(codes == code, found[:, code]):.4f}"
        assert row[6] == f"{average_precision_score(codes == code, found[:, code]):.4f}"
    assert grid.rows[-1][4] == f"{f1_score(codes, found.argmax(axis=1), average='macro'):.4f}"
    roc, _ = drawing.figure.axes
    x, y = roc.lines[0].get_data()
    assert np.trapezoid(y, x) == pytest.approx(roc_auc_score(codes == 0, found[:, 0]), abs=0.01)


def test_a_class_without_rows_has_no_areas():
    found = np.array([[0.6, 0.3, 0.1], [0.3, 0.6, 0.1]])
    (grid,) = model_sections(np.array([0, 0]), found, ["a", "b", "c"])[2].tables
    assert grid.head[-1] == "F1"
    assert grid.rows[1] == ["b", "0", "0.0000", "–", "0.0000"]
    (grid,) = model_sections(np.array([0, 1]), found, ["a", "b", "c"])[2].tables
    assert [row[-1] for row in grid.rows] == ["1.0000", "1.0000", "–", "1.0000"]
