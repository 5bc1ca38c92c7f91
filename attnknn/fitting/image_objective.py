"""The objective of an image encoder: the vote of other images, a linear head, further terms."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from attnknn.encoders.image.building import rows_per_batch
from attnknn.encoders.image.networks import ResNet9
from attnknn.encoders.image.rows import ImageRows
from attnknn.encoders.image.training import ImageTraining
from attnknn.fitting.image_voters import (
    Bank,
    HardNegatives,
    MomentumEncoder,
    Queue,
    Voters,
    share_source,
)
from attnknn.fitting.joint import N_NEIGHBORS, JointVote, nearest
from attnknn.fitting.objective import (
    further_terms,
    log_of,
    smoothed_loss,
    softmax_with_prior,
)
from attnknn.records import Integers
from attnknn.training.augmentation import augment, mix
from attnknn.training.config import ATTENTION_ENTROPY, LossTerms, TrainConfig
from attnknn.training.losses import contrastive_loss, entropy, one_hot
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
class Negatives:
    """The hard negatives of each of B images."""

    embeddings: Tensor  # (B, M, D)
    labels: Tensor  # (B, M, C)
    mask: Tensor  # (B, M)
    log_weight: float  # added to their scores


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
        joint: JointVote | None = None,
    ) -> None:
        super().__init__()
        self.network, self.joint = encoder.module_, joint
        self.head: nn.Linear | None = None
        if settings.loss.head_weight:
            self.head = _new_head(encoder.module_.features_width, data.n_classes, generator)
        self.temperature_odds = nn.Parameter(_odds(settings.loss.temperature))
        self.prior_score = nn.Parameter(torch.tensor(float(settings.loss.prior_score)))
        self.encoder, self.data, self.settings, self.config = encoder, data, settings, config
        self.generator, self.processes = generator, processes
        self.terms: list[LossTerms] = [settings.loss]
        if joint is not None:
            joint.generator = generator  # which is a part of checkpoints
            self.terms.append(joint.terms)
        voters = settings.voters
        self.k_train = voters.k_train
        if voters.k_train is None and (voters.bank or joint is not None):
            self.k_train = N_NEIGHBORS
        self.queue = Queue(0 if voters.bank else voters.queue_size)
        self.momentum = MomentumEncoder(self.network, voters.momentum) if voters.momentum else None
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
        self.bank: Bank | None = None
        if voters.bank:
            labels = one_hot(self.codes[self.trained], data.n_classes)
            sources = self.sources[self.trained][:, None]
            self.bank = Bank(labels, sources, voters.refresh_steps)
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
        if self.bank is not None and self.bank.refresh_steps is None:
            self.bank.refresh(self.embeddings_of(data.trained))

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
        if self.momentum is not None:
            self.momentum.follow(self.network)
        if self.bank is not None and self.bank.is_due:
            self.bank.refresh(self.embeddings_of(self.data.trained))
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
        """Log-loss of the validation rows by the vote of some training rows, not augmented.

        A head that is trained without a vote is validated by its own log-loss.
        """
        if not self.settings.loss.vote_weight and self.head is not None:
            return self._head_loss(self.data.validation)
        voters, data = self.settings.voters, self.data
        n_entries = min(voters.validation_entries, len(data.trained))
        chosen = data.trained[np.linspace(0, len(data.trained) - 1, n_entries).astype(int)]
        entries = self._voters_of(chosen)
        # The prior weighs against as many voters as in training.
        log_ratio = math.log((self.config.batch_size + voters.queue_size) / n_entries)
        prior = class_prior_in_torch(self.counts).to(self.device)
        total = 0.0
        for part in np.array_split(data.validation, -(-len(data.validation) // ROWS_AT_ONCE)):
            with torch.no_grad():
                own = self._voters_of(part)
                if self.k_train is None:
                    scores = self._scores(own, entries) + log_ratio
                    weights = softmax_with_prior(scores, self.prior_score)
                    shares = vote_in_torch(entries.labels, weights[:, :-1], weights[:, -1], prior)
                else:
                    _, shares = self._vote_of_nearest(own, entries, prior)
                total -= (own.labels * log_of(shares)).sum(dim=1).sum().item()
        return total / len(data.validation)

    def _head_loss(self, rows: Integers) -> float:
        """Log-loss of rows by the head, not augmented."""
        assert self.head is not None
        self.eval()
        total, size = 0.0, self.encoder.computing.batch_size
        with torch.no_grad():
            for start in range(0, len(rows), size):
                part = rows[start : start + size]
                logits = self.head(self.network.features(self._images(part)).float())
                own = self.codes[part].to(self.device)
                scaled = logits * self.settings.loss.head_scale
                total += F.cross_entropy(scaled, own, reduction="sum").item()
        return total / len(rows)

    def _voters_of(self, rows: Integers) -> Voters:
        """Rows as voters, without augmentation and gradient."""
        labels = one_hot(self.codes[rows], self.data.n_classes).to(self.device)
        sources = self.sources[rows][:, None].to(self.device)
        return Voters(self.embeddings_of(rows, self.network), labels, sources)

    def embeddings_of(
        self, rows: Integers, network: Callable[[Tensor], Tensor] | None = None
    ) -> Tensor:
        """Embeddings (n, D) of rows, without augmentation and gradient.

        `network` is by default the momentum encoder, if there is one.
        """
        self.eval()
        network = network or (self.network if self.momentum is None else self.momentum.network)
        size = rows_per_batch(self.encoder)
        with torch.no_grad():
            parts = [
                network(self._images(rows[start : start + size]))
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
        settings, gather = self.settings.loss, self.processes.gather
        own = Voters(embeddings, batch.labels, batch.sources)
        if self.bank is not None:
            weights, shares = self._vote(batch, own, self.bank.voters)
            self._update_bank(batch, embeddings)
        else:
            everyone = Voters(gather(own.embeddings), gather(own.labels), gather(own.sources))
            weights, shares = self._vote(batch, own, self.queue.beside(everyone))
            self.queue.push(replace(everyone, embeddings=gather(self._keys(batch, embeddings))))
        logs = log_of(shares)
        losses = -(batch.labels * logs).sum(dim=1)
        by_vote = settings.vote_weight * smoothed_loss(losses, logs, settings.vote_label_smoothing)
        loss = self._noted("vote", by_vote, batch)
        self._noted("rows", torch.ones_like(by_vote), batch)
        self._noted(ATTENTION_ENTROPY, entropy(weights.detach()), batch)
        for terms in self.terms:
            further = further_terms(terms, weights, shares, losses, batch.labels)
            for name, term in further.items():
                loss = loss + self._noted(name, term, batch)
        return loss

    def _keys(self, batch: Batch, embeddings: Tensor) -> Tensor:
        """The embeddings (V · B, D) of the batch that queue and bank keep."""
        if self.momentum is None:
            return embeddings
        with torch.no_grad():
            return self.momentum.network(batch.images).float()

    def _update_bank(self, batch: Batch, embeddings: Tensor) -> None:
        """Replace the embeddings of the batch, by its first view, unless images are mixed."""
        assert self.bank is not None
        self.bank.n_steps += 1
        if batch.sources.shape[1] > 1:
            return
        n_rows, gather = len(batch.places), self.processes.gather
        keys = self._keys(batch, embeddings)[:n_rows]
        self.bank.replace(gather(batch.places.to(self.device)), gather(keys.detach()))

    def _vote(self, batch: Batch, own: Voters, voters: Voters) -> tuple[Tensor, Tensor]:
        """Weights (B, K + 1) and shares (B, C) by voters that share no source with a row.

        All of them vote or the `k_train` nearest, and hard negatives in addition.
        """
        prior = class_prior_in_torch(self.counts.to(self.device), batch.labels)
        negatives = None
        if self.settings.voters.negatives_weight:
            negatives = self._negatives(batch, own)
        if self.k_train is not None:
            return self._vote_of_nearest(own, voters, prior, negatives)
        scores = self._scores(own, voters)
        if negatives is None:
            weights = softmax_with_prior(scores, self.prior_score)
            return weights, vote_in_torch(voters.labels, weights[:, :-1], weights[:, -1], prior)
        cosines = torch.einsum("bd,bmd->bm", own.embeddings, negatives.embeddings)
        hard = (2 * cosines - 2) / self.temperature + negatives.log_weight
        hard = hard.masked_fill(~negatives.mask, -torch.inf)
        weights = softmax_with_prior(torch.cat([scores, hard], dim=1), self.prior_score)
        padded = F.pad(voters.labels, (0, 0, 0, hard.shape[1]))  # negatives differ by query
        shares = vote_in_torch(padded, weights[:, :-1], weights[:, -1], prior)
        by_hard = weights[:, scores.shape[1] : -1]
        return weights, shares + torch.einsum("bm,bmc->bc", by_hard, negatives.labels)

    def _vote_of_nearest(
        self, own: Voters, voters: Voters, prior: Tensor, negatives: Negatives | None = None
    ) -> tuple[Tensor, Tensor]:
        """The same by the nearest voters, and by joint attention if there is one."""
        assert self.k_train is not None
        with torch.no_grad():
            places, mask = nearest(self._scores(own, voters), self.k_train)
        entries, labels = voters.embeddings, voters.labels
        log_weight = torch.zeros(mask.shape, device=self.device)
        if negatives is not None:
            n_queries, n_more = negatives.mask.shape
            more = len(entries) + torch.arange(n_queries * n_more, device=self.device)
            places = torch.cat([places, more.view(n_queries, n_more)], dim=1)
            mask = torch.cat([mask, negatives.mask], dim=1)
            log_weight = F.pad(log_weight, (0, n_more), value=negatives.log_weight)
            entries = torch.cat([entries, negatives.embeddings.flatten(0, 1)])
            labels = torch.cat([labels, negatives.labels.flatten(0, 1)])
        if self.joint is None:
            cosines = torch.einsum("bd,bkd->bk", own.embeddings, entries[places])
            scores = (2 * cosines - 2) / self.temperature + log_weight
            weights = softmax_with_prior(scores.masked_fill(~mask, -torch.inf), self.prior_score)
        else:
            codes = labels.argmax(dim=1)  # an image mixed of two counts for the larger part
            weights = self.joint.weigh(own.embeddings, entries, places, mask, codes, log_weight)
        return weights, vote_in_torch(labels[places], weights[:, :-1], weights[:, -1], prior)

    def _scores(self, own: Voters, voters: Voters) -> Tensor:
        """−d²/temperature (B, M) of unit vectors; −inf for voters that share a source."""
        scores = (2 * (own.embeddings @ voters.embeddings.T) - 2) / self.temperature
        return scores.masked_fill(share_source(own.sources, voters.sources), -torch.inf)

    def _negatives(self, batch: Batch, own: Voters) -> Negatives:
        """The hard negatives of each image."""
        hard, n_views = self.hard, batch.n_views
        assert hard.embeddings is not None
        places = hard.negatives[batch.places]  # (B, M)
        rows = self.trained[places]
        entries = hard.embeddings[places].to(self.device).repeat(n_views, 1, 1)
        sources = self.sources[rows].repeat(n_views, 1).to(self.device)
        is_out = (sources[:, :, None] == own.sources[:, None]).any(dim=2)
        is_out |= ~hard.is_negative[batch.places].repeat(n_views, 1).to(self.device)
        labels = one_hot(self.codes[rows], self.data.n_classes).to(self.device)
        log_weight = math.log(self.settings.voters.negatives_weight)
        return Negatives(entries, labels.repeat(n_views, 1, 1), ~is_out, log_weight)

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
