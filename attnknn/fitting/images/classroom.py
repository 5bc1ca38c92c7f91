"""An image encoder under training: its network, the vote's scalars, the helper head, the loss."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from attnknn.encoders.image.networks import ResNet9
from attnknn.encoders.image.rows import ImageRows
from attnknn.encoders.image.training import ImageTraining
from attnknn.fitting.images.batch_vote import (
    Ballot,
    Voters,
    are_kin,
    ballot,
    prior_without,
    scores_of,
)
from attnknn.fitting.images.mining import Mine
from attnknn.fitting.images.queue import Queue
from attnknn.records import Integers
from attnknn.training.augmentation import augment, mix
from attnknn.training.losses import contrastive_loss, entropy, one_hot, soft_calibration_error
from attnknn.training.processes import Processes

if TYPE_CHECKING:
    from attnknn.encoders.image import ImageEncoder

TEMPERATURES = (0.02, 2.0)
FEWEST_IN_A_BATCH = 16  # fewer neither vote nor give statistics; such a rest waits for its turn


@dataclass(frozen=True)
class Batch:
    """The images of a step: (V, B) of them for V views, one view after the other.

    Parameters
    ----------
    places : (B,) of the rows among the trained ones
    labels : shares of the classes (V · B, C)
    kin : (V · B, S)
    """

    places: Tensor
    images: Tensor
    labels: Tensor
    kin: Tensor
    n_views: int


@dataclass(frozen=True)
class Pupils:
    """The rows of a training.

    Parameters
    ----------
    rows : where images are read from
    codes, groups : (n,) of all rows; group -1 is none
    trained, judges : numbers of the rows that are trained on, and of those that judge
    """

    rows: ImageRows
    codes: Integers
    groups: Integers
    trained: Integers
    judges: Integers
    n_classes: int

    @property
    def kin(self) -> Integers:
        """(n,) a number that rows of one group share, and no others."""
        first_free = int(self.groups.max(initial=-1)) + 1
        return np.where(self.groups >= 0, self.groups, first_free + np.arange(len(self.groups)))


class Classroom(nn.Module):
    """Everything that is trained, and the loss of a batch of it."""

    def __init__(
        self,
        encoder: ImageEncoder,
        pupils: Pupils,
        training: ImageTraining,
        generator: torch.Generator,
        processes: Processes,
    ) -> None:
        super().__init__()
        self.network = encoder.module_
        self.head = _new_head(encoder, pupils, training, generator)
        self.temperature_odds = nn.Parameter(_odds(training.temperature))
        self.prior_score = nn.Parameter(torch.tensor(float(training.prior_score)))
        self.encoder, self.pupils, self.training_settings = encoder, pupils, training
        self.generator, self.processes = generator, processes
        self.queue, self.mine = Queue(training.queue_size), Mine(training.n_negatives)
        self.epoch, self.seed = 0, int(generator.initial_seed()) % (1 << 31)
        self.drawn = torch.arange(self.rows_per_epoch)
        self.coming: Iterator[Tensor] | None = None  # images of this epoch's batches, read ahead
        self.codes = torch.from_numpy(pupils.codes)
        self.kin = torch.from_numpy(pupils.kin)
        self.trained = torch.from_numpy(pupils.trained)
        counts = np.bincount(pupils.codes[pupils.trained], minlength=pupils.n_classes)
        self.counts = torch.from_numpy(counts).float()
        self._learn_whitening(training.whitening_epochs > 0)

    @property
    def device(self) -> torch.device:
        return self.network.mean.device

    @property
    def batch_size(self) -> int:
        size = self.training_settings.batch_size
        assert size is not None  # the settings are `sized` to the rows before a lesson
        return size

    @property
    def rows_per_epoch(self) -> int:
        """All trained rows, or all but a rest that is too small for a batch."""
        n_rows, size = len(self.pupils.trained), self.batch_size
        rest = n_rows % size
        return n_rows - rest if rest < FEWEST_IN_A_BATCH and n_rows > size else n_rows

    @property
    def temperature(self) -> Tensor:
        low, high = TEMPERATURES
        return low + (high - low) * torch.sigmoid(self.temperature_odds)

    def begin(self, epoch: int) -> None:
        """What has to be done before an epoch: search the memory again, draw the rows."""
        settings = self.training_settings
        self.epoch = epoch
        self._learn_whitening(epoch < settings.whitening_epochs)
        needs_search = settings.negatives_weight > 0 or settings.boundary_share > 0
        if needs_search and epoch % settings.refresh_every == 0:
            embeddings = self.embeddings_of(self.pupils.trained)
            self.mine.refresh(
                embeddings.cpu().numpy(),
                self.pupils.codes[self.pupils.trained],
                self.pupils.groups[self.pupils.trained],
                self.pupils.n_classes,
            )
        self.drawn = self.processes.from_first(self._draw())

    def read_ahead(self, batches: Sequence[Tensor]) -> None:
        """Begin to read the images of these batches, where the encoder has workers for it."""
        if self.encoder.workers:
            rows = [self.trained[self.drawn[positions]].numpy() for positions in batches]
            self.coming = self.encoder.read(self.pupils.rows, rows)

    def _draw(self) -> Tensor:
        """Places of the rows of this epoch: a random choice, some replaced by boundary rows."""
        order = torch.randperm(len(self.trained), generator=self.generator)[: self.rows_per_epoch]
        n_boundary = int(self.training_settings.boundary_share * len(order))
        if n_boundary:
            boundary = self.mine.draw_boundary(n_boundary, self.generator)
            if boundary is not None:
                order = torch.cat([order[n_boundary:], boundary])
        return order

    def loss(self, positions: Tensor) -> Tensor:
        """Mean loss of the rows drawn at these positions, all terms, with a gradient."""
        settings = self.training_settings
        self.train()
        batch = self._batch(self.drawn[positions])
        features = self.network.features(batch.images)
        with torch.autocast(self.device.type, enabled=False):
            features = features.float()
            embeddings = self.network.embed(features)
            loss = embeddings.new_zeros(())
            if self.head is not None:
                logits = self.head(features) * settings.head_scale
                smoothing = settings.label_smoothing
                helped = F.cross_entropy(logits, batch.labels, label_smoothing=smoothing)
                loss = loss + settings.head_weight * helped
            loss = loss + self._vote_terms(batch, embeddings)
            if settings.contrastive_weight:
                loss = loss + settings.contrastive_weight * self._contrast(batch, embeddings)
        return loss

    def judge(self) -> float:
        """Log-loss of the judging rows by the vote of some trained ones, as they are now."""
        settings, pupils = self.training_settings, self.pupils
        n_entries = min(settings.judge_entries, len(pupils.trained))
        chosen = pupils.trained[np.linspace(0, len(pupils.trained) - 1, n_entries).astype(int)]
        entries = self.embeddings_of(chosen)
        labels = one_hot(self.codes[chosen], pupils.n_classes).to(self.device)
        # The prior weighs against as many voters as in training.
        log_say = math.log((self.batch_size + settings.queue_size) / n_entries)
        prior = (self.counts + 0.5).to(self.device) / (self.counts + 0.5).sum()
        total = 0.0
        for part in np.array_split(pupils.judges, -(-len(pupils.judges) // 1024)):
            with torch.no_grad():
                scores = scores_of(self.embeddings_of(part), entries, self.temperature) + log_say
                kin = are_kin(self.kin[part][:, None], self.kin[chosen][:, None])
                scores = scores.masked_fill(kin.to(self.device), -torch.inf)
                voted = ballot(scores, labels, self.prior_score, prior)
                own = one_hot(self.codes[part], pupils.n_classes).to(self.device)
                total += voted.losses(own).sum().item()
        return total / len(pupils.judges)

    def embeddings_of(self, rows: Integers) -> Tensor:
        """Embeddings (n, D) of rows as they are, without augmentation and gradient."""
        self.eval()
        size = max(self.encoder.batch_size, 1)
        with torch.no_grad():
            parts = [
                self.network(self._images(rows[start : start + size]))
                for start in range(0, len(rows), size)
            ]
        return torch.cat(parts)

    def _batch(self, places: Tensor) -> Batch:
        settings = self.training_settings
        rows = self.trained[places]
        images = self._images(rows.numpy()) if self.coming is None else next(self.coming)
        n_views = 2 if settings.contrastive_weight else 1
        views = self._windowed([self._augmented(images, rows) for _ in range(n_views)])
        labels = one_hot(self.codes[rows], self.pupils.n_classes).to(self.device)
        # Views are mixed side by side, so that both are mixed of the same rows in the same places.
        mixed = mix(torch.cat(views, dim=1), labels, settings.mixing, self.generator)
        kin = self.kin[rows][:, None].to(self.device)
        if settings.mixing.mixup or settings.mixing.cutmix:
            kin = torch.cat([kin, kin[mixed.partners]], dim=1)
        seen = torch.cat(mixed.images.chunk(n_views, dim=1))
        return Batch(
            places,
            seen.contiguous(memory_format=torch.channels_last)
            if settings.precision.is_channels_last
            else seen.contiguous(),
            mixed.labels.repeat(n_views, 1),
            kin.repeat(n_views, 1),
            n_views,
        )

    def _augmented(self, images: Tensor, rows: Tensor) -> Tensor:
        recipe = self.training_settings.augmentation
        return augment(images, recipe, self.generator, rows=rows, epoch=self.epoch, seed=self.seed)

    def _windowed(self, views: list[Tensor]) -> list[Tensor]:
        """The views, or in the first epochs a window of each, in the same place for all."""
        side = self.training_settings.window
        height, width = views[0].shape[2:]
        if side is None or self.epoch >= self.training_settings.window_epochs:
            return views
        high, wide = min(side, height), min(side, width)
        top = int(torch.randint(height - high + 1, (), generator=self.generator))
        left = int(torch.randint(width - wide + 1, (), generator=self.generator))
        return [view[:, :, top : top + high, left : left + wide] for view in views]

    def _images(self, rows: NDArray[np.int64]) -> Tensor:
        return self.encoder.images(self.pupils.rows, rows)

    def _vote_terms(self, batch: Batch, embeddings: Tensor) -> Tensor:
        settings = self.training_settings
        own = Voters(embeddings, batch.labels, batch.kin)
        everyone = Voters(
            self.processes.gather(own.embeddings),
            self.processes.gather(own.labels),
            self.processes.gather(own.kin),
        )
        voted = self._vote(batch, own, self.queue.beside(everyone))
        self.queue.push(everyone)
        loss = settings.vote_weight * voted.losses(batch.labels).mean()
        if settings.entropy_weight:
            loss = loss - settings.entropy_weight * entropy(voted.weights)
        if settings.calibration_weight:
            error = soft_calibration_error(voted.shares, batch.labels)
            loss = loss + settings.calibration_weight * error
        return loss

    def _vote(self, batch: Batch, own: Voters, voters: Voters) -> Ballot:
        """Each image of the batch judged by all voters that are not its kin."""
        scores = scores_of(own.embeddings, voters.embeddings, self.temperature)
        scores = scores.masked_fill(are_kin(own.kin, voters.kin), -torch.inf)
        prior = prior_without(self.counts.to(self.device), batch.labels)
        if not self.training_settings.negatives_weight:
            return ballot(scores, voters.labels, self.prior_score, prior)
        hard, labels = self._negatives(batch, own)
        ordinary = ballot(
            torch.cat([scores, hard], dim=1), _padded(voters.labels, hard), self.prior_score, prior
        )
        places = slice(scores.shape[1], scores.shape[1] + hard.shape[1])
        added = torch.einsum("bm,bmc->bc", ordinary.weights[:, places], labels)
        return Ballot(ordinary.weights, ordinary.shares + added)

    def _negatives(self, batch: Batch, own: Voters) -> tuple[Tensor, Tensor]:
        """Scores (B, M) and labels (B, M, C) of the hard negatives of each image."""
        mine, settings = self.mine, self.training_settings
        assert mine.embeddings is not None
        places = mine.negatives[batch.places]  # (B, M)
        rows = self.trained[places]
        entries = mine.embeddings[places].to(self.device).repeat(batch.n_views, 1, 1)
        cosines = torch.einsum("bd,bmd->bm", own.embeddings, entries)
        scores = (2 * cosines - 2) / self.temperature + math.log(settings.negatives_weight)
        kin = self.kin[rows].repeat(batch.n_views, 1).to(self.device)
        is_out = (kin[:, :, None] == own.kin[:, None]).any(dim=2)
        is_out |= ~mine.is_negative[batch.places].repeat(batch.n_views, 1).to(self.device)
        labels = one_hot(self.codes[rows], self.pupils.n_classes).to(self.device)
        return scores.masked_fill(is_out, -torch.inf), labels.repeat(batch.n_views, 1, 1)

    def _contrast(self, batch: Batch, embeddings: Tensor) -> Tensor:
        settings = self.training_settings
        first, second = embeddings.chunk(2)
        return contrastive_loss(
            self.processes.gather(first),
            self.processes.gather(second),
            self.processes.gather(batch.labels[: len(first)]),
            temperature=settings.contrastive_temperature,
            margin=settings.contrastive_margin,
        )

    def _learn_whitening(self, is_learned: bool) -> None:
        network = self.network.network
        if isinstance(network, ResNet9) and network.whitening.bias is not None:
            network.whitening.bias.requires_grad_(is_learned)


def _padded(labels: Tensor, hard: Tensor) -> Tensor:
    """Labels (M, C) with none for the hard negatives, which differ from query to query."""
    return torch.cat([labels, labels.new_zeros(hard.shape[1], labels.shape[1])])


def _new_head(
    encoder: ImageEncoder, pupils: Pupils, training: ImageTraining, generator: torch.Generator
) -> nn.Linear | None:
    """The helper's linear head, with small random weights; None where nobody asks for it."""
    if not training.head_weight:
        return None
    width = encoder.module_.features_width
    head = nn.utils.skip_init(nn.Linear, width, pupils.n_classes, bias=False)
    with torch.no_grad():
        spread = 1 / math.sqrt(width)
        drawn = torch.rand(head.weight.shape, generator=generator)
        head.weight.copy_((2 * drawn - 1) * spread)
    return head


def _odds(temperature: float) -> Tensor:
    """Where the sigmoid gives this temperature within its bounds."""
    low, high = TEMPERATURES
    share = min(max((temperature - low) / (high - low), 1e-3), 1 - 1e-3)
    return torch.tensor(math.log(share / (1 - share)))
