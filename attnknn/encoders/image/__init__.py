"""Image encoders: rows and folders of images, networks for small images, pretrained ones.

`ImageEncoder` encodes images, `ImageTraining` says how it is trained, `ImageInference` how images
are read and embedded, and `read_image_folder` lists the images of a folder with one subfolder per
class.
"""

from attnknn.encoders.image.encoder import ImageEncoder
from attnknn.encoders.image.feature_cache import clear_image_cache, image_cache_file
from attnknn.encoders.image.folder import ImageFolder, read_image_folder
from attnknn.encoders.image.training import ImageInference, ImageLoss, ImageTraining, ImageVoters

__all__ = [
    "ImageEncoder",
    "ImageFolder",
    "ImageInference",
    "ImageLoss",
    "ImageTraining",
    "ImageVoters",
    "clear_image_cache",
    "image_cache_file",
    "read_image_folder",
]
