"""The page of claims is computed from reports, whatever they say."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnknn.evaluation.intervals import Interval
from attnknn.experiments.study import Study, measure
from experiments.research import claims
from experiments.research.page import write_page
from experiments.research.results import Results, studies

BETTER, WORSE, SAME = (
    Interval(-0.2, -0.3, -0.1),
    Interval(0.2, 0.1, 0.3),
    Interval(0.0, -0.1, 0.1),
)


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ([BETTER, BETTER], claims.HOLDS),
        ([BETTER, SAME], claims.PARTLY),
        ([BETTER, WORSE], claims.PARTLY),
        ([SAME, SAME], claims.SAME),
        ([WORSE, SAME], claims.FAILS),
    ],
)
def test_verdicts_follow_the_intervals(gaps, verdict):
    assert claims._signs(gaps, better=-1) == verdict
    turned = [Interval(-gap.mean, -gap.upper, -gap.lower) for gap in gaps]
    assert claims._signs(turned, better=+1) == verdict


def test_every_claim_has_a_judge_and_every_study_a_claim_and_data():
    assert set(claims.SAID) == set(claims.JUDGES)
    asked = {(study.preset, study.claim, study.dataset) for study in studies()}
    assert {(None, "main", name) for name in claims.DATA} <= asked
    assert len(asked) == len(list(studies()))


def test_the_page_has_what_was_measured_and_names_what_was_not(tmp_path):
    methods = ["uniform", "distance", "learned", "k-ensemble"]
    few = {"methods": methods, "neighbors": [1, 4]}
    main = Study("main", "iris", tmp_path, [0], changes={"methods": methods})
    measure(main)
    sweep = replace(main, claim="k-sweep", dataset="digits", network="none", n_rows=200)
    measure(replace(sweep, changes={**few, "methods": methods[:3]}))
    numbers = {"neighbors": 4, "queries": 8, "repeats": 1}
    measure(replace(sweep, claim="overhead", changes=numbers))
    page = tmp_path / "claims.md"
    write_page(Results(tmp_path), page)
    text = page.read_text()
    table = measure(main).tables[None]
    gap = table.difference("nll", "learned", "distance")
    assert f"- iris: learned − distance {gap:+.4f}" in text
    assert "digits, learned: accuracy between" in text
    assert "ms for one asked alone" in text
    assert "| Several heads are as one | not measured yet |" in text
    assert "main cifar10" in text.split("Not measured yet: ")[1]
