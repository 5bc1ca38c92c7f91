"""Teaches image encoders through the vote of the batch, with helpers and what they cost apart."""

from attnknn.encoders.image.training import ImageTraining
from attnknn.training.images.baseline import HeadBaseline
from attnknn.training.images.teaching import Lesson, teach_images, train_images

__all__ = ["HeadBaseline", "ImageTraining", "Lesson", "teach_images", "train_images"]
