"""What each of two processes runs in `test_processes.py`; alone, it is the reference.

torchrun --nproc-per-node 2 tests/training/images/in_processes.py RESULT
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).parents[3]


def main(result: Path) -> None:
    sys.path.insert(0, str(ROOT))
    from attnknn.encoders.image import ImageEncoder, ImageTraining
    from attnknn.fitting.images import teach_images
    from attnknn.training.augmentation import Augmentation
    from tests.fitting.images.shapes import shapes

    torch.set_num_threads(1)
    X, codes = shapes(120)
    training = ImageTraining(
        epochs=2,
        batch_size=32,
        learning_rate=0.05,
        queue_size=64,
        negatives_weight=1.0,
        augmentation=Augmentation(),  # chance would be another one in each process
        device="cpu",
    )
    encoder = ImageEncoder(widths=(8, 8, 8), training=training, device="cpu").fit(X)
    outcome = teach_images(
        encoder,
        X,
        codes,
        n_classes=4,
        groups=np.full(120, -1),
        is_trained_on=np.arange(120) < 96,
        random_state=0,
    )
    if os.environ.get("RANK", "0") == "0":
        losses = {"train": outcome.train_losses, "left_out": outcome.validation_losses}
        result.write_text(json.dumps(losses | {"embeddings": encoder.transform(X).tolist()}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
