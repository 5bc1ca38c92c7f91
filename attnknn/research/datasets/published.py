"""Image sets in the files in which they are published: CIFAR's batches, MNIST's idx files, NPZ."""

from __future__ import annotations

import gzip
import io
import pickle
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnknn.errors import InvalidInputError, MissingDataError, unknown_name
from attnknn.research.datasets.base import KNOWN, Rows

DIGITS = tuple("0123456789")
CLOTHES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
THINGS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
CLASSES = {
    "mnist": DIGITS,
    "fashion-mnist": CLOTHES,
    "cifar10": THINGS,
    "cifar100": tuple(KNOWN["classes"]["cifar100"].split()),
}


Images = NDArray[np.uint8]
Labels = NDArray[np.int64]
Split = tuple[Images, Labels]
Reader = Callable[[Path, str], Rows]
N_PIXELS, SIDE = 3072, 32  # of an image of CIFAR
BATCHES = {  # of CIFAR; the last one is for testing
    "cifar10": (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
    "cifar100": ("train", "test"),
}
HARMLESS = {  # what numpy's arrays are made of in a pickle
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


def read_published(name: str, folder: Path) -> Rows:
    """The training and test images of `name` in `folder`, or in its usual folder there.

    Checksums are not asked for: whoever names a folder knows what is in it.
    """
    if name not in FORMS:
        raise unknown_name("set of published images", name, FORMS)
    forms = _forms(name) | LOOSE.get(name, {})
    for place, read in forms.items():
        if (folder / place).exists():
            return read(folder / place, name)
    raise MissingDataError(f"{folder} holds none of {', '.join(forms)}, in which {name!r} comes.")


def read_form(name: str, path: Path) -> Rows:
    """The images of `name` in the file or folder `path`, which has one of its usual names."""
    return next(read for place, read in _forms(name).items() if path.match(place))(path, name)


def arrays_of(name: str, path: Path) -> dict[str, Images]:
    """The same as named arrays of bytes, which have the same checksums in every form."""
    rows = read_form(name, path)
    return {
        "x_train": rows.X_train,
        "y_train": rows.y_train.astype(np.uint8),
        "x_test": rows.X_test,
        "y_test": rows.y_test.astype(np.uint8),
    }


def _forms(name: str) -> dict[str, Reader]:
    return {f"{name}.npz": _read_npz, **FORMS[name]}


def _read_npz(path: Path, name: str) -> Rows:
    with np.load(path, allow_pickle=False) as file:
        absent = [key for key in ("x_train", "y_train", "x_test", "y_test") if key not in file]
        if absent:
            raise InvalidInputError(f"{path} must hold the array {absent[0]!r}.")
        train, test = (
            (file[f"x_{part}"], file[f"y_{part}"].ravel().astype(np.int64))
            for part in ("train", "test")
        )
    return _rows(train, test, name, path)


def _read_binary(path: Path, name: str) -> Rows:
    """Records of one label (CIFAR-10) or two (CIFAR-100, the second is the finer) and an image."""
    n_labels = 1 if name == "cifar10" else 2

    def read(content: bytes, file: Path) -> Split:
        pixels = np.frombuffer(content, dtype=np.uint8)
        if not len(pixels) or len(pixels) % (n_labels + N_PIXELS):
            raise InvalidInputError(f"{file} is cut off: it holds no whole number of images.")
        records = pixels.reshape(-1, n_labels + N_PIXELS)
        return _channels_last(records[:, n_labels:]), records[:, n_labels - 1].astype(np.int64)

    return _read_batches(path, name, ".bin", read)


def _read_pickled(path: Path, name: str) -> Rows:
    key = b"labels" if name == "cifar10" else b"fine_labels"

    def read(content: bytes, file: Path) -> Split:
        batch = _Harmless(io.BytesIO(content), encoding="bytes").load()
        try:
            return _channels_last(batch[b"data"]), np.array(batch[key], dtype=np.int64)
        except (KeyError, TypeError) as error:
            raise InvalidInputError(f"{file} is no batch of {name}: {error}.") from error

    return _read_batches(path, name, "", read)


class _Harmless(pickle.Unpickler):
    """Reads arrays and plain values; a pickle that names anything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in HARMLESS:
            raise InvalidInputError(
                f"A batch of images names {module}.{name}, which is no array: it is not read."
            )
        return super().find_class(module, name)


def _read_batches(path: Path, name: str, ending: str, read: Callable[[bytes, Path], Split]) -> Rows:
    """The batches of a folder, or of the archive in which it is published."""
    names = [f"{batch}{ending}" for batch in BATCHES[name]]
    packed = _unpack(path, names) if path.is_file() else None
    parts = [
        read(_content(path / file) if packed is None else packed[file], path / file)
        for file in names
    ]
    images, labels = zip(*parts[:-1], strict=True)
    return _rows((np.concatenate(images), np.concatenate(labels)), parts[-1], name, path)


def _unpack(path: Path, names: list[str]) -> dict[str, bytes]:
    """The content of the named files of an archive, whatever folder they are in."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name, file = PurePosixPath(member.name).name, archive.extractfile(member)
                if name in names and file is not None:
                    found[name] = file.read()
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise InvalidInputError(f"{path} is damaged: {error}. Get the file again.") from error
    absent = [name for name in names if name not in found]
    if absent:
        raise MissingDataError(f"There is no {absent[0]} in {path}.")
    return found


def _channels_last(pixels: Images) -> Images:
    """Rows of 3 × 32 × 32 pixels as (n, 32, 32, 3)."""
    return pixels.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)


def _read_idx_folder(path: Path, name: str) -> Rows:
    folder = path if path.is_dir() else path.parent
    train, test = (
        (
            _read_idx(_either(folder / f"{part}-images-idx3-ubyte"), 3),
            _read_idx(_either(folder / f"{part}-labels-idx1-ubyte"), 1).astype(np.int64),
        )
        for part in ("train", "t10k")
    )
    return _rows(train, test, name, folder)


def _read_idx(path: Path, n_axes: int) -> Images:
    """An array of bytes: two zeros, its type, its number of axes, their lengths, the bytes."""
    content = _content(path)
    header = 4 + 4 * n_axes
    if content[:4] != bytes([0, 0, 8, n_axes]):
        raise InvalidInputError(f"{path} is no idx file of bytes with {n_axes} axes.")
    shape = np.frombuffer(content[4:header], dtype=">i4").tolist()
    if len(content) - header != np.prod(shape):
        raise InvalidInputError(f"{path} is cut off: it holds no array of the shape {shape}.")
    return np.frombuffer(content[header:], dtype=np.uint8).reshape(shape)


def _either(path: Path) -> Path:
    """The file, or the compressed one."""
    zipped = path.with_name(f"{path.name}.gz")
    return zipped if zipped.exists() else path


def _content(path: Path) -> bytes:
    if not path.is_file():
        raise MissingDataError(f"There is no {path}.")
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _rows(train: Split, test: Split, name: str, path: Path) -> Rows:
    classes = CLASSES[name]
    for images, labels in (train, test):
        if len(images) != len(labels):
            raise InvalidInputError(f"{path} has {len(images)} images and {len(labels)} labels.")
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(classes):
            raise InvalidInputError(f"{path} must have labels from 0 to {len(classes) - 1}.")
    return Rows(*train, *test, classes=classes)


FORMS: dict[str, dict[str, Reader]] = {  # files and folders, by the names they are published under
    "cifar10": {
        "cifar-10-batches-py": _read_pickled,
        "cifar-10-python.tar.gz": _read_pickled,
        "cifar-10-batches-bin": _read_binary,
        "cifar-10-binary.tar.gz": _read_binary,
    },
    "cifar100": {
        "cifar-100-python": _read_pickled,
        "cifar-100-python.tar.gz": _read_pickled,
        "cifar-100-binary": _read_binary,
        "cifar-100-binary.tar.gz": _read_binary,
    },
    "mnist": {"MNIST/raw": _read_idx_folder},
    "fashion-mnist": {"FashionMNIST/raw": _read_idx_folder},
}
# Both sets have files of these names, so that only the folder tells which one it is.
IDX: dict[str, Reader] = {
    f"train-images-idx3-ubyte{ending}": _read_idx_folder for ending in ("", ".gz")
}
LOOSE: dict[str, dict[str, Reader]] = {"mnist": IDX, "fashion-mnist": IDX}
