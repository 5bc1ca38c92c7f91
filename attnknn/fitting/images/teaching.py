"""Trains the network of an image encoder on labeled rows, judged by rows it does not see."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from attnknn.encoders.image.backbone import Backbone
from attnknn.encoders.image.networks import ResNet9
from attnknn.encoders.image.rows import ArrayRows, ImageRows
from attnknn.encoders.image.training import ImageTraining
from attnknn.errors import InvalidInputError
from attnknn.fitting.images.baseline import HeadBaseline
from attnknn.fitting.images.classroom import Classroom, Pupils
from attnknn.records import Booleans, Integers
from attnknn.training.checkpoints import checksum
from attnknn.training.config import TrainConfig, TrainResult
from attnknn.training.devices import check_compiler, device_of, prepare, seeded
from attnknn.training.loop import train
from attnknn.training.optimizers import Group, parameter_groups
from attnknn.training.processes import Processes, joined, synchronize_batch_norms

if TYPE_CHECKING:
    from attnknn.encoders.image import ImageEncoder

HELD = 1 << 31  # bytes of images that are read once and held; more are read for every batch
TOLERANCE = 0.02  # by which the judged loss of a later epoch may be higher
# Adam's steps have the size of the rate, SGD's not.
SCALAR_LR_SCALES = {"sgd": 0.02, "adam": 5.0, "adamw": 5.0}


@dataclass(frozen=True)
class Lesson:
    """How a training went, and the head that was trained beside the vote, if there was one."""

    outcome: TrainResult
    baseline: HeadBaseline | None


def teach_images(
    encoder: ImageEncoder,
    X: Any,
    codes: Integers,
    *,
    n_classes: int,
    groups: Integers,
    is_trained_on: Booleans,
    random_state: int,
    verbose: int = 0,
) -> TrainResult:
    """Train `encoder.module_` on the rows marked `is_trained_on`; the others judge it.

    Parameters
    ----------
    encoder : fitted; its `training` says how, and its module is left in the best state
    codes : (n,) label codes
    groups : (n,) rows of one group do not judge each other; -1 is no group
    """
    return train_images(
        encoder,
        X,
        codes,
        n_classes=n_classes,
        groups=groups,
        is_trained_on=is_trained_on,
        random_state=random_state,
        verbose=verbose,
    ).outcome


def train_images(
    encoder: ImageEncoder,
    X: Any,
    codes: Integers,
    *,
    n_classes: int,
    groups: Integers,
    is_trained_on: Booleans,
    random_state: int,
    verbose: int = 0,
) -> Lesson:
    """As `teach_images`, with the CNN baseline of the same training."""
    _check_rows(is_trained_on)
    training = (encoder.training or ImageTraining()).sized(int(is_trained_on.sum()))
    device = device_of(training.device)
    generator = torch.Generator().manual_seed(random_state)
    with joined(device) as processes:
        prepare(encoder.module_, device, replace(training.precision, is_compiled=False))
        encoder.module_ = synchronize_batch_norms(encoder.module_, processes)  # type: ignore[assignment]
        pupils = Pupils(
            _held(encoder, X),
            np.asarray(codes, dtype=np.int64),
            np.asarray(groups, dtype=np.int64),
            np.flatnonzero(is_trained_on),
            np.flatnonzero(~is_trained_on),
            n_classes,
        )
        classroom = Classroom(encoder, pupils, training, generator, processes).to(device)
        with seeded(random_state + processes.rank):  # a network's own dropout
            outcome = _train(classroom, training, processes, random_state, verbose)
    encoder.module_.eval()
    head = classroom.head
    if head is None:
        return Lesson(outcome, None)
    weight = head.weight.detach().cpu().numpy().astype(np.float64) * training.head_scale
    return Lesson(outcome, HeadBaseline(encoder, weight))


def _train(
    classroom: Classroom,
    training: ImageTraining,
    processes: Processes,
    random_state: int,
    verbose: int,
) -> TrainResult:
    network = classroom.network.network
    if training.precision.is_compiled:
        check_compiler(classroom.device.type)
        network.compile(mode=training.precision.compile_mode)
    try:
        return train(
            classroom,
            classroom.loss,
            classroom.judge,
            classroom.rows_per_epoch,
            _config(classroom, training),
            _groups(classroom, training),
            classroom.generator,
            title="Learning images",
            verbose=verbose,
            tolerance=TOLERANCE,
            precision=training.precision,
            checkpoint=training.checkpoint,
            extra_state={"queue": classroom.queue, "mine": classroom.mine},
            fingerprint=_fingerprint(classroom.pupils, training, random_state)
            if training.checkpoint
            else None,
            before_epoch=classroom.begin,
            on_batches=classroom.read_ahead,
            processes=processes,
        )
    finally:
        network._compiled_call_impl = None  # of one batch size; predictions come in others


def _fingerprint(pupils: Pupils, training: ImageTraining, random_state: int) -> dict[str, Any]:
    """What makes a training this one: its seed, its rows and labels, its settings."""
    elsewhere = ("checkpoint", "device", "precision")  # of the machine; numbers have a mark already
    settings = {k: v for k, v in training.to_dict().items() if k not in elsewhere}
    rows = checksum(pupils.rows.identity(), pupils.codes, pupils.groups, pupils.trained)
    return {"seed": random_state, "rows and labels": rows, "settings": settings}


def _groups(classroom: Classroom, training: ImageTraining) -> list[Group]:
    return parameter_groups(
        classroom,
        learning_rate=training.learning_rate,
        weight_decay=training.weight_decay,
        lr_scales=_lr_scales(classroom, training),
    )


def _config(classroom: Classroom, training: ImageTraining) -> TrainConfig:
    assert training.epochs is not None  # see `Classroom.batch_size`
    return TrainConfig(
        epochs=training.epochs,
        batch_size=classroom.batch_size,
        warmup=training.warmup,
        patience=training.patience,
        optimizer=training.optimizer,
        schedule=training.schedule,
        clip=training.clip,
        average=training.average_decay if training.average == "moving" else 0.0,
        lookahead=training.average_every if training.average == "lookahead" else 0,
    )


def _lr_scales(classroom: Classroom, training: ImageTraining) -> dict[str, float]:
    """Factors of the learning rate by the names of parameters."""
    scalars = SCALAR_LR_SCALES[training.optimizer]
    lr_scales = {"temperature_odds": scalars, "prior_score": scalars}
    network = classroom.network.network
    if isinstance(network, Backbone) and not classroom.network.is_frozen:
        lr_scales["network.network"] = training.backbone_lr_scale
    if isinstance(network, ResNet9):
        biases = [name for name, _ in network.stages.named_parameters() if name.endswith("bias")]
        names = [f"network.network.stages.{name}" for name in biases]
        lr_scales |= dict.fromkeys(names, training.bias_lr_scale)
    return lr_scales


def _held(encoder: ImageEncoder, X: Any) -> ImageRows:
    """The rows of `X`; those of files are read once if there is room for them."""
    rows, shape = encoder.rows(X), encoder.shape_
    n_bytes = len(rows) * shape.channels * shape.height * shape.width
    is_ready = isinstance(rows, ArrayRows) and rows.images.shape[1:] == (
        shape.channels,
        shape.height,
        shape.width,
    )
    if is_ready or n_bytes > HELD:
        return rows
    may_resize = encoder.image_size is not None
    return ArrayRows(rows.take(np.arange(len(rows)), shape, may_resize=may_resize))


def _check_rows(is_trained_on: NDArray[np.bool_]) -> None:
    n_trained, n_judges = int(is_trained_on.sum()), int((~is_trained_on).sum())
    if n_trained < 2 or n_judges < 1:
        raise InvalidInputError(
            "An image encoder needs at least 2 rows to train on and 1 to judge, got "
            f"{n_trained} and {n_judges}."
        )
