"""AttnKNNClassifier: validates input, delegates to the fitted model and swaps it when edited."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import _safe_indexing, estimator_html_repr
from sklearn.utils.validation import check_random_state, validate_data

from attnknn import editing
from attnknn._atomic import all_or_nothing
from attnknn._escape import without_passwords
from attnknn._validation import (
    Limits,
    check_at_least,
    check_choice,
    check_flag,
    check_labels,
    check_limits,
    is_plain,
)
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.memory.entries import RowMetadata, group_codes, make_entries
from attnknn.memory.table_rows import ids_of_table, payloads_of_table
from attnknn.records import Booleans, Floats

if TYPE_CHECKING:
    from attnknn.attention import Attention, LearnedAttention
    from attnknn.attention.scores import NeighborScores
    from attnknn.calibration import Calibration
    from attnknn.conformal import PredictionSets, SetScore
    from attnknn.conformal.decisions import Decisions
    from attnknn.encoders import Encoder
    from attnknn.evidence import Evidence
    from attnknn.fitting.encoders import FittedEncoder
    from attnknn.fitting.report import FitReport
    from attnknn.memory import Memory
    from attnknn.model import FittedModel, Queries
    from attnknn.serving.notebook import Explorer
    from attnknn.value_head import ValueHead

MAX_NEIGHBORS = 64
MAX_NEIGHBORS_IF_TRAINED = 1024
SPARSE_ENCODERS = ("auto", "identity", "scaled", "svd")
MAX_DENSE_COLUMNS = 1024  # of sparse rows; wider ones are reduced


class AttnKNNClassifier(ClassifierMixin, BaseEstimator):
    """Classify by an attention-weighted vote of the nearest remembered examples.

    Rows are encoded, labeled ones are kept in a memory, and a prediction is a weighted vote of the
    nearest entries and of a prior (the class frequencies). Weights are learned, probabilities are
    calibrated by leave-one-out, and entries can be added, relabeled and forgotten at any time.

    All fitted state is one immutable `FittedModel` (`model_`), which an edit replaces in one
    assignment. Methods may be called from several threads: readers use the model they started
    with, and edits are serialized.

    Parameters
    ----------
    n_neighbors : int or 'auto', default='auto'
        Maximum number of neighbors. Distance attention chooses by leave-one-out how many it uses
        (`n_neighbors_`). 'auto' is 64, and 1,024 for an encoder that is trained or cross-fitted and
        in the space of a classifier's scores.
    encoder : str, transformer or callable, default='auto'
        How rows become embeddings. 'auto' follows the rows: numeric columns are taken as they are
        or scaled, whichever predicts left-out rows better; tables with categories or missing
        values are encoded as by 'tabular', texts by 'ngrams', arrays of images by 'image'.
        'identity' takes numeric rows unchanged (sparse ones of more than 1,024 columns are reduced
        as by 'svd'), 'scaled' scales numeric columns, 'svd' reduces wide rows, sparse or dense, to
        256 columns, 'tabular' scales numbers and encodes categories, 'learned-tabular' trains an
        embedding of tables, 'ngrams', 'tfidf' and 'text' take a column of texts, 'image' trains on
        images.
        Also any scikit-learn transformer or function.
    memory : str or Memory, default='auto'
        Where entries are searched: 'auto', 'torch', 'numpy', 'faiss', or a `Memory`.
    metric : {'euclidean', 'cosine', 'inner_product'}, default='euclidean'
        Distance or similarity by which the nearest entries are found.
    attention : str or Attention, default='auto'
        How the entries that vote are found and weighted. 'auto' fits several attentions, compares
        them by leave-one-out, and uses the best one or a mixture; `fit_report_` lists them. Also
        'uniform', 'distance', 'power', 'learned', 'k-ensemble', 'adaptive', 'forest' (votes of
        trees), 'projection' (in the space of a linear classifier's scores), 'boosting' (of
        boosted trees' scores), 'mlp' (of neural networks' scores), 'block' (one block of a joined
        embedding), 'mixture' (of several), or an attention object.
    calibration : {'auto', 'scores'} or None, default='auto'
        'auto' fits three things by leave-one-out: the temperature of the weights, the score of the
        prior, and the exponent γ of the probability map (p ∝ vote share^γ). 'scores' fits the first
        two only, None fits nothing.
    label_noise : {'auto', 'symmetric', 'by_class'} or None, default='auto'
        'auto' models wrong labels if the data show them, 'symmetric' and 'by_class' always. None
        gives the probability of the observed label, not of the true one.
    budget : float or None, default=None
        Seconds that the choice of an attention may take, about. Candidates that would take longer
        are not tried, so that the choice depends on the speed of the machine. None tries those
        that take at most about a minute each by their estimate, on any machine.
    value_head : bool, default=False
        Train a network that answers instead of the vote. `explain` then shows its inputs, which
        are not the exact evidence of the answer.
    random_state : int, RandomState or None, default=None
        Seed of everything random in `fit`.
    device : {'auto', 'cpu', 'cuda', 'mps'}, default='auto'
        Device on which the memory is searched.
    verbose : int, default=0
        1 shows progress, 2 also what was chosen.

    Attributes
    ----------
    model_ : FittedModel
        The whole fitted state.
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted.
    n_neighbors_ : int
        Number of neighbors that vote.
    encoder_, memory_, attention_, calibration_, value_head_ : objects
        The fitted parts.
    held_out_ : ndarray of shape (n_entries,)
        True for entries that no learned part was trained on.
    label_noise_ : float
        Estimated share of wrong labels; 0 if none were found, NaN where it is not estimable.
        `fit_report_` shows the standard error, or why there is no estimate.
    fit_report_ : FitReport
        What was chosen and why.
    n_features_in_ : int
        Number of columns seen by `fit`.

    See Also
    --------
    attnknn.open_for_editing : Edit a stored model durably.
    attnknn.insight.audit : Find wrong labels and duplicates.

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

    model_: FittedModel

    def __init__(
        self,
        n_neighbors: int | str = "auto",
        *,
        encoder: Any = "auto",
        memory: Any = "auto",
        metric: str = "euclidean",
        attention: Any = "auto",
        calibration: str | None = "auto",
        label_noise: str | None = "auto",
        budget: float | None = None,
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
        self.budget = budget
        self.value_head = value_head
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        payloads: Any = None,
        subjects: ArrayLike | None = None,
    ) -> Self:
        """Remember the rows and fit all parts.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features), or whatever the encoder takes
            Training rows.
        y : array-like of shape (n_rows,)
            Labels. A single class is accepted with a warning.
        sample_weight : array-like of shape (n_rows,), default=None
            Weights of the rows: a neighbor of weight 2 votes with the weight of two. Rows of
            weight 0 are left out.
        ids : array-like of shape (n_rows,), default=None
            Distinct integers or strings. None takes the index of a DataFrame or Series, if it
            holds distinct integers or strings, and otherwise numbers the rows from 0.
        groups : array-like of shape (n_rows,), default=None
            Integers; rows of one group never vote for each other in leave-one-out.
        payloads : sequence of length n_rows or bool, default=None
            Objects shown with the evidence. True takes the rows of a DataFrame, as dicts of the
            first six columns; None and False show nothing.
        subjects : array-like of shape (n_rows,), default=None
            The data subject (person) of each row, for `forget(subject=...)`. Rows of one subject
            are a group, unless `groups` are given.

        Returns
        -------
        AttnKNNClassifier
            The fitted classifier.
        """
        self._check_settings()
        labels = check_labels(y)
        ids = ids_of_table(X, len(labels)) if ids is None else ids
        ids = np.arange(len(labels)) if ids is None else ids
        payloads = _payloads(payloads, X)
        metadata = RowMetadata(ids, groups, sample_weight, payloads, subjects)
        X, labels, metadata = _without_zero_weights(X, labels, metadata)
        with self._writing():
            self._fit(X, labels, np.unique(labels), metadata.grouped())
        return self

    def partial_fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit on the first call, `add` on later ones.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows.
        y : array-like of shape (n_rows,)
            Labels.
        classes : array-like of shape (n_classes,), default=None
            On the first call: all classes, also those without rows yet.
        sample_weight : array-like of shape (n_rows,), default=None
            Weights of the rows.

        Returns
        -------
        AttnKNNClassifier
            The fitted classifier. Parts that the first call fitted stay until `refit`; votes and
            prior are updated by every call.
        """
        if self.__sklearn_is_fitted__():
            return self.add(X, y, sample_weight=sample_weight)
        self._check_settings()
        labels = check_labels(y)
        named = np.unique(labels if classes is None else np.asarray(classes))
        unknown = [label for label in labels.tolist() if label not in set(named.tolist())]
        if unknown:
            raise InvalidInputError(f"`classes` must name every label, {unknown[0]!r} is missing.")
        metadata = RowMetadata(sample_weight=sample_weight)
        X, labels, metadata = _without_zero_weights(X, labels, metadata)
        with self._writing():
            self._fit(X, labels, named, metadata)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Most probable label of each row.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Rows to classify.

        Returns
        -------
        ndarray of shape (n_queries,)
            Labels, of the type of `classes_`.
        """
        model = self._model("predict")
        blocks = model.blocks_of_probabilities(self._queries(model, X))
        codes = [np.zeros(0, dtype=np.int64), *(block.argmax(axis=1) for block in blocks)]
        return model.classes[np.concatenate(codes)]

    def predict_proba(self, X: Any) -> Floats:
        """Class probabilities of each row.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Rows to classify.

        Returns
        -------
        ndarray of shape (n_queries, n_classes)
            Columns follow `classes_`; rows sum to one.
        """
        model = self._model("predict_proba")
        return model.predict_proba(self._queries(model, X))

    def predict_log_proba(self, X: Any) -> Floats:
        """Natural logarithms of the class probabilities of each row.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Rows to classify.

        Returns
        -------
        ndarray of shape (n_queries, n_classes)
            Columns follow `classes_`; a probability of 0 becomes -inf, without a warning.
        """
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def embed(self, X: Any) -> NDArray[Any]:
        """Embeddings of rows, as the encoder gives them.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows to encode.

        Returns
        -------
        ndarray of shape (n_rows, n_dimensions)
            Embeddings, before the memory prepares them for its metric.
        """
        return self._embeddings(self._model("embed", may_be_empty=True), X)

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Nearest entries of each row, nearest first.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features), default=None
            Rows. None searches for all entries, and leaves out each entry itself and its group.
        n_neighbors : int, default=None
            Number of neighbors; None uses `n_neighbors_`.
        return_distance : bool, default=True
            Whether to return the distances too.

        Returns
        -------
        distances : ndarray of shape (n_queries, n_neighbors)
            Only if `return_distance`; infinite for a missing neighbor.
        ids : ndarray of shape (n_queries, n_neighbors)
            Ids of the entries (not positions).
        """
        model = self._model("kneighbors")
        k = model.n_neighbors if n_neighbors is None else n_neighbors
        check_at_least("n_neighbors", k, 1)
        memory = model.memory
        if X is None:
            rows = np.arange(len(memory))
            width = max(1, min(k, len(memory) - 1))
            found = memory.search_prepared(memory.vectors.all(), width, exclude=rows)
        else:
            queries = memory.prepare(self._embeddings(model, X))
            found = memory.search_prepared(queries, min(k, len(memory)))
        ids = memory.entries.ids[found.positions]
        return (found.distances, ids) if return_distance else ids

    def explain(self, X: Any) -> list[Evidence]:
        """Evidence of each prediction: the neighbors that voted, with labels and weights.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Rows to explain.

        Returns
        -------
        list of Evidence
            One per row. With a value head it shows the inputs of the head, and `is_exact` is False.
        """
        from attnknn.evidence import evidence_of

        model = self._model("explain")
        return [
            evidence_of(answer, row, model)
            for answer in model.answers(self._queries(model, X))
            for row in range(len(answer.shares))
        ]

    def leave_one_out_proba(self) -> Floats:
        """Leave-one-out probabilities of all entries.

        Entries that learned attention or a value head was trained on are predicted slightly too
        well; `held_out_` says which entries were not.

        Returns
        -------
        ndarray of shape (n_entries, n_classes)
            In the order of the entries.
        """
        model = self._model("leave_one_out_proba")
        return model.predict_left_out(model.leave_one_out()).probabilities

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
        allow_empty: bool = True,
    ) -> PredictionSets:
        """Prediction sets: sets of classes that contain the true one with a stated probability.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Rows.
        coverage : float, default=0.9
            Share of sets that contain the true label; larger makes larger sets.
        by_class : bool, default=False
            Reach the coverage for the rows of each class, and not only over all rows.
        method : {'leave_one_out', 'split', 'jackknife+'}, default='leave_one_out'
            'leave_one_out' calibrates on the leave-one-out predictions of held-out entries: close
            to `coverage` in practice, without a guarantee. If the classifier models label noise,
            it is the coverage of the true label.
            'split' calibrates on `calibration_rows`. Guarantee: at least `coverage`, if new rows
            are exchangeable with these, for labels like theirs.
            'jackknife+' predicts again without each held-out entry. Guarantee: at least
            1 − 2 (1 − `coverage`), in practice about `coverage`, for observed labels.
        score : {'lac', 'aps', 'raps'} or SetScore, default='lac'
            'lac' gives the smallest sets, 'aps' larger sets where the classifier is unsure, 'raps'
            fewer large sets than 'aps'.
        calibration_rows : tuple (X, y), default=None
            Rows and labels for 'split', none of which may be in the memory.
        random_state : int or None, default=None
            A number randomizes 'aps' and 'raps', which then have exact coverage instead of
            slightly more. The same row gets the same set for the same number.
        allow_empty : bool, default=True
            Whether a set may be empty, which means that no class reaches the probability that true
            labels usually have. False puts the most probable class into such a set, which can only
            raise the coverage.

        Returns
        -------
        PredictionSets
            The set of each row, with `labels()` and `sizes`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from attnknn import AttnKNNClassifier
        >>> X, y = load_iris(return_X_y=True)
        >>> clf = AttnKNNClassifier(attention="distance", random_state=0).fit(X, y)
        >>> clf.predict_set(X[[0, 77]], coverage=0.98).labels()
        [[0], [1, 2]]
        """
        from attnknn.conformal.coverage_spec import make_coverage_spec
        from attnknn.conformal.prediction import (
            METHODS,
            predict_sets,
            predict_sets_by_jackknife,
            without_empty_sets,
        )

        model = self._model("predict_set")
        check_choice("method", method, METHODS)
        check_flag("allow_empty", allow_empty)
        if (calibration_rows is None) == (method == "split"):
            raise InvalidSettingError(
                "`calibration_rows` goes with `method='split'`: give both, or neither."
            )
        spec = make_coverage_spec(coverage, by_class, score, random_state)
        thresholds = None
        if calibration_rows is not None:
            rows, labels = _pair(calibration_rows)
            own = _known_codes(model, check_labels(labels))
            probabilities = model.predict_proba(self._queries(model, rows))
            if len(own) != len(probabilities):
                raise InvalidInputError(
                    f"`calibration_rows` has {len(probabilities)} rows but {len(own)} labels."
                )
            thresholds = spec.thresholds(spec.scores_of_examples(probabilities), own, model.classes)
        queries = self._queries(model, X)
        if method == "jackknife+":
            sets = predict_sets_by_jackknife(model, queries, spec)
        else:
            sets = predict_sets(model, queries, spec, thresholds)
        return sets if allow_empty else without_empty_sets(sets, model, queries)

    def decide(
        self,
        X: Any,
        max_risk: float | None = None,
        *,
        min_confidence: float | None = None,
        novelty_level: float = 0.01,
        n_nearest: int = 1,
    ) -> Decisions:
        """Label of each row, or the reason to abstain.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Rows.
        max_risk : float, default=None
            Largest error rate among the rows that get a label; smaller abstains more often. The
            confidence threshold is chosen on leave-one-out predictions of held-out entries by a
            Clopper-Pearson bound (95 % over all thresholds tried). If the classifier models label
            noise, it is the error rate against the true label.
        min_confidence : float, default=None
            Abstain below this probability; with `max_risk` the stricter one applies.
        novelty_level : float, default=0.01
            Abstain if the novelty p-value is at most this. At most this share of rows like the
            held-out entries is called novel, which is guaranteed; 0 never abstains for novelty.
        n_nearest : int, default=1
            Novelty is measured by the mean distance to this many nearest entries. More detect
            distant rows more reliably; with 1, a single added example makes its surroundings
            known at once.

        Returns
        -------
        Decisions
            Label, confidence, novelty p-value and reason of each row.

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
        from attnknn.conformal.prediction import decide_queries

        model = self._model("decide")
        return decide_queries(
            model,
            self._queries(model, X),
            max_risk=max_risk,
            min_confidence=min_confidence,
            novelty_level=novelty_level,
            n_nearest=n_nearest,
        )

    def add(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        payloads: Any = None,
        subjects: ArrayLike | None = None,
    ) -> Self:
        """Remember more rows; an unseen label becomes a new class.

        Votes, prior and trust (how well the neighbors of an entry agree with its label) are updated
        at once. Trained parts (encoder, projections, temperatures, value head) stay until `refit`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            New rows.
        y : array-like of shape (n_rows,)
            Their labels.
        sample_weight, ids, groups, payloads, subjects : array-like of shape (n_rows,), default=None
            As in `fit`. The index of a DataFrame is taken only if its ids are like those in the
            memory and new; otherwise integer ids count up from the largest one ever used.

        Returns
        -------
        AttnKNNClassifier
            The classifier itself.
        """
        with self._writing():
            model = self._model("add", may_be_empty=True)
            labels = check_labels(y, are_all=False)
            if ids is None:
                ids = ids_of_table(X, len(labels), model.memory.entries)
            payloads = _payloads(payloads, X)
            metadata = RowMetadata(ids, groups, sample_weight, payloads, subjects)
            rows, labels, metadata = _without_zero_weights(X, labels, metadata)
            embeddings = self._embeddings(model, rows)
            if len(embeddings) != len(labels):
                raise InvalidInputError(
                    f"`X` has {len(embeddings)} rows but `y` has {len(labels)} labels."
                )
            self.model_ = editing.add(model, embeddings, labels, metadata)
        return self

    def forget(self, ids: ArrayLike | None = None, *, subject: str | None = None) -> Self:
        """Remove entries; the next answer is as if they had never been added.

        Files are not touched: to erase a person from a stored model too, with a receipt, use
        `attnknn.open_for_editing`.

        Parameters
        ----------
        ids : array-like of shape (n_rows,), default=None
            Ids of the entries.
        subject : str, default=None
            Remove all entries of this data subject instead.

        Returns
        -------
        AttnKNNClassifier
            The classifier itself.
        """
        with self._writing():
            model = self._model("forget", may_be_empty=True)
            if (ids is None) == (subject is None):
                raise InvalidSettingError("Give either `ids` or `subject` to forget.")
            gone = model.memory.entries.ids_of(str(subject)) if ids is None else ids
            self.model_ = editing.forget(model, gone)
        return self

    def relabel(self, ids: ArrayLike, y: Any) -> Self:
        """Change the labels of entries; entries that already have the label are not changed.

        Parameters
        ----------
        ids : array-like of shape (n_rows,)
            Ids of the entries.
        y : array-like of shape (n_rows,) or scalar
            Their new labels, or one label for all.

        Returns
        -------
        AttnKNNClassifier
            The classifier itself.
        """
        self._model("relabel", may_be_empty=True)
        wanted = np.atleast_1d(np.asarray(ids))
        labels = check_labels(np.atleast_1d(np.asarray(y)), are_all=False)
        if np.ndim(y) == 0:
            labels = np.repeat(labels, len(wanted))
        if len(labels) != len(wanted):
            raise InvalidInputError(
                f"`y` must hold one label, or one for each of the {len(wanted)} ids, "
                f"got {len(labels)}."
            )
        with self._writing():
            model = self._model("relabel", may_be_empty=True)
            self.model_ = editing.relabel(model, wanted, labels)
        return self

    def refit(self) -> Self:
        """Fit attention, calibration and value head again on the current entries.

        The encoder stays: the rows that it was fitted on are not kept, only their embeddings.

        Returns
        -------
        AttnKNNClassifier
            The classifier itself.
        """
        with self._writing():
            model = self._model("refit")
            self._check_settings()
            held_out = model.memory.entries.held_out
            if model.has_trained_encoder and held_out.sum() < 2:
                warnings.warn(
                    f"The encoder was trained on all entries but {held_out.sum()}, so "
                    "probabilities fitted to them are overconfident. Add rows, or fit again.",
                    stacklevel=2,
                )
            is_mixed = model.has_trained_encoder and 2 <= held_out.sum() < len(held_out)
            fitted = self._fit_parts(
                model.encoder, model.memory, model.classes, held_out if is_mixed else None
            )
            if model.has_trained_encoder:
                fitted.memory.set_held_out(fitted.memory.entries.held_out & held_out)
            self.model_ = replace(
                fitted, views_factor=model.views_factor, min_next_id=model.min_next_id
            )
        return self

    def edit(self, change: Callable[[FittedModel], FittedModel]) -> Self:
        """Replace the fitted model by the result of a function, such as one of `attnknn.editing`.

        Parameters
        ----------
        change : callable
            Takes the current `FittedModel` and returns the new one.

        Returns
        -------
        AttnKNNClassifier
            The classifier itself.
        """
        with self._writing():
            self.model_ = change(self._model("edit", may_be_empty=True))
        return self

    def save(
        self, path: str | Path, *, overwrite: bool = True, discard_history: bool = False
    ) -> None:
        """Write the classifier to a folder of JSON, npy and safetensors files, without pickle.

        An older model in the folder is replaced, whatever it was fitted on, atomically: as a whole
        or not at all. A folder that holds anything else is refused.

        Parameters
        ----------
        path : str or Path
            The folder, or the address of a model in a database
            (`postgres://user@host/database?model=NAME`).
        overwrite : bool, default=True
            False refuses to replace an older model.
        discard_history : bool, default=False
            Whether to replace a model that has a log of edits or snapshots, which are then lost.
        """
        from attnknn.storage import save_classifier

        self._model("save", may_be_empty=True)
        check_flag("overwrite", overwrite)
        save_classifier(self, Path(path), overwrite=overwrite, discard_history=discard_history)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a classifier from a folder that `save` wrote, without running code from it.

        Parameters
        ----------
        path : str or Path
            The folder, or the address of a model in a database.

        Returns
        -------
        AttnKNNClassifier
            The fitted classifier.
        """
        from attnknn.storage import load_classifier

        return load_classifier(Path(path), cls)

    def explore(self, port: int = 0, *, height: int = 800, **settings: Any) -> Explorer:
        """Open a page in the browser on which the classifier answers, explains and is edited.

        The page answers only to this machine, and works without a network. Edits change this
        classifier; `save` keeps them. Needs the extra `serve`.

        Parameters
        ----------
        port : int, default=0
            The port; 0 takes a free one.
        height : int, default=800
            Height of the frame in a notebook, in pixels.
        **settings : object
            As for `attnknn.serving.app`, such as `by` and `is_read_only`.

        Returns
        -------
        Explorer
            A notebook shows it as a link and a frame. `close()` ends it.

        Examples
        --------
        >>> from attnknn import AttnKNNClassifier
        >>> clf = AttnKNNClassifier(attention="distance").fit([[0.0], [1.0], [4.0]], [0, 0, 1])
        >>> with clf.explore() as page:
        ...     page.url.startswith("http://127.0.0.1:")
        True
        """
        from attnknn._optional import require

        self._model("explore")
        require("fastapi", extra="serve", needed_by="`explore`")
        require("uvicorn", extra="serve", needed_by="`explore`")
        notebook = require("attnknn.serving.notebook", extra="serve", needed_by="`explore`")
        page: Explorer = notebook.Explorer(self, port, height=height, **settings)
        return page

    @property
    def classes_(self) -> NDArray[Any]:
        """Labels (n_classes,), sorted."""
        return self._model("classes_", may_be_empty=True).classes

    @property
    def n_neighbors_(self) -> int:
        """Number of neighbors that vote."""
        return self._model("n_neighbors_", may_be_empty=True).n_neighbors

    @property
    def encoder_(self) -> Encoder:
        """The fitted encoder."""
        return self._model("encoder_", may_be_empty=True).encoder

    @property
    def memory_(self) -> Memory:
        """The entries and their search."""
        return self._model("memory_", may_be_empty=True).memory

    @property
    def attention_(self) -> Attention:
        """The fitted attention."""
        return self._model("attention_", may_be_empty=True).attention

    @property
    def calibration_(self) -> Calibration:
        """The fitted probability map and label noise."""
        return self._model("calibration_", may_be_empty=True).calibration

    @property
    def value_head_(self) -> ValueHead | None:
        """The trained value head, if any."""
        return self._model("value_head_", may_be_empty=True).value_head

    @property
    def fit_report_(self) -> FitReport:
        """What `fit` chose and why."""
        report: FitReport = self._model("fit_report_", may_be_empty=True).report
        return report

    @property
    def label_noise_(self) -> float:
        """Estimated share of observed labels that are wrong; NaN where it is not estimable."""
        return self._model("label_noise_", may_be_empty=True).calibration.estimated_noise

    @property
    def held_out_(self) -> NDArray[np.bool_]:
        """True (n_entries,) for entries that no learned part was trained on."""
        return self._model("held_out_", may_be_empty=True).memory.entries.held_out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = isinstance(self.encoder, str) and self.encoder in SPARSE_ENCODERS
        tags.input_tags.allow_nan = _is_auto(self.encoder)
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return "model_" in self.__dict__

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_writer_lock", None)
        model = state.get("model_")
        if model is not None and model.memory.is_shared:  # a copy is edited on its own
            state["model_"] = replace(model, memory=model.memory.detached())
        return state

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return BaseEstimator.__repr__(self._shown(), N_CHAR_MAX)

    def _html_repr(self) -> str:
        return estimator_html_repr(self._shown())

    def _shown(self) -> Self:
        """The classifier itself, or a copy whose address of a database has no password."""
        memory = self.memory
        address = memory if isinstance(memory, str) else getattr(memory, "address", "")
        if address == without_passwords(address):
            return self
        shown, safe = copy(self), without_passwords(address)
        shown.memory = safe if isinstance(memory, str) else type(memory)(safe)
        return shown

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One writer at a time; attributes are put back if anything is raised."""
        with self.__dict__.setdefault("_writer_lock", RLock()), all_or_nothing(self):
            yield
            model = self.__dict__.get("model_")
            if model is not None and model.memory.is_shared:
                self.model_ = editing.committed(model)

    def _model(self, method: str, *, may_be_empty: bool = False) -> FittedModel:
        """The present model, read once by every method."""
        from attnknn.model import require_model

        model = require_model(self, method, may_be_empty=True)
        if model.memory.is_shared:
            self.model_ = model = editing.followed(model)
        return require_model(model, method, may_be_empty=may_be_empty)

    def _check_settings(self) -> None:
        if self.n_neighbors != "auto":
            check_at_least("n_neighbors", self.n_neighbors, 1)
        check_choice("calibration", self.calibration, ["auto", "scores", None])
        check_choice("label_noise", self.label_noise, ["auto", "symmetric", "by_class", None])
        check_limits(self, {"budget": Limits(above=0, may_be_none=True)})
        check_flag("value_head", self.value_head)
        check_choice("device", self.device, ["auto", "cpu", "cuda", "mps"])

    def _fit(
        self, X: Any, labels: NDArray[Any], classes: NDArray[Any], metadata: RowMetadata
    ) -> None:
        from attnknn.fitting.encoders import better_way, ways_to_train

        if len(classes) == 1:
            warnings.warn(
                f"`y` has only one class, {classes.tolist()[0]!r}, which is predicted for every "
                "row until rows of another class are added.",
                stacklevel=3,
            )
        models: dict[str, FittedModel] = {}
        trainings: dict[str, Any] = {}
        encoder = self._new_encoder(X)
        for way, joint in ways_to_train(self.attention, encoder).items():
            own = self._new_encoder(X) if models else encoder
            fitted = self._fit_encoder(own, X, labels, classes, metadata.groups, joint)
            models[way] = self._fit_model(fitted, labels, classes, metadata)
            trainings[way] = fitted.training
        way, model = better_way(models)
        self.__dict__.pop("encoder_training_", None)
        if model.has_trained_encoder:
            self.encoder_training_ = trainings[way]
        self.model_ = self._with_view_calibration(model, X)

    def _fit_model(
        self,
        fitted: FittedEncoder,
        labels: NDArray[Any],
        classes: NDArray[Any],
        metadata: RowMetadata,
    ) -> FittedModel:
        """The model of rows that are encoded."""
        from attnknn.memory import make_memory

        encoder, embeddings = fitted.encoder, fitted.embeddings
        if len(embeddings) != len(labels):
            raise InvalidInputError(
                "Found input variables with inconsistent numbers of samples: "
                f"`X` has {len(embeddings)} rows but `y` has {len(labels)} labels."
            )
        self._warn_of_outliers(encoder, embeddings, metadata.ids)
        memory = make_memory(self.memory, device=self.device)
        entries = make_entries(embeddings, np.searchsorted(classes, labels), **vars(metadata))
        memory.remember(entries, self.metric)
        return self._fit_parts(encoder, memory, classes, fitted.held_out, fitted.scores)

    def _new_encoder(self, X: Any) -> Any:
        """An unfitted encoder: the one that was asked for, or what fits the rows."""
        from attnknn.encoders import IdentityEncoder, SvdEncoder, make_encoder
        from attnknn.encoders.base import refuse_sparse
        from attnknn.fitting.encoders import default_encoder

        encoder: Any = self.encoder
        self._encoder_words = "requested"
        if _is_auto(encoder):
            encoder, self._encoder_words = default_encoder(X)
        encoder = make_encoder(encoder)
        refuse_sparse(X, encoder)
        if isinstance(encoder, IdentityEncoder) and issparse(X) and X.shape[1] > MAX_DENSE_COLUMNS:
            encoder = SvdEncoder()
        return encoder

    def _fit_encoder(
        self,
        encoder: Any,
        X: Any,
        labels: NDArray[Any],
        classes: NDArray[Any],
        groups: ArrayLike | None,
        joint: LearnedAttention | None,
    ) -> FittedEncoder:
        """A fitted encoder with the embeddings; `joint` is attention that is trained with it."""
        from attnknn.encoders import NumericEncoder
        from attnknn.fitting.encoders import FittedEncoder

        if encoder.is_trained:
            return self._train_encoder(encoder, X, labels, classes, groups, joint)
        if isinstance(encoder, NumericEncoder):
            rows = encoder.validated(X, self, reset=True)
            if _is_auto(self.encoder):
                encoder = self._choose_scale(rows, labels, classes, groups)
            encoder.fit_rows(rows, getattr(self, "feature_names_in_", None))
            return FittedEncoder(encoder, encoder.encode_rows(rows))
        validate_data(self, X, reset=True, skip_check_array=True)
        if encoder.is_cross_fitted:
            codes = group_codes(groups, len(labels))
            embeddings = encoder.fit_transform(X, labels, groups=codes)
        else:
            embeddings = encoder.fit(X, labels).transform(X)
        if hasattr(encoder, "n_features_in_"):  # a list of texts has no width of its own
            self.n_features_in_ = encoder.n_features_in_
        return FittedEncoder(encoder, embeddings)

    def _choose_scale(
        self,
        rows: NDArray[Any],
        labels: NDArray[Any],
        classes: NDArray[Any],
        groups: ArrayLike | None,
    ) -> Encoder:
        """Numeric columns as they are or scaled, whichever predicts left-out rows better."""
        from attnknn.encoders import IdentityEncoder
        from attnknn.fitting.encoders import choose_scale

        if self.metric != "euclidean" or len(rows) != len(labels):
            return IdentityEncoder()
        codes = np.searchsorted(classes, labels)
        encoder, self._encoder_words = choose_scale(
            rows, codes, group_codes(groups, len(labels)), self._seed()
        )
        return encoder

    def _train_encoder(
        self,
        encoder: Any,
        X: Any,
        labels: NDArray[Any],
        classes: NDArray[Any],
        groups: ArrayLike | None,
        joint: LearnedAttention | None,
    ) -> FittedEncoder:
        from attnknn.fitting.encoders import train_encoder

        validate_data(self, X, reset=True, skip_check_array=True)
        trained = train_encoder(
            encoder,
            X,
            np.searchsorted(classes, labels),
            n_classes=len(classes),
            groups=group_codes(groups, len(labels)),
            random_state=self._seed(),
            joint=joint,
            verbose=self.verbose,
        )
        self.n_features_in_ = encoder.n_features_in_
        if hasattr(self, "feature_names_in_") and not hasattr(encoder, "feature_names_in_"):
            del self.feature_names_in_  # a column of paths names no feature
        return trained

    def _warn_of_outliers(
        self, encoder: Encoder, embeddings: NDArray[Any], ids: ArrayLike | None
    ) -> None:
        """Only where a column of the embeddings is one of the rows."""
        from attnknn.encoders import NumericEncoder, TableEncoder
        from attnknn.fitting.outliers import warn_of_outliers

        if isinstance(encoder, NumericEncoder):
            names = getattr(self, "feature_names_in_", None)
        elif isinstance(encoder, TableEncoder):
            names = encoder.get_feature_names_out()
        else:
            return
        rows = np.arange(len(embeddings)) if ids is None else np.asarray(ids)
        if len(rows) == len(embeddings):  # another length is an error of `make_entries`
            warn_of_outliers(embeddings, names, rows.tolist(), stacklevel=5)

    def _fit_parts(
        self,
        encoder: Encoder,
        memory: Memory,
        classes: NDArray[Any],
        held_out: Booleans | None,
        start: NeighborScores | None = None,
    ) -> FittedModel:
        from attnknn.fitting.fitting import FitSettings, fit_model

        of_scores = n_neighbors = self.n_neighbors
        if n_neighbors == "auto":
            of_scores = MAX_NEIGHBORS_IF_TRAINED
            is_joined = hasattr(encoder, "blocks_")  # then only some columns are scores
            are_scores = encoder.is_trained or (encoder.is_cross_fitted and not is_joined)
            n_neighbors = of_scores if are_scores else MAX_NEIGHBORS
        settings = FitSettings(
            n_neighbors=int(n_neighbors),
            n_neighbors_of_scores=int(of_scores),
            calibration=self.calibration,  # type: ignore[arg-type]
            label_noise=self.label_noise,  # type: ignore[arg-type]
            random_state=self._seed(),
            verbose=self.verbose,
            value_head=self.value_head,
            budget=self.budget,
            start=start,
        )
        model = fit_model(encoder, memory, classes, self.attention, settings, held_out)
        words = self.__dict__.pop("_encoder_words", "kept")  # by `refit`
        model = replace(model, report=replace(model.report, encoder=f"{encoder.name}: {words}"))
        if self.verbose > 1:
            from rich.console import Console

            Console(stderr=True).print(str(model.report), highlight=False, markup=False)
        return model

    def _with_view_calibration(self, model: FittedModel, X: Any) -> FittedModel:
        """If queries are seen in several views: fit the probability map of averaged votes."""
        held_out = np.flatnonzero(model.memory.entries.held_out)
        if not model.encoder.has_views or self.calibration is None or len(held_out) < 2:
            return model
        from attnknn.fitting.views import MAX_ROWS, views_factor

        generator = np.random.default_rng(self._seed())
        rows = np.sort(generator.permutation(held_out)[:MAX_ROWS])
        encoder: Any = model.encoder
        views = encoder.embeddings(_safe_indexing(X, rows), encoder.views)
        return replace(model, views_factor=views_factor(model, rows, views))

    def _seed(self) -> int:
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _embeddings(self, model: FittedModel, X: Any) -> NDArray[Any]:
        from attnknn.encoders import NumericEncoder
        from attnknn.encoders.base import refuse_sparse

        encoder = model.encoder
        if isinstance(encoder, NumericEncoder):  # it would only check the rows once more
            rows = X if is_plain(X, self) else encoder.validated(X, self, reset=False)
            return encoder.encode_rows(rows)
        refuse_sparse(X, model.encoder)
        model.check_room_for(X)
        return model.encoder.transform(X)

    def _queries(self, model: FittedModel, X: Any) -> Queries:
        if model.encoder.has_views:
            return model.queries(X)
        return model.memory.prepare(self._embeddings(model, X))


def _is_auto(encoder: Any) -> bool:
    return isinstance(encoder, str) and encoder == "auto"


def _payloads(payloads: Any, X: Any) -> Any:
    if not isinstance(payloads, bool):
        return payloads
    return payloads_of_table(X) if payloads else None


def _without_zero_weights(
    X: Any, labels: NDArray[Any], metadata: RowMetadata
) -> tuple[Any, NDArray[Any], RowMetadata]:
    """Rows, labels and metadata without rows of sample weight 0, which have no influence."""
    if metadata.sample_weight is None:
        return X, labels, metadata
    weights = np.asarray(metadata.sample_weight, dtype=np.float64)
    if weights.shape != labels.shape or (weights > 0).all():
        return X, labels, metadata  # a wrong shape is an error of `make_entries`
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise InvalidInputError("`sample_weight` must be finite and not negative for every row.")
    rows = np.flatnonzero(weights)
    X = X.tocsr() if issparse(X) else X  # other formats cannot be indexed
    if not len(rows):
        raise InvalidInputError("`sample_weight` must not be zero for all rows.")
    columns = {
        name: None if column is None else _safe_indexing(column, rows)
        for name, column in vars(metadata).items()
    }
    return _safe_indexing(X, rows), labels[rows], RowMetadata(**columns)


def _known_codes(model: FittedModel, labels: NDArray[Any]) -> NDArray[np.int64]:
    known = set(model.classes.tolist())
    unknown = [label for label in labels.tolist() if label not in known]
    if unknown:
        raise InvalidInputError(
            f"`calibration_rows` has the label {unknown[0]!r}, which is not a known class. "
            "Add rows of it, or leave it out."
        )
    return editing.label_codes(model.classes, labels)


def _pair(rows: Any) -> tuple[Any, Any]:
    if not (isinstance(rows, tuple | list) and len(rows) == 2):
        got = f"{type(rows).__name__} of {len(rows)}" if hasattr(rows, "__len__") else repr(rows)
        raise InvalidInputError(
            f"`calibration_rows` must be a pair (X, y) of rows and labels, got a {got}."
        )
    return rows[0], rows[1]
