"""Sentences that describe the numbers of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnknn.records import Floats
from attnknn.research.evaluation.intervals import Interval, mean_interval, paired_interval
from attnknn.research.evaluation.table import Table

WORDS = {"accuracy": "accuracy", "nll": "log-loss"}


def describe_differences(table: Table, ours: str, metric: str) -> list[str]:
    """A sentence for each method that ours differs from significantly, and one for the others."""
    gaps = {
        other: table.difference(metric, ours, other) for other in table.methods if other != ours
    }
    apart = [
        describe_difference(gap, metric, ours, other)
        for other, gap in gaps.items()
        if gap.excludes_zero()
    ]
    level = [other for other, gap in gaps.items() if not gap.excludes_zero()]
    if not level:
        return apart
    words = f"does not differ significantly from {join_names(level)} in {WORDS[metric]}."
    return [*apart, f"{quote_name(ours)} {words}"]


def describe_difference(gap: Interval, metric: str, ours: str, other: str) -> str:
    """Describe a difference; it is significant if its interval excludes zero.

    >>> describe_difference(Interval(-0.02, -0.03, -0.01), "nll", "attention", "uniform")
    'attention has a lower log-loss than uniform, by 0.0200 [0.0100, 0.0300].'
    """
    what = WORDS[metric]
    ours, other = quote_name(ours), quote_name(other)
    if not gap.excludes_zero():
        return (
            f"{ours} and {other} do not differ significantly in {what} "
            f"({gap.mean:+.4f} [{gap.lower:+.4f}, {gap.upper:+.4f}])."
        )
    direction = "higher" if gap.mean > 0 else "lower"
    return f"{ours} has a {direction} {what} than {other}, by {_size(gap)}."


def _size(gap: Interval) -> str:
    """A difference that excludes zero, with its interval, without the sign."""
    low, high = sorted((abs(gap.lower), abs(gap.upper)))
    return f"{abs(gap.mean):.4f} [{low:.4f}, {high:.4f}]"


def best(table: Table, metric: str) -> str:
    """The best method, and those that do not differ significantly from it."""
    is_higher = metric == "accuracy"
    order = sorted(table.methods, key=lambda m: table.mean(metric, m), reverse=is_higher)
    first = order[0]
    level = [
        other for other in order[1:] if not table.difference(metric, first, other).excludes_zero()
    ]
    word = "highest" if is_higher else "lowest"
    sentence = (
        f"{quote_name(first)} has the {word} {WORDS[metric]} ({table.interval(metric, first):.4f})"
    )
    return sentence + _beside(level, len(order) - 1)


def describe_change(first: Table, last: Table, metric: str, way: str) -> str:
    """The method that a sweep harms least, and those that do not differ significantly from it.

    `first`, `last`: of the ends of the sweep, with the same methods, seeds and test rows; `way`:
    from where to where, in words: "from K = 1 to 64".
    """
    change = {m: last.by_row(metric, m) - first.by_row(metric, m) for m in first.methods}
    is_higher = metric == "accuracy"
    order = sorted(change, key=lambda m: float(change[m].mean()), reverse=is_higher)
    best, others = order[0], order[1:]
    level = [m for m in others if not paired_interval(change[best], change[m]).excludes_zero()]
    found = mean_interval(change[best])
    is_worse = (found.mean < 0) == is_higher
    rank = ("least, " if is_worse else "most, ") if others else ""
    said = f"the {WORDS[metric]} of {quote_name(best)} {_change_words(found, rank)}"
    return f"{way}, {said}{_beside(level, len(others))}"


def _change_words(change: Interval, rank: str) -> str:
    """Describe a change with its rank; it is significant if its interval excludes zero."""
    if not change.excludes_zero():
        return f"does not change significantly ({change:+.4f})"
    return f"{'rises' if change.mean > 0 else 'falls'} {rank}by {_size(change)}"


def _beside(level: Sequence[str], n_others: int) -> str:
    """The end of a sentence about the best method: how the others compare."""
    if level:
        return f"; no significant difference to {join_names(level)}."
    return "; its paired difference to every other excludes zero." if n_others else "."


def describe_calibration(table: Table, method: str) -> str:
    """Describe the calibration of a method: confidence against accuracy, and ECE."""
    error, honest = table.mean("ece", method), table.mean("debiased_ece", method)
    sure = np.stack([run.row_confidence for run in table.of(method)])
    lean = describe_confidence(sure, table.by_row("accuracy", method))
    return (
        f"On average {quote_name(method)} is {lean}; its ECE is {error:.4f}, "
        f"{honest:.4f} without the sampling noise of {table.n_test:,} rows."
    )


def describe_confidence(confidence: Floats, is_right: Floats) -> str:
    """Whether predictions (S, n) are significantly over- or underconfident.

    >>> describe_confidence(np.full((1, 50), 0.9), np.ones((1, 50)))
    'underconfident by 0.1000 [0.1000, 0.1000]'
    """
    gap = paired_interval(confidence, is_right)
    if not gap.excludes_zero():
        return f"neither over- nor underconfident ({gap:+.4f})"
    return f"{'over' if gap.mean > 0 else 'under'}confident by {_size(gap)}"


def quote_name(method: str) -> str:
    """The name of a method in a sentence, in quotes if it has a comma.

    >>> quote_name("uniform"), quote_name("uniform, views")
    ('uniform', '“uniform, views”')
    """
    return f"“{method}”" if "," in method else method


def join_names(methods: Sequence[str]) -> str:
    """The names of one or more methods as a list in a sentence.

    >>> join_names(["uniform", "distance, no prior", "learned"])
    'uniform, “distance, no prior” and learned'
    """
    names = [quote_name(method) for method in methods]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
