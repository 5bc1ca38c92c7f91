"""Train, evaluate and store Vision Transformers.

`train_vit` trains a model on images with the settings of `VitTrainConfig`, keeps its best epoch,
and returns it with a `VitTrainResult` of `EpochMetrics`. `ImagePreprocessor` resizes and normalizes
images, `evaluate` computes loss and accuracy (`Evaluation`), and `save_vit` and `load_vit` store a
`StoredVit` in one file.
"""

from attnknn.vit.training.config import VitTrainConfig
from attnknn.vit.training.evaluation import Evaluation, evaluate
from attnknn.vit.training.images import ImagePreprocessor
from attnknn.vit.training.storage import StoredVit, load_vit, save_vit
from attnknn.vit.training.trainer import EpochMetrics, VitTrainResult, train_vit

__all__ = [
    "EpochMetrics",
    "Evaluation",
    "ImagePreprocessor",
    "StoredVit",
    "VitTrainConfig",
    "VitTrainResult",
    "evaluate",
    "load_vit",
    "save_vit",
    "train_vit",
]
