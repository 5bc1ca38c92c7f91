"""The cache of features of frozen image networks: one SQLite file, by content hash."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from attnknn._cache import cache_folder
from attnknn.encoders.text_cache import erase_from, opened_cache

if TYPE_CHECKING:
    from torch import Tensor

    from attnknn.encoders.image.networks import EmbeddingNetwork

Vector = NDArray[np.float32]

TABLE = """
create table if not exists features (
    image blob not null, network blob not null, vector blob not null, primary key (image, network)
) without rowid
"""


def image_cache_file() -> Path:
    """Locate the cache of image features, which `ImageInference(cache=True)` uses.

    Returns
    -------
    Path
        The SQLite file, which may not exist yet.

    Examples
    --------
    >>> image_cache_file().name
    'image-features.sqlite'
    """
    return cache_folder() / "image-features.sqlite"


def clear_image_cache() -> int:
    """Erase all cached features of images.

    Returns
    -------
    int
        Number of erased feature vectors.

    Examples
    --------
    >>> clear_image_cache()  # doctest: +SKIP
    0
    """
    return erase_from(image_cache_file(), TABLE, "delete from features", [()])


def network_fingerprint(module: EmbeddingNetwork) -> bytes:
    """The sha256 of a network, its weights, its normalization and its resolution."""
    size = getattr(module.network, "size", None)
    digest = hashlib.sha256(f"{type(module.network).__qualname__} {size}".encode())
    state = module.network.state_dict() | {"mean": module.mean, "std": module.std}
    for name, tensor in state.items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.digest()


class FeatureCache:
    """The cached features of one frozen network."""

    def __init__(self, module: EmbeddingNetwork) -> None:
        self.module, self._network = module, network_fingerprint(module)

    def features(self, images: Tensor) -> Tensor:
        """Features (B, width) of images (B, C, H, W); only those not in the cache are computed."""
        import torch

        keys = _keys(images)
        known = self._find(keys)
        missing = [place for place, key in enumerate(keys) if key not in known]
        if missing:
            computed = self.module.features(images[missing]).float().cpu().numpy()
            found = {keys[place]: row for place, row in zip(missing, computed, strict=True)}
            self._store(found)
            known |= found
        width = self.module.features_width
        rows = np.stack([known[key] for key in keys]) if keys else np.empty((0, width), np.float32)
        return torch.from_numpy(rows)

    def clear(self) -> int:
        """Erase all features of this network; return their number."""
        query = "delete from features where network = ?"
        return erase_from(image_cache_file(), TABLE, query, [(self._network,)])

    def _find(self, keys: list[bytes]) -> dict[bytes, Vector]:
        if not image_cache_file().exists():
            return {}
        query = "select vector from features where image = ? and network = ?"
        found = {}
        with opened_cache(image_cache_file(), TABLE) as database:
            for key in keys:
                row = database.execute(query, (key, self._network)).fetchone()
                if row is not None:
                    found[key] = np.frombuffer(row[0], dtype="<f4").astype(np.float32)
        return found

    def _store(self, found: dict[bytes, Vector]) -> None:
        rows = [(key, self._network, row.astype("<f4").tobytes()) for key, row in found.items()]
        with opened_cache(image_cache_file(), TABLE) as database, database:
            database.executemany("insert or replace into features values (?, ?, ?)", rows)


def _keys(images: Tensor) -> list[bytes]:
    """The content hash of each image, with its shape."""
    pixels = images.detach().cpu().contiguous().numpy()
    shape = str(pixels.shape[1:]).encode()
    return [hashlib.sha256(shape + np.ascontiguousarray(one).tobytes()).digest() for one in pixels]
