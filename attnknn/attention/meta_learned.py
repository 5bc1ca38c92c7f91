"""Meta-learned attention: weights that were trained over many small tasks, for new ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from attnknn._output_files import write_file
from attnknn._stored import Arrays, fitted_fields, open_regular
from attnknn._validation import check_choice
from attnknn.attention.base import Attention, NeighborBatch, Scores
from attnknn.errors import InvalidInputError, InvalidSettingError, ModelFolderError
from attnknn.records import Floats
from attnknn.registry import Option, register

BLOCK = 1 << 22  # numbers of projected neighbors held at once
SCALARS = ("kept", "fitted")
NUMBERS = ("temperature", "class_mixing", "prior_score")


@dataclass(frozen=True, eq=False)
class MetaWeights:
    """What `meta_train` learned.

    Parameters
    ----------
    projection : ndarray of shape (E, D)
        Maps embeddings to the vectors that are compared.
    temperature : float
        In units of squared distance there.
    class_mixing : float
        How far each neighbor is moved to the mean of the neighbors of its class: 0 compares
        queries with entries, 1 with the prototypes of the classes.
    prior_score : float
        Score of the prior.
    """

    projection: NDArray[np.float32]
    temperature: float
    class_mixing: float
    prior_score: float

    def __post_init__(self) -> None:
        P = self.projection
        is_right = P.dtype == np.float32 and P.ndim == 2 and P.size and np.isfinite(P).all()
        numbers = [self.temperature, self.class_mixing, self.prior_score]
        if not is_right or not np.isfinite(numbers).all():
            raise ModelFolderError("Meta-learned weights must be finite, the projection a matrix.")
        if not (self.temperature > 0 and 0 <= self.class_mixing <= 1):
            raise ModelFolderError(
                "Meta-learned weights must have a positive temperature and a class mixing from 0 "
                f"to 1, got {self.temperature:g} and {self.class_mixing:g}."
            )

    def arrays(self) -> Arrays:
        """The same as arrays."""
        numbers = {name: np.array(getattr(self, name), dtype=np.float64) for name in NUMBERS}
        return {"projection": self.projection, **numbers}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Self:
        """What `arrays` returned; others are refused."""
        if set(arrays) != {"projection", *NUMBERS} or any(arrays[n].shape for n in NUMBERS):
            raise ModelFolderError(
                "A file of meta-learned weights must hold a projection and "
                f"{', '.join(NUMBERS)}, got {', '.join(sorted(arrays)) or 'nothing'}. "
                "Write it by `MetaLearnedAttention.save_weights`."
            )
        return cls(arrays["projection"], *(float(arrays[name]) for name in NUMBERS))


@register("attention", "meta-learned")
class MetaLearnedAttention(Attention):
    """Attention that was trained over many small tasks, and votes in a new one without training.

    `meta_train` trains it on a labeled set: each step draws a task of a few classes with a few rows
    each, and lets these vote on other rows of the classes. In a new task with other classes nothing
    is trained: the projection, the temperature and the score of the prior are kept. The score of a
    neighbor is −‖W q − m‖² / temperature, where m is its projection W m, moved toward the mean
    of the neighbors of its class. Embeddings must come from the same encoder as in training.

    Parameters
    ----------
    file : str or path, default=None
        File that `save_weights` wrote. None uses the weights of `meta_train`, which returns a
        `MetaLearnedAttention` that has them; copies and clones keep them.
    scalars : {'kept', 'fitted'}, default='kept'
        'kept' uses the temperature and the score of the prior of the training, for tasks of few
        rows. 'fitted' fits them, and K, by leave-one-out, for tasks of a hundred rows or more.

    Attributes
    ----------
    meta_weights_ : MetaWeights
        What was trained.

    See Also
    --------
    attnknn.meta_train : Trains the weights.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from attnknn import AttnKNNClassifier, meta_train
    >>> from attnknn.training import TrainConfig
    >>> X, y = load_digits(return_X_y=True)
    >>> known = y < 7
    >>> training = TrainConfig(epochs=2)
    >>> attention = meta_train(X[known], y[known], n_way=3, training=training, random_state=0)
    >>> task = [i for digit in (7, 8, 9) for i in (y == digit).nonzero()[0][:5]]
    >>> clf = AttnKNNClassifier(encoder="identity", attention=attention, calibration=None)
    >>> clf.fit(X[task], y[task]).score(X[~known], y[~known]) > 0.8
    True
    """

    options: ClassVar[tuple[Option, ...]] = (
        Option("--meta-weights", "file", "File with the weights of meta-learned attention."),
        Option(
            "--meta-scalars",
            "scalars",
            "Temperature and prior of meta-learned attention: as trained, or fitted.",
            choices=SCALARS,
        ),
    )
    meta_weights_: MetaWeights

    def __init__(self, file: str | Path | None = None, scalars: str = "kept") -> None:
        self.file = file
        self.scalars = scalars

    def __sklearn_clone__(self) -> Self:
        cls = type(self)
        made = cls(**{name: clone(v, safe=False) for name, v in self.get_params(False).items()})
        if hasattr(self, "meta_weights_"):
            made.meta_weights_ = self.meta_weights_
        return made

    @property
    def temperature(self) -> float | None:
        """The factor of the trained temperature; None where it is fitted."""
        return 1.0 if self.scalars == "kept" else None

    @property
    def prior_score(self) -> float | None:
        """What is added to the trained score of the prior; None where it is fitted."""
        return 0.0 if self.scalars == "kept" else None

    @property
    def chooses_n_neighbors(self) -> bool:  # type: ignore[override]
        """Whether `fit` chooses the number of neighbors by leave-one-out."""
        return self.scalars == "fitted"

    def prepare_fit(self, n_neighbors: int) -> None:  # noqa: ARG002
        check_choice("scalars", self.scalars, SCALARS)
        if self.file is not None:
            self.meta_weights_ = read_weights(self.file)
        if not hasattr(self, "meta_weights_"):
            raise InvalidSettingError(
                "Meta-learned attention must be trained before it is used, got no weights. Take "
                "the attention that `attnknn.meta_train` returns, or give the `file` that its "
                "`save_weights` wrote."
            )

    def save_weights(self, path: str | Path) -> None:
        """Write the trained weights to a file, for `file=` and `--meta-weights`.

        Parameters
        ----------
        path : str or path
            The file, in the safetensors format; an existing one is replaced.
        """
        from safetensors.numpy import save

        write_file(path, save(self.meta_weights_.arrays()), force=True)

    def scores(self, batch: NeighborBatch) -> Scores:
        weights = self.meta_weights_
        width = weights.projection.shape[1]
        if batch.vectors.width != width:
            raise InvalidInputError(
                f"Meta-learned attention was trained on embeddings of {width} columns, got "
                f"{batch.vectors.width}. Use the same encoder as in `meta_train`."
            )
        vectors, positions = batch.vectors.gather(batch.neighbors.positions)
        entries = self._projected(vectors)
        queries = (batch.queries @ weights.projection.T).astype(np.float64)
        n_neighbors = positions.shape[1]
        step = max(1, BLOCK // max(1, n_neighbors * (len(weights.projection) + n_neighbors)))
        squared = np.zeros(positions.shape)
        for start in range(0, len(queries), step):
            part = slice(start, start + step)
            neighbors = self._moved(batch.rows(part), entries[positions[part]])
            squared[part] = np.square(queries[part, None] - neighbors).sum(axis=2)
        scores = np.where(batch.neighbors.mask, -squared / weights.temperature, 0.0)
        return Scores(scores[:, None], np.full((len(queries), 1), weights.prior_score))

    def _moved(self, batch: NeighborBatch, projected: NDArray[np.float32]) -> Floats:
        """The projected neighbors (B, K, E), each moved toward the mean of those of its class."""
        labels, mask = batch.neighbors.labels, batch.neighbors.mask
        near = projected.astype(np.float64)
        is_same = (labels[:, :, None] == labels[:, None]) & mask[:, None] & mask[:, :, None]
        mass = is_same * batch.sample_weight[:, None]
        mass /= np.maximum(mass.sum(axis=2, keepdims=True), 1e-300)  # no neighbor: all are 0
        moved: Floats = near + self.meta_weights_.class_mixing * (mass @ near - near)
        return moved

    def _projected(self, entries: NDArray[np.float32]) -> NDArray[np.float32]:
        """All entries (N, E), projected once per state of the memory."""
        known = self.__dict__.get("_projection")  # read once: another thread may replace it
        if known is None or known[0] is not entries:
            known = (entries, entries @ self.meta_weights_.projection.T)
            self._projection = known
        return known[1]

    def state(self) -> tuple[dict[str, Any], Arrays]:
        weights = self.meta_weights_
        numbers = {name: float(getattr(weights, name)) for name in NUMBERS}
        return numbers, {"projection": weights.projection}

    def restore(self, values: dict[str, Any], arrays: Arrays, dim: int, n_classes: int) -> None:  # noqa: ARG002
        fields = fitted_fields(values)
        numbers = [fields.number(name) for name in NUMBERS]
        if arrays["projection"].ndim != 2 or arrays["projection"].shape[1] != dim:
            raise ModelFolderError("The stored projection must fit the embeddings.")
        self.meta_weights_ = MetaWeights(arrays["projection"], *numbers)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        state.pop("_projection", None)
        return state


def read_weights(path: str | Path) -> MetaWeights:
    """The weights in a file that `MetaLearnedAttention.save_weights` wrote."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        with open_regular(Path(path)) as file:
            arrays = load(file.read())
    except (OSError, SafetensorError) as error:
        raise InvalidSettingError(
            f"`file` must be one that `MetaLearnedAttention.save_weights` wrote, got {path} "
            f"({error})."
        ) from error
    return MetaWeights.from_arrays(arrays)
