"""What each of two processes runs in `test_images_in_processes.py`; alone, it is the reference.

torchrun --nproc-per-node 2 tests/fitting/in_processes.py RESULT
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parents[2]


def main(path: Path) -> None:
    sys.path.insert(0, str(ROOT))
    from attnknn.encoders.image import ImageEncoder, ImageInference, ImageTraining
    from attnknn.fitting.images import train_images
    from attnknn.training.augmentation import Augmentation
    from tests.fitting.shapes import shapes

    torch.set_num_threads(1)
    X, codes = shapes(120)
    training = ImageTraining.of(
        epochs=2,
        batch_size=32,
        learning_rate=0.05,
        queue_size=64,
        negatives_weight=1.0,
        augmentation=Augmentation(),  # chance would be another one in each process
        device="cpu",
    )
    encoder = ImageEncoder(
        widths=(8, 8, 8), training=training, inference=ImageInference(device="cpu")
    ).fit(X)
    result = train_images(
        encoder,
        X,
        codes,
        n_classes=4,
        groups=np.full(120, -1),
        is_trained_on=np.arange(120) < 96,
        random_state=0,
    ).result
    if os.environ.get("RANK", "0") == "0":
        losses = {"train": result.train_losses, "validation": result.validation_losses}
        path.write_text(json.dumps(losses | {"embeddings": encoder.transform(X).tolist()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
