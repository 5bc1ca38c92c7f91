"""Indexes, theory and the cost of a query, on few rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from attnknn.errors import InvalidInputError
from attnknn.research.experiments import measures as timing
from attnknn.research.experiments.study import Study, measure
from attnknn.research.reports.measurements import falling_power, measurement_section, places


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("measurements")
    return Study("theory", "digits", folder, [0, 1], network="none", n_rows=400)


@pytest.fixture(scope="module")
def theory(asked):
    return measure(asked).measurements


def test_indexes_are_built_searched_and_compared(asked):
    pytest.importorskip("faiss")
    measurements = measure(replace(asked, claim="index")).measurements
    assert len(measurements.rows) == 6
    for what in measurements.rows:
        assert measurements.mean(what, "recall") > 0.9
        assert measurements.mean(what, "ms per query") > 0
    sizes = {what: measurements.mean(what, "MB") for what in measurements.rows}
    assert sizes["ours, exact, Euclidean"] == pytest.approx(400 * 64 * 4 / 1e6)
    assert sizes["FAISS HNSW"] > sizes["FAISS flat, Euclidean"] > sizes["ours, exact, Euclidean"]
    (note,) = measurements.first.notes
    assert "each of 360 queries asked at once" in note  # as many as there are
    assert measurements.first.versions["faiss"]
    assert measurements.first.seconds > 0
    assert "answers fastest" in measurement_section(measurements, "index").sentences[0]


def test_the_cost_of_weights_is_beside_that_of_the_search(asked):
    changes = {"neighbors": 8, "queries": 32, "repeats": 2}
    few = replace(asked, claim="overhead", seeds=[0], n_rows=150, changes=changes)
    measurements = measure(few).measurements
    assert measurements.rows == ["search", "uniform", "distance", "learned"]
    for what in measurements.rows[1:]:
        gap = measurements.mean(what, "ms alone") - measurements.mean("search", "ms alone")
        assert measurements.mean(what, "overhead alone") == pytest.approx(gap)
    assert len(measurement_section(measurements, "overhead").sentences) == 3


def test_theory_is_measured(theory):
    assert theory.seeds == [0, 1]
    assert theory.mean("K of distance attention", "√n") == pytest.approx(20.0)
    assert 0 < theory.mean("neighbors in common, two metrics", "value") < 1  # norms differ here
    least = theory.mean("norm of embeddings", "least")
    assert least < theory.mean("norm of embeddings", "largest")
    assert 1 <= theory.mean("equal voters, distance", "value") <= 65


def test_votes_of_more_neighbors_come_nearer_to_those_of_all(theory):
    gaps = [theory.mean(f"K = {k}", "distance to all") for k in places(theory)]
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == 0.0
    assert falling_power(theory) < 0
    section = measurement_section(theory, "theory")
    assert f"to the power of {falling_power(theory):.2f}" in section.sentences[-1]
    assert len(section.drawings) == 2


def test_a_sheet_says_how_far_seeds_differ(theory):
    values = theory.values("equal voters, learned", "value")
    cell = theory.cell("equal voters, learned", "value")
    assert cell.startswith(f"{np.mean(values):.4g} [{min(values):.4g}, ")
    assert theory.cell("K = 1", "value") == ""
    assert "seeds 0, 1" in theory.markdown()


def test_sheets_of_other_settings_are_not_taken(asked, theory):
    with pytest.raises(InvalidInputError, match="other settings"):
        measure(replace(asked, changes={"neighbors": [1, 2]}))


def test_ways_are_timed_in_turns():
    called = []
    found = timing.medians({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, 2)
    assert called == ["a", "b", "a", "b", "a", "b"]
    assert set(found) == {"a", "b"}
