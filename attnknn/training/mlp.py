"""Multilayer perceptrons of several folds, trained together, each without the rows of its fold."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from attnknn._stored import Arrays, state_arrays
from attnknn.records import Floats, Integers
from attnknn.training.schedules import make_schedule
from attnknn.training.terminal import track
from attnknn.training.threads import one_thread_if

N_FREQUENCIES, FREQUENCY_SCALE = 8, 0.5  # of the periodic features of a column
COLUMN_DIM = 4  # numbers that the periodic features of a column become
N_LAYERS = 2
WEIGHT_DECAY = 0.02
BETAS = (0.9, 0.95)
WARMUP = 0.1  # share of the steps
MIN_BATCH, MIN_STEPS = 32, 8  # rows of a batch, and batches of an epoch
EPOCHS_BETWEEN_LOOKS = 2  # at the rows left out


@dataclass(frozen=True)
class MLPSettings:
    """Size and training of the networks."""

    hidden_size: int = 256
    max_epochs: int = 40
    batch_size: int = 256
    learning_rate: float = 4e-3
    dropout: float = 0.15


class FoldMLPs(nn.Module):
    """One network for each of F folds, computed together.

    Columns with many values also enter as periodic features cos(frequency · x + phase), mixed
    linearly for each column (Gorishniy et al., 2022): plain networks cannot fit the steep functions
    of single columns that are usual in tables.

    Rows (F, B, D), columns with many values first, give scores (F, B, C).
    """

    def __init__(
        self, n_folds: int, n_periodic: int, n_columns: int, n_classes: int, hidden_size: int
    ) -> None:
        super().__init__()
        self.n_periodic = n_periodic
        self.frequency = nn.Parameter(torch.zeros(n_folds, n_periodic, N_FREQUENCIES))
        self.phase = nn.Parameter(torch.zeros(n_folds, n_periodic, N_FREQUENCIES))
        shape = n_folds, n_periodic, N_FREQUENCIES, COLUMN_DIM
        self.column = nn.Parameter(torch.zeros(shape))
        first = n_columns + n_periodic * COLUMN_DIM
        sizes = [first, *[hidden_size] * N_LAYERS, n_classes]
        pairs = list(itertools.pairwise(sizes))
        self.weights = nn.ParameterList(torch.zeros(n_folds, a, b) for a, b in pairs)
        self.biases = nn.ParameterList(torch.zeros(n_folds, 1, b) for _, b in pairs)

    @torch.no_grad()
    def initialize(self, offset: Tensor, generator: torch.Generator) -> None:
        """Draw the weights; the first scores of all rows are `offset` (C,)."""
        self.frequency.normal_(std=FREQUENCY_SCALE, generator=generator)
        self.phase.uniform_(0, 2 * math.pi, generator=generator)
        self.column.normal_(std=N_FREQUENCIES**-0.5, generator=generator)
        for weight in list(self.weights)[:-1]:
            weight.normal_(std=math.sqrt(2 / weight.shape[1]), generator=generator)
        self.biases[-1].copy_(offset.expand_as(self.biases[-1]))

    def forward(self, rows: Tensor, keep: list[Tensor] | None = None) -> Tensor:
        """Scores; `keep` (F, B, hidden) scales the hidden units of each layer, for dropout."""
        periodic = rows[..., : self.n_periodic, None]  # (F, B, P, 1)
        waves = torch.cos(periodic * self.frequency[:, None] + self.phase[:, None])
        columns = torch.einsum("fbpq,fpqe->fbpe", waves, self.column).flatten(2)
        hidden = torch.cat([rows, columns], dim=-1)
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            hidden = torch.baddbmm(bias, hidden, weight)
            if layer < last:
                hidden = F.silu(hidden)
                hidden = hidden if keep is None else hidden * keep[layer]
        return hidden


def train_fold_mlps(
    rows: NDArray[np.float32],
    n_periodic: int,
    labels: Integers,
    sample_weight: Floats,
    folds: Integers,
    n_folds: int,
    settings: MLPSettings,
    random_state: int,
) -> Arrays:
    """State of networks that are trained on all rows but those of one fold each.

    The epoch with the lowest log-loss of the rows left out is kept, the same one for all folds.

    `rows` (N, D): scaled, columns with many values first; `labels` (N,): codes of C classes, each
    of which has rows; `folds` (N,): the fold of each row.
    """
    with one_thread_if(True):  # the matrices of a step are small
        training = _Training(rows, labels, sample_weight, folds, n_folds, settings, random_state)
        return training.run(n_periodic)


class _Training:
    """The data of one training."""

    def __init__(
        self,
        rows: NDArray[np.float32],
        labels: Integers,
        sample_weight: Floats,
        folds: Integers,
        n_folds: int,
        settings: MLPSettings,
        random_state: int,
    ) -> None:
        self.rows, self.labels = torch.from_numpy(rows), torch.from_numpy(labels)
        weights = torch.from_numpy(sample_weight / sample_weight.mean())
        self.sample_weight, self.settings = weights.float(), settings
        self.generator = torch.Generator().manual_seed(random_state)
        self.kept = [torch.from_numpy(np.flatnonzero(folds != f)) for f in range(n_folds)]
        self.left_out = [torch.from_numpy(np.flatnonzero(folds == f)) for f in range(n_folds)]
        # A fold that has all rows leaves none to train on: its network stays as it is.
        self.is_trained = torch.tensor([len(kept) > 0 for kept in self.kept])
        fewest = min((len(kept) for kept in self.kept if len(kept)), default=1)
        self.batch_size = min(settings.batch_size, max(MIN_BATCH, fewest // MIN_STEPS), fewest)
        self.n_steps = fewest // self.batch_size
        counts = np.bincount(labels, sample_weight) + 1
        self.offset = torch.from_numpy(np.log(counts / counts.sum())).float()

    def run(self, n_periodic: int) -> Arrays:
        """Train, and return the state of the best epoch."""
        settings, n_folds = self.settings, len(self.kept)
        sizes = n_folds, n_periodic, self.rows.shape[1], len(self.offset)
        networks = FoldMLPs(*sizes, settings.hidden_size)
        networks.initialize(self.offset, self.generator)
        optimizer = torch.optim.AdamW(
            networks.parameters(),
            lr=settings.learning_rate,
            weight_decay=WEIGHT_DECAY,
            betas=BETAS,
            fused=True,
        )
        n_steps = settings.max_epochs * self.n_steps
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, make_schedule("cosine", n_steps, WARMUP)
        )
        best_loss, best = math.inf, state_arrays(networks)
        for epoch in track(range(1, settings.max_epochs + 1), "Training networks"):
            for chosen in self._batches():
                self._step(networks, optimizer, chosen)
                schedule.step()
            if epoch % EPOCHS_BETWEEN_LOOKS == 0 or epoch == settings.max_epochs:
                loss = self._left_out_loss(networks)
                if loss < best_loss:
                    best_loss = loss
                    best = {key: array.copy() for key, array in state_arrays(networks).items()}
        return best

    def _batches(self) -> Tensor:
        """The rows (steps, F, B) of the batches of an epoch."""
        n_used, orders = self.n_steps * self.batch_size, []
        for kept in self.kept:
            order = kept[torch.randperm(len(kept), generator=self.generator)][:n_used]
            orders.append(F.pad(order, (0, n_used - len(order))))
        used = torch.stack(orders)
        return used.unflatten(1, (self.n_steps, self.batch_size)).transpose(0, 1)

    def _step(self, networks: FoldMLPs, optimizer: torch.optim.Optimizer, chosen: Tensor) -> None:
        share = 1.0 - self.settings.dropout
        shape = (*chosen.shape, self.settings.hidden_size)
        drawn = [torch.rand(shape, generator=self.generator) for _ in range(N_LAYERS)]
        scores = networks(self.rows[chosen], [(kept < share) / share for kept in drawn])
        losses = F.cross_entropy(
            scores.flatten(0, 1), self.labels[chosen].flatten(), reduction="none"
        )
        # The sum over folds of the mean over a batch: folds share no weights.
        weights = self.sample_weight[chosen] * self.is_trained[:, None]
        loss = losses @ weights.flatten() / self.batch_size
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    @torch.no_grad()
    def _left_out_loss(self, networks: FoldMLPs) -> float:
        """Total log-loss of all rows, each by the network of its fold."""
        most = max(len(rows) for rows in self.left_out)
        padded = [F.pad(rows, (0, most - len(rows))) for rows in self.left_out]
        scores = networks(self.rows[torch.stack(padded)])  # (F, B, C)
        loss = 0.0
        for of_fold, rows in zip(scores, self.left_out, strict=True):
            losses = F.cross_entropy(of_fold[: len(rows)], self.labels[rows], reduction="none")
            loss += float(losses @ self.sample_weight[rows])
        return loss
