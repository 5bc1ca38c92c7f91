"""What a classifier promises: sets that hold the right label, and when it had better abstain."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnknn._validation import Limits, check_at_least, check_choice, check_labels
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.records import Booleans, Floats, Integers

if TYPE_CHECKING:
    from attnknn.calibration import Calibration
    from attnknn.conformal import PredictionSets, SetScore
    from attnknn.conformal.coverage_spec import CoverageSpec
    from attnknn.conformal.decisions import Decisions
    from attnknn.leave_one_out import LeaveOneOutPredictions, Trust
    from attnknn.memory import Memory
    from attnknn.pipeline import Answer

RISK = Limits(above=0, below=1, may_be_none=True)
CONFIDENCE = Limits(least=0, below=1, may_be_none=True)
NOVELTY = Limits(least=0, below=1)
METHODS = ("leave_one_out", "split", "jackknife+")
MOST_LEFT_OUT = 20_000  # held-out entries: a share of 0.9 is then known to 0.002


class PromisesMixin:
    """Sets and decisions, from what the others say of each held-out entry."""

    memory_: Memory
    calibration_: Calibration
    classes_: NDArray[Any]
    n_neighbors_: int

    if TYPE_CHECKING:

        @property
        def _cache(self) -> dict[Any, Any]: ...
        def _check_remembers(self, method: str) -> None: ...
        def _counts(self) -> Integers: ...
        def _everyone(self) -> Any: ...
        def _has_trained_encoder(self) -> bool: ...
        def _parts(self) -> Any: ...
        def _trust(self) -> Trust | None: ...
        def _answers(self, X: Any, method: str) -> Iterator[list[Answer]]: ...
        def _calibration_of_answers(self, method: str) -> Calibration: ...
        def _codes(self, labels: NDArray[Any]) -> Integers: ...
        def _views(self, X: Any, method: str) -> list[NDArray[np.float32]]: ...
        def _probabilities(self, views: list[NDArray[np.float32]]) -> Floats: ...
        def predict_proba(self, X: Any) -> Floats: ...

    def predict_set(
        self,
        X: Any,
        coverage: float = 0.9,
        by_class: bool = False,
        *,
        method: str = "leave_one_out",
        score: str | SetScore = "lac",
        calibration_rows: tuple[Any, ArrayLike] | None = None,
        random_state: Any = None,
    ) -> PredictionSets:
        """For each row of `X` the classes that it may well have.

        Parameters
        ----------
        coverage : the share of sets that are to hold the right label; higher makes larger sets
        by_class : reach it for the rows of each class, and not only over all rows
        method : 'leave_one_out' takes every held-out entry for an example, judged by the others.
            Close
            to `coverage` in practice, no guarantee by itself. If the classifier models label noise,
            this is the coverage of the true label.
            'split' takes `calibration_rows`. Guarantee: at least `coverage`, if rows to come are
            like these, and for labels like theirs: wrong ones among them make sets larger.
            'jackknife+' answers again without each held-out entry. Guarantee: at least
            1 − 2 (1 − `coverage`), in practice about `coverage`, if rows to come are like the fresh
            entries and the fitted parts were fitted on other rows; for labels as observed
        score : 'lac' makes the smallest sets, 'aps' larger ones where the classifier is unsure,
            'raps' fewer long ones; or a score of `attnknn.conformal`
        calibration_rows : rows and labels for 'split', none of which may be remembered
        random_state : a number randomizes 'aps' and 'raps', which then cover exactly and not a
            little more; None does not. With the same number a row has the same set, asked about
            alone or among others

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from attnknn import AttnKNNClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X, y)
        >>> clf.predict_set(X[[0, 77]], coverage=0.98).labels()
        [[0], [1, 2]]
        """
        from attnknn.conformal import PredictionSets, members
        from attnknn.conformal.coverage_spec import make_coverage_spec

        self._check_remembers("predict_set")
        check_choice("method", method, METHODS)
        if (calibration_rows is None) == (method == "split"):
            raise InvalidSettingError(
                "`calibration_rows` goes with `method='split'`: give both, or neither."
            )
        spec = make_coverage_spec(coverage, by_class, score, random_state)
        limits = None
        if method == "jackknife+":
            inside = self._members_by_jackknife(X, spec)
        else:
            limits = self._thresholds(spec, calibration_rows)
            views = self._views(X, "predict_set")
            scores = spec.scores_of_queries(self._probabilities(views), views[0])
            inside = members(scores, limits)
        return PredictionSets(inside, self.classes_, spec.coverage, spec.by_class, method, limits)

    def decide(
        self,
        X: Any,
        max_risk: float | None = None,
        *,
        min_confidence: float | None = None,
        novelty_level: float = 0.01,
        n_nearest: int = 1,
    ) -> Decisions:
        """For each row of `X` its label, or the reason to abstain.

        Parameters
        ----------
        max_risk : of the answers that are given at most this share is to be wrong; lower abstains
            more often. Chosen on held-out entries judged by the others so that a bound (Clopper and
            Pearson, 95 % sure over all confidences tried) stays below; for rows like these. If the
            classifier models label noise, wrong is what differs from the true label
        min_confidence : abstain below this probability; with `max_risk` the stricter one counts
        novelty_level : at most this share of rows like the held-out entries is called unlike
            anything remembered, which is guaranteed; higher abstains more often, 0 never for this
            reason
        n_nearest : strange is what is far from its so many nearest entries, by the mean distance,
            at most `n_neighbors_`. More tell rows that are far from everything more surely; with
            one, the default, a single added example makes its surroundings familiar at once

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from attnknn import AttnKNNClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X, y)
        >>> decisions = clf.decide([X[0], X[77], [30, 1, 1, 9]], min_confidence=0.9)
        >>> decisions.labels()
        [0, None, None]
        >>> decisions.reasons
        ['', 'unsure between 1 and 2', 'unlike anything remembered']
        """
        from attnknn.conformal.decisions import decide, novelty_p_values

        self._check_remembers("decide")
        for name, value, limits in (
            ("max_risk", max_risk, RISK),
            ("min_confidence", min_confidence, CONFIDENCE),
            ("novelty_level", novelty_level, NOVELTY),
        ):
            if not limits.allow(value):
                raise InvalidSettingError(f"`{name}` must be {limits}, got {value!r}.")
        if check_at_least("n_nearest", n_nearest, 1) > self.n_neighbors_:
            raise InvalidSettingError(
                f"`n_nearest` can be at most `n_neighbors_` ({self.n_neighbors_}), got {n_nearest}."
            )
        least = self._least_confidence(max_risk, min_confidence, novelty_level, n_nearest)
        known = self._leave_one_out_predictions().nearest(n_nearest)
        _warn_if_nothing_is_novel(novelty_level, len(known))
        probabilities, nearest = self._answered_with_distance(X, n_nearest)
        return decide(
            probabilities,
            novelty_p_values(nearest, known),
            self.classes_,
            min_confidence=least,
            novelty_level=novelty_level,
        )

    def _answered_with_distance(self, X: Any, n_nearest: int) -> tuple[Floats, Floats]:
        """Probabilities (n, C) and the distance (n,) to the nearest entries, by one search."""
        from attnknn.ensembling import probabilities_of
        from attnknn.leave_one_out import mean_of_nearest

        calibration = self._calibration_of_answers("decide")
        probabilities, nearest = [np.zeros((0, len(self.classes_)))], [np.zeros(0)]
        for views in self._answers(X, "decide"):
            probabilities.append(probabilities_of(views, calibration))
            nearest.append(mean_of_nearest(views[0].neighbors.distances, n_nearest))
        return np.concatenate(probabilities), np.concatenate(nearest)

    def _least_confidence(
        self,
        max_risk: float | None,
        min_confidence: float | None,
        novelty_level: float,
        n_nearest: int,
    ) -> float:
        """What is asked for, or what the allowed risk takes among entries that are not strange."""
        from attnknn.conformal.decisions import confidence_for_risk, novelty_p_values_of_entries

        least = 0.0 if min_confidence is None else float(min_confidence)
        if max_risk is None:
            return least
        key = ("confidence", max_risk, novelty_level, n_nearest)
        if key not in self._cache:
            left_out = self._leave_one_out_predictions()
            is_known = novelty_p_values_of_entries(left_out.nearest(n_nearest)) > novelty_level
            answered = left_out.part(is_known)
            self._cache[key] = confidence_for_risk(answered, max_risk, self._confusions())
        return max(least, self._cache[key])

    def _thresholds(self, spec: CoverageSpec, rows: tuple[Any, ArrayLike] | None) -> Floats:
        """Thresholds (C,) by rows that the user gives or, once per state.

        By the held-out entries.
        """
        if rows is not None:
            X, y = _pair(rows)
            own = self._known_codes(check_labels(y))
            probabilities = self.predict_proba(X)
            if len(own) != len(probabilities):
                raise InvalidInputError(
                    f"`calibration_rows` has {len(probabilities)} rows but {len(own)} labels."
                )
            return spec.thresholds(spec.scores_of_examples(probabilities), own, self.classes_)
        if spec not in self._cache:
            held_out = self._held_out_among_all() if spec.by_class else None
            left_out = self._leave_one_out_predictions(
                everyone=spec.by_class, trained_on=held_out is not None
            )
            ids = self.memory_.entries.ids[left_out.rows]
            scores = spec.scores_of_examples(left_out.probabilities, ids)
            self._cache[spec] = spec.thresholds(
                scores, left_out.own, self.classes_, self._confusions(), held_out
            )
        return self._cache[spec]

    def _held_out_among_all(self) -> Booleans | None:
        """Which entries (N,) are fresh, where the others can help to tell classes apart.

        An encoder draws the rows that it was trained on to their classes: those cannot.
        """
        held_out = self.memory_.entries.held_out
        return None if held_out.all() or self._has_trained_encoder() else held_out

    def _confusions(self) -> Floats | None:
        """Chance (C, C) of each label (column) for each true one (row), as the entries are now.

        Many neighbors smooth wrong labels away: the nearest ones are asked, as in the fit.
        """
        from attnknn.calibration import MOST_NEIGHBORS_TO_SEE_NOISE, confusions_now

        if "confusions" not in self._cache:
            left_out = self._leave_one_out_predictions(by_nearest=MOST_NEIGHBORS_TO_SEE_NOISE)
            self._cache["confusions"] = confusions_now(
                self.calibration_, left_out.probabilities, left_out.own
            )
        return self._cache["confusions"]

    def _members_by_jackknife(self, X: Any, spec: CoverageSpec) -> Booleans:
        from attnknn.conformal.jackknife import Jackknife

        views = self._views(X, "predict_set")
        if len(views) > 1:
            raise InvalidSettingError(
                "`method='jackknife+'` asks about each row once, but this encoder averages "
                f"{len(views)} views. Use `method='split'`, or an encoder with one view."
            )
        left_out = self._leave_one_out_predictions(everyone=spec.by_class)
        spec.check_examples(left_out.own, self.classes_)
        ids = self.memory_.entries.ids[left_out.rows]
        scores = spec.scores_of_examples(left_out.probabilities, ids)
        own_scores = scores[np.arange(len(left_out)), left_out.own]
        jackknife = Jackknife(self._parts(), left_out, own_scores, spec.score, self._trust())
        return jackknife.members(
            views[0],
            spec.coverage,
            by_class=spec.by_class,
            uniform=spec.uniform_of_queries(views[0]),
        )

    def _leave_one_out_predictions(
        self, *, everyone: bool = False, trained_on: bool = False, by_nearest: int | None = None
    ) -> LeaveOneOutPredictions:
        """What the others say of held-out entries: of a sample of them, or of `everyone`.

        With `trained_on` also of those that are not fresh; `by_nearest` asks only so many of the
        others.
        """
        from attnknn.leave_one_out import leave_one_out_predictions

        entries = self.memory_.entries
        rows = np.flatnonzero(entries.held_out | trained_on)
        is_sample = len(rows) > MOST_LEFT_OUT and not everyone
        k = min(by_nearest or self.n_neighbors_, self.n_neighbors_)
        key = ("leave_one_out_predictions", is_sample, trained_on, k)
        if key not in self._cache:
            rows = self._some(rows) if is_sample else rows
            parts = replace(self._parts(), n_neighbors=k)
            self._cache[key] = leave_one_out_predictions(self._left_out(rows), parts)
        return self._cache[key]

    def _some(self, rows: Integers) -> Integers:
        """A sample that depends on the ids of the entries, and not on their order."""
        ordered = rows[np.argsort(self.memory_.entries.ids[rows])]
        chosen = np.random.default_rng(0).choice(len(rows), MOST_LEFT_OUT, replace=False)
        return np.sort(ordered[chosen])

    def _left_out(self, rows: Integers) -> Any:
        from attnknn.leave_one_out import judge

        trust = self._trust()
        if trust is not None or "left_out" in self._cache:
            return self._everyone().part(rows).trusting(trust)
        return judge(self.memory_, self._counts(), self.n_neighbors_, rows)

    def _known_codes(self, labels: NDArray[Any]) -> Integers:
        known = set(self.classes_.tolist())
        unknown = [label for label in labels.tolist() if label not in known]
        if unknown:
            raise InvalidInputError(
                f"`calibration_rows` has the label {unknown[0]!r}, which is no remembered class. "
                "Add rows of it, or leave it out."
            )
        return self._codes(labels)


def _pair(rows: Any) -> tuple[Any, Any]:
    if not (isinstance(rows, tuple | list) and len(rows) == 2):
        came = f"{type(rows).__name__} of {len(rows)}" if hasattr(rows, "__len__") else repr(rows)
        raise InvalidInputError(
            f"`calibration_rows` must be a pair (X, y) of rows and labels, got a {came}."
        )
    return rows[0], rows[1]


def _warn_if_nothing_is_novel(novelty_level: float, n_held_out: int) -> None:
    if 0 < novelty_level < 1 / (n_held_out + 1):
        warnings.warn(
            f"With {n_held_out} held-out examples no row is told to be unlike anything "
            f"remembered at "
            f"`novelty_level={novelty_level}`: it takes {math.ceil(1 / novelty_level) - 1}. "
            f"Give 0, or at least {1 / (n_held_out + 1):.2g}.",
            stacklevel=3,
        )
