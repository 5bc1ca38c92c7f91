"""Loss and accuracy of a model on images; every image counts once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from attnknn.training.devices import Precision, autocast
from attnknn.training.threads import read_ahead
from attnknn.vit.training.images import ImagePreprocessor, Images, read_images

Criterion = Callable[[Tensor, Tensor], Tensor]


@dataclass
class Evaluation:
    """Sums from which the mean loss and the top-1 and top-5 accuracy are computed.

    Attributes
    ----------
    total_loss : float
        Sum of the losses.
    n_top1, n_top5 : int
        Images whose class has the largest score, or one of the five largest.
    n_rows : int
        Number of images.
    outputs : list of Tensor
        Scores of each batch, with `keep_outputs=True`.

    Examples
    --------
    >>> evaluation = Evaluation()
    >>> evaluation.add(torch.tensor([[2.0, 1.0], [2.0, 1.0]]), torch.tensor([0, 1]), 0.5)
    >>> evaluation.loss, evaluation.top1
    (0.5, 0.5)
    """

    total_loss: float = 0.0
    n_top1: int = 0
    n_top5: int = 0
    n_rows: int = 0
    outputs: list[Tensor] = field(default_factory=list, repr=False)

    def add(self, outputs: Tensor, classes: Tensor, loss: float) -> None:
        """Add a batch.

        Parameters
        ----------
        outputs : Tensor of shape (B, C)
            Class scores.
        classes : Tensor of shape (B,)
            True classes.
        loss : float
            Mean loss of the batch.
        """
        best = outputs.detach().topk(min(5, outputs.shape[1])).indices
        is_correct = best == classes[:, None]
        self.total_loss += loss * len(classes)
        self.n_top1 += int(is_correct[:, 0].sum())
        self.n_top5 += int(is_correct.any(1).sum())
        self.n_rows += len(classes)

    @property
    def loss(self) -> float:
        """Mean loss; smaller is better."""
        return self.total_loss / max(self.n_rows, 1)

    @property
    def top1(self) -> float:
        """Top-1 accuracy, from 0 to 1."""
        return self.n_top1 / max(self.n_rows, 1)

    @property
    def top5(self) -> float:
        """Top-5 accuracy, from 0 to 1."""
        return self.n_top5 / max(self.n_rows, 1)


def make_criterion(name: str, label_smoothing: float = 0.0) -> Criterion:
    """The mean loss of outputs (B, C) for classes (B,)."""

    def squared_error(outputs: Tensor, classes: Tensor) -> Tensor:
        targets = F.one_hot(classes, outputs.shape[1]).to(outputs.dtype)
        targets = (1 - label_smoothing) * targets + label_smoothing / outputs.shape[1]
        return F.mse_loss(outputs, targets)

    return squared_error if name == "MSE" else nn.CrossEntropyLoss(label_smoothing=label_smoothing)


@torch.no_grad()
def evaluate(
    model: nn.Module,
    images: Images,
    classes: Tensor | NDArray[np.int64],
    preprocessor: ImagePreprocessor,
    *,
    criterion: str = "CrossEntropy",
    rows: Tensor | None = None,
    batch_size: int = 256,
    precision: Precision | None = None,
    seed: int = 0,
    workers: int = 0,
    keep_outputs: bool = False,
) -> Evaluation:
    """Compute loss and accuracy of a model in evaluation mode.

    Parameters
    ----------
    model : nn.Module
        Model that gives class scores; it keeps its mode.
    images : ndarray of uint8 of shape (n_images, C, H, W), or ImageSource
        Images, or an object that reads them, see `ImagePreprocessor.from_images`.
    classes : array-like of int of shape (n_images,)
        Class of each image, from 0.
    preprocessor : ImagePreprocessor
        How images become the input of the model.
    criterion : {'CrossEntropy', 'MSE'}, default='CrossEntropy'
        Loss.
    rows : Tensor of int, default=None
        Numbers of the images to evaluate, all if None.
    batch_size : int, default=256
        Images per batch.
    precision : Precision, default=None
        Number format of the computation; float32 if None.
    seed : int, default=0
        Seed of noise on the pixels.
    workers : int, default=0
        Threads that read images ahead.
    keep_outputs : bool, default=False
        Whether to keep the scores of each batch.

    Returns
    -------
    Evaluation
        Loss and accuracy.

    Examples
    --------
    >>> images, classes = np.zeros((4, 1, 2, 2), np.uint8), np.array([0, 1, 2, 0])
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    >>> evaluate(model, images, classes, ImagePreprocessor.from_images(images, (2, 2))).n_rows
    4
    """
    device = next(model.parameters()).device
    precision = precision or Precision()
    loss_of, result, classes = make_criterion(criterion), Evaluation(), torch.as_tensor(classes)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.arange(len(images)) if rows is None else rows
    batches = rows.split(batch_size)
    was_training = model.training
    model.eval()
    try:
        read = read_ahead(lambda part: read_images(images, part), batches, workers)
        for part, batch in zip(batches, read, strict=True):
            with autocast(precision, device):
                outputs = model(preprocessor.transform(batch.to(device), generator)).float()
            known = classes[part].to(device)
            result.add(outputs, known, loss_of(outputs, known).item())
            if keep_outputs:
                result.outputs.append(outputs.cpu())
    finally:
        model.train(was_training)
    return result
