"""Images become embeddings: rows and files in, networks for small images, pretrained ones."""

from attnknn.encoders.image.encoder import ImageEncoder
from attnknn.encoders.image.folder import ImageFolder, read_image_folder
from attnknn.encoders.image.training import ImageTraining

__all__ = ["ImageEncoder", "ImageFolder", "ImageTraining", "read_image_folder"]
