"""AttnKNNClassifier: checks input, wires the parts, delegates; no mathematics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_random_state, validate_data

from attnknn._atomic import all_or_nothing
from attnknn._validation import (
    check_at_least,
    check_choice,
    check_flag,
    check_labels,
    is_plain,
)
from attnknn.editing import EditsMixin
from attnknn.errors import InvalidInputError, NotFittedYetError
from attnknn.memory.entries import RowMetadata, group_codes, make_entries
from attnknn.promises import PromisesMixin
from attnknn.records import Booleans, Floats, Integers

if TYPE_CHECKING:
    from attnknn.calibration import Calibration
    from attnknn.encoders import Encoder, IdentityEncoder
    from attnknn.evidence import Evidence
    from attnknn.pipeline import Answer

ROWS_AT_ONCE = 8192
MOST_NEIGHBORS = 64
MOST_NEIGHBORS_IF_TRAINED = 1024


class AttnKNNClassifier(EditsMixin, PromisesMixin, ClassifierMixin, BaseEstimator):
    """Classify by a weighted vote of the nearest remembered examples.

    Parameters
    ----------
    n_neighbors : the largest number of neighbors; distance attention chooses how many it uses
        leave-one-out (`n_neighbors_`), and a smaller memory uses all it has. 'auto' is 64, and
        1,024 for an encoder that is trained, in whose embedding far neighbors are still alike
    encoder : 'identity' takes numeric rows as they are, 'tabular' scales numbers and encodes
        categories, 'learned-tabular' trains an embedding of tables, 'tfidf' and 'text' take a
        column of texts, 'image' trains on images; or any scikit-learn transformer or function
    memory : 'auto', 'torch', 'numpy', 'faiss', or a `Memory`
    metric : 'euclidean', 'cosine' or 'inner_product'
    attention : 'auto' learns the weights and keeps them only if they are better on held-out rows;
        'uniform', 'distance', 'peaked', 'learned', 'k-ensemble', 'adaptive', or an `Attention`
    calibration : 'auto' fits temperature, prior's score and map leave-one-out; 'scores' leaves the
        map out; None fits nothing
    label_noise : 'auto' models wrong labels where the data show them, 'symmetric' and 'by_class'
        always; None gives the probability of the label as annotators give it
    value_head : True trains a network that answers in place of the vote, from the query and the
        weighed values of its neighbors; `explain` then shows what it looked at, which is not the
        exact evidence of the answer
    device : where searches run: 'auto', 'cpu', 'cuda' or 'mps'
    verbose : 1 shows progress, 2 also what was chosen

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> clf = AttnKNNClassifier().fit(X, y)
    >>> clf.predict(X[:3]).tolist()
    [0, 0, 0]
    >>> evidence = clf.explain(X[:1])[0]
    >>> bool(abs(evidence.weights.sum() + evidence.prior_weight - 1) < 1e-12)
    True
    """

    def __init__(
        self,
        n_neighbors: int | str = "auto",
        *,
        encoder: Any = "identity",
        memory: Any = "auto",
        metric: str = "euclidean",
        attention: Any = "auto",
        calibration: str | None = "auto",
        label_noise: str | None = "auto",
        value_head: bool = False,
        random_state: Any = None,
        device: str = "auto",
        verbose: int = 0,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.encoder = encoder
        self.memory = memory
        self.metric = metric
        self.attention = attention
        self.calibration = calibration
        self.label_noise = label_noise
        self.value_head = value_head
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        ids: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        payloads: Any = None,
        subjects: ArrayLike | None = None,
    ) -> Self:
        """Remember the rows and fit everything that is fitted.

        Parameters
        ----------
        X : (n, n_features) rows, whatever the encoder takes
        y : (n,) labels
        ids : (n,) distinct integers or strings; default 0 to n − 1
        groups : (n,) rows of one group never judge each other leave-one-out
        sample_weight : (n,) positive; a neighbor of sample weight 2 has the say of two
        payloads : (n,) anything to be shown with the evidence
        subjects : (n,) whose the rows are, for `forget(subject=...)`; those of one subject are a
            group, unless `groups` are given
        """
        self._check_settings()
        labels = check_labels(y)
        told = RowMetadata(ids, groups, sample_weight, payloads, subjects).grouped()
        return self._fit(X, labels, np.unique(labels), told)

    def partial_fit(self, X: Any, y: Any, classes: ArrayLike | None = None) -> Self:
        """Fit on the first call, `add` on the later ones.

        What the first call fitted stays until `refit`; votes, prior and trust move with every row.
        `classes` may name, on the first call, classes that have no rows yet.
        """
        if hasattr(self, "memory_"):
            return self.add(X, y)
        self._check_settings()
        labels = check_labels(y)
        named = np.unique(labels if classes is None else np.asarray(classes))
        unknown = [label for label in labels.tolist() if label not in set(named.tolist())]
        if unknown:
            raise InvalidInputError(f"`classes` must name every label, {unknown[0]!r} is missing.")
        return self._fit(X, labels, named, RowMetadata())

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label of each row of `X`."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_proba(self, X: Any) -> Floats:
        """Class probabilities (n, C) of each row of `X`; columns follow `classes_`."""
        self._check_fitted("predict_proba")
        return self._probabilities(self._views(X, "predict_proba"))

    def embed(self, X: Any) -> NDArray[Any]:
        """The embeddings (n, D) of the rows of `X`."""
        self._check_fitted("embed")
        return self._encoded(X, reset=False)

    def kneighbors(self, X: Any, n_neighbors: int | None = None) -> tuple[Floats, NDArray[Any]]:
        """Distances and ids (n, K) of the nearest entries, nearest first."""
        self._check_fitted("kneighbors")
        k = self.n_neighbors_ if n_neighbors is None else n_neighbors
        check_at_least("n_neighbors", k, 1)
        queries = self._queries(X, "kneighbors")
        found = self.memory_.search_prepared(queries, min(k, len(self.memory_)))
        return found.distances, self.memory_.entries.ids[found.positions]

    def explain(self, X: Any) -> list[Evidence]:
        """Why each row of `X` gets its label: one `Evidence` per row.

        With a value head it is what the head looked at, and says so (`is_exact`).
        """
        from attnknn.ensembling import joined
        from attnknn.evidence import evidence_of

        calibration = self._calibration_of_answers("explain")
        answers = (joined(of_views, calibration) for of_views in self._answers(X, "explain"))
        return [
            evidence_of(answer, row, self.memory_, self.classes_, calibration)
            for answer in answers
            for row in range(len(answer.shares))
        ]

    def leave_one_out_proba(self) -> Floats:
        """Probabilities (N, C) of every entry by the others, in the order they are remembered.

        Entries that learned attention or a value head was trained on are judged a little too well;
        `held_out_` says which entries were not.
        """
        self._check_remembers("leave_one_out_proba")
        left_out = self._everyone().trusting(self._trust())
        blocks = range(0, len(left_out), ROWS_AT_ONCE)
        parts = self._parts()
        return np.concatenate(
            [left_out.part(slice(b, b + ROWS_AT_ONCE)).answer(parts).probabilities for b in blocks]
        )

    def save(self, path: str | Path, *, discard_history: bool = False) -> None:
        """Write the classifier to a folder; an older one there is replaced whole or not at all.

        Parameters
        ----------
        discard_history : replace also a model that has edits or snapshots, which are lost
        """
        from attnknn.storage import save_classifier

        self._check_fitted("save")
        save_classifier(self, Path(path), discard_history=discard_history)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a classifier from a folder that `save` wrote. Runs no code from it."""
        from attnknn.storage import load_classifier

        return load_classifier(Path(path), cls)

    @property
    def label_noise_(self) -> float:
        """The estimated share of observed labels that are wrong."""
        self._check_fitted("label_noise_")
        return self.calibration_.label_noise

    @property
    def held_out_(self) -> NDArray[np.bool_]:
        """(N,) True for entries that no learned part was trained on."""
        self._check_fitted("held_out_")
        return self.memory_.entries.held_out

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "memory_")

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        state.pop("_built", None)
        return state

    def _check_settings(self) -> None:
        if self.n_neighbors != "auto":
            check_at_least("n_neighbors", self.n_neighbors, 1)
        check_choice("calibration", self.calibration, ["auto", "scores", None])
        check_choice("label_noise", self.label_noise, ["auto", "symmetric", "by_class", None])
        check_flag("value_head", self.value_head)
        check_choice("device", self.device, ["auto", "cpu", "cuda", "mps"])

    def _fit(self, X: Any, labels: NDArray[Any], classes: NDArray[Any], told: RowMetadata) -> Self:
        with all_or_nothing(self):
            for name in ("_least_next_id", "encoder_training_"):
                self.__dict__.pop(name, None)
            rows, held_out = self._learned_rows(X, labels, classes, told.groups)
            self._remember(rows, labels, classes, told)
            self._drop_caches()  # else the parts are fitted with counts of an earlier fit
            self._fit_parts(held_out)
            self._fit_views(X)
        return self

    def _learned_rows(
        self, X: Any, labels: NDArray[Any], classes: NDArray[Any], groups: ArrayLike | None
    ) -> tuple[NDArray[Any], Booleans | None]:
        """Rows as a new encoder embeds them and, if it was trained, those it was not trained on."""
        from attnknn.encoders import learns, make_encoder

        encoder = make_encoder(self.encoder)
        if not learns(encoder):
            return self._encoded(X, reset=True, labels=labels), None
        from attnknn.fitting.encoders import train_encoder

        validate_data(self, X, reset=True, skip_check_array=True)
        trained = train_encoder(
            encoder,
            X,
            np.searchsorted(classes, labels),
            n_classes=len(classes),
            groups=group_codes(groups, len(labels)),
            random_state=self._seed(),
            verbose=self.verbose,
        )
        self.encoder_: Encoder = encoder
        self.encoder_training_ = trained.result
        self.n_features_in_ = encoder.n_features_in_
        if hasattr(self, "feature_names_in_") and not hasattr(encoder, "feature_names_in_"):
            del self.feature_names_in_  # a column of paths names no feature
        return trained.embeddings, trained.held_out

    def _remember(
        self, rows: NDArray[Any], labels: NDArray[Any], classes: NDArray[Any], told: RowMetadata
    ) -> None:
        from attnknn.memory import make_memory

        if len(rows) != len(labels):
            raise InvalidInputError(
                "Found input variables with inconsistent numbers of samples: "
                f"`X` has {len(rows)} rows but `y` has {len(labels)} labels."
            )
        memory = make_memory(self.memory, device=self.device)
        entries = make_entries(rows, np.searchsorted(classes, labels), **vars(told))
        self.memory_ = memory.remember(entries, self.metric)
        self.classes_ = classes

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _most_neighbors(self) -> int:
        if self.n_neighbors != "auto":
            return int(self.n_neighbors)
        return MOST_NEIGHBORS_IF_TRAINED if self._has_trained_encoder() else MOST_NEIGHBORS

    def _has_trained_encoder(self) -> bool:
        from attnknn.encoders import learns

        return learns(self.encoder_)

    def _fit_parts(self, held_out: Booleans | None = None) -> None:
        from attnknn.fitting.fitting import FitSettings, fit_parts

        settings = FitSettings(
            n_neighbors=self._most_neighbors(),
            calibration=self.calibration,  # type: ignore[arg-type]
            label_noise=self.label_noise,  # type: ignore[arg-type]
            random_state=self._seed(),
            verbose=self.verbose,
            value_head=self.value_head,
        )
        outcome = fit_parts(self.memory_, self._counts(), self.attention, settings, held_out)
        self.attention_ = outcome.parts.attention
        self.calibration_ = outcome.parts.calibration
        self.value_head_ = outcome.parts.value_head
        self.n_neighbors_ = outcome.parts.n_neighbors
        self.fit_report_ = outcome.report
        self.memory_.entries = replace(self.memory_.entries, held_out=outcome.held_out)
        self._drop_caches()
        self._cache["trust_of_all"] = outcome.parts.trust
        if self.verbose > 1:
            from rich.console import Console

            Console(stderr=True).print(str(self.fit_report_), highlight=False)

    def _encoded(self, X: Any, *, reset: bool, labels: NDArray[Any] | None = None) -> NDArray[Any]:
        from attnknn.encoders import IdentityEncoder, make_encoder

        encoder = make_encoder(self.encoder) if reset else self.encoder_
        if isinstance(encoder, IdentityEncoder):
            is_checked = not reset and is_plain(X, self)
            rows = X if is_checked else self._checked(encoder, X, reset)
            if reset:
                self.encoder_ = encoder.fit(rows)
            return rows  # the encoder would only check them once more
        if reset:  # afterward the encoder finds its columns by name, in any order
            validate_data(self, X, reset=True, skip_check_array=True)
            self.encoder_ = encoder.fit(X, labels)
            if hasattr(self.encoder_, "n_features_in_"):  # a list of texts has no width of its own
                self.n_features_in_ = self.encoder_.n_features_in_
        return self.encoder_.transform(X)

    def _checked(self, encoder: IdentityEncoder, X: Any, reset: bool) -> NDArray[Any]:
        encoder.refuse_unusable(X)
        return validate_data(self, X, reset=reset, dtype=[np.float64, np.float32])

    def _queries(self, X: Any, method: str) -> NDArray[np.float32]:
        self._check_remembers(method)
        return self.memory_.prepare(self._encoded(X, reset=False))

    def _answers(self, X: Any, method: str) -> Iterator[list[Answer]]:
        """Answers for blocks of queries, one for each view of them."""
        return self._answers_to(self._views(X, method))

    def _answers_to(self, views: list[NDArray[np.float32]]) -> Iterator[list[Answer]]:
        """The same for prepared queries."""
        parts = self._parts()
        for start in range(0, len(views[0]), ROWS_AT_ONCE):
            yield [parts.answer(view[start : start + ROWS_AT_ONCE]) for view in views]

    def _probabilities(self, views: list[NDArray[np.float32]]) -> Floats:
        """Probabilities (n, C) of prepared queries, seen in one view or several."""
        from attnknn.ensembling import probabilities_of

        calibration = self._calibration_of_answers("predict_proba")
        found = [probabilities_of(answers, calibration) for answers in self._answers_to(views)]
        return np.concatenate(found) if found else np.zeros((0, len(self.classes_)))

    def _views(self, X: Any, method: str) -> list[NDArray[np.float32]]:
        """Prepared queries (n, D) as they are or, if the encoder has views, in each of them."""
        from attnknn.encoders import has_views

        if not has_views(self.encoder_):
            return [self._queries(X, method)]
        self._check_remembers(method)
        encoder: Any = self.encoder_
        return [self.memory_.prepare(view) for view in encoder.embeddings(X, encoder.views)]

    def _fit_views(self, X: Any) -> None:
        """Where queries are seen in several views: fit the map after their votes are averaged."""
        from attnknn.encoders import has_views

        self.views_factor_ = 1.0
        held_out = np.flatnonzero(self.held_out_)
        if not has_views(self.encoder_) or self.calibration is None or len(held_out) < 2:
            return
        from attnknn.fitting.views import MAX_ROWS, views_factor

        generator = np.random.default_rng(self._seed())
        rows = np.sort(generator.permutation(held_out)[:MAX_ROWS])
        encoder: Any = self.encoder_
        views = encoder.embeddings(_safe_indexing(X, rows), encoder.views)
        self.views_factor_ = views_factor(self._parts(), rows, views, self._trust())

    def _calibration_of_answers(self, method: str) -> Calibration:
        """The map for queries: the entries' own, but for several views the one fitted for them."""
        self._check_fitted(method)
        if self.views_factor_ == 1.0:
            return self.calibration_
        exponent = self.calibration_.exponent * self.views_factor_
        return replace(self.calibration_, exponent=exponent)

    def _parts(self) -> Any:
        from attnknn.pipeline import Parts

        return Parts(
            self.memory_,
            self.attention_,
            self.calibration_,
            self.n_neighbors_,
            self._counts(),
            self._trust_of_all(),
            self.value_head_,
        )

    def _counts(self) -> Integers:
        if "counts" not in self._cache:
            labels = self.memory_.entries.labels
            self._cache["counts"] = np.bincount(labels, minlength=len(self.classes_))
        return self._cache["counts"]

    def _everyone(self) -> Any:
        """All entries judged by the others; built when first needed, and kept up by edits."""
        from attnknn.leave_one_out import judge

        if "left_out" not in self._cache:
            others, k = self._others(), self.n_neighbors_
            self._cache["left_out"] = judge(self.memory_, self._counts(), k, others=others)
        return self._cache["left_out"]

    def _others(self) -> Any:
        """The nearest others of each entry: built once, then changed by each edit."""
        from attnknn.memory.neighbor_graph import NeighborGraph

        others = self._cache.get("others")
        if others is None or not others.is_of(self.memory_) or others.k < self.n_neighbors_:
            others = self._cache["others"] = NeighborGraph(self.memory_, self.n_neighbors_)
        return others

    def _trust(self) -> Any:
        from attnknn.leave_one_out import Trust

        if not self.attention_.needs_trust:
            return None
        if "trust" not in self._cache:
            self._cache["trust"] = Trust(self._everyone(), self.attention_.first_look_)
        return self._cache["trust"]

    def _trust_of_all(self) -> Floats | None:
        """Trust (N,) per entry: all that answering needs, and what a model folder keeps."""
        if "trust_of_all" not in self._cache:
            trust = self._trust()
            self._cache["trust_of_all"] = None if trust is None else trust.of_all
        return self._cache["trust_of_all"]

    @property
    def _cache(self) -> dict[Any, Any]:
        """What follows from the memory and is built when first needed."""
        return self.__dict__.setdefault("_built", {})

    def _drop_caches(self) -> None:
        self._built: dict[Any, Any] = {}  # from `fit` on: scikit-learn wants no attribute later

    def _check_fitted(self, method: str) -> None:
        if not hasattr(self, "memory_"):
            raise NotFittedYetError(f"Call `fit` before `{method}`: nothing is remembered yet.")

    def _check_remembers(self, method: str) -> None:
        self._check_fitted(method)
        if not len(self.memory_):
            raise InvalidInputError("Nothing is remembered: every entry was forgotten. Call `add`.")
