"""The page of claims is computed from reports, whatever they say."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.metrics import row_correct, row_nll, score_all
from attnknn.research.evaluation.corruption import Corruption, Shift
from attnknn.research.evaluation.intervals import Interval
from attnknn.research.evaluation.measurements import Measurements, MeasurementSet
from attnknn.research.evaluation.report import add_measurements, add_table, read_report
from attnknn.research.evaluation.table import Run, Table
from attnknn.research.experiments.claims import settings_of
from attnknn.research.experiments.presets import preset_of
from attnknn.research.experiments.study import Study, measure
from experiments.research import claims
from experiments.research.claims import EVALUATIONS
from experiments.research.outcomes import (
    FAILS,
    HOLDS,
    MIXED,
    PARTLY,
    SAME,
    UNDECIDED,
    Part,
    Region,
    by_region,
    by_signs,
    combined_outcome,
)
from experiments.research.page import write_page
from experiments.research.results import ASKED, _asked, hours, missing, read, studies

MANY, FEW = 1200, 60
BETTER, WORSE, LEVEL = (
    Interval(-0.2, -0.3, -0.1),
    Interval(0.2, 0.1, 0.3),
    Interval(0.0, -0.1, 0.1),
)


# Tables and measurements with the figures that a test needs


def table(n=MANY, sure=0.9, corruption="", **methods) -> Table:
    """Two seeds of methods that are right on the first rows: their share, or it and how sure."""
    runs = []
    for seed in (0, 1):
        for name, asked in methods.items():
            share, says = asked if isinstance(asked, tuple) else (asked, sure)
            runs.append(_run(name, seed, n, share, says))
    return Table("fake", "0", 100, n, corruption, "none", {}, tuple(runs))


def _run(name, seed, n, share, says) -> Run:
    name = name.replace("_views", ", views").replace("_", " ")
    is_right = np.arange(n) < share * n
    first = np.where(is_right, says, 1 - says)
    answers, truth = np.stack([first, 1 - first], axis=1), np.zeros(n, dtype=int)
    return Run(
        method=name,
        seed=seed,
        scores=score_all(truth, answers),
        row_nll=row_nll(truth, answers),
        row_correct=row_correct(truth, answers),
        row_confidence=answers.max(axis=1),
        fit_seconds=0.0,
        predict_seconds=0.0,
        settings={"requested": name},
        chosen={},
    )


def one(*tables):
    """Data sets with one table each."""
    return {f"data {n}": {None: found} for n, found in enumerate(tables)}


def sweeps(*pairs):
    """Data sets with a table at each end of an axis."""
    return {f"data {n}": {0.0: first, 0.3: last} for n, (first, last) in enumerate(pairs)}


def measurements(claim, *by_seed, settings=None) -> MeasurementSet:
    return MeasurementSet(
        tuple(
            Measurements(claim, "fake", "0", "none", seed, settings or {}, {}, tuple(rows))
            for seed, rows in enumerate(by_seed)
        )
    )


def outcome_of(claim, found):
    return combined_outcome(EVALUATIONS[claim](found).parts)


# Rules


@pytest.mark.parametrize(
    ("gaps", "outcome", "counts"),
    [
        ([BETTER, LEVEL], HOLDS, "better on 1, worse on 0, level on 1 of 2"),
        ([BETTER, *[WORSE] * 9], MIXED, "better on 1, worse on 9, level on 0 of 10"),
        ([LEVEL, LEVEL], SAME, "better on 0, worse on 0, level on 2 of 2"),
        ([WORSE, LEVEL], FAILS, "better on 0, worse on 1, level on 1 of 2"),
    ],
)
def test_differences_count_beyond_their_intervals(gaps, outcome, counts):
    assert by_signs("x", gaps, better=-1) == Part("x", outcome, counts)
    turned = [Interval(-gap.mean, -gap.upper, -gap.lower) for gap in gaps]
    assert by_signs("x", turned, better=+1) == Part("x", outcome, counts)


@pytest.mark.parametrize(
    "region",
    [
        claims.KEPT,
        claims.HARDLY,
        claims.BEHIND,
        claims.BELOW_1_MS,
        claims.FASTER,
        claims.NORM_OF_ONE,
        claims.BELOW_ROOT,
        claims.AS_1_OVER_K,
        *map(claims._within, claims.MARGINS),
    ],
)
def test_every_region_can_be_hit_missed_and_left_open(region):
    border = region.high if np.isfinite(region.high) else region.low
    step = 1e-4 if np.isfinite(region.high) else -1e-4
    inside, outside, across = (
        Interval(border + a * step, *sorted([border + (a - 1) * step, border + (a + 1) * step]))
        for a in (-2, 2, 0)
    )
    assert by_region("x", [inside, inside], region).outcome == HOLDS
    assert by_region("x", [outside, across], region).outcome == FAILS
    assert by_region("x", [inside, outside], region).outcome == MIXED
    assert by_region("x", [inside, across], region).outcome == UNDECIDED
    assert by_region("x", [], region).outcome == UNDECIDED


def test_a_region_may_be_missed_on_either_side():
    assert Region(0.05, 0.09).misses(Interval(0.01, 0.0, 0.02))
    assert Region(0.05, 0.09).misses(Interval(0.2, 0.1, 0.3))
    low, high = Interval(0.1, 0.0, 0.15), Interval(0.7, 0.6, 0.8)
    assert "false of 1 (below)" in by_region("x", [low], Region(0.2, 0.5)).counts
    assert "false of 1 (above)" in by_region("x", [high], Region(0.2, 0.5)).counts
    assert "false of 2 (below and above)" in by_region("x", [low, high], Region(0.2, 0.5)).counts


@pytest.mark.parametrize(
    ("parts", "outcome"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([HOLDS, FAILS], PARTLY),
        ([HOLDS, UNDECIDED], PARTLY),
        ([MIXED, FAILS], MIXED),
        ([FAILS, SAME], FAILS),
        ([SAME, UNDECIDED], UNDECIDED),
        ([SAME, SAME], SAME),
    ],
)
def test_a_claim_says_all_of_its_parts(parts, outcome):
    assert combined_outcome([Part("x", found, "") for found in parts]) == outcome


# Claims


GOOD, BAD = (0.9, 0.9), (0.7, 0.99)  # more often right, and honest; or neither


@pytest.mark.parametrize("claim", ["accuracy", "log-loss", "calibration"])
def test_learned_attention_is_compared_on_every_data_set(claim):
    better = table(uniform=BAD, distance=BAD, learned=GOOD)
    worse = table(uniform=GOOD, distance=GOOD, learned=BAD)
    level = table(uniform=GOOD, distance=GOOD, learned=GOOD)
    between = table(uniform=BAD, distance=GOOD, learned=(0.8, 0.97))
    assert outcome_of(claim, one(better, level)) == HOLDS
    assert outcome_of(claim, one(worse, level)) == FAILS
    assert outcome_of(claim, one(level, level)) == SAME
    assert outcome_of(claim, one(better, worse)) == MIXED
    assert outcome_of(claim, one(between)) == PARTLY


def test_the_outcome_has_counts_of_data_sets():
    found = one(table(uniform=0.7, distance=0.9, learned=0.9))
    assert EVALUATIONS["accuracy"](found).outcome == (
        "holds in part (against uniform: better on 1, worse on 0, level on 0 of 1; "
        "against distance: better on 0, worse on 0, level on 1 of 1)"
    )


def test_views_have_an_outcome_for_learned_and_one_for_other_votes():
    def seen(learned, uniform, head=BAD):
        views = {"learned_views": learned, "uniform_views": uniform, "CNN_head_views": head}
        return one(table(learned=(0.9, 0.95), uniform=(0.9, 0.95), CNN_head=GOOD, **views))

    assert outcome_of("views", seen(GOOD, GOOD)) == HOLDS  # whatever the head does
    assert outcome_of("views", seen(BAD, BAD)) == FAILS
    assert outcome_of("views", seen(GOOD, BAD)) == PARTLY
    assert outcome_of("views", seen((0.9, 0.95), (0.9, 0.95))) == SAME
    both = {**seen(GOOD, GOOD), "other": seen(BAD, BAD)["data 0"]}
    assert outcome_of("views", both) == MIXED


def test_votes_keep_their_accuracy_whatever_the_head_does():
    def kept(uniform, learned, n=MANY):
        first = table(n, CNN_head=0.9, uniform=0.9, learned=0.9)
        return sweeps((first, table(n, CNN_head=0.3, uniform=uniform, learned=learned)))

    assert outcome_of("noise", kept(0.9, 0.9)) == HOLDS
    assert outcome_of("noise", kept(0.5, 0.5)) == FAILS
    assert outcome_of("noise", kept(0.9, 0.5)) == MIXED
    assert outcome_of("noise", kept(0.87, 0.87, FEW)) == UNDECIDED
    left_out = EVALUATIONS["noise"](kept(0.5, 0.5))
    assert left_out.lines[0].startswith("data 0, CNN head: 33.3% [")
    assert "of 2" in left_out.parts[0].counts
    assert EVALUATIONS["imbalance"] is EVALUATIONS["noise"]


def test_robust_is_who_loses_least_not_who_is_best():
    def lost(learned, others):
        before, after = learned
        first = table(learned=before, uniform=others[0], distance=others[0])
        last = table(learned=after, uniform=others[1], distance=others[1])
        return (first, last)

    steady, falling = lost((0.7, 0.7), (0.95, 0.8)), lost((0.95, 0.8), (0.7, 0.7))
    level = lost((0.9, 0.8), (0.9, 0.8))
    claim = "robust-by-attention"
    assert outcome_of(claim, sweeps(steady, level)) == HOLDS
    assert outcome_of(claim, sweeps(falling, level)) == FAILS
    assert outcome_of(claim, sweeps(level)) == SAME
    assert outcome_of(claim, sweeps(steady, falling)) == MIXED


def test_accuracy_hardly_depends_on_k_within_a_point():
    def at(uniform, learned, n=MANY):
        return sweeps(
            (table(n, uniform=0.9, learned=0.9), table(n, uniform=uniform, learned=learned))
        )

    assert outcome_of("neighbors", at(0.9, 0.902)) == HOLDS
    assert outcome_of("neighbors", at(0.8, 0.95)) == FAILS
    assert outcome_of("neighbors", at(0.8, 0.9)) == MIXED
    assert outcome_of("neighbors", at(0.9, 0.91)) == UNDECIDED
    both = {**at(0.9, 0.9), "other": at(0.8, 0.8)["data 0"]}
    assert outcome_of("neighbors", both) == PARTLY


def test_the_best_k_of_many_that_are_alike_gets_nothing_for_its_luck():
    rng = np.random.default_rng(0)
    right = {k: (rng.random((3, 4000)) < 0.8).astype(float) for k in range(40)}
    plain = max(r.mean() for r in right.values()) - min(r.mean() for r in right.values())
    spread = claims._spread(right)
    assert plain > 0.015
    assert abs(spread.mean) < plain / 2
    assert not spread.excludes_zero()


def test_the_k_ensemble_improves_nothing_unless_it_does():
    def against(ensemble, n=MANY):
        found = table(n, distance=BAD)
        return replace(found, runs=found.runs + table(n, **{"k-ensemble": ensemble}).runs)

    claim = "k-ensemble"
    assert outcome_of(claim, one(against(BAD))) == HOLDS
    assert outcome_of(claim, one(against((0.5, 0.999)))) == HOLDS  # worse is no improvement
    assert outcome_of(claim, one(against(GOOD))) == FAILS
    assert outcome_of(claim, one(against(GOOD), against(BAD))) == MIXED
    assert EVALUATIONS[claim](one(against((0.705, 0.99)))).parts[0].outcome == UNDECIDED
    assert outcome_of(claim, one(against(GOOD, FEW))) == UNDECIDED
    assert "too few rows" in EVALUATIONS[claim](one(against(BAD, FEW))).lines[0]


def test_several_heads_are_as_one_within_the_margins():
    def heads(n=MANY, **found):
        named = {name.replace("h", "") + "_heads": asked for name, asked in found.items()}
        return table(n, as_it_is=0.9, **named)

    assert outcome_of("heads", one(heads(h2=0.9, h4=0.9, h8=0.9))) == HOLDS
    assert outcome_of("heads", one(heads(h4=0.8))) == FAILS
    assert outcome_of("heads", one(heads(h4=0.99))) == FAILS
    assert outcome_of("heads", one(heads(h2=0.9, h4=0.8))) == MIXED
    assert outcome_of("heads", one(heads(h4=0.905))) == UNDECIDED
    assert outcome_of("heads", one(heads(FEW, h4=0.8))) == UNDECIDED


def test_a_gap_of_seven_points_is_one_of_five_to_nine():
    def behind(*points, n=MANY):
        return one(*(table(n, CNN_head=0.9, learned=0.9 - p, attnknn=0.9 - p) for p in points))

    assert outcome_of("gap-to-cnn", behind(0.07)) == HOLDS
    assert outcome_of("gap-to-cnn", behind(0.01)) == FAILS
    assert outcome_of("gap-to-cnn", behind(0.2)) == FAILS
    assert outcome_of("gap-to-cnn", behind(0.07, 0.01)) == PARTLY
    assert outcome_of("gap-to-cnn", behind(0.07, n=FEW)) == UNDECIDED
    apart = one(table(CNN_head=0.9, learned=0.83, attnknn=0.9))
    assert outcome_of("gap-to-cnn", apart) == MIXED


def test_queries_in_a_batch_and_single_ones_have_outcomes_of_their_own():
    def costs(at_once, alone):
        by_seed = [
            [
                {"what": what, "overhead at once": a, "overhead alone": b}
                for what in ("uniform", "distance", "learned")
            ]
            for a, b in zip(at_once, alone, strict=True)
        ]
        return {"digits": measurements("overhead", *by_seed)}

    assert outcome_of("overhead", costs([0.1, 0.2], [0.5, 0.6])) == HOLDS
    assert outcome_of("overhead", costs([0.1, 0.2], [2.0, 3.0])) == PARTLY
    assert outcome_of("overhead", costs([2.0, 2.0], [2.0, 3.0])) == FAILS
    assert outcome_of("overhead", costs([0.9, 1.1], [0.9, 1.1])) == UNDECIDED
    both = {**costs([0.1, 0.2], [0.1, 0.1]), "cifar10": costs([2.0, 2.0], [2.0, 2.0])["digits"]}
    assert outcome_of("overhead", both) == MIXED
    assert (
        "0.1500 [0.1000, 0.2000] ms"
        in EVALUATIONS["overhead"](costs([0.1, 0.2], [0.5, 0.6])).lines[0]
    )


def index_rows(flat, inner, graph):
    """Rows of three indexes whose times are these."""
    times = {"FAISS flat, Euclidean": flat, "FAISS flat, inner product": inner, "FAISS HNSW": graph}
    return [
        {"what": what, "build s": time, "ms per query": time, "recall": 1.0, "MB": 1.0}
        for what, time in times.items()
    ]


@pytest.mark.parametrize(
    ("by_seed", "outcome"),
    [
        ([(2, 1, 3), (2, 1, 4)], HOLDS),
        ([(2, 3, 1), (2, 3, 1)], FAILS),
        ([(2, 3, 4), (2, 3, 4)], PARTLY),
        ([(2, 1, 3), (2, 3, 1)], UNDECIDED),
    ],
)
def test_indexes_are_compared_with_each_other(by_seed, outcome):
    found = {"cifar10": measurements("index", *(index_rows(*times) for times in by_seed))}
    assert outcome_of("index", found) == outcome
    assert "FAISS HNSW: build" in EVALUATIONS["index"](found).lines[2]


def theory_sheets(norm, k, power):
    """Two seeds of the same numbers; √n is 100."""
    rows = [
        {"what": "norm of embeddings", "value": norm, "least": norm, "largest": norm},
        {"what": "K of distance attention", "value": k, "√n": 100.0},
        *({"what": f"K = {n}", "distance to all": float(n) ** power} for n in (1, 4, 16)),
        {"what": "K = 64", "distance to all": 0.0},
    ]
    return measurements("theory", rows, rows)


def test_each_part_of_the_theory_has_an_outcome():
    def outcome(*found):
        return outcome_of("theory", {str(n): theory_sheets(*f) for n, f in enumerate(found)})

    assert outcome((1.0, 50, -1.0)) == HOLDS
    assert outcome((3.0, 200, -0.5)) == FAILS
    assert outcome((1.0, 200, -1.0)) == PARTLY
    assert outcome((1.0, 50, -1.0), (3.0, 200, -0.5)) == MIXED
    nowhere = theory_sheets(1.0, 50, -1.0)
    rows = [{**row, "distance to all": 0.0} for row in nowhere.first.rows]
    nowhere = MeasurementSet((replace(nowhere.first, rows=tuple(rows)),))
    assert EVALUATIONS["theory"]({"digits": nowhere}).parts[2].outcome == UNDECIDED
    left_out = EVALUATIONS["theory"]({"digits": theory_sheets(3.0, 50, -0.5)})
    assert [part.outcome for part in left_out.parts] == [FAILS, HOLDS, FAILS]


def test_votes_of_an_experiment_are_alike_within_half_a_point():
    def outcome(uniform, distance, n=MANY):
        found = one(table(n, uniform=uniform, distance=distance, learned=0.9))
        return outcome_of("experiment-4", found)

    assert outcome(0.9, 0.9) == HOLDS
    assert outcome(0.8, 0.99) == FAILS
    assert outcome(0.8, 0.9) == PARTLY
    assert outcome(0.88, 0.92, FEW) == UNDECIDED


# Studies and the page


def test_every_claim_has_an_evaluation_and_studies():
    assert set(claims.STATEMENTS) == set(EVALUATIONS)
    asked = list(studies())
    assert all(claim.needs(asked) for claim in claims.CLAIMS)
    assert len({(s.preset, s.claim, s.dataset) for s in asked}) == len(asked)
    for study in asked:
        settings_of(study.claim, study.changes)  # an unknown name is an error
    with pytest.raises(InvalidSettingError, match=r"Add them to studies\.toml"):
        claims.CLAIMS[0].needs(asked[:1])


def test_the_studies_fit_into_eight_hours_of_one_core():
    assert hours() <= 8
    assert all(asked["minutes"] >= 1 for asked in ASKED)


@pytest.fixture
def experiment(tmp_path):
    """The study of an experiment, and its reports as if they had been measured."""
    study = next(s for s in studies(tmp_path) if s.preset == "experiment-4")
    options = preset_of("experiment-4").options.written
    settings = {**_asked(study), "corruption": asdict(Corruption()), "shift": asdict(Shift())}
    for seed in study.seeds:
        found = table(head=0.9, uniform=0.9, distance=0.9, learned=0.9)
        runs = tuple(
            replace(run, seed=seed, settings={**run.settings, **options})
            for run in found.runs
            if run.seed == 0
        )
        add_table(study.place / "report.json", replace(found, runs=runs, settings=settings))
    return study


def rewrite(study, **changed):
    """Write the report of a study again with some fields of its table changed."""
    path = study.place / "report.json"
    found = read_report(path).tables[""]
    path.unlink()
    values = {name: change(getattr(found, name)) for name, change in changed.items()}
    add_table(path, replace(found, **values))


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": 50},
        {"preset": None},
        {"network": None},
        {"corruption": {"kind": "shots", "level": 5}},
    ],
    ids=str,
)
def test_a_report_with_other_settings_is_refused(experiment, changed):
    rewrite(experiment, settings=lambda settings: {**settings, **changed})
    with pytest.raises(InvalidInputError, match=r"report\.json was made with other settings"):
        read(experiment)


def test_a_report_with_other_heads_is_refused(experiment):
    heads = {"attention": "{'n_heads': 2}"}
    rewrite(
        experiment,
        runs=lambda runs: tuple(replace(r, settings={**r.settings, **heads}) for r in runs),
    )
    with pytest.raises(InvalidInputError, match=r"report\.json was made with other settings"):
        read(experiment)


def test_a_study_is_measured_when_every_report_is_there(experiment):
    assert not missing(experiment)
    assert read(experiment)[None].seeds == list(experiment.seeds)
    more = replace(experiment, seeds=[*experiment.seeds, 9])
    assert missing(more) == [("", 9)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # numpy's open file
def test_damaged_reports_are_errors_with_their_path(experiment):
    path = experiment.place / "report.json"
    path.with_suffix(".npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(InvalidInputError, match=r"report\.json .* is damaged"):
        read(experiment)
    path.write_text("{")
    with pytest.raises(InvalidInputError, match=r"report\.json .* is damaged"):
        write_page(list(studies(experiment.folder)), experiment.folder / "claims.md")


def test_reports_of_other_settings_or_data_are_refused(experiment):
    with pytest.raises(InvalidInputError, match=r"report\.json was made with other settings"):
        read(replace(experiment, changes={"methods": ["uniform", "distance"]}))
    path = experiment.place / "report.json"
    other = replace(read_report(path).table("", 1), encoder="another")
    with pytest.raises(InvalidInputError, match="must have the same `encoder`"):
        add_table(path, other)


def test_sheets_of_other_settings_are_refused(tmp_path):
    study = Study("index", "cifar10", tmp_path, [0])
    written = {**_asked(study), "measure": settings_of("index", {"neighbors": 4})}
    (one,) = measurements("index", index_rows(2, 1, 3), settings=written).by_seed
    add_measurements(study.place / "report.json", one)
    with pytest.raises(InvalidInputError, match="was made with other settings"):
        read(study)
    assert read(replace(study, changes={"neighbors": 4})).seeds == [0]


def test_an_outcome_stands_beside_its_data(experiment):
    page = experiment.folder / "claims.md"
    write_page(list(studies(experiment.folder)), page)
    row = next(line for line in page.read_text().splitlines() if "Experiment 4, learned" in line)
    assert row.split(" | ")[1].startswith("holds (as uniform: true of 1, false of 0")
    assert row.endswith("| cifar10 (1,200 test rows, 3 seeds) |")


def test_the_page_has_no_outcome_before_all_is_measured(tmp_path):
    methods = ["uniform", "distance", "learned", "k-ensemble"]
    few = {
        ("main", "iris"): {"changes": {"methods": methods}, "network": None, "n_rows": None},
        ("k-sweep", "digits"): {"changes": {"methods": methods[:2], "neighbors": [1, 4]}},
        ("overhead", "digits"): {"changes": {"neighbors": 4, "queries": 8, "repeats": 1}},
    }
    cheap = {"network": "none", "n_rows": 200, "seeds": [0]}
    asked = [
        replace(study, **{**cheap, **few[study.claim, study.dataset]})
        if (study.claim, study.dataset) in few
        else study
        for study in studies(tmp_path)
    ]
    measured = [study for study in asked if (study.claim, study.dataset) in few]
    table = measure(measured[0]).tables[None]
    measure(measured[1])
    measure(measured[2])
    asked = [replace(s, seeds=[0, 1]) if s.claim == "k-sweep" else s for s in asked]
    page = tmp_path / "claims.md"
    write_page(asked, page)
    text = page.read_text()
    gap = table.difference("nll", "learned", "distance")
    assert f"- iris: learned − distance {gap:+.4f}" in text
    assert "measured in part; missing: main digits, main banking77" in text
    assert "| iris (30 test rows, 1 seed) |" in text
    assert "ms for each query asked alone" in text
    assert "| digits (8 queries, 1 seed) |" in text
    assert "| Several heads perform like one | not measured yet |" in text
    assert "| Accuracy hardly depends on K | not measured yet |" in text
    left = text.split("Not measured yet: ")[1]
    assert "main cifar10 (3 of 3 reports missing)" in left
    assert "k-sweep digits (2 of 4 reports missing)" in left
