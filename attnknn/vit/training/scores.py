"""How well a model classifies images: every image counts once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from attnknn.training.devices import Precision, autocast
from attnknn.training.threads import read_ahead
from attnknn.vit.training.pixels import Images, Pixels

Criterion = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Scores:
    """Mean loss and shares of images whose class is the first, or among the first five.

    >>> scores = Scores()
    >>> scores.add(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1]), 0.5)
    >>> scores.loss, scores.top1
    (0.5, 0.5)
    """

    total_loss: float = 0.0
    n_first: int = 0
    n_among_five: int = 0
    n_rows: int = 0
    answers: list[Tensor] = field(default_factory=list, repr=False)

    def add(self, outputs: Tensor, classes: Tensor, loss: float) -> None:
        """Count the rows of a batch whose mean loss is `loss`."""
        best = outputs.detach().topk(min(5, outputs.shape[1])).indices
        is_right = best == classes[:, None]
        self.total_loss += loss * len(classes)
        self.n_first += int(is_right[:, 0].sum())
        self.n_among_five += int(is_right.any(1).sum())
        self.n_rows += len(classes)

    @property
    def loss(self) -> float:
        return self.total_loss / max(self.n_rows, 1)

    @property
    def top1(self) -> float:
        return self.n_first / max(self.n_rows, 1)

    @property
    def top5(self) -> float:
        return self.n_among_five / max(self.n_rows, 1)


def criterion_of(name: str, label_smoothing: float = 0.0) -> Criterion:
    """The mean loss of outputs (B, C) for classes (B,)."""

    def squares(outputs: Tensor, classes: Tensor) -> Tensor:
        goals = F.one_hot(classes, outputs.shape[1]).to(outputs.dtype)
        goals = (1 - label_smoothing) * goals + label_smoothing / outputs.shape[1]
        return F.mse_loss(outputs, goals)

    def cross_entropy(outputs: Tensor, classes: Tensor) -> Tensor:
        return F.cross_entropy(outputs, classes, label_smoothing=label_smoothing)

    return squares if name == "MSE" else cross_entropy


@torch.no_grad()
def score(
    model: nn.Module,
    images: Images,
    classes: Tensor | NDArray[np.int64],
    pixels: Pixels,
    *,
    criterion: str = "CrossEntropy",
    rows: Tensor | None = None,
    batch_size: int = 256,
    precision: Precision | None = None,
    seed: int = 0,
    workers: int = 0,
    keeps_answers: bool = False,
) -> Scores:
    """The scores of `model` in evaluation on `rows`, all if None; the model is left as it was.

    Parameters
    ----------
    seed
        Of noise on the pixels, if there is any: the same in every call.
    keeps_answers
        Whether the outputs are kept, a tensor for each batch.
    """
    device = next(model.parameters()).device
    precision = precision or Precision()
    loss_of, scores, classes = criterion_of(criterion), Scores(), torch.as_tensor(classes)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.arange(len(images)) if rows is None else rows
    was_training = model.training
    model.eval()
    try:
        for part, shown in _batches(images, rows, batch_size, workers):
            with autocast(precision, device):
                outputs = model(pixels.seen(shown.to(device), generator)).float()
            known = classes[part].to(device)
            scores.add(outputs, known, loss_of(outputs, known).item())
            if keeps_answers:
                scores.answers.append(outputs.cpu())
    finally:
        model.train(was_training)
    return scores


def _batches(
    images: Images, rows: Tensor, batch_size: int, workers: int
) -> Iterator[tuple[Tensor, Tensor]]:
    parts = rows.split(batch_size)
    shown = read_ahead(lambda part: read(images, part), parts, workers)
    yield from zip(parts, shown, strict=True)


def read(images: Images, rows: Tensor) -> Tensor:
    """Images (B, C, H, W) as they are."""
    return torch.from_numpy(np.ascontiguousarray(images.take(rows.numpy())))
