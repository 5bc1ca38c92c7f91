"""Images become embeddings: rows and files in, networks for small images, pretrained ones."""

from attnknn.encoders.image.encoder import ImageEncoder
from attnknn.encoders.image.folder import ImageFolder, read_image_folder
from attnknn.encoders.image.training import ImageLoss, ImageTraining, ImageVoters

__all__ = [
    "ImageEncoder",
    "ImageFolder",
    "ImageLoss",
    "ImageTraining",
    "ImageVoters",
    "read_image_folder",
]
