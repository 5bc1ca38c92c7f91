"""Label noise, imbalance and few rows in training data, and damaged test images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter

from attnknn._validation import check_choice
from attnknn.errors import InvalidInputError, InvalidSettingError, unknown_name
from attnknn.records import Integers

Seed = int | np.random.Generator | None


def symmetric_noise(
    y: ArrayLike, rate: float, *, random_state: Seed = None, n_classes: int | None = None
) -> Integers:
    """Replace each label, with probability `rate`, by any other class.

    Parameters
    ----------
    y : (N,) label codes; they stay as they are
    rate : 0..1; at (C−1)/C the labels tell nothing any more
    n_classes : C, by default the largest code plus one

    >>> symmetric_noise([0, 1, 2, 0, 1, 2], 0.5, random_state=0)
    array([0, 0, 1, 2, 1, 2])
    """
    codes, n_classes = _checked(y, rate, n_classes)
    rng = np.random.default_rng(random_state)
    is_wrong = rng.random(len(codes)) < rate
    steps = rng.integers(1, n_classes, len(codes))
    return np.where(is_wrong, (codes + steps) % n_classes, codes)


def asymmetric_noise(
    y: ArrayLike, rate: float, *, random_state: Seed = None, n_classes: int | None = None
) -> Integers:
    """Replace each label, with probability `rate`, by the next class (the last by the first).

    Harder than symmetric noise: from a rate of ½ the wrong class is the most frequent one.

    >>> asymmetric_noise([0, 1, 2, 0, 1, 2], 1.0, random_state=0)
    array([1, 2, 0, 1, 2, 0])
    """
    codes, n_classes = _checked(y, rate, n_classes)
    rng = np.random.default_rng(random_state)
    is_wrong = rng.random(len(codes)) < rate
    return np.where(is_wrong, (codes + 1) % n_classes, codes)


def long_tail(
    y: ArrayLike, ratio: float, *, random_state: Seed = None, n_classes: int | None = None
) -> Integers:
    """Sorted positions of rows to keep, so that each class is rarer than the one before.

    Counts fall geometrically from the first class, of which as many stay as the smallest class
    has, to the last, of which one in `ratio` of these stays, and at least one.

    `n_classes`: C, by default the largest code plus one; each class must have a row.

    >>> y = np.repeat([0, 1, 2], 100)
    >>> np.bincount(y[long_tail(y, 100, random_state=0)]).tolist()
    [100, 10, 1]
    """
    codes, n_classes = _checked(y, 0.0, n_classes)
    if not ratio >= 1:
        raise InvalidSettingError(f"`ratio` must be at least 1, got {ratio}.")
    rng = np.random.default_rng(random_state)
    sizes = np.bincount(codes, minlength=n_classes)
    most = sizes.min()
    if not most:
        raise InvalidInputError(
            f"Every class must have a row for classes to become rare, code {int(sizes.argmin())} "
            "has none. Take more rows."
        )
    counts = np.maximum(1, np.round(most * ratio ** -np.linspace(0, 1, n_classes))).astype(int)
    drawn = [
        rng.permutation(np.flatnonzero(codes == code))[:count] for code, count in enumerate(counts)
    ]
    return np.sort(np.concatenate(drawn))


def few_shots(y: ArrayLike, n_shots: int, *, random_state: Seed = None) -> Integers:
    """Sorted positions of rows to keep: `n_shots` of each class, or all of a smaller class.

    >>> y = np.repeat([0, 1, 2], [5, 50, 2])
    >>> np.bincount(y[few_shots(y, 3, random_state=0)]).tolist()
    [3, 3, 2]
    """
    codes, n_classes = _checked(y, 0.0, None)
    if n_shots < 1:
        raise InvalidSettingError(f"`n_shots` must be an integer of at least 1, got {n_shots}.")
    rng = np.random.default_rng(random_state)
    drawn = [rng.permutation(np.flatnonzero(codes == code))[:n_shots] for code in range(n_classes)]
    return np.sort(np.concatenate(drawn))


NOISES = {"symmetric": symmetric_noise, "asymmetric": asymmetric_noise}


@dataclass(frozen=True)
class LabelNoise:
    """Label noise for `protocol.run(corrupt=...)`: a function whose repr shows its settings.

    >>> LabelNoise(0.3)
    LabelNoise(rate=0.3, kind='symmetric')
    >>> LabelNoise(1.0, "asymmetric")(np.array([0, 1]), 0)
    array([1, 0])
    """

    rate: float
    kind: Literal["symmetric", "asymmetric"] = "symmetric"

    def __call__(self, y: Integers, seed: int) -> Integers:
        if self.kind not in NOISES:
            raise unknown_name("noise", self.kind, NOISES)
        return NOISES[self.kind](y, self.rate, random_state=seed)


def _checked(y: ArrayLike, rate: float, n_classes: int | None) -> tuple[Integers, int]:
    codes = np.asarray(y)
    if codes.ndim != 1 or codes.dtype.kind not in "iu" or (codes < 0).any():
        raise InvalidInputError("`y` must be one row of label codes, integers of at least 0.")
    if not 0 <= rate <= 1:
        raise InvalidSettingError(f"`rate` must lie between 0 and 1, got {rate}.")
    largest = int(codes.max(initial=0)) + 1
    found = largest if n_classes is None else n_classes
    if found < max(2, largest):
        raise InvalidSettingError(
            f"`n_classes` must be at least {max(2, largest)} for these labels, got {found}."
        )
    return codes.astype(np.int64), found


Images = NDArray[np.uint8]
SEVERITIES = range(1, 6)
NOISE = (0.04, 0.08, 0.12, 0.18, 0.26)  # standard deviation, pixels between 0 and 1
BLUR = (0.4, 0.6, 0.8, 1.1, 1.5)  # width of the bell in pixels, of images 32 pixels high
CONTRAST = (0.75, 0.6, 0.45, 0.3, 0.15)  # what is left of the distance to the mean


def shifted(images: Images, kind: str, severity: int, *, random_state: Seed = None) -> Images:
    """Add noise or blur to images, or lower their contrast.

    Parameters
    ----------
    images : uint8, (n, H, W), (n, H, W, 3) or (n, 3, H, W)
    kind : 'noise' adds Gaussian noise, 'blur' mixes neighboring pixels, 'contrast' moves every
        pixel toward the mean of its image
    severity : 1 (hardly seen) to 5 (hard for people too); of 'blur' it grows with the image

    >>> images = np.array([[[0, 200], [0, 200]]], dtype=np.uint8)
    >>> shifted(images, "contrast", 3)
    array([[[ 55, 145],
            [ 55, 145]]], dtype=uint8)
    """
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.ndim not in (3, 4):
        raise InvalidInputError(
            "`images` must be uint8 of the shape (n, H, W), (n, H, W, 3) or (n, 3, H, W)."
        )
    check_choice("kind", kind, SHIFTS)
    if not isinstance(severity, int) or severity not in SEVERITIES:
        raise InvalidSettingError(f"`severity` must be an integer from 1 to 5, got {severity!r}.")
    pixels = images.astype(np.float32) / np.float32(255)
    changed = SHIFTS[kind](pixels, severity - 1, np.random.default_rng(random_state))
    return np.clip(np.round(255 * changed), 0, 255).astype(np.uint8)


def _noisy(pixels: NDArray[Any], place: int, rng: np.random.Generator) -> NDArray[Any]:
    return pixels + NOISE[place] * rng.standard_normal(pixels.shape, dtype=np.float32)


def _blurred(pixels: NDArray[Any], place: int, _: np.random.Generator) -> NDArray[Any]:
    rows, columns = _axes(pixels.shape)
    widths = [0.0] * pixels.ndim
    for axis in (rows, columns):
        widths[axis] = BLUR[place] * pixels.shape[axis] / 32
    return gaussian_filter(pixels, widths, mode="reflect")


def _pale(pixels: NDArray[Any], place: int, _: np.random.Generator) -> NDArray[Any]:
    mean = pixels.mean(axis=tuple(range(1, pixels.ndim)), keepdims=True)
    return mean + np.float32(CONTRAST[place]) * (pixels - mean)


def _axes(shape: tuple[int, ...]) -> tuple[int, int]:
    """The axes of pixel rows and columns."""
    if len(shape) == 3 or shape[3] in (1, 3):
        return 1, 2
    return 2, 3


SHIFTS: dict[str, Callable[[NDArray[Any], int, np.random.Generator], NDArray[Any]]] = {
    "noise": _noisy,
    "blur": _blurred,
    "contrast": _pale,
}


Kind = Literal["none", "symmetric", "asymmetric", "imbalance", "shots"]
KINDS = ("none", "symmetric", "asymmetric", "imbalance", "shots")


@dataclass(frozen=True)
class Corruption:
    """Corruption of the training rows, before anything is fitted.

    >>> Corruption("symmetric", 0.3).description
    '30 % symmetric noise'
    """

    # 'symmetric' or 'asymmetric' label noise, 'imbalance', few 'shots', or 'none'
    kind: Kind = "none"
    # the rate of the noise; how much rarer the last class is; rows that stay of each class
    level: float = 0.0

    def __post_init__(self) -> None:
        check_choice("kind of corruption", self.kind, KINDS)
        if self.kind in NOISES and not 0 <= self.level <= 1:
            raise InvalidSettingError(f"The rate of noise must lie in 0..1, got {self.level:g}.")
        if self.kind in ("imbalance", "shots") and not self.level >= 1:
            raise InvalidSettingError(
                f"The level of '{self.kind}' must be at least 1, got {self.level:g}."
            )
        if self.kind == "shots" and not float(self.level).is_integer():
            raise InvalidSettingError(
                f"The level of 'shots' must be a whole number of rows, got {self.level:g}."
            )

    @property
    def is_label_noise(self) -> bool:
        """Whether this is label noise, also with a rate of 0."""
        return self.kind in NOISES

    @property
    def does_nothing(self) -> bool:
        """Whether rows and labels stay unchanged."""
        return self.kind == "none" or (self.kind in NOISES and self.level == 0)

    @property
    def name(self) -> str:
        """Name for folders; '' without corruption."""
        return "" if self.does_nothing else f"{self.kind}-{self.level:g}"

    @property
    def description(self) -> str:
        """Description for reports; '' without corruption."""
        if self.does_nothing:
            return ""
        if self.kind in NOISES:
            return f"{100 * self.level:g} % {self.kind} noise"
        if self.kind == "shots":
            return f"{self.level:g} rows of each class"
        return f"the last class {self.level:g} times rarer than the first"

    def apply(self, codes: Integers, n_classes: int, seed: int) -> CorruptedRows:
        """Positions of the rows that are kept, and their new labels.

        >>> rare = Corruption("imbalance", 10).apply(np.repeat([0, 1], 20), 2, seed=0)
        >>> np.bincount(rare.codes).tolist()
        [20, 2]
        """
        everyone = np.arange(len(codes))
        if self.does_nothing:
            return CorruptedRows(everyone, codes)
        if self.kind in NOISES:
            noisy = NOISES[self.kind](codes, self.level, random_state=seed, n_classes=n_classes)
            return CorruptedRows(everyone, noisy)
        if self.kind == "shots":
            rows = few_shots(codes, int(self.level), random_state=seed)
        else:
            rows = long_tail(codes, self.level, random_state=seed, n_classes=n_classes)
        return CorruptedRows(rows, codes[rows])


@dataclass(frozen=True)
class Shift:
    """Corruption of the test images, after everything was fitted on clean images.

    >>> Shift("blur", 3).description
    'test images with blur 3 of 5'
    """

    kind: str = "noise"  # 'noise', 'blur' or 'contrast'
    severity: int = 0  # 1 to 5; 0 leaves images as they are

    def __post_init__(self) -> None:
        check_choice("kind of shift", self.kind, SHIFTS)
        if not isinstance(self.severity, int) or self.severity not in (0, *SEVERITIES):
            raise InvalidSettingError(
                f"The severity of a shift must be an integer from 0 to 5, got {self.severity!r}."
            )

    @property
    def description(self) -> str:
        """Description for reports; '' without corruption."""
        return f"test images with {self.kind} {self.severity} of 5" if self.severity else ""

    def apply(self, images: NDArray[np.uint8], seed: int) -> NDArray[np.uint8]:
        """Corrupt the images."""
        if not self.severity:
            return images
        return shifted(images, self.kind, self.severity, random_state=seed)


NO_SHIFT = Shift()


@dataclass(frozen=True, eq=False)
class CorruptedRows:
    """Positions of the rows that are kept, and their labels."""

    rows: Integers
    codes: Integers

    def take(self, X: Any) -> Any:
        """The kept rows of a table or an array."""
        return X.iloc[self.rows] if hasattr(X, "iloc") else np.asarray(X)[self.rows]
