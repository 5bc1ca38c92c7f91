"""Train a Vision Transformer and keep its best epoch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from attnknn.errors import DivergedError, InvalidInputError
from attnknn.training.checkpoints import checksum
from attnknn.training.config import TrainConfig, TrainResult
from attnknn.training.devices import device_of, prepare, seeded
from attnknn.training.loop import n_batches, train
from attnknn.training.optimizers import parameter_groups
from attnknn.training.processes import Processes, joined
from attnknn.training.schedules import Plateau
from attnknn.training.threads import read_ahead
from attnknn.vit.training.config import VitTrainConfig, make_schedule, precision_of
from attnknn.vit.training.evaluation import Evaluation, evaluate, make_criterion
from attnknn.vit.training.images import ImagePreprocessor, Images, read_images


@dataclass(frozen=True)
class EpochMetrics:
    """Metrics of one epoch: during its training steps, and on validation images after them.

    Attributes
    ----------
    number : int
        Number of the epoch, from 1.
    train_loss, train_top1, train_top5 : float
        Mean loss and accuracies of the training steps.
    validation_loss, validation_top1, validation_top5 : float
        Mean loss and accuracies on the validation images.
    seconds : float
        Duration.

    Examples
    --------
    >>> EpochMetrics(1, 2.1, 0.2, 0.6, 2.0, 0.3, 0.7, seconds=12.5).validation_top1
    0.3
    """

    number: int
    train_loss: float
    train_top1: float
    train_top5: float
    validation_loss: float
    validation_top1: float
    validation_top5: float
    seconds: float


@dataclass
class VitTrainResult:
    """Result of a training; the model is in the state of `best_epoch`.

    Attributes
    ----------
    epochs : list of EpochMetrics
        Metrics of each epoch.
    best_epoch : int
        Number of the epoch that was kept; 0 if training stopped before the first was over.
    was_interrupted : bool
        Whether the user stopped the training.
    seconds : float
        Duration.

    Examples
    --------
    >>> VitTrainResult([], 0, was_interrupted=True, seconds=0.1).best_epoch
    0
    """

    epochs: list[EpochMetrics]
    best_epoch: int
    was_interrupted: bool
    seconds: float


def train_vit(
    make_model: Callable[[], nn.Module],
    images: Images,
    classes: Sequence[int] | NDArray[np.int64] | Tensor,
    preprocessor: ImagePreprocessor,
    config: VitTrainConfig | None = None,
    *,
    checkpoint: str | Path | None = None,
    fingerprint: Mapping[str, Any] | None = None,
    on_epoch: Callable[[EpochMetrics], None] | None = None,
    verbose: int = 0,
) -> tuple[nn.Module, VitTrainResult]:
    """Train a model and keep the epoch with the best accuracy on held-out validation images.

    Among epochs of equal accuracy, the one with the smallest validation loss is kept.

    Parameters
    ----------
    make_model : callable
        Builds the model; called after the seed is set, so that initial weights depend on it.
    images : ndarray of uint8 of shape (n_images, C, H, W), or ImageSource
        Training images, or an object that reads them, see `ImagePreprocessor.from_images`. A part
        of them is held out for validation.
    classes : array-like of int of shape (n_images,)
        Class of each image, from 0.
    preprocessor : ImagePreprocessor
        How images become the input of the model, see `ImagePreprocessor.from_images`.
    config : VitTrainConfig, default=None
        Training settings.
    checkpoint : str or Path, default=None
        File that is written after each epoch; an interrupted training resumes from it.
    fingerprint : Mapping[str, Any], default=None
        Further values that must match those in the checkpoint to resume from it, such as the
        settings of the model.
    on_epoch : callable, default=None
        Called with the `EpochMetrics` of each epoch after its checkpoint is written.
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    model : nn.Module
        The trained model, in the state of the best epoch.
    result : VitTrainResult
        Metrics of all epochs.

    Raises
    ------
    InvalidInputError
        If images, classes and model outputs do not match.
    DivergedError
        If the loss is not finite.

    Examples
    --------
    >>> from attnknn.vit.model import vit_tiny
    >>> images = np.random.default_rng(0).integers(0, 255, (20, 3, 8, 8), np.uint8)
    >>> model, result = train_vit(
    ...     lambda: vit_tiny("kvt", image_size=8, patch_size=4, depth=1, n_neighbors=3),
    ...     images,
    ...     [0, 1] * 10,
    ...     ImagePreprocessor.from_images(images, (8, 8)),
    ...     VitTrainConfig(epochs=2, device="cpu"),
    ... )
    >>> [epoch.number for epoch in result.epochs]
    [1, 2]
    """
    config = config or VitTrainConfig()
    device = device_of(config.device)
    known = torch.as_tensor(classes).long()
    if len(known) != len(images):
        raise InvalidInputError(f"There are {len(images)} images, but {len(known)} classes.")
    with joined(device) as processes:
        with seeded(config.seed):
            model = prepare(make_model(), device, precision_of(config, device.type))
        trainer = _Trainer(model, images, known, preprocessor, config, processes, on_epoch)
        with seeded(config.seed + processes.rank):  # dropout differs, initial weights do not
            return model, trainer.run(checkpoint, fingerprint or {}, verbose)


class _Trainer:
    """One training: its rows, steps and epochs, which are a part of checkpoints."""

    def __init__(
        self,
        model: nn.Module,
        images: Images,
        classes: Tensor,
        preprocessor: ImagePreprocessor,
        config: VitTrainConfig,
        processes: Processes,
        on_epoch: Callable[[EpochMetrics], None] | None,
    ) -> None:
        self.model, self.images, self.classes = model, images, classes
        self.preprocessor, self.config = preprocessor, config
        self.processes, self.on_epoch = processes, on_epoch
        self.device = next(model.parameters()).device
        self.precision = precision_of(config, self.device.type)
        self.n_classes = int(classes.max()) + 1
        self.train_rows, self.validation_rows = split_validation(
            classes, config.validation, config.seed
        )
        self.generator = torch.Generator().manual_seed(config.seed + processes.rank)
        self.criterion = make_criterion(config.criterion, config.label_smoothing)
        self.epochs: list[EpochMetrics] = []
        self.steps = Evaluation()
        self.batches: Iterator[Tensor] = iter(())
        self.started = time.perf_counter()
        self.schedule = make_schedule(config, n_batches(len(self.train_rows), config.batch_size))

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": [asdict(epoch) for epoch in self.epochs]}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.epochs = [EpochMetrics(**epoch) for epoch in saved["epochs"]]

    def run(
        self, checkpoint: str | Path | None, fingerprint: Mapping[str, Any], verbose: int
    ) -> VitTrainResult:
        config = self.config
        undecayed: set[str] = getattr(self.model, "no_weight_decay", set)()
        groups = parameter_groups(
            self.model,
            learning_rate=config.lr,
            weight_decay=config.weight_decay,
            undecayed=undecayed,
        )
        options: dict[str, Any] = {"betas": (0.9, 0.999)}
        if config.optimizer == "sgd":
            options = {"momentum": config.momentum, "nesterov": False}
        loop_config = TrainConfig(
            epochs=config.epochs,
            batch_size=config.batch_size,
            warmup=config.warmup,
            patience=config.epochs,
            optimizer=config.optimizer,
            schedule=self.schedule,
            clip=config.clip_grad_norm,
        )
        extra_state: dict[str, Any] = {"log": self}
        if isinstance(self.schedule, Plateau):
            extra_state["plateau"] = self.schedule
        outcome = train(
            self.model,
            self.compute_loss,
            self.validate,
            len(self.train_rows),
            loop_config,
            [{**group, **options} for group in groups],
            self.generator,
            precision=self.precision,
            verbose=verbose,
            checkpoint=checkpoint,
            extra_state=extra_state,
            fingerprint={**self._fingerprint(), **fingerprint},
            on_batches=self.start_epoch,
            on_epoch=self.report_epoch,
            processes=self.processes,
        )
        n_epochs = len(outcome.validation_losses) - 1  # without the initial state
        epochs, best = self.epochs[:n_epochs], outcome.best_epoch
        return VitTrainResult(epochs, best, outcome.was_interrupted, outcome.seconds)

    def _fingerprint(self) -> dict[str, Any]:
        """What a checkpoint must agree in: settings, labels and preprocessing."""
        elsewhere = ("device", "workers", "use_amp", "use_compiled", "compile_mode")
        settings = {k: v for k, v in asdict(self.config).items() if k not in elsewhere}
        labels = checksum(self.classes.numpy())
        return {"settings": settings, "labels": labels, "pixels": asdict(self.preprocessor)}

    def start_epoch(self, batches: Sequence[Tensor]) -> None:
        """Begin to read the batches of an epoch."""
        self.model.train()
        self.steps, self.started = Evaluation(), time.perf_counter()
        rows = [self.train_rows[batch] for batch in batches]
        workers = self.config.workers
        self.batches = read_ahead(lambda part: read_images(self.images, part), rows, workers)

    def compute_loss(self, rows: Tensor) -> Tensor:
        """The mean loss of a batch."""
        inputs = self.preprocessor.transform(
            next(self.batches).to(self.device),
            self.generator,
            with_augmentation=self.config.augment,
            with_mirroring=self.config.mirror,
        )
        known = self.classes[self.train_rows[rows]].to(self.device)
        outputs = self.model(inputs)
        if outputs.dim() != 2 or outputs.shape[1] < self.n_classes:
            raise InvalidInputError(
                f"The model must return a score for each of {self.n_classes} classes, got shape "
                f"{tuple(outputs.shape)} for {len(known)} images."
            )
        loss = self.criterion(outputs.float(), known)
        self.steps.add(outputs, known, loss.item())
        return loss

    def validate(self) -> float:
        """Evaluate an epoch; lower is better. The initial weights are never kept."""
        if not self.steps.n_rows:
            return math.inf
        config = self.config
        validation = evaluate(
            self.model,
            self.images,
            self.classes,
            self.preprocessor,
            criterion=config.criterion,
            rows=self.validation_rows,
            batch_size=config.batch_size,
            precision=self.precision,
            seed=config.seed,
            workers=config.workers,
        )
        self._record(validation)
        # By error rate, and by loss among epochs of equal error rate.
        loss = validation.loss
        return 1 - validation.top1 + loss / (1 + loss) / (2 * validation.n_rows)

    def _record(self, validation: Evaluation) -> None:
        steps, number = self._sum_over_processes(self.steps), len(self.epochs) + 1
        if not math.isfinite(steps.loss + validation.loss):
            raise DivergedError(
                f"Training diverged in epoch {number}: the loss is {steps.loss + validation.loss}. "
                "Lower the learning rate `lr`, or clip gradients (`clip_grad_norm`)."
            )
        epoch = EpochMetrics(
            number=number,
            train_loss=steps.loss,
            train_top1=steps.top1,
            train_top5=steps.top5,
            validation_loss=validation.loss,
            validation_top1=validation.top1,
            validation_top5=validation.top5,
            seconds=time.perf_counter() - self.started,
        )
        self.epochs.append(epoch)
        if isinstance(self.schedule, Plateau):
            self.schedule.update(validation.loss)

    def report_epoch(self, _: TrainResult) -> None:
        """Call `on_epoch` in the first process."""
        if self.on_epoch is not None and self.processes.is_first:
            self.on_epoch(self.epochs[-1])

    def _sum_over_processes(self, own: Evaluation) -> Evaluation:
        counts = [own.total_loss, own.n_top1, own.n_top5, own.n_rows]
        total = self.processes.total(torch.tensor(counts, dtype=torch.float64))
        n_top1, n_top5, n_rows = map(int, total[1:].tolist())
        return Evaluation(total[0].item(), n_top1, n_top5, n_rows)


def split_validation(classes: Tensor, fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows to validate on, about the same fraction of each class.

    >>> trained, held_out = split_validation(torch.tensor([0, 0, 0, 0, 1, 1]), 0.5, seed=0)
    >>> len(trained), sorted(torch.tensor([0, 0, 0, 0, 1, 1])[held_out].tolist())
    (3, [0, 0, 1])
    """
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))
    order = order[classes[order].argsort(stable=True)]  # by class, random within
    n_held_out = (torch.arange(len(order) + 1, dtype=torch.float64) * fraction + 0.5).floor()
    is_held_out = n_held_out.diff() > 0
    trained, held_out = order[~is_held_out], order[is_held_out]
    if not len(trained) or not len(held_out):
        raise InvalidInputError(
            f"{len(classes)} images are too few to hold out a fraction of {fraction:g} for "
            "validation."
        )
    return trained.sort().values, held_out.sort().values
