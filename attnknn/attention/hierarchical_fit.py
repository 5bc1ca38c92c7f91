"""Fit hierarchical attention: both temperatures, detail, the prior, and how many cells to visit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import logsumexp

from attnknn.attention.cells import Cells, Visits
from attnknn.attention.direct import DirectFit
from attnknn.attention.hierarchical import Levels
from attnknn.records import Floats, Integers
from attnknn.vote import class_prior

MAX_VISITED = 32
MAX_ROWS, MIN_ROWS, MAX_PAIRS = 1_000, 200, 1_000_000  # to choose detail and cells on
MAX_PAIRS_TO_FIT = 300_000  # temperatures on
MAX_RISE = 0.01  # of the log-loss by visiting fewer cells, relative
DETAILS = (0.0, 0.5, 1.0)
STARTS = (0.1, 0.5, 2.0)  # temperatures, in typical squared distances to the nearest entry
TINY = 1e-300  # of a share, so that its logarithm is finite
MAX_STEPS = 100


def fit_levels(
    cells: Cells,
    problem: DirectFit,
    given: dict[str, float],
    n_visited: int | None,
    generator: np.random.Generator,
) -> tuple[Levels, int]:
    """The numbers of both levels and the number of visited cells, by leave-one-out log-loss.

    `given` numbers are kept.
    """
    most = min(n_visited or MAX_VISITED, max(1, int((cells.counts > 0).sum())))
    rows = _rows(cells, problem, most, generator)
    if len(rows) < 2:
        known = {"cell_temperature": 1.0, "entry_temperature": 1.0, "detail": 1.0} | given
        return Levels(prior=0.0, **known), n_visited or most
    left_out = _LeftOut.of(cells, problem, rows, most)
    details = (given["detail"],) if "detail" in given else DETAILS
    fits = [left_out.fitted(detail, given) for detail in details]
    best = min(fits, key=lambda found: left_out.losses(found).mean())
    if n_visited is not None:
        return best.levels, n_visited
    n_visited = _fewest(left_out, best, most)
    again = left_out.part(n_visited=n_visited).fitted(best.levels.detail, given, best)
    return again.levels, n_visited


def _rows(
    cells: Cells, problem: DirectFit, n_visited: int, generator: np.random.Generator
) -> Integers:
    """Held-out entries to fit on: as many as their pairs leave room for."""
    size = n_visited * float(np.average(cells.counts, weights=cells.counts))
    n_rows = int(np.clip(MAX_PAIRS // max(size, 1.0), MIN_ROWS, MAX_ROWS))
    rows = np.arange(len(cells.cell))
    if problem.held_out is not None:
        rows = rows[problem.held_out]
    return generator.permutation(rows)[:n_rows]  # in random order: the first ones are a sample


def _fewest(left_out: _LeftOut, fitted: _Fitted, most: int) -> int:
    """The fewest cells that are about as good as `most`."""
    allowed = (1.0 + MAX_RISE) * left_out.losses(fitted).mean()
    n_visited = 1
    while n_visited < most:
        if left_out.part(n_visited=n_visited).losses(fitted).mean() <= allowed:
            return n_visited
        n_visited *= 2
    return most


@dataclass(frozen=True)
class _Fitted:
    """Levels, and the exponent of the probability map that goes with them.

    Calibration fits the exponent again; without one, temperatures would have to do its work.
    """

    levels: Levels
    exponent: float


@dataclass(frozen=True)
class _LeftOut:
    """Leave-one-out rows with the cells that they visit."""

    visits: Visits
    log_weight: Floats  # (P,)
    labels: Integers  # (P,) of the entries
    own: Integers  # (B,)
    prior: Floats  # (B, C) class frequencies without the row

    @classmethod
    def of(cls, cells: Cells, problem: DirectFit, rows: Integers, n_visited: int) -> _LeftOut:
        """Visit the cells of the entries at `rows` without themselves and their groups."""
        entries = cells.entries
        left_out = problem.memory.exclusion.pairs(rows)
        visits = cells.visit(cells.entry_vectors[rows], n_visited, left_out)
        own = entries.labels[rows]
        log_weight = np.log(entries.effective_weight[visits.positions])
        prior = class_prior(np.bincount(entries.labels), own)
        return cls(visits, log_weight, entries.labels[visits.positions], own, prior)

    def part(self, n_rows: int | None = None, n_visited: int | None = None) -> _LeftOut:
        """The first rows, with fewer cells."""
        width = self.visits.squared.shape[1]
        n_rows, n_visited = n_rows or len(self.own), n_visited or width
        visits = self.visits.part(n_rows, n_visited)
        row, place = self.visits.slots // width, self.visits.slots % width
        kept = np.repeat((row < n_rows) & (place < n_visited), self.visits.sizes)
        pairs = self.log_weight[kept], self.labels[kept]
        return _LeftOut(visits, *pairs, self.own[:n_rows], self.prior[:n_rows])

    def losses(self, fitted: _Fitted) -> Floats:
        """Log-loss (B,) of the observed labels."""
        weights = fitted.levels.weights(self.visits, self.log_weight)
        shape = self.prior.shape
        counted: Any = np.bincount(self._places, weights, self.prior.size)
        shares = np.asarray(counted).reshape(shape)
        rest = np.maximum(1.0 - shares.sum(axis=1, keepdims=True), 0.0)
        logs = fitted.exponent * np.log(np.maximum(shares + rest * self.prior, TINY))
        found: Floats = logsumexp(logs, axis=1) - logs[np.arange(shape[0]), self.own]
        return found

    @cached_property
    def _places(self) -> Integers:
        return self.visits.rows * self.prior.shape[1] + self.labels

    @cached_property
    def unit(self) -> float:
        """Typical squared distance to the nearest entry of the nearest cell."""
        width = self.visits.squared.shape[1]
        is_first = np.repeat(self.visits.slots % width == 0, self.visits.sizes)
        nearest = np.full(len(self.own), np.inf)
        np.minimum.at(nearest, self.visits.rows[is_first], self.visits.distances[is_first])
        found = nearest[np.isfinite(nearest) & (nearest > 0)]
        return float(np.median(found)) if len(found) else 1.0

    def fitted(
        self, detail: float, given: dict[str, float], start: _Fitted | None = None
    ) -> _Fitted:
        """Both temperatures, the score of the prior and the exponent for this detail."""
        from scipy.optimize import minimize

        share = MAX_PAIRS_TO_FIT / max(1, len(self.visits.positions))
        part = self.part(max(MIN_ROWS, int(share * len(self.own)))) if share < 1 else self
        is_flat = detail == 1.0  # centers have no say, nor has their temperature

        def fitted_at(values: Floats) -> _Fitted:
            entry, cell = np.exp(np.clip(values[[0, 0 if is_flat else 3]], -80, 80)) * self.unit
            found = {"cell_temperature": float(cell), "entry_temperature": float(entry)}
            levels = Levels(**(found | given | {"detail": detail}), prior=float(values[1]))
            return _Fitted(levels, float(np.exp(np.clip(values[2], -3, 3))))

        def loss_at(values: Floats) -> float:
            return float(part.losses(fitted_at(values)).mean())

        begin = part._begin(fitted_at) if start is None else self._values_of(start)
        begin = begin[:3] if is_flat else begin
        steps = np.diag([0.7, 2.0, 0.3, 0.7])[: len(begin), : len(begin)]
        options = {
            "initial_simplex": np.vstack([begin, begin + steps]),
            "maxfev": MAX_STEPS,
            "xatol": 0.01,
            "fatol": 1e-4,
        }
        with np.errstate(over="ignore"):
            found = minimize(loss_at, begin, method="Nelder-Mead", options=options)
        return fitted_at(found.x)

    def _begin(self, fitted_at: Callable[[Floats], _Fitted]) -> Floats:
        """The best of a few temperatures, with a prior that has little weight."""
        candidates = []
        for factor in STARTS:
            values = np.array([np.log(factor), -np.inf, 0.0, np.log(factor)])
            masses, top = fitted_at(values).levels.masses(self.visits, self.log_weight)
            values[1] = float(np.median(top + np.log(self.visits.summed(masses)))) - 3.0
            candidates.append(values)
        return min(candidates, key=lambda values: self.losses(fitted_at(values)).mean())

    def _values_of(self, fitted: _Fitted) -> Floats:
        levels = fitted.levels
        entry, cell = levels.entry_temperature / self.unit, levels.cell_temperature / self.unit
        return np.array([np.log(entry), levels.prior, np.log(fitted.exponent), np.log(cell)])
