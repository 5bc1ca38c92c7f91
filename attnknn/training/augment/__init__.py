"""Images changed at random, in batches, on their device: what a training sees instead of rows."""

from attnknn.training.augment.recipe import Augmentation, augment

__all__ = ["Augmentation", "augment"]
