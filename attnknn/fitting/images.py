"""Training of an image encoder on labeled rows, with the linear head as a CNN baseline."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

from attnknn.calibration.likelihood import PENALTY, pseudo_row_loss
from attnknn.encoders.image.networks import ResNet9, layer_depths
from attnknn.encoders.image.rows import ArrayRows, ImageRows
from attnknn.encoders.image.training import ImageTraining
from attnknn.errors import InvalidInputError
from attnknn.fitting.image_objective import ImageData, ImageObjective
from attnknn.fitting.joint import JointVote
from attnknn.records import Booleans, Floats, Integers
from attnknn.training.checkpoints import Stateful, checksum
from attnknn.training.config import TrainConfig, TrainResult
from attnknn.training.devices import check_compiler, device_of, prepare, seeded
from attnknn.training.loop import train
from attnknn.training.optimizers import Group, parameter_groups
from attnknn.training.processes import Processes, joined, synchronize_batch_norms
from attnknn.training.views import Views
from attnknn.vote import class_prior

if TYPE_CHECKING:
    from attnknn.encoders.image import ImageEncoder

MAX_BYTES_IN_MEMORY = 1 << 31  # images beyond are read again for every batch
TOLERANCE = 0.02  # by which the validation loss of a later epoch may be higher
# Adam's steps have the size of the learning rate, SGD's not.
SCALAR_LR_SCALES = {"sgd": 0.02, "adam": 5.0, "adamw": 5.0}
MAX_LOG_TEMPERATURE = 3.0


@dataclass(frozen=True)
class ImageTrainResult:
    """Losses of a training, and the head that was trained beside the vote, if any."""

    result: TrainResult
    baseline: HeadBaseline | None


def train_images(
    encoder: ImageEncoder,
    X: Any,
    codes: Integers,
    *,
    n_classes: int,
    groups: Integers,
    is_trained_on: Booleans,
    random_state: int,
    joint: JointVote | None = None,
    verbose: int = 0,
) -> ImageTrainResult:
    """Train `encoder.module_` on the rows marked `is_trained_on`; the others validate it.

    Parameters
    ----------
    encoder : fitted; its `training` says how, and its module is left in the best state
    codes : (n,) label codes
    groups : (n,) rows of one group do not vote on each other; -1 is no group
    joint : learned attention that is trained with the encoder
    """
    n_trained, n_validation = int(is_trained_on.sum()), int((~is_trained_on).sum())
    if n_trained < 2 or n_validation < 1:
        raise InvalidInputError(
            "An image encoder needs at least 2 training rows and 1 validation row, got "
            f"{n_trained} and {n_validation}."
        )
    training = encoder.training or ImageTraining()
    config = training.config_for(n_trained)
    device = device_of(training.device)
    generator = torch.Generator().manual_seed(random_state)
    with joined(device) as processes:
        prepare(encoder.module_, device, replace(training.precision, is_compiled=False))
        encoder.module_ = synchronize_batch_norms(encoder.module_, processes)  # type: ignore[assignment]
        data = ImageData(
            _in_memory(encoder, X),
            np.asarray(codes, dtype=np.int64),
            np.asarray(groups, dtype=np.int64),
            np.flatnonzero(is_trained_on),
            np.flatnonzero(~is_trained_on),
            n_classes,
        )
        arguments = encoder, data, training, config, generator, processes
        objective = ImageObjective(*arguments, joint).to(device)
        with seeded(random_state + processes.rank):  # a network's own dropout
            result = _train(objective, config, processes, random_state, verbose)
    encoder.module_.eval()
    if joint is not None:
        joint.cpu()
    if objective.head is None:
        return ImageTrainResult(result, None)
    weight = objective.head.weight.detach().cpu().numpy().astype(np.float64)
    return ImageTrainResult(result, HeadBaseline(encoder, weight * training.loss.head_scale))


def _train(
    objective: ImageObjective,
    config: TrainConfig,
    processes: Processes,
    random_state: int,
    verbose: int,
) -> TrainResult:
    network, training = objective.network.network, objective.settings
    if training.precision.is_compiled:
        check_compiler(objective.device.type)
        network.compile(mode=training.precision.compile_mode)
    try:
        return train(
            objective,
            objective.loss,
            objective.validate,
            objective.rows_per_epoch,
            config,
            _groups(objective, config),
            objective.generator,
            tolerance=TOLERANCE,
            precision=training.precision,
            title="Learning images",
            verbose=verbose,
            checkpoint=training.checkpoint,
            extra_state=_extra_state(objective),
            fingerprint=_fingerprint(objective, random_state) if training.checkpoint else None,
            before_epoch=objective.begin,
            on_batches=objective.read_ahead,
            components=objective.components,
            processes=processes,
        )
    finally:
        network._compiled_call_impl = None  # compiled for one batch size; predictions have others


def _extra_state(objective: ImageObjective) -> dict[str, Stateful]:
    """What a checkpoint holds beside the weights."""
    state: dict[str, Stateful] = {"queue": objective.queue, "hard negatives": objective.hard}
    if objective.bank is not None:
        state["bank"] = objective.bank
    if objective.momentum is not None:
        state["momentum encoder"] = objective.momentum
    return state


def _fingerprint(objective: ImageObjective, random_state: int) -> dict[str, Any]:
    """What identifies a training: its seed, its rows and labels, its settings."""
    data, config = objective.data, objective.config
    elsewhere = ("checkpoint", "device", "precision")  # settings of the machine
    settings = {k: v for k, v in objective.settings.to_dict().items() if k not in elsewhere}
    settings["config"] = config.to_dict()
    rows = checksum(data.rows.identity(), data.codes, data.groups, data.trained)
    found = {"seed": random_state, "rows and labels": rows, "settings": settings}
    return found if objective.joint is None else {**found, "joint": objective.joint.settings}


def _groups(objective: ImageObjective, config: TrainConfig) -> list[Group]:
    """Parameter groups: scalars, pretrained layers and biases of ResNet9 have their own rates."""
    scalars = SCALAR_LR_SCALES[config.optimizer]
    lr_scales = {"temperature_odds": scalars, "prior_score": scalars}
    if objective.joint is not None:
        lr_scales["joint"] = scalars
    network, training = objective.network.network, objective.settings
    depths, pretrained = layer_depths(network), objective.network.pretrained
    for name, _ in network.named_parameters():
        scale = 1.0
        if name in pretrained:
            scale = training.backbone_lr_scale * training.layer_decay ** depths[name]
        if isinstance(network, ResNet9) and name.startswith("stages.") and name.endswith("bias"):
            scale *= training.bias_lr_scale
        lr_scales[f"network.network.{name}"] = scale
    rate, decay = config.learning_rate, config.weight_decay
    return parameter_groups(objective, learning_rate=rate, weight_decay=decay, lr_scales=lr_scales)


def _in_memory(encoder: ImageEncoder, X: Any) -> ImageRows:
    """The rows of `X`; those of files are read once if there is room for them."""
    rows, shape = encoder.rows(X), encoder.shape_
    size = (shape.channels, shape.height, shape.width)
    is_ready = isinstance(rows, ArrayRows) and rows.images.shape[1:] == size
    if is_ready or len(rows) * np.prod(size) > MAX_BYTES_IN_MEMORY:
        return rows
    may_resize = encoder.image_size is not None
    return ArrayRows(rows.take(np.arange(len(rows)), shape, may_resize=may_resize))


class HeadBaseline:
    """CNN baseline: class probabilities by a linear head on the features of an image encoder.

    Probabilities are averaged over views, then a temperature divides their logarithms, fitted on
    held-out rows as for every method that it is compared with.

    `weight` (C, width of the features): multiplied by the head's scale; `views`: which views of an
    image are averaged.
    """

    def __init__(self, encoder: ImageEncoder, weight: Floats, views: Views | None = None) -> None:
        self.encoder, self.weight = encoder, weight
        self.views = views or Views()
        self.temperature = 1.0

    def with_views(self, views: Views) -> HeadBaseline:
        """The same head with other views; its temperature must be fitted again."""
        return HeadBaseline(self.encoder, self.weight, views)

    def fit_temperature(self, X: Any, codes: Integers) -> HeadBaseline:
        """Fit the temperature on held-out rows by their log-loss."""
        return self.fit_on_features(self.encoder.features(X, self.views), codes)

    def predict_proba(self, X: Any) -> Floats:
        """Class probabilities (n, C) of the images of `X`."""
        return self.probabilities_of(self.encoder.features(X, self.views))

    def predict(self, X: Any) -> NDArray[np.int64]:
        """The code of the most probable class of each image."""
        return self.predict_proba(X).argmax(axis=1)

    def fit_on_features(self, features: NDArray[np.float32], codes: Integers) -> HeadBaseline:
        """As `fit_temperature`, with known features (V, n, width).

        One row of any label is added, as for votes: on few rows that are all predicted correctly
        the temperature would fall without end.
        """
        log_means = self._log_means(features)
        prior = class_prior(np.bincount(codes, minlength=len(self.weight)))

        def loss(log_temperature: float) -> float:
            probable = log_softmax(log_means / np.exp(log_temperature), axis=1)
            of_any = pseudo_row_loss(np.exp(probable), prior) + 0.5 * PENALTY * log_temperature**2
            return of_any - float(probable[np.arange(len(codes)), codes].sum())

        bounds = (-MAX_LOG_TEMPERATURE, MAX_LOG_TEMPERATURE)
        self.temperature = float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded").x))
        return self

    def probabilities_of(self, features: NDArray[np.float32]) -> Floats:
        """Class probabilities (n, C) of features (V, n, width)."""
        return np.exp(log_softmax(self._log_means(features) / self.temperature, axis=1))

    def _log_means(self, features: NDArray[np.float32]) -> Floats:
        """Logarithms (n, C) of the mean probabilities over views, before the temperature."""
        logits = features.astype(np.float64) @ self.weight.T
        return logsumexp(log_softmax(logits, axis=2), axis=0) - np.log(len(features))
