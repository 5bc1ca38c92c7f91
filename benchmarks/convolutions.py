"""How long training an image network takes, fast to plain: `python -m benchmarks.convolutions`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from attnknn.encoders.image import ImageEncoder, ImageTraining, networks
from attnknn.encoders.image.winograd import convolve
from attnknn.fitting.images import train_images
from benchmarks.search import Work, machine, show, timed

RESULTS = Path(__file__).parent / "results" / "convolutions.json"
LAYERS = [(24, 64, 31), (64, 64, 15), (64, 256, 15), (256, 256, 7), (256, 256, 3)]
WIDTHS = (64, 256, 256)
STEPS = 2


def main() -> None:
    """Time everything, print the ratios, write them down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, a smoke run")
    options = parser.parse_args()
    n_images, repeats = (32, 1) if options.quick else (512, 5)
    report: dict[str, Any] = {"machine": machine(), "repeats": repeats}
    for n_in, n_out, side in LAYERS:
        title = f"{n_in} to {n_out} channels, {side} x {side}"
        work = layer(n_images, n_in, n_out, side)
        for way in ("forward", "backward"):
            chosen = {name: run for name, run in work.items() if way in name}
            report[f"{title}, {way}"] = show(title, timed(chosen, repeats), f"plain {way}")
    title = f"epoch of {STEPS * n_images:,} images"
    report[title] = show(title, timed(epochs(n_images), repeats), "plain")
    if not options.quick:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(report, indent=2) + "\n")


def layer(n_images: int, n_in: int, n_out: int, side: int) -> Work:
    """One layer both ways, forward, and backward to images and weight."""
    images, weight = drawn(n_images, n_in, side, side), drawn(n_out, n_in, 3, 3)
    slopes = drawn(n_images, n_out, side, side).detach()
    ways: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "plain": partial(F.conv2d, padding=1),
        "fast": convolve,
    }
    work: Work = {}
    for name, way in ways.items():
        work[f"{name} forward"] = partial(way, images, weight)
        work[f"{name} backward"] = partial(
            torch.autograd.grad, way(images, weight), (images, weight), slopes, retain_graph=True
        )
    return work


def epochs(batch_size: int) -> Work:
    """A few steps of a training as users start it, and its judgments before and after."""
    rng = np.random.default_rng(0)
    n = STEPS * batch_size + 64
    X, y = rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, n)

    def epoch() -> None:
        training = ImageTraining.of(epochs=1, batch_size=batch_size, validation_entries=64)
        encoder = ImageEncoder("resnet9", widths=WIDTHS, training=training).fit(X)
        train_images(
            encoder,
            X,
            y,
            n_classes=10,
            groups=np.full(n, -1),
            is_trained_on=np.arange(n) < STEPS * batch_size,
            random_state=0,
        )

    def plain() -> None:
        with only_plain():
            epoch()

    return {"plain": plain, "fast": epoch}


@contextmanager
def only_plain() -> Iterator[None]:
    """A block in which no layer takes the fast way."""
    usual = networks.suits_winograd
    networks.suits_winograd = lambda *_: False
    try:
        yield
    finally:
        networks.suits_winograd = usual


def drawn(*shape: int) -> Tensor:
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return numbers.contiguous(memory_format=torch.channels_last).requires_grad_()


if __name__ == "__main__":
    main()
