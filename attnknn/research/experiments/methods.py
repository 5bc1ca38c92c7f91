"""The methods of experiments by the names they have in tables; all are given the same scene."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attnknn.attention import (
    AdaptiveAttention,
    DistanceAttention,
    KEnsembleAttention,
    LearnedAttention,
    UniformAttention,
)
from attnknn.model import FittedModel
from attnknn.records import Floats
from attnknn.research.evaluation.baselines import LinearProbe, UniformKNN
from attnknn.research.experiments.clock import Clock
from attnknn.research.experiments.found import Found
from attnknn.research.experiments.scenes import Scene
from attnknn.research.experiments.votes import Remembered, map_after_averaging, probabilities
from attnknn.training import TrainConfig

MOST_NEIGHBORS, MOST_OF_TRAINED = 64, 1024  # an encoder trained for the vote has more to offer


@dataclass(frozen=True)
class Choices:
    """What an experiment sets for its methods.

    Parameters
    ----------
    n_neighbors : K of every method; None lets each choose its own
    sizes : of the k-ensemble; None takes parts of the largest K
    attention : settings of learned attention other than its own
    """

    n_neighbors: int | None = None
    sizes: tuple[int, ...] | None = None
    attention: Mapping[str, Any] = field(default_factory=dict)


def most_neighbors(n_entries: int, *, is_trained: bool) -> int:
    """How many neighbors methods look at where K is not set.

    >>> most_neighbors(50_000, is_trained=True), most_neighbors(40, is_trained=False)
    (1024, 39)
    """
    most = MOST_NEIGHBORS
    if is_trained:
        most = max(most, min(MOST_OF_TRAINED, n_entries // 8))
    return max(1, min(most, n_entries - 1))


class Stage:
    """A scene with its memory, which all methods of a cell share."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.kept = Remembered.of(scene)
        self.most = most_neighbors(len(scene.codes), is_trained=scene.held_out is not None)
        self.few = min(self.most, MOST_NEIGHBORS)

    def votes(self, name: str, attention: Any, k: int) -> Iterator[Found]:
        """Answers by an attention, its scalars fitted on held-out rows.

        As seen and in all views.
        """
        scene = self.scene
        clock = Clock()
        parts = self.kept.fitted(attention, k, scene.seed)
        fitting = clock.lap()
        answer = parts.answer(parts.memory.prepare(scene.asked[0]))
        chosen = _chosen(parts)
        yield Found(name, answer.probabilities, chosen, fitting, clock.lap(), answer=answer)
        if len(scene.asked) > 1:
            clock.lap()
            is_fitted = parts.attention.fitted_by != "nothing"
            after = map_after_averaging(parts, self.kept, scene.seen) if is_fitted else None
            fitting += clock.lap()
            answers = probabilities(parts, scene.asked, after)
            yield Found(f"{name}, views", answers, chosen, fitting, clock.lap())

    def estimator(self, name: str, model: Any, **told: Any) -> Iterator[Found]:
        """Answers by an estimator of scikit-learn's kind; those of several views are averaged.

        Parameters
        ----------
        told : what its `fit` takes beside rows and labels
        """
        scene = self.scene
        clock = Clock()
        model.fit(scene.entries, scene.codes, **told)
        fitting = clock.lap()
        answers = [self._all_classes(model.predict_proba(scene.asked[0]), model)]
        chosen = {c: getattr(model, c) for c in ("n_neighbors_", "C_") if hasattr(model, c)}
        answering = clock.lap()
        yield Found(name, answers[0], chosen, fitting, answering)
        if len(scene.asked) > 1:
            clock.lap()
            answers += [self._all_classes(model.predict_proba(v), model) for v in scene.asked[1:]]
            mean = np.mean(answers, axis=0)
            yield Found(f"{name}, views", mean, chosen, fitting, answering + clock.lap())

    def _all_classes(self, found: Floats, model: Any) -> Floats:
        """Columns for all classes, should one have no row left."""
        wide = np.zeros((len(found), self.scene.n_classes))
        wide[:, model.classes_] = found
        return wide


def _head(stage: Stage, _: Choices) -> Iterator[Found]:
    yield from stage.scene.heads


def _uniform(stage: Stage, choices: Choices) -> Iterator[Found]:
    if choices.n_neighbors is None:
        return stage.estimator("uniform", UniformKNN(), held_out=stage.scene.held_out)
    return stage.votes("uniform", UniformAttention(), choices.n_neighbors)


def _distance(stage: Stage, choices: Choices) -> Iterator[Found]:
    k = choices.n_neighbors
    if k is None:
        return stage.votes("distance", DistanceAttention(), stage.most)
    return stage.votes(
        "distance", KEnsembleAttention(sizes=(k,)), k
    )  # of one size: K is not chosen


def learned_attention(settings: Mapping[str, Any]) -> LearnedAttention:
    """Learned attention with settings as TOML writes them: `training` is a table."""
    training = settings.get("training")
    if not isinstance(training, Mapping):
        return LearnedAttention(**settings)
    return LearnedAttention(**{**settings, "training": TrainConfig(**training)})


def _learned(stage: Stage, choices: Choices) -> Iterator[Found]:
    attention = learned_attention(choices.attention)
    return stage.votes("learned", attention, choices.n_neighbors or stage.few)


def _attnknn(stage: Stage, choices: Choices) -> Iterator[Found]:
    return stage.votes("attnknn", "auto", choices.n_neighbors or stage.most)


def _k_ensemble(stage: Stage, choices: Choices) -> Iterator[Found]:
    sizes = choices.sizes
    most = stage.most if sizes is None else sizes[-1]
    return stage.votes("k-ensemble", KEnsembleAttention(sizes=sizes), most)


def _adaptive(stage: Stage, choices: Choices) -> Iterator[Found]:
    return stage.votes("adaptive K", AdaptiveAttention(), choices.n_neighbors or stage.most)


def _logistic(stage: Stage, _: Choices) -> Iterator[Found]:
    if stage.scene.heads:
        return iter(())  # the CNN head is the linear probe of its own training
    return stage.estimator("logistic", LinearProbe(random_state=stage.scene.seed))


METHODS: dict[str, Callable[[Stage, Choices], Iterator[Found]]] = {
    "head": _head,
    "logistic": _logistic,
    "uniform": _uniform,
    "distance": _distance,
    "learned": _learned,
    "attnknn": _attnknn,
    "k-ensemble": _k_ensemble,
    "adaptive": _adaptive,
}


def _chosen(parts: FittedModel) -> dict[str, Any]:
    return {
        "attention": type(parts.attention).__name__,
        "n_neighbors": parts.n_neighbors,
        "label_noise": parts.calibration.label_noise,
        "exponent": parts.calibration.exponent,
    }
