"""The claims of the research: what its documents said, and what the reports say."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from attnknn.evaluation.intervals import Interval
from attnknn.evaluation.table import Table
from attnknn.experiments.presets import PRESETS
from attnknn.reports.sheets import falling_power
from experiments.research.results import Results

DATA = ("iris", "digits", "banking77", "adult", "cifar10")
HOLDS, FAILS, PARTLY, SAME = "holds", "does not hold", "holds in part", "no difference is seen"


@dataclass(frozen=True)
class Judged:
    """What was measured, a line each, and whether the claim holds."""

    lines: list[str]
    verdict: str


@dataclass(frozen=True)
class Claim:
    """A claim with the numbers of the documents."""

    title: str
    said: str
    judge: Callable[[Results], Judged | None]


def _signs(gaps: list[Interval], *, better: int) -> str:
    """A verdict by how many differences lie on the better side, beyond their intervals."""
    sides = [0 if not gap.excludes_zero() else (1 if gap.mean > 0 else -1) for gap in gaps]
    if all(side == better for side in sides):
        return HOLDS
    if all(side == 0 for side in sides):
        return SAME
    return PARTLY if better in sides else FAILS


def _mains(results: Results) -> Iterator[tuple[str, Table]]:
    for name in DATA:
        table = results.table("main", name)
        if table is not None:
            yield name, table


def _votes(results: Results, ours: str, metric: str, better: int) -> Judged | None:
    """Our votes against uniform and distance votes on every data set."""
    lines, gaps = [], []
    for name, table in _mains(results):
        for other in ("uniform", "distance"):
            gap = (
                table.ece_difference(ours, other)
                if metric == "ece"
                else table.difference(metric, ours, other)
            )
            gaps.append(gap)
            lines.append(f"{name}: {ours} − {other} {gap:+.4f}")
    return Judged(lines, _signs(gaps, better=better)) if lines else None


def _accuracy(results: Results) -> Judged | None:
    return _votes(results, "learned", "accuracy", +1)


def _log_loss(results: Results) -> Judged | None:
    return _votes(results, "learned", "nll", -1)


def _calibration(results: Results) -> Judged | None:
    return _votes(results, "learned", "ece", -1)


def _views(results: Results) -> Judged | None:
    """Every method with views against itself without."""
    lines, gaps = [], []
    for name in ("digits", "cifar10"):
        table = results.table("main", name)
        for method in [] if table is None else table.methods:
            if table is None or f"{method}, views" not in table.methods:
                continue
            ece = table.ece_difference(f"{method}, views", method)
            nll = table.difference("nll", f"{method}, views", method)
            gaps.append(ece)
            change = ece.mean / table.mean("ece", method)
            lines.append(f"{name}, {method}: ECE {ece:+.4f} ({change:+.0%}), log-loss {nll:+.4f}")
    return Judged(lines, _signs(gaps, better=-1)) if lines else None


def _sweep(results: Results, claim: str, methods: tuple[str, ...]) -> Judged | None:
    """How much accuracy is lost from the first place to the last."""
    lines, kept = [], []
    for name in ("digits", "cifar10"):
        tables = results.sweep(claim, name)
        if len(tables) < 2:
            continue
        first, last = min(tables), max(tables)
        for method in methods:
            before, after = (tables[place].mean("accuracy", method) for place in (first, last))
            losses = [tables[place].mean("nll", method) for place in (first, last)]
            kept.append(after / before)
            lines.append(
                f"{name}, {method}: accuracy {before:.2%} to {after:.2%} ({after / before:.1%} "
                f"kept), log-loss {losses[0]:.4f} to {losses[1]:.4f}"
            )
    if not lines:
        return None
    good = [share >= 0.98 for share in kept]
    return Judged(lines, HOLDS if all(good) else PARTLY if any(good) else FAILS)


ROBUST = ("CNN head", "uniform", "distance", "learned", "attnknn")


def _noise(results: Results) -> Judged | None:
    return _sweep(results, "noise", ROBUST)


def _imbalance(results: Results) -> Judged | None:
    return _sweep(results, "imbalance", ROBUST)


def _robust_by_attention(results: Results) -> Judged | None:
    """Learned against uniform and distance at the largest noise."""
    lines, gaps = [], []
    for name in ("digits", "cifar10"):
        tables = results.sweep("noise", name)
        if not tables:
            continue
        table = tables[max(tables)]
        for other in ("uniform", "distance"):
            gap = table.difference("nll", "learned", other)
            right = table.difference("accuracy", "learned", other)
            gaps.append(gap)
            lines.append(
                f"{name}, {table.corruption}: learned − {other}, log-loss {gap:+.4f}, accuracy "
                f"{right:+.4f}"
            )
    return Judged(lines, _signs(gaps, better=-1)) if lines else None


def _neighbors(results: Results) -> Judged | None:
    """Accuracy from the smallest to the largest K, and where log-loss is least."""
    lines, stable = [], []
    for name in ("digits", "cifar10"):
        tables = results.sweep("k-sweep", name)
        for method in ("uniform", "distance", "learned") if tables else ():
            right = {k: table.mean("accuracy", method) for k, table in tables.items()}
            loss = {k: table.mean("nll", method) for k, table in tables.items()}
            spread = max(right.values()) - min(right.values())
            stable.append(spread <= 0.01)
            best = min(loss, key=loss.__getitem__)
            ends = [loss[min(loss)], loss[max(loss)]]
            lines.append(
                f"{name}, {method}: accuracy between {min(right.values()):.2%} and "
                f"{max(right.values()):.2%}; log-loss {ends[0]:.4f} at K = {min(loss):g}, "
                f"{ends[1]:.4f} at K = {max(loss):g}, least at K = {best:g}"
            )
    if not lines:
        return None
    return Judged(lines, HOLDS if all(stable) else PARTLY if any(stable) else FAILS)


def _k_ensemble(results: Results) -> Judged | None:
    """The k-ensemble against votes at one K; the documents found nothing."""
    lines, gaps = [], []
    for name, table in _mains(results):
        gap = table.difference("nll", "k-ensemble", "distance")
        right = table.difference("accuracy", "k-ensemble", "distance")
        gaps.append(gap)
        lines.append(f"{name}: k-ensemble − distance, log-loss {gap:+.4f}, accuracy {right:+.4f}")
    if not lines:
        return None
    n_better = sum(gap.excludes_zero() and gap.mean < 0 for gap in gaps)
    return Judged(lines, HOLDS if n_better == 0 else FAILS if n_better == len(gaps) else PARTLY)


def _heads(results: Results) -> Judged | None:
    """Several heads against one; the documents found no difference."""
    lines, gaps = [], []
    for name in ("digits", "banking77", "cifar10"):
        table = results.table("ablation", name)
        for heads in ("2 heads", "4 heads", "8 heads") if table is not None else ():
            assert table is not None
            gap = table.difference("nll", heads, "as it is")
            gaps.append(gap)
            lines.append(f"{name}: {heads} − one, log-loss {gap:+.4f}")
    if not lines:
        return None
    n_apart = sum(gap.excludes_zero() for gap in gaps)
    return Judged(lines, HOLDS if n_apart == 0 else FAILS if n_apart == len(gaps) else PARTLY)


def _gap(results: Results) -> Judged | None:
    """The CNN head of the same training against our votes; the documents found 5 to 9 points."""
    lines, gaps = [], []
    for name in ("digits", "cifar10"):
        table = results.table("main", name)
        for views in ("", ", views") if table is not None else ():
            assert table is not None
            gap = table.difference("accuracy", f"CNN head{views}", f"attnknn{views}")
            loss = table.difference("nll", f"CNN head{views}", f"attnknn{views}")
            gaps.append(gap)
            lines.append(
                f"{name}: CNN head{views} − attnknn{views}, accuracy {gap:+.4f}, "
                f"log-loss {loss:+.4f}"
            )
    if not lines:
        return None
    return Judged(lines, FAILS if all(gap.mean < 0.01 for gap in gaps) else PARTLY)


def _overhead(results: Results) -> Judged | None:
    lines, costs = [], []
    for name in ("digits", "cifar10"):
        sheets = results.sheets("overhead", name)
        for what in ("uniform", "distance", "learned") if sheets is not None else ():
            assert sheets is not None
            at_once, alone = (
                sheets.values(what, f"overhead {how}") for how in ("at once", "alone")
            )
            costs.append(max(at_once))
            lines.append(
                f"{name}, {what}: {sum(at_once) / len(at_once):.4f} ms for each query asked at "
                f"once, {sum(alone) / len(alone):.4f} ms for one asked alone"
            )
    if not lines:
        return None
    return Judged(lines, HOLDS if max(costs) < 1 else FAILS)


def _index(results: Results) -> Judged | None:
    lines = []
    for name in ("digits", "cifar10"):
        sheets = results.sheets("index", name)
        for what in sheets.rows if sheets is not None else ():
            assert sheets is not None
            cells = {c: sheets.mean(what, c) for c in sheets.columns}
            lines.append(
                f"{name}, {what}: build {cells['build s']:.3g} s, search "
                f"{cells['ms per query']:.3g} ms a query, recall {cells['recall']:.4f}, "
                f"{cells['MB']:.3g} MB"
            )
    return Judged(lines, "times of another machine; see the lines") if lines else None


def _theory(results: Results) -> Judged | None:
    lines, powers = [], []
    for name in ("digits", "cifar10"):
        sheets = results.sheets("theory", name)
        if sheets is None:
            continue
        powers.append(falling_power(sheets))
        norms = [sheets.mean("norm of embeddings", end) for end in ("least", "largest")]
        k = sheets.mean("K of distance attention", "value")
        root = sheets.mean("K of distance attention", "√n")
        lines.append(
            f"{name}: norms {norms[0]:.4f} to {norms[1]:.4f}; K in use {k:.0f}, √n {root:.0f}; "
            f"shares approach those of all neighbors as K to the power of {powers[-1]:.2f}"
        )
    if not lines:
        return None
    return Judged(lines, HOLDS if all(-1.5 < p < -0.5 for p in powers) else PARTLY)


def _preset(name: str) -> Callable[[Results], Judged | None]:
    def judge(results: Results) -> Judged | None:
        table = results.table("main", "cifar10", name)
        if table is None:
            return None
        lines = [
            f"{method}: accuracy {table.interval('accuracy', method):.4f}, log-loss "
            f"{table.mean('nll', method):.4f}, ECE {table.mean('ece', method):.4f}"
            for method in table.methods
        ]
        lines.append(f"Measured with {table.encoder}.")
        gaps = [table.difference("nll", "learned", other) for other in ("uniform", "distance")]
        return Judged(lines, f"learned below both others in log-loss: {_signs(gaps, better=-1)}")

    return judge


JUDGES: dict[str, Callable[[Results], Judged | None]] = {
    "accuracy": _accuracy,
    "log-loss": _log_loss,
    "calibration": _calibration,
    "views": _views,
    "noise": _noise,
    "robust-by-attention": _robust_by_attention,
    "imbalance": _imbalance,
    "neighbors": _neighbors,
    "k-ensemble": _k_ensemble,
    "heads": _heads,
    "gap-to-cnn": _gap,
    "overhead": _overhead,
    "index": _index,
    "theory": _theory,
    **{name: _preset(name) for name in PRESETS},
}
SAID = tomllib.loads((Path(__file__).parent / "said.toml").read_text())
CLAIMS = [Claim(said["title"], said["said"], JUDGES[name]) for name, said in SAID.items()]
