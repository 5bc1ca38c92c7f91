"""A small table of an experiment."""

from __future__ import annotations

import pytest

from attnknn.research import datasets
from attnknn.research.evaluation.baselines import LinearProbe, UniformKNN
from attnknn.research.evaluation.protocol import Method, run
from attnknn.research.reports.tables import table_section


@pytest.fixture(scope="session")
def table():
    methods = [
        Method("uniform", lambda _: UniformKNN()),
        Method("attnknn", lambda seed: LinearProbe(random_state=seed)),  # fast, and named as ours
    ]
    return run(datasets.load("wine"), methods, [0, 1])


@pytest.fixture(scope="session")
def section(table):
    """Its part of a page, whose figures are drawn once."""
    return table_section(table, "Wine", "attnknn", "wine")
