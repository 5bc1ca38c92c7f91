"""What a classifier promises: sets that hold the right label."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnknn._validation import check_choice, check_labels
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.records import Booleans, Floats, Integers

if TYPE_CHECKING:
    from attnknn.calibration import Calibration
    from attnknn.conformal import PredictionSets, SetScore
    from attnknn.conformal.promise import Promise
    from attnknn.leave_one_out import Trust, Verdicts
    from attnknn.memory import Memory

METHODS = ("leave_one_out", "split", "jackknife+")
MOST_JUDGED = 20_000  # fresh entries: a share of 0.9 is then known to 0.002


class PromisesMixin:
    """Sets, from what the others say of each fresh entry."""

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
        def _parts(self) -> Any: ...
        def _trust(self) -> Trust | None: ...
        def _codes(self, labels: NDArray[Any]) -> Integers: ...
        def _views(self, X: Any, method: str) -> list[NDArray[np.float32]]: ...
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
        method : 'leave_one_out' takes every fresh entry for an example, judged by the others. Close
            to `coverage` in practice, no guarantee by itself. If the classifier models label noise,
            this is the coverage of the true label.
            'split' takes `calibration_rows`. Guarantee: at least `coverage`, if rows to come are
            like these, and for labels like theirs: wrong ones among them make sets larger.
            'jackknife+' answers anew without each fresh entry. Guarantee: at least
            1 − 2 (1 − `coverage`), in practice about `coverage`, if rows to come are like the fresh
            entries and the fitted parts were fitted on other rows; for labels as observed
        score : 'lac' makes the smallest sets, 'aps' larger ones where the classifier is unsure,
            'raps' fewer long ones; or a score of `attnknn.conformal`
        calibration_rows : rows and labels for 'split', none of which may be remembered
        random_state : a number randomizes 'aps' and 'raps', which then cover exactly and not a
            little more; None does not

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
        from attnknn.conformal.promise import make_promise

        self._check_remembers("predict_set")
        check_choice("method", method, METHODS)
        if (calibration_rows is None) == (method == "split"):
            raise InvalidSettingError(
                "`calibration_rows` goes with `method='split'`: give both, or neither."
            )
        promise = make_promise(coverage, by_class, score, random_state)
        limits = None
        if method == "jackknife+":
            inside = self._members_by_jackknife(X, promise)
        else:
            limits = self._thresholds(promise, calibration_rows)
            inside = members(promise.scores_of_queries(self.predict_proba(X)), limits)
        return PredictionSets(
            inside, self.classes_, promise.coverage, promise.by_class, method, limits
        )

    def _thresholds(self, promise: Promise, rows: tuple[Any, ArrayLike] | None) -> Floats:
        """Thresholds (C,) by rows that the user gives or, once per state, by the fresh entries."""
        if rows is not None:
            own = self._known_codes(check_labels(rows[1]))
            probabilities = self.predict_proba(rows[0])
            if len(own) != len(probabilities):
                raise InvalidInputError(
                    f"`calibration_rows` has {len(probabilities)} rows but {len(own)} labels."
                )
            return promise.thresholds(promise.scores_of_examples(probabilities), own, self.classes_)
        if promise not in self._cache:
            judged = self._verdicts(everyone=promise.by_class)
            ids = self.memory_.entries.ids[judged.rows]
            scores = promise.scores_of_examples(judged.probabilities, ids)
            confusions = self.calibration_.confusions(len(self.classes_))
            self._cache[promise] = promise.thresholds(scores, judged.own, self.classes_, confusions)
        return self._cache[promise]

    def _members_by_jackknife(self, X: Any, promise: Promise) -> Booleans:
        from attnknn.conformal.jackknife import Jackknife

        views = self._views(X, "predict_set")
        if len(views) > 1:
            raise InvalidSettingError(
                "`method='jackknife+'` asks about each row once, but this encoder averages "
                f"{len(views)} views. Use `method='split'`, or an encoder with one view."
            )
        judged = self._verdicts(everyone=promise.by_class)
        promise.check_examples(judged.own, self.classes_)
        ids = self.memory_.entries.ids[judged.rows]
        scores = promise.scores_of_examples(judged.probabilities, ids)
        own_scores = scores[np.arange(len(judged)), judged.own]
        jackknife = Jackknife(self._parts(), judged, own_scores, promise.score, self._trust())
        return jackknife.members(
            views[0],
            promise.coverage,
            by_class=promise.by_class,
            uniform=promise.uniform_of_queries(len(views[0])),
        )

    def _verdicts(self, *, everyone: bool = False) -> Verdicts:
        """What the others say of fresh entries: of a sample of them, or of `everyone`."""
        from attnknn.leave_one_out import verdicts

        fresh = np.flatnonzero(self.memory_.entries.fresh)
        is_sample = len(fresh) > MOST_JUDGED and not everyone
        key = "verdicts_of_some" if is_sample else "verdicts"
        if key not in self._cache:
            rows = self._some(fresh) if is_sample else fresh
            self._cache[key] = verdicts(self._judged(rows), self._parts())
        return self._cache[key]

    def _some(self, rows: Integers) -> Integers:
        """A sample that depends on the ids of the entries, and not on their order."""
        ordered = rows[np.argsort(self.memory_.entries.ids[rows])]
        chosen = np.random.default_rng(0).choice(len(rows), MOST_JUDGED, replace=False)
        return np.sort(ordered[chosen])

    def _judged(self, rows: Integers) -> Any:
        from attnknn.leave_one_out import judge

        trust = self._trust()
        if trust is not None or "judged" in self._cache:
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
