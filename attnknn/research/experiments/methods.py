"""The methods of experiments by name; all get the same embedded rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from attnknn.attention import (
    AdaptiveAttention,
    DistanceAttention,
    KEnsembleAttention,
    LearnedAttention,
    UniformAttention,
)
from attnknn.calibration import Calibration
from attnknn.encoders import IdentityEncoder
from attnknn.fitting.fitting import FitSettings, fit_model
from attnknn.fitting.views import views_factor
from attnknn.memory import make_entries, make_memory
from attnknn.model import FittedModel, average_probabilities
from attnknn.records import Floats, Integers
from attnknn.research.evaluation.baselines import LinearProbe, UniformKNN
from attnknn.research.evaluation.protocol import Predictions, all_columns
from attnknn.research.experiments.data import EmbeddedDataset, Retraining
from attnknn.research.experiments.networks import Trained
from attnknn.training import LossTerms, TrainConfig


class Stopwatch:
    """Measures seconds between calls of `lap`.

    >>> Stopwatch().lap() >= 0
    True
    """

    def __init__(self) -> None:
        self._last = time.perf_counter()

    def lap(self) -> float:
        """Seconds since the last call, or since the stopwatch was made."""
        before, self._last = self._last, time.perf_counter()
        return self._last - before


CNN = {  # the terms of the vote, which a CNN of its own has not
    "vote_weight": 0.0,
    "head_weight": 1.0,
    "contrastive_weight": 0.0,
    "entropy_weight": 0.0,
    "calibration_weight": 0.0,
    "negatives_weight": 0.0,
    "boundary_share": 0.0,
    "vote_label_smoothing": 0.0,
    "queue_size": 0,
    "bank": False,
    "k_train": None,
    "refresh_steps": None,
    "momentum": 0.0,
}
MAX_NEIGHBORS = 64
MAX_NEIGHBORS_TRAINED = 1024  # for encoders that were trained for the vote


@dataclass(frozen=True)
class MethodSettings:
    """What an experiment sets for its methods."""

    n_neighbors: int | None = None  # K of every method; None lets each choose its own
    sizes: tuple[int, ...] | None = None  # of the k-ensemble; None takes fractions of the largest K
    # settings of learned attention that differ from its defaults
    attention: Mapping[str, Any] = field(default_factory=dict)
    # name and changed settings of an encoder that a method trains for itself
    training: str = ""
    network: Mapping[str, Any] = field(default_factory=dict)

    @property
    def written(self) -> dict[str, str]:
        """The settings as reports write them; those of trainings only where there are some."""
        own = {"training", "network"} if not self.training else set()
        return {name: repr(value) for name, value in vars(self).items() if name not in own}


def max_neighbors_for(n_entries: int, *, is_trained: bool) -> int:
    """Number of neighbors that methods search where K is not set.

    >>> max_neighbors_for(50_000, is_trained=True), max_neighbors_for(40, is_trained=False)
    (1024, 39)
    """
    most = MAX_NEIGHBORS
    if is_trained:
        most = max(most, min(MAX_NEIGHBORS_TRAINED, n_entries // 8))
    return max(1, min(most, n_entries - 1))


class Workspace:
    """Embedded data with its memory, which all methods of a cell share."""

    def __init__(self, embedded: EmbeddedDataset) -> None:
        self.embedded = embedded
        entries = make_entries(embedded.entries, embedded.codes)
        self.memory = make_memory("torch").remember(entries, "euclidean")
        self.most = max_neighbors_for(len(embedded.codes), is_trained=embedded.held_out is not None)
        self.few = min(self.most, MAX_NEIGHBORS)

    def fitted(self, attention: Any, n_neighbors: int, seed: int | None = None) -> FittedModel:
        """A model whose attention and calibration are fitted on the held-out rows."""
        embedded = self.embedded
        seed = embedded.seed if seed is None else seed
        settings = FitSettings(n_neighbors, "auto", "auto", seed, start=embedded.scores)
        classes = np.arange(embedded.n_classes)
        return fit_model(
            IdentityEncoder(), self.memory, classes, attention, settings, embedded.held_out
        )

    def votes(self, name: str, attention: Any, k: int) -> Iterator[Predictions]:
        """Predict by a vote with this attention, with one view and with all."""
        embedded = self.embedded
        clock = Stopwatch()
        model = self.fitted(attention, k)
        fitting = clock.lap()
        answer = model.answer(model.memory.prepare(embedded.queries[0]))
        chosen = _chosen(model)
        yield Predictions(name, answer.probabilities, chosen, fitting, clock.lap(), answer=answer)
        if len(embedded.queries) > 1:
            clock.lap()
            calibration = model.calibration
            if model.attention.fitted_by != "nothing":  # the map is that of averaged shares
                assert embedded.held_out is not None
                rows = np.flatnonzero(embedded.held_out)
                factor = views_factor(model, rows, list(embedded.held_out_views))
                calibration = replace(calibration, exponent=calibration.exponent * factor)
            fitting += clock.lap()
            answers = [model.answer(model.memory.prepare(view)) for view in embedded.queries]
            mean = average_probabilities(answers, calibration)
            yield Predictions(f"{name}, views", mean, chosen, fitting, clock.lap())

    def estimator(self, name: str, model: Any, **fit_arguments: Any) -> Iterator[Predictions]:
        """Predict by a scikit-learn estimator; probabilities of several views are averaged."""
        embedded = self.embedded
        clock = Stopwatch()
        model.fit(embedded.entries, embedded.codes, **fit_arguments)
        fitting = clock.lap()
        answers = [self._predict(model, embedded.queries[0])]
        chosen = {c: getattr(model, c) for c in ("n_neighbors_", "C_") if hasattr(model, c)}
        predicting = clock.lap()
        yield Predictions(name, answers[0], chosen, fitting, predicting)
        if len(embedded.queries) > 1:
            clock.lap()
            answers += [self._predict(model, view) for view in embedded.queries[1:]]
            mean = np.mean(answers, axis=0)
            yield Predictions(f"{name}, views", mean, chosen, fitting, predicting + clock.lap())

    def _predict(self, model: Any, rows: Floats) -> Floats:
        return all_columns(model.predict_proba(rows), model.classes_, self.embedded.n_classes)


def _head(workspace: Workspace, _: MethodSettings) -> Iterator[Predictions]:
    yield from workspace.embedded.head_predictions


def _uniform(workspace: Workspace, options: MethodSettings) -> Iterator[Predictions]:
    if options.n_neighbors is None:
        return workspace.estimator("uniform", UniformKNN(), held_out=workspace.embedded.held_out)
    return workspace.votes("uniform", UniformAttention(), options.n_neighbors)


def _distance(workspace: Workspace, options: MethodSettings) -> Iterator[Predictions]:
    k = options.n_neighbors
    if k is None:
        return workspace.votes("distance", DistanceAttention(), workspace.most)
    # An ensemble of one size, so that K is not chosen.
    return workspace.votes("distance", KEnsembleAttention(sizes=(k,)), k)


def learned_attention(settings: Mapping[str, Any]) -> LearnedAttention:
    """Learned attention with settings as TOML writes them: `training` is a table.

    Terms of the loss may stand beside the other settings.
    """
    given = dict(settings)
    terms = {f.name: given.pop(f.name) for f in fields(LossTerms) if f.name in given}
    if terms:
        given["loss"] = LossTerms(**terms)
    if isinstance(given.get("training"), Mapping):
        given["training"] = TrainConfig(**given["training"])
    return LearnedAttention(**given)


def _learned(workspace: Workspace, options: MethodSettings) -> Iterator[Predictions]:
    attention = learned_attention(options.attention)
    return workspace.votes("learned", attention, options.n_neighbors or workspace.most)


def _retrained(workspace: Workspace, training: Retraining) -> EmbeddedDataset:
    assert workspace.embedded.retrain is not None, "only where an encoder is trained"
    return workspace.embedded.retrain(training)


def _joint(workspace: Workspace, options: MethodSettings) -> Iterator[Predictions]:
    """Learned attention that is trained with an encoder of its own."""
    attention = learned_attention(options.attention)
    own = Workspace(_retrained(workspace, Retraining("joint", joint=attention)))
    return own.votes("joint", attention, options.n_neighbors or own.most)


def _cnn(workspace: Workspace, _: MethodSettings) -> Iterator[Predictions]:
    """The same network trained for its linear head alone, with an epoch of its own."""
    for found in _retrained(workspace, Retraining("CNN", {"training": CNN})).head_predictions:
        yield replace(found, method=found.method.replace("CNN head", "CNN", 1))


def _trained(workspace: Workspace, options: MethodSettings) -> Iterator[Predictions]:
    """The vote by distance on an encoder that is trained with other settings."""
    own = Workspace(_retrained(workspace, Retraining(options.training, options.network)))
    return own.votes("trained", DistanceAttention(), options.n_neighbors or own.most)


def _attnknn(workspace: Workspace, options: MethodSettings) -> Iterator[Predictions]:
    return workspace.votes("attnknn", "auto", options.n_neighbors or workspace.most)


def _k_ensemble(workspace: Workspace, options: MethodSettings) -> Iterator[Predictions]:
    sizes = options.sizes
    most = workspace.most if sizes is None else sizes[-1]
    return workspace.votes("k-ensemble", KEnsembleAttention(sizes=sizes), most)


def _adaptive(workspace: Workspace, options: MethodSettings) -> Iterator[Predictions]:
    return workspace.votes("adaptive K", AdaptiveAttention(), options.n_neighbors or workspace.most)


def _logistic(workspace: Workspace, _: MethodSettings) -> Iterator[Predictions]:
    if workspace.embedded.head_predictions:
        return iter(())  # the CNN head is the linear probe of its own training
    return workspace.estimator("logistic", LinearProbe(random_state=workspace.embedded.seed))


METHODS: dict[str, Callable[[Workspace, MethodSettings], Iterator[Predictions]]] = {
    "head": _head,
    "logistic": _logistic,
    "uniform": _uniform,
    "distance": _distance,
    "learned": _learned,
    "attnknn": _attnknn,
    "k-ensemble": _k_ensemble,
    "adaptive": _adaptive,
    "joint": _joint,
    "cnn": _cnn,
    "trained": _trained,
}


def _chosen(model: FittedModel) -> dict[str, Any]:
    return {
        "attention": type(model.attention).__name__,
        "n_neighbors": model.n_neighbors,
        "label_noise": model.calibration.label_noise,
        "exponent": model.calibration.exponent,
    }


WIDEST = 3.0  # log of the largest exponent of a head, and of one over the smallest
Features = NDArray[np.float32]  # (V, n, width)


def predict_by_head(
    trained: Trained, queries: Features, held_out: Features, *, has_noise: bool
) -> Iterator[Predictions]:
    """Predict by the CNN head with one view and with all; held-out rows fit its temperature."""
    codes = trained.codes[trained.held_out]
    for views, n_views in (("", 1), (", views", len(queries))):
        clock = Stopwatch()
        head = trained.baseline.fit_on_features(held_out[:n_views], codes)
        fitting = clock.lap()
        answers = head.probabilities_of(queries[:n_views])
        predicting = clock.lap()
        chosen = {"temperature": head.temperature}
        yield Predictions(f"CNN head{views}", answers, chosen, fitting, predicting)
        if has_noise:
            clock.lap()
            known = head_with_noise(head.probabilities_of(held_out[:n_views]), codes)
            fitting += clock.lap()
            chosen = {"exponent": known.exponent, "label_noise": known.label_noise}
            better = known.probabilities(answers)
            name = f"CNN head, noise model{views}"
            yield Predictions(name, better, chosen, fitting, predicting + clock.lap())


def head_with_noise(held_out: Floats, codes: Integers) -> Calibration:
    """Fit exponent and label noise of a head by the log-loss of held-out rows, as votes do."""

    def loss(numbers: Floats) -> float:
        return float(Calibration(np.exp(numbers[0]), numbers[1]).losses(held_out, codes).mean())

    bounds = [(-WIDEST, WIDEST), (0.0, 0.9)]
    best = minimize(loss, np.array([0.0, 0.1]), method="Nelder-Mead", bounds=bounds).x
    return Calibration(float(np.exp(best[0])), float(best[1]))
