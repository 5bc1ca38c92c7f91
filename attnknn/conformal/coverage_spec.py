"""What is asked of prediction sets, and whether there are examples enough to promise it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from attnknn._validation import Limits, check_flag
from attnknn.conformal.scores import SetScore, make_score
from attnknn.conformal.thresholds import fewest_examples, label_weights, thresholds
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.records import Booleans, Floats, Integers

SHARE = Limits(above=0, below=1)


@dataclass(frozen=True)
class CoverageSpec:
    """Sets that hold the right label for this share of rows, of all or of each class.

    `seed` randomizes the score; None does not.
    """

    coverage: float
    by_class: bool
    score: SetScore
    seed: int | None = None

    def scores_of_queries(self, probabilities: Floats, queries: NDArray[np.float32]) -> Floats:
        """Scores (n, C) of rows that are asked about, with their embeddings (n, D)."""
        return self.score.of_all(probabilities, self.uniform_of_queries(queries))

    def scores_of_examples(self, probabilities: Floats, ids: NDArray[Any] | None = None) -> Floats:
        """Scores (n, C) of judged rows; chance goes by their ids, not by the order they are in."""
        if self.seed is None:
            return self.score.of_all(probabilities)
        uniform = np.random.default_rng(self.seed).random(len(probabilities))
        if ids is not None:
            uniform = uniform[np.argsort(np.argsort(ids))]
        return self.score.of_all(probabilities, uniform)

    def uniform_of_queries(self, queries: NDArray[np.float32]) -> Floats | None:
        """(n,) numbers in [0, 1) that randomize the scores of queries (n, D), or None.

        They are drawn by what a query is, and not by its place: rows that are asked about one at a
        time would otherwise all get the same number.
        """
        if self.seed is None:
            return None
        key = self.seed.to_bytes(8, "big")
        return np.array([_uniform(query.tobytes(), key) for query in queries])

    def thresholds(
        self,
        scores: Floats,
        own: Integers,
        classes: NDArray[Any],
        confusions: Floats | None = None,
        held_out: Booleans | None = None,
    ) -> Floats:
        """The threshold (C,) of each class, or an error where examples are too few."""
        self.check_examples(own, classes, confusions, held_out)
        found = thresholds(
            scores,
            own,
            self.coverage,
            by_class=self.by_class,
            confusions=confusions,
            held_out=held_out,
        )
        if held_out is not None and not np.isfinite(found).all():
            self._refuse_small(int(np.isinf(found).argmax()), own, classes, held_out)
        return found

    def _refuse_small(
        self, code: int, own: Integers, classes: NDArray[Any], held_out: Booleans
    ) -> None:
        """The error for a class that does not reach as far as the held-out rows of all classes."""
        mine = own == code
        raise InvalidInputError(
            f"`coverage={self.coverage}` by class needs {fewest_examples(self.coverage)} held-out "
            f"examples of `{classes[code]}`, or more of it in all; it has "
            f"{int((mine & held_out).sum())} held-out ones of {int(mine.sum())}. Add "
            f"some, ask for less "
            "coverage, or use `by_class=False`."
        )

    def check_examples(
        self,
        own: Integers,
        classes: NDArray[Any],
        confusions: Floats | None = None,
        held_out: Booleans | None = None,
    ) -> None:
        """An error where judged rows with these labels are too few for the promise.

        Parameters
        ----------
        held_out : (n,) which of them are; None: all
        """
        fewest = fewest_examples(self.coverage)
        if self.by_class:
            counts = label_weights(own, len(classes), confusions).sum(axis=0)
            rarest = int(counts.argmin())
            of = "held-out examples of" if held_out is None else "examples of"
            if counts[rarest] < fewest:
                raise InvalidInputError(
                    f"`coverage={self.coverage}` by class needs at least {fewest} {of} each class; "
                    f"`{classes[rarest]}` has {max(counts[rarest], 0):.0f}. Ask for less coverage, "
                    "or use `by_class=False`."
                )
        n_held_out = len(own) if held_out is None else int(held_out.sum())
        if n_held_out < fewest:
            raise InvalidInputError(
                f"`coverage={self.coverage}` needs at least {fewest} held-out examples; there are "
                f"{n_held_out}. Ask for less coverage."
            )


def _uniform(content: bytes, key: bytes) -> float:
    """A number in [0, 1) that looks drawn at random, the same for the same content and key."""
    digest = hashlib.blake2b(content, digest_size=8, key=key).digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def make_coverage_spec(
    coverage: float, by_class: bool, score: str | SetScore, random_state: Any
) -> CoverageSpec:
    """The promise that these settings ask for, or an error that names the wrong one.

    >>> make_coverage_spec(0.9, False, "lac", None)
    CoverageSpec(coverage=0.9, by_class=False, score=Lac(), seed=None)
    """
    if not SHARE.allow(coverage):
        raise InvalidSettingError(f"`coverage` must be {SHARE}, got {coverage!r}.")
    check_flag("by_class", by_class)
    seed = None if random_state is None else check_random_state(random_state).randint(2**31 - 1)
    return CoverageSpec(float(coverage), bool(by_class), make_score(score), seed)
