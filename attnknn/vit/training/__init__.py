"""Training and testing of Vision Transformers on images and their classes."""

from attnknn.vit.training.pixels import Images, Pixels
from attnknn.vit.training.scores import Scores, score
from attnknn.vit.training.settings import VitTraining
from attnknn.vit.training.stored import StoredVit, read_vit, write_vit
from attnknn.vit.training.teaching import Epoch, Lesson, train_vit

__all__ = [
    "Epoch",
    "Images",
    "Lesson",
    "Pixels",
    "Scores",
    "StoredVit",
    "VitTraining",
    "read_vit",
    "score",
    "train_vit",
    "write_vit",
]
