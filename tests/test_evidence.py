"""Evidence as text table, JSON, DataFrame, plot and notebook view; the record of neighbors."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image
from strategies import batch, blobs

from attnknn import AttnKNNClassifier, _display
from attnknn.records import Neighbors

BAR = re.compile(r'style="width: ([\d.]+)%"></span></span>([\d.]+)')


def evidence(n_neighbors=8, payloads=None, names=("ape", "bee", "cat")):
    X, y = blobs(30)
    payloads = [f"p{i}" for i in y] if payloads is None else payloads
    clf = AttnKNNClassifier(n_neighbors, attention="distance", calibration=None)
    return clf.fit(X, np.array(names)[y], payloads=payloads).explain(X[:1])[0]


def test_neighbors_are_cut_to_the_nearest():
    found = batch(k=6).neighbors
    cut = found.nearest(2)
    assert cut.distances.tolist() == found.distances[:, :2].tolist()
    assert found.nearest(99) is found
    assert len(found.rows(slice(0, 3))) == 3


def test_records_cannot_be_changed():
    found = Neighbors(*(np.zeros((1, 1)),) * 4)
    with pytest.raises(AttributeError):
        found.labels = np.ones((1, 1))


def test_evidence_prints_the_answer_its_voters_and_the_prior():
    text = str(evidence())
    assert text.startswith(f"{evidence().label}  (probabilities: ")
    assert "3 more neighbors" in text
    assert "the prior (class frequencies)" in text
    assert text.count("#") == 5


def test_weights_in_the_table_sum_to_one():
    shown = evidence().table(n_neighbors=100).splitlines()[2:]
    assert sum(float(line.split()[0]) for line in shown) == pytest.approx(1, abs=0.005)


def test_voters_are_sorted_by_falling_weight():
    assert (np.diff(evidence().weights) <= 0).all()


def test_evidence_becomes_json_and_says_the_same():
    record = json.loads(json.dumps(evidence().to_dict()))
    assert record["label"] == str(evidence().label)
    assert sum(record["weights"]) + record["prior_weight"] == pytest.approx(1)
    assert record["probabilities"][record["label"]] == pytest.approx(evidence().probability)
    assert len(record["payloads"]) == len(record["ids"]) == 8


def test_frame_has_one_row_per_voter_and_the_prior():
    found = evidence()
    frame = found.to_frame()
    assert frame.columns.tolist() == ["id", "label", "weight", "distance", "payload"]
    assert frame["id"].tolist() == [*found.ids.tolist(), None]
    assert frame["weight"].sum() == pytest.approx(1)
    assert frame["weight"].iloc[-1] == found.prior_weight
    by_label = frame[:-1].groupby("label")["weight"].sum()
    shares = by_label.reindex(found.classes, fill_value=0) + found.prior_weight * found.prior
    assert shares.to_numpy(dtype=float) == pytest.approx(found.shares)
    assert "payload" not in replace(found, payloads=None).to_frame()


@pytest.mark.parametrize("n_neighbors", [3, 25])
def test_bars_in_html_sum_to_one_and_are_as_wide_as_their_numbers(n_neighbors):
    html = evidence(n_neighbors)._repr_html_()
    bars = [(float(width) / 100, float(number)) for width, number in BAR.findall(html)]
    assert len(bars) == min(n_neighbors, 10) + (n_neighbors > 10) + 1
    assert sum(number for _, number in bars) == pytest.approx(1, abs=0.01)
    assert all(width == pytest.approx(number, abs=6e-4) for width, number in bars)


class WellFormed(HTMLParser):
    """Counts tags and checks that each one that opens is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag != "img":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def tags_of(html):
    parser = WellFormed()
    parser.feed(html)
    assert not parser.open
    return parser.seen


def test_html_is_escaped_and_runs_nothing():
    attack = "<script>alert('&')</script><img src=x onerror=\"alert(1)\">"
    found = evidence(payloads=[attack] * 30, names=(attack, attack + "b", "<b>"))
    tags = tags_of(found._repr_html_())
    assert "script" not in tags
    assert "img" not in tags
    assert "b" not in tags
    assert attack not in found._repr_html_()


def test_html_inherits_the_colors_of_the_page():
    """Readable on light and dark pages: text inherits its color, fills are semi-transparent."""
    html = evidence()._repr_html_()
    for color in re.findall(r"(?:color|background|border\S*):([^;}]+)", html):
        assert re.search(r"inherit|transparent|rgba\(\d+, \d+, \d+, 0\.\d+\)|\b0$|collapse", color)
    assert "#fff" not in html
    assert "black" not in html


@pytest.mark.parametrize("kind", ["gray", "rgb", "path"])
def test_image_payloads_are_shown_as_thumbnails(kind, tmp_path, rng):
    shape = (300, 200, 3) if kind == "rgb" else (300, 200)
    pixels = rng.integers(0, 256, shape, dtype=np.uint8)
    payload = pixels
    if kind == "path":
        payload = str(tmp_path / "photo.jpg")
        Image.fromarray(pixels).save(payload)
    html = _display.payload_html(payload)
    assert html.startswith('<img src="data:image/png;base64,')
    assert len(html) < 20_000


def test_payloads_that_are_no_image_are_shown_as_text(tmp_path, monkeypatch):
    (tmp_path / "broken.png").write_text("not an image")
    for payload in ("missing.png", str(tmp_path / "broken.png"), "some text", 3.5):
        assert _display.payload_html(payload) == str(payload)
    assert _display.payload_html(np.zeros((2, 2))) == "array of shape (2, 2)"
    assert len(_display.payload_html("x" * 999)) < 250
    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    assert _display.payload_html(np.zeros((2, 2), np.uint8)) == "array of shape (2, 2)"


def test_plot_draws_on_the_given_axes():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    _, ax = pyplot.subplots()
    found = evidence(25)
    assert found.plot(ax) is ax
    assert sum(patch.get_width() for patch in ax.patches) == pytest.approx(1)
    assert [label.get_text() for label in ax.get_yticklabels()][-2:] == ["15 more", "prior"]
    pyplot.close("all")
