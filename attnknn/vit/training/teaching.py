"""The training of a Vision Transformer: epochs, and what is told of them."""

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
from attnknn.vit.training.pixels import Images, Pixels
from attnknn.vit.training.scores import Scores, criterion_of, read, score
from attnknn.vit.training.settings import VitTraining


@dataclass(frozen=True)
class Epoch:
    """One epoch: losses, and shares of images that were right, as the steps went and after them."""

    number: int
    train_loss: float
    train_top1: float
    train_top5: float
    validation_loss: float
    validation_top1: float
    validation_top5: float
    seconds: float


@dataclass
class Lesson:
    """What a training did; the model itself is in the state of `best_epoch`, 0 is untrained."""

    epochs: list[Epoch]
    best_epoch: int
    was_interrupted: bool
    seconds: float


class Log:
    """The epochs so far, kept by checkpoints."""

    def __init__(self) -> None:
        self.epochs: list[Epoch] = []

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": [asdict(epoch) for epoch in self.epochs]}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.epochs = [Epoch(**epoch) for epoch in saved["epochs"]]


def train_vit(
    make_model: Callable[[], nn.Module],
    images: Images,
    classes: Sequence[int] | NDArray[np.int64] | Tensor,
    pixels: Pixels,
    settings: VitTraining | None = None,
    *,
    checkpoint: str | Path | None = None,
    marks: Mapping[str, Any] | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
    verbose: int = 0,
) -> tuple[nn.Module, Lesson]:
    """Train the model that `make_model` makes; of its epochs the one is kept that was most often
    right on validation rows, which are not trained on, and of equals the one with the least loss.

    Parameters
    ----------
    make_model
        Called once the seed is set, so that the first weights depend on it.
    classes
        From 0, one for each image.
    pixels
        What becomes of images; see `Pixels.like`.
    checkpoint
        File from which a training that was interrupted goes on.
    marks
        What else a checkpoint must agree in to be taken, such as the settings of the model, which
        its weights do not tell.
    on_epoch
        Told of each epoch when it is over and in the checkpoint.
    """
    settings = settings or VitTraining()
    device = device_of(settings.device)
    known = torch.as_tensor(classes).long()
    if len(known) != len(images):
        raise InvalidInputError(f"There are {len(images)} images, but {len(known)} classes.")
    with joined(device) as processes:
        with seeded(settings.seed):
            model = prepare(make_model(), device, settings.precision(device.type))
        course = _Course(model, images, known, pixels, settings, processes, on_epoch)
        with seeded(settings.seed + processes.rank):  # dropout differs, first weights do not
            return model, course.run(checkpoint, marks or {}, verbose)


class _Course:
    """One training: its rows, and what happens in steps and after epochs."""

    def __init__(
        self,
        model: nn.Module,
        images: Images,
        classes: Tensor,
        pixels: Pixels,
        settings: VitTraining,
        processes: Processes,
        on_epoch: Callable[[Epoch], None] | None,
    ) -> None:
        self.model, self.images, self.classes, self.pixels = model, images, classes, pixels
        self.settings, self.processes, self.on_epoch = settings, processes, on_epoch
        self.device = next(model.parameters()).device
        self.n_classes = int(classes.max()) + 1
        self.trained, self.validation = split(classes, settings.validation, settings.seed)
        self.chance = torch.Generator().manual_seed(settings.seed + processes.rank)
        self.criterion = criterion_of(settings.criterion, settings.label_smoothing)
        self.log, self.steps = Log(), Scores()
        self.coming: Iterator[Tensor] = iter(())
        self.started = time.perf_counter()
        steps_per_epoch = n_batches(len(self.trained), settings.batch_size)
        self.schedule = settings.schedule(steps_per_epoch)

    def run(self, checkpoint: str | Path | None, marks: Mapping[str, Any], verbose: int) -> Lesson:
        settings = self.settings
        undecayed: set[str] = getattr(self.model, "no_weight_decay", set)()
        groups = parameter_groups(
            self.model,
            learning_rate=settings.lr,
            weight_decay=settings.weight_decay,
            undecayed=undecayed,
        )
        config = TrainConfig(
            epochs=settings.epochs,
            batch_size=settings.batch_size,
            warmup=settings.warmup,
            patience=settings.epochs,
            optimizer=settings.optimizer,
            schedule=self.schedule,
            clip=settings.clip_grad_norm,
        )
        keeps: dict[str, Any] = {"log": self.log}
        if isinstance(self.schedule, Plateau):
            keeps["plateau"] = self.schedule
        outcome = train(
            self.model,
            self.loss_of,
            self.judge,
            len(self.trained),
            config,
            [{**group, **settings.group()} for group in groups],
            self.chance,
            precision=settings.precision(self.device.type),
            verbose=verbose,
            checkpoint=checkpoint,
            extra_state=keeps,
            fingerprint={**self._marks(), **marks},
            on_batches=self.read_ahead,
            on_epoch=self.tell,
            processes=self.processes,
        )
        n_left_out = len(outcome.validation_losses) - 1  # without the start
        epochs, best = self.log.epochs[:n_left_out], outcome.best_epoch
        return Lesson(epochs, best, outcome.was_interrupted, outcome.seconds)

    def _marks(self) -> dict[str, Any]:
        """What makes a training this one: seed and settings, labels, and what pixels are like."""
        elsewhere = ("device", "workers", "use_amp", "use_compiled", "compile_mode")
        settings = {k: v for k, v in asdict(self.settings).items() if k not in elsewhere}
        labels = checksum(self.classes.numpy())
        return {"settings": settings, "labels": labels, "pixels": asdict(self.pixels)}

    def read_ahead(self, batches: Sequence[Tensor]) -> None:
        """An epoch begins, with these batches."""
        self.model.train()
        self.steps, self.started = Scores(), time.perf_counter()
        rows = [self.trained[batch] for batch in batches]
        workers = self.settings.workers
        self.coming = read_ahead(lambda part: read(self.images, part), rows, workers)

    def loss_of(self, rows: Tensor) -> Tensor:
        """The mean loss of a batch."""
        shown = next(self.coming).to(self.device)
        is_augmented, is_mirrored = self.settings.augment, self.settings.mirror
        seen = self.pixels.seen(
            shown, self.chance, is_augmented=is_augmented, is_mirrored=is_mirrored
        )
        known = self.classes[self.trained[rows]].to(self.device)
        outputs = self.model(seen)
        if outputs.dim() != 2 or outputs.shape[1] < self.n_classes:
            raise InvalidInputError(
                f"The model must give a score for each of {self.n_classes} classes, got "
                f"{tuple(outputs.shape)} for {len(known)} images."
            )
        loss = self.criterion(outputs.float(), known)
        self.steps.add(outputs, known, loss.item())
        return loss

    def judge(self) -> float:
        """The share of validation rows that are wrong; the start, untrained, is never kept."""
        if not self.steps.n_rows:
            return math.inf
        settings = self.settings
        scores = score(
            self.model,
            self.images,
            self.classes,
            self.pixels,
            criterion=settings.criterion,
            rows=self.validation,
            batch_size=settings.batch_size,
            precision=settings.precision(self.device.type),
            seed=settings.seed,
            workers=settings.workers,
        )
        self._log(scores)
        return _order(scores)

    def _log(self, left_out: Scores) -> None:
        """An epoch is over."""
        steps = self._of_all(self.steps)
        if not math.isfinite(steps.loss + left_out.loss):
            raise DivergedError(
                f"The training has no use after epoch {len(self.log.epochs)}: the loss of the next "
                f"one is {steps.loss + left_out.loss}. Lower the learning rate `lr`, or clip "
                "gradients (`clip_grad_norm`)."
            )
        epoch = Epoch(
            number=len(self.log.epochs) + 1,
            train_loss=steps.loss,
            train_top1=steps.top1,
            train_top5=steps.top5,
            validation_loss=left_out.loss,
            validation_top1=left_out.top1,
            validation_top5=left_out.top5,
            seconds=time.perf_counter() - self.started,
        )
        self.log.epochs.append(epoch)
        if isinstance(self.schedule, Plateau):
            self.schedule.update(left_out.loss)

    def tell(self, _: TrainResult) -> None:
        """An epoch is over, and in the checkpoint."""
        if self.on_epoch is not None and self.processes.is_first:
            self.on_epoch(self.log.epochs[-1])

    def _of_all(self, own: Scores) -> Scores:
        """The scores of all processes together."""
        counts = [own.total_loss, own.n_first, own.n_among_five, own.n_rows]
        total = self.processes.total(torch.tensor(counts, dtype=torch.float64))
        n_first, n_among_five, n_rows = map(int, total[1:].tolist())
        return Scores(total[0].item(), n_first, n_among_five, n_rows)


def _order(scores: Scores) -> float:
    """Lower for the better: by the share that is wrong, and among equals by the loss."""
    return 1 - scores.top1 + scores.loss / (1 + scores.loss) / (2 * scores.n_rows)


def split(classes: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Rows to train on and rows to choose an epoch by: of each class about the same share.

    >>> trained, others = split(torch.tensor([0, 0, 0, 0, 1, 1]), 0.5, seed=0)
    >>> len(trained), sorted(torch.tensor([0, 0, 0, 0, 1, 1])[others].tolist())
    (3, [0, 0, 1])
    """
    order = torch.randperm(len(classes), generator=torch.Generator().manual_seed(seed))
    order = order[classes[order].argsort(stable=True)]  # by class, at random within
    n_apart = (torch.arange(len(order) + 1, dtype=torch.float64) * share + 0.5).floor()
    is_apart = n_apart.diff() > 0
    trained, others = order[~is_apart], order[is_apart]
    if not len(trained) or not len(others):
        raise InvalidInputError(
            f"{len(classes)} images are too few to keep a share of {share:g} for validation."
        )
    return trained.sort().values, others.sort().values
