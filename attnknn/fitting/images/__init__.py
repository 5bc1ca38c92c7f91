"""Teaches image encoders through the vote of the batch, with helpers and what they cost apart."""

from attnknn.encoders.image.training import ImageTraining
from attnknn.fitting.images.baseline import HeadBaseline
from attnknn.fitting.images.teaching import Lesson, teach_images, train_images

__all__ = ["HeadBaseline", "ImageTraining", "Lesson", "teach_images", "train_images"]
