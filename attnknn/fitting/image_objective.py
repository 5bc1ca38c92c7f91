"""The objective of an image encoder: the vote of the batch, a linear head and further terms."""

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
from attnknn.fitting.image_voters import HardNegatives, Queue, Voters, share_source
from attnknn.fitting.objective import log_of, softmax_with_prior
from attnknn.records import Integers
from attnknn.training.augmentation import augment, mix
from attnknn.training.config import ATTENTION_ENTROPY, TrainConfig
from attnknn.training.losses import contrastive_loss, entropy, one_hot, soft_calibration_error
from attnknn.training.processes import Processes
from attnknn.vote import class_prior_in_torch, vote_in_torch

if TYPE_CHECKING:
    from attnknn.encoders.image import ImageEncoder

TEMPERATURES = (0.02, 2.0)
MIN_BATCH = 16  # fewer rows neither vote nor give statistics; such a rest is left out of an epoch
ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class Batch:
    """The images of a step: B of them for each of V views, one view after the other."""

    places: Tensor  # (B,) positions of the rows among the trained ones
    images: Tensor  # (V · B, channels, height, width)
    labels: Tensor  # (V · B, C) class probabilities
    sources: Tensor  # (V · B, S) what the images were made of, see `Voters`
    n_views: int


@dataclass(frozen=True)
class ImageData:
    """The rows of a training."""

    rows: ImageRows  # where images are read from
    codes: Integers  # (n,) of all rows, as `groups`, where -1 is none
    groups: Integers
    trained: Integers  # positions of the training rows
    validation: Integers
    n_classes: int

    @property
    def sources(self) -> Integers:
        """(n,) a number that rows of one group share, and no others."""
        first_free = int(self.groups.max(initial=-1)) + 1
        return np.where(self.groups >= 0, self.groups, first_free + np.arange(len(self.groups)))


class ImageObjective(nn.Module):
    """Everything that is trained, and the loss of a batch of it."""

    def __init__(
        self,
        encoder: ImageEncoder,
        data: ImageData,
        settings: ImageTraining,
        config: TrainConfig,
        generator: torch.Generator,
        processes: Processes,
    ) -> None:
        super().__init__()
        self.network = encoder.module_
        self.head: nn.Linear | None = None
        if settings.loss.head_weight:
            self.head = _new_head(encoder.module_.features_width, data.n_classes, generator)
        self.temperature_odds = nn.Parameter(_odds(settings.loss.temperature))
        self.prior_score = nn.Parameter(torch.tensor(float(settings.loss.prior_score)))
        self.encoder, self.data, self.settings, self.config = encoder, data, settings, config
        self.generator, self.processes = generator, processes
        self.queue = Queue(settings.voters.queue_size)
        self.hard = HardNegatives(settings.voters.n_negatives)
        self.epoch, self.seed = 0, int(generator.initial_seed()) % (1 << 31)
        self.drawn = torch.arange(self.rows_per_epoch)
        self.sums: dict[str, Tensor] = {}  # of terms over the rows of this epoch
        self.remaining: Iterator[Tensor] | None = None  # images of this epoch's batches, read ahead
        self.codes = torch.from_numpy(data.codes)
        self.sources = torch.from_numpy(data.sources)
        self.trained = torch.from_numpy(data.trained)
        counts = np.bincount(data.codes[data.trained], minlength=data.n_classes)
        self.counts = torch.from_numpy(counts).float()
        self._train_whitening(settings.whitening_epochs > 0)

    @property
    def device(self) -> torch.device:
        return self.network.mean.device

    @property
    def rows_per_epoch(self) -> int:
        """All training rows, or all but a rest that is too small for a batch."""
        n_rows, size = len(self.data.trained), self.config.batch_size
        rest = n_rows % size
        return n_rows - rest if rest < MIN_BATCH and n_rows > size else n_rows

    @property
    def temperature(self) -> Tensor:
        low, high = TEMPERATURES
        return low + (high - low) * torch.sigmoid(self.temperature_odds)

    def begin(self, epoch: int) -> None:
        """Prepare an epoch: search hard negatives again, draw the rows."""
        voters, data = self.settings.voters, self.data
        self.epoch, self.sums = epoch, {}
        self._train_whitening(epoch < self.settings.whitening_epochs)
        needs_search = voters.negatives_weight > 0 or voters.boundary_share > 0
        if needs_search and epoch % voters.refresh_every == 0:
            embeddings = self.embeddings_of(data.trained).cpu().numpy()
            labels, groups = data.codes[data.trained], data.groups[data.trained]
            self.hard.refresh(embeddings, labels, groups, data.n_classes)
        self.drawn = self.processes.from_first(self._draw())

    def read_ahead(self, batches: Sequence[Tensor]) -> None:
        """Begin to read the images of these batches, where the encoder has workers for it."""
        if self.encoder.computing.workers:
            rows = [self.trained[self.drawn[positions]].numpy() for positions in batches]
            self.remaining = self.encoder.read(self.data.rows, rows)

    def _draw(self) -> Tensor:
        """Positions of the rows of this epoch: a random choice, some replaced by boundary rows."""
        order = torch.randperm(len(self.trained), generator=self.generator)[: self.rows_per_epoch]
        n_boundary = int(self.settings.voters.boundary_share * len(order))
        if n_boundary:
            boundary = self.hard.draw_boundary(n_boundary, self.generator)
            if boundary is not None:
                order = torch.cat([order[n_boundary:], boundary])
        return order

    def loss(self, positions: Tensor) -> Tensor:
        """Mean loss of the rows drawn at these positions, all terms, with a gradient."""
        terms = self.settings.loss
        self.train()
        batch = self._batch(self.drawn[positions])
        features = self.network.features(batch.images)
        with torch.autocast(self.device.type, enabled=False):
            features = features.float()
            embeddings = self.network.embed(features)
            loss = embeddings.new_zeros(())
            if self.head is not None:
                logits = self.head(features) * terms.head_scale
                smoothing = self.config.label_smoothing
                by_head = F.cross_entropy(logits, batch.labels, label_smoothing=smoothing)
                loss = loss + self._noted("head", terms.head_weight * by_head, batch)
            loss = loss + self._vote_terms(batch, embeddings)
            if terms.contrastive_weight:
                contrast = terms.contrastive_weight * self._contrast(batch, embeddings)
                loss = loss + self._noted("contrastive", contrast, batch)
        return loss

    def components(self) -> dict[str, float]:
        """Terms of the loss, by their weights, and the attention entropy: means of this epoch."""
        sums = {name: self.processes.total(value) for name, value in self.sums.items()}
        n_rows = sums.pop("rows") if sums else 1
        return {name: float(value / n_rows) for name, value in sums.items()}

    def _noted(self, name: str, term: Tensor, batch: Batch) -> Tensor:
        """The same term, added to the sums of this epoch."""
        added = term.detach().double() * len(batch.places)
        self.sums[name] = self.sums[name] + added if name in self.sums else added
        return term

    def validate(self) -> float:
        """Log-loss of the validation rows by the vote of some training rows, not augmented."""
        voters, data = self.settings.voters, self.data
        n_entries = min(voters.validation_entries, len(data.trained))
        chosen = data.trained[np.linspace(0, len(data.trained) - 1, n_entries).astype(int)]
        entries = self.embeddings_of(chosen)
        labels = one_hot(self.codes[chosen], data.n_classes).to(self.device)
        # The prior weighs against as many voters as in training.
        log_ratio = math.log((self.config.batch_size + voters.queue_size) / n_entries)
        prior = class_prior_in_torch(self.counts).to(self.device)
        total = 0.0
        for part in np.array_split(data.validation, -(-len(data.validation) // ROWS_AT_ONCE)):
            with torch.no_grad():
                scores = self._scores(self.embeddings_of(part), entries) + log_ratio
                is_out = share_source(self.sources[part][:, None], self.sources[chosen][:, None])
                scores = scores.masked_fill(is_out.to(self.device), -torch.inf)
                weights = softmax_with_prior(scores, self.prior_score)
                shares = vote_in_torch(labels, weights[:, :-1], weights[:, -1], prior)
                own = one_hot(self.codes[part], data.n_classes).to(self.device)
                total -= (own * log_of(shares)).sum(dim=1).sum().item()
        return total / len(data.validation)

    def embeddings_of(self, rows: Integers) -> Tensor:
        """Embeddings (n, D) of rows, without augmentation and gradient."""
        self.eval()
        size = self.encoder.computing.batch_size
        with torch.no_grad():
            parts = [
                self.network(self._images(rows[start : start + size]))
                for start in range(0, len(rows), size)
            ]
        return torch.cat(parts)

    def _batch(self, places: Tensor) -> Batch:
        settings = self.settings
        rows = self.trained[places]
        images = self._images(rows.numpy()) if self.remaining is None else next(self.remaining)
        n_views = 2 if settings.loss.contrastive_weight else 1
        views = self._windowed([self._augmented(images, rows) for _ in range(n_views)])
        labels = one_hot(self.codes[rows], self.data.n_classes).to(self.device)
        # Views are mixed side by side, so that both are mixed of the same rows in the same places.
        mixed = mix(torch.cat(views, dim=1), labels, settings.mixing, self.generator)
        sources = self.sources[rows][:, None].to(self.device)
        if settings.mixing.mixup or settings.mixing.cutmix:
            sources = torch.cat([sources, sources[mixed.partners]], dim=1)
        seen = torch.cat(mixed.images.chunk(n_views, dim=1))
        is_channels_last = settings.precision.is_channels_last
        layout = torch.channels_last if is_channels_last else torch.contiguous_format
        return Batch(
            places,
            seen.contiguous(memory_format=layout),
            mixed.labels.repeat(n_views, 1),
            sources.repeat(n_views, 1),
            n_views,
        )

    def _augmented(self, images: Tensor, rows: Tensor) -> Tensor:
        recipe = self.settings.augmentation
        return augment(images, recipe, self.generator, rows=rows, epoch=self.epoch, seed=self.seed)

    def _windowed(self, views: list[Tensor]) -> list[Tensor]:
        """The views, or in the first epochs a window of each, in the same place for all."""
        side, n_epochs = self.settings.window or (0, 0)
        if self.epoch >= n_epochs:
            return views
        height, width = views[0].shape[2:]
        high, wide = min(side, height), min(side, width)
        top = int(torch.randint(height - high + 1, (), generator=self.generator))
        left = int(torch.randint(width - wide + 1, (), generator=self.generator))
        return [view[:, :, top : top + high, left : left + wide] for view in views]

    def _images(self, rows: NDArray[np.int64]) -> Tensor:
        return next(self.encoder.read(self.data.rows, [rows], workers=0))

    def _vote_terms(self, batch: Batch, embeddings: Tensor) -> Tensor:
        """The terms of the loss that come from the vote, by their weights."""
        terms, gather = self.settings.loss, self.processes.gather
        own = Voters(embeddings, batch.labels, batch.sources)
        everyone = Voters(gather(own.embeddings), gather(own.labels), gather(own.sources))
        weights, shares = self._vote(batch, own, self.queue.beside(everyone))
        self.queue.push(everyone)
        by_vote = -terms.vote_weight * (batch.labels * log_of(shares)).sum(dim=1).mean()
        loss = self._noted("vote", by_vote, batch)
        self._noted("rows", torch.ones_like(by_vote), batch)
        self._noted(ATTENTION_ENTROPY, entropy(weights.detach()), batch)
        if terms.entropy_weight:
            loss = loss + self._noted("entropy", -terms.entropy_weight * entropy(weights), batch)
        if terms.calibration_weight:
            error = terms.calibration_weight * soft_calibration_error(shares, batch.labels)
            loss = loss + self._noted("calibration", error, batch)
        return loss

    def _vote(self, batch: Batch, own: Voters, voters: Voters) -> tuple[Tensor, Tensor]:
        """Weights (B, M + 1) and shares (B, C) by all voters that share no source with a row."""
        scores = self._scores(own.embeddings, voters.embeddings)
        scores = scores.masked_fill(share_source(own.sources, voters.sources), -torch.inf)
        prior = class_prior_in_torch(self.counts.to(self.device), batch.labels)
        if not self.settings.voters.negatives_weight:
            weights = softmax_with_prior(scores, self.prior_score)
            return weights, vote_in_torch(voters.labels, weights[:, :-1], weights[:, -1], prior)
        hard, labels = self._negatives(batch, own)
        weights = softmax_with_prior(torch.cat([scores, hard], dim=1), self.prior_score)
        padded = F.pad(voters.labels, (0, 0, 0, hard.shape[1]))  # negatives differ by query
        shares = vote_in_torch(padded, weights[:, :-1], weights[:, -1], prior)
        by_hard = weights[:, scores.shape[1] : -1]
        return weights, shares + torch.einsum("bm,bmc->bc", by_hard, labels)

    def _scores(self, queries: Tensor, entries: Tensor) -> Tensor:
        """−d²/temperature (B, M) of unit vectors (B, D) and (M, D)."""
        return (2 * (queries @ entries.T) - 2) / self.temperature

    def _negatives(self, batch: Batch, own: Voters) -> tuple[Tensor, Tensor]:
        """Scores (B, M) and labels (B, M, C) of the hard negatives of each image."""
        hard, n_views = self.hard, batch.n_views
        assert hard.embeddings is not None
        places = hard.negatives[batch.places]  # (B, M)
        rows = self.trained[places]
        entries = hard.embeddings[places].to(self.device).repeat(n_views, 1, 1)
        cosines = torch.einsum("bd,bmd->bm", own.embeddings, entries)
        log_weight = math.log(self.settings.voters.negatives_weight)
        scores = (2 * cosines - 2) / self.temperature + log_weight
        sources = self.sources[rows].repeat(n_views, 1).to(self.device)
        is_out = (sources[:, :, None] == own.sources[:, None]).any(dim=2)
        is_out |= ~hard.is_negative[batch.places].repeat(n_views, 1).to(self.device)
        labels = one_hot(self.codes[rows], self.data.n_classes).to(self.device)
        return scores.masked_fill(is_out, -torch.inf), labels.repeat(n_views, 1, 1)

    def _contrast(self, batch: Batch, embeddings: Tensor) -> Tensor:
        terms, gather = self.settings.loss, self.processes.gather
        first, second = embeddings.chunk(2)
        return contrastive_loss(
            gather(first),
            gather(second),
            gather(batch.labels[: len(first)]),
            temperature=terms.contrastive_temperature,
            margin=terms.contrastive_margin,
        )

    def _train_whitening(self, is_trained: bool) -> None:
        network = self.network.network
        if isinstance(network, ResNet9) and network.whitening.bias is not None:
            network.whitening.bias.requires_grad_(is_trained)


def _new_head(width: int, n_classes: int, generator: torch.Generator) -> nn.Linear:
    """A linear head with small random weights."""
    head: nn.Linear = nn.utils.skip_init(nn.Linear, width, n_classes, bias=False)
    with torch.no_grad():
        drawn = torch.rand(head.weight.shape, generator=generator)
        head.weight.copy_((2 * drawn - 1) * (1 / math.sqrt(width)))
    return head


def _odds(temperature: float) -> Tensor:
    """Where the sigmoid gives this temperature within its bounds."""
    low, high = TEMPERATURES
    share = min(max((temperature - low) / (high - low), 1e-3), 1 - 1e-3)
    return torch.tensor(math.log(share / (1 - share)))
