"""Meta-training: attention is trained over many small tasks drawn from one labeled set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from attnknn._validation import check_at_least
from attnknn.attention.meta_learned import MetaLearnedAttention, MetaWeights
from attnknn.errors import InvalidInputError, InvalidSettingError
from attnknn.fitting.attention import main_axes
from attnknn.fitting.objective import log_of, softmax_with_prior
from attnknn.memory.vectors import ArrayVectors
from attnknn.training.config import TrainConfig
from attnknn.training.loop import train
from attnknn.training.threads import one_thread_if

MAX_DIM = 128
EPISODES_PER_EPOCH, VALIDATION_EPISODES = 200, 100
TRAINING = TrainConfig(epochs=30, batch_size=4, learning_rate=1e-3, patience=5, warmup=0.1)
SCALAR_LR_SCALE = 10.0  # scalars may move faster than the entries of a projection
ROWS_OF_SPREAD = 2_000


@dataclass(frozen=True)
class Episode:
    """A small task: rows that vote, and rows that are predicted."""

    support: Tensor  # (C, S) rows of the classes
    queries: Tensor  # (C, Q) other rows of the same classes


def meta_train(
    X: ArrayLike,
    y: ArrayLike,
    *,
    n_way: int = 5,
    n_shot: int | Sequence[int] = (1, 5),
    n_queries: int = 10,
    dim: int | None = None,
    validation: float = 0.2,
    training: TrainConfig | None = None,
    random_state: int | None = None,
    verbose: int = 0,
) -> MetaLearnedAttention:
    """Train attention over many small tasks, for new tasks with other classes.

    Each task (episode) has `n_way` classes of the set. `n_shot` rows of each class vote on the
    labels of `n_queries` others, as entries of a memory do, and their log-loss is minimized.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features)
        Embeddings, from the encoder that is used in the new tasks.
    y : array-like of shape (n_rows,)
        Labels. Only classes with enough rows for a task are drawn.
    n_way : int, default=5
        Number of classes of a task.
    n_shot : int or sequence of int, default=(1, 5)
        Rows of each class that vote; of several numbers, each task draws one.
    n_queries : int, default=10
        Rows of each class that are predicted.
    dim : int, default=None
        Size of the projection; None is that of the embeddings, at most 128.
    validation : float, default=0.2
        Share of the classes that are not trained on. Tasks of these classes stop the training.
    training : TrainConfig, default=None
        How to train; an epoch is 200 tasks, and a batch is a number of tasks. None is at most 30
        epochs, batches of 4 and a learning rate of 1e-3.
    random_state : int, default=None
        Seed of the tasks. None draws another one in each call.
    verbose : int, default=0
        1 shows progress on stderr.

    Returns
    -------
    MetaLearnedAttention
        The attention with its weights, for `AttnKNNClassifier(attention=...)`.

    Raises
    ------
    InvalidInputError
        If too few classes have enough rows.

    See Also
    --------
    attnknn.attention.MetaLearnedAttention : The attention that is trained.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from attnknn import meta_train
    >>> from attnknn.training import TrainConfig
    >>> X, y = load_digits(return_X_y=True)
    >>> attention = meta_train(X, y, n_way=3, training=TrainConfig(epochs=1), random_state=0)
    >>> attention.meta_weights_.projection.shape
    (64, 64)
    """
    shots = _checked(n_way, n_shot, n_queries, validation)
    rows, members = _members(X, y, max(shots) + n_queries)
    seed = np.random.default_rng(random_state).integers(2**31)
    generator = torch.Generator().manual_seed(int(seed))
    trained, held_out = _split(members, validation, generator)
    module = EpisodeVote(_axes(rows, dim), _spread(rows))
    tasks = Tasks(members, n_way, shots, n_queries)
    fixed = [tasks.draw(held_out, generator) for _ in range(VALIDATION_EPISODES)]
    vectors = torch.from_numpy(rows)

    def validate() -> float:
        with torch.no_grad():
            return float(torch.stack([module(vectors, episode) for episode in fixed]).mean())

    def loss_of(chosen: Tensor) -> Tensor:
        episodes = [tasks.draw(trained, generator) for _ in range(len(chosen))]
        return torch.stack([module(vectors, episode) for episode in episodes]).mean()

    config = (training or TrainConfig()).filled(TRAINING)
    rate = config.learning_rate
    groups = [
        {"params": [module.change], "lr": rate, "weight_decay": config.weight_decay or 0.0},
        {"params": module.scalars(), "lr": rate * SCALAR_LR_SCALE},
    ]
    with one_thread_if(True):
        train(
            module,
            loss_of,
            validate,
            EPISODES_PER_EPOCH,
            config,
            groups,
            generator,
            title="Meta-training",
            verbose=verbose,
        )
    attention = MetaLearnedAttention()
    attention.meta_weights_ = module.weights()
    return attention


class EpisodeVote(nn.Module):
    """The vote of `MetaLearnedAttention`, with a gradient: its log-loss in one task."""

    def __init__(self, axes: Tensor, spread: float) -> None:
        super().__init__()
        self.unit = spread
        self.axes = axes
        self.change = nn.Parameter(torch.zeros_like(axes))  # decays, so that the axes come back
        self.log_temperature = nn.Parameter(torch.tensor(-2.0))
        self.raw_mixing = nn.Parameter(torch.tensor(0.0))
        self.prior_score = nn.Parameter(torch.tensor(-10.0))

    @property
    def projection(self) -> Tensor:
        """The trained projection (E, D)."""
        return self.axes + self.change

    def scalars(self) -> list[nn.Parameter]:
        """All parameters but the projection."""
        return [self.log_temperature, self.raw_mixing, self.prior_score]

    def forward(self, vectors: Tensor, episode: Episode) -> Tensor:
        """Mean log-loss of the queries of an episode."""
        n_way, n_shot = episode.support.shape
        projection = self.projection.T
        support = vectors[episode.support] @ projection  # (C, S, E)
        mean = support.mean(dim=1, keepdim=True)
        support = support + torch.sigmoid(self.raw_mixing) * (mean - support)
        queries = vectors[episode.queries.flatten()] @ projection  # (B, E)
        entries = support.flatten(0, 1)
        lengths = queries.square().sum(1)[:, None] + entries.square().sum(1)
        squared = lengths - 2 * queries @ entries.T  # (B, C S), by products: differences are large
        scores = -squared / (self.unit * self.log_temperature.exp())
        weights = softmax_with_prior(scores, self.prior_score)
        shares = weights[:, :-1].unflatten(1, (n_way, n_shot)).sum(-1) + weights[:, -1:] / n_way
        own = torch.arange(n_way).repeat_interleave(episode.queries.shape[1])
        return -log_of(shares).gather(1, own[:, None]).mean()

    def weights(self) -> MetaWeights:
        """What was trained, as arrays and numbers."""
        return MetaWeights(
            self.projection.detach().numpy().copy(),
            float(self.unit * self.log_temperature.detach().exp()),
            float(torch.sigmoid(self.raw_mixing.detach())),
            float(self.prior_score.detach()),
        )


@dataclass(frozen=True)
class Tasks:
    """Small tasks that are drawn from the rows of each class."""

    members: list[Tensor]
    n_way: int
    shots: tuple[int, ...]
    n_queries: int

    def draw(self, classes: Tensor, generator: torch.Generator) -> Episode:
        """A task of some of the classes; with fewer than `n_way`, of all of them."""
        order = torch.randperm(len(classes), generator=generator)[: self.n_way]
        shot = self.shots[int(torch.randint(len(self.shots), (), generator=generator))]
        rows = []
        for place in classes[order].tolist():
            of_class = self.members[place]
            drawn = torch.randperm(len(of_class), generator=generator)[: shot + self.n_queries]
            rows.append(of_class[drawn])
        both = torch.stack(rows)
        return Episode(both[:, :shot], both[:, shot:])


def _checked(
    n_way: int, n_shot: int | Sequence[int], n_queries: int, validation: float
) -> tuple[int, ...]:
    check_at_least("n_way", n_way, 2)
    check_at_least("n_queries", n_queries, 1)
    shots = (n_shot,) if isinstance(n_shot, int) else tuple(n_shot)
    if not shots:
        raise InvalidSettingError("`n_shot` must be a number or several, got none.")
    if not 0 < validation < 1:
        raise InvalidSettingError(
            f"`validation` must be a share above 0 and below 1, got {validation!r}."
        )
    return tuple(check_at_least("n_shot", shot, 1) for shot in shots)


def _members(X: ArrayLike, y: ArrayLike, least: int) -> tuple[NDArray[np.float32], list[Tensor]]:
    """The rows in float32, centered, and those of each class that has at least `least`."""
    rows, labels = np.asarray(X, dtype=np.float64), np.asarray(y)
    if rows.ndim != 2 or labels.shape != rows.shape[:1]:
        raise InvalidInputError(
            "`X` must be a matrix of embeddings with a label in `y` for each row, got shapes "
            f"{rows.shape} and {labels.shape}."
        )
    if not np.isfinite(rows).all():
        raise InvalidInputError("`X` must hold finite numbers only; encode rows first.")
    _, codes = np.unique(labels, return_inverse=True)
    members = [np.flatnonzero(codes == code) for code in range(codes.max(initial=-1) + 1)]
    kept = [torch.from_numpy(of_class) for of_class in members if len(of_class) >= least]
    if len(kept) < 4:
        raise InvalidInputError(
            f"Meta-training needs at least 4 classes with {least} rows each (shots and queries), "
            f"got {len(kept)} of {len(members)}. Use fewer `n_shot` or `n_queries`."
        )
    return (rows - rows.mean(axis=0)).astype(np.float32), kept


def _split(
    members: list[Tensor], validation: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Classes to train on and classes to validate on, at least two of each."""
    n_classes = len(members)
    n_held_out = min(max(2, round(validation * n_classes)), n_classes - 2)
    order = torch.randperm(n_classes, generator=generator)
    return order[n_held_out:], order[:n_held_out]


def _axes(rows: NDArray[np.float32], dim: int | None) -> Tensor:
    """The identity, or the first principal axes of the rows, (E, D)."""
    width = rows.shape[1]
    n_axes = min(width, MAX_DIM if dim is None else check_at_least("dim", dim, 1))
    return main_axes(ArrayVectors(rows), n_axes)


def _spread(rows: NDArray[np.float32]) -> float:
    """Typical squared distance between two rows."""
    step = max(1, len(rows) // ROWS_OF_SPREAD)
    spread = 2.0 * float(rows[::step].astype(np.float64).var(axis=0).sum())
    return spread if spread > 0 else 1.0
