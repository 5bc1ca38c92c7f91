"""The embedded rows that all methods of a run get: subsets, corruption, encoders."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnknn.encoders import make_encoder
from attnknn.errors import InvalidSettingError
from attnknn.memory.entries import NO_GROUP
from attnknn.records import Booleans, Integers
from attnknn.registry import registered
from attnknn.research.datasets import Dataset
from attnknn.research.datasets.base import row_hashes
from attnknn.research.evaluation.corruption import NO_SHIFT, Corruption, Shift
from attnknn.research.evaluation.protocol import Predictions, Progress, encoder_for
from attnknn.research.experiments.networks import Network, has_images
from attnknn.training.config import TrainResult

if TYPE_CHECKING:
    from attnknn.attention import LearnedAttention
    from attnknn.attention.scores import NeighborScores


def subsample(data: Dataset, n_rows: int | None) -> Dataset:
    """The data set with a stratified subset of `n_rows` training rows; None takes all.

    >>> from attnknn.research import datasets
    >>> few = subsample(datasets.load("iris"), 12)
    >>> np.bincount(few.y_train).tolist()
    [4, 4, 4]
    """
    if n_rows is None:
        return data
    n_all = len(data.y_train)
    if n_rows > n_all:
        raise InvalidSettingError(
            f"`n_rows` must be at most the {n_all:,} training rows of {data.name!r}, got "
            f"{n_rows:,}."
        )
    rows = stratified_subset(data.y_train, n_rows, data.name)
    X = data.X_train.iloc[rows] if hasattr(data.X_train, "iloc") else data.X_train[rows]
    true = {name: data.extras[name][rows] for name in ("y_true",) if name in data.extras}
    return replace(data, X_train=X, y_train=data.y_train[rows], extras={**data.extras, **true})


def stratified_subset(y: Integers, n: int, name: str) -> Integers:
    """Sorted positions of `n` rows, stratified, with at least one of each class where possible.

    The choice depends on `name`, positions and labels only.

    >>> y = np.repeat([0, 1, 2], [80, 16, 4])
    >>> np.bincount(y[stratified_subset(y, 25, "iris")]).tolist()
    [20, 4, 1]
    """
    drawn = np.argsort(row_hashes(name, len(y)), kind="stable")
    order = np.argsort(y[drawn], kind="stable")
    _, of_class, counts = np.unique(y[drawn], return_inverse=True, return_counts=True)
    place = np.empty(len(y), dtype=np.int64)  # within its class, in order of hashes
    place[order] = np.arange(len(y)) - np.repeat(counts.cumsum() - counts, counts)
    first = np.argsort(place / counts[of_class], kind="stable")[:n]
    return np.sort(drawn[first])


Views = NDArray[np.float32]  # (V, n, D): the embeddings of n rows in each of V views


@dataclass(frozen=True)
class Retraining:
    """Another training of the encoder: what differs from the one that all methods share."""

    name: str  # of its folder
    changes: Mapping[str, Any] = field(default_factory=dict)  # of the `Network`
    joint: LearnedAttention | None = None  # attention that is trained with the encoder


@dataclass(frozen=True, eq=False)
class EmbeddedDataset:
    """A data set that was corrupted and embedded from one seed: what all methods get."""

    data: Dataset
    seed: int
    corruption: str  # description of what was done to training rows and test images
    encoder: str  # description of the encoder
    entries: NDArray[np.float32]  # (N, D) embeddings of the training rows
    codes: Integers  # (N,) their labels
    # (N,) rows that the encoder was not trained on; None if it was not trained at all
    held_out: Booleans | None
    queries: Views  # (V, n, D) the test rows in each view; the first view is the row itself
    # (V, n_held_out, D) the held-out rows likewise; empty without a trained encoder
    held_out_views: Views
    # those of the CNN head of the same training, if there is one
    head_predictions: tuple[Predictions, ...] = ()
    training: TrainResult | None = None  # of the encoder
    scores: NeighborScores | None = None  # of attention that was trained with the encoder
    fitted_encoder: Any = None  # that embedded the rows
    # trains another encoder on the same rows; None without a trained encoder
    retrain: Callable[[Retraining], EmbeddedDataset] | None = None

    @property
    def n_classes(self) -> int:
        return len(self.data.classes)


def embed_rows(
    data: Dataset,
    corruption: Corruption,
    seed: int,
    *,
    encoder: Any = "auto",
    n_rows: int | None = None,
) -> EmbeddedDataset:
    """Embed rows by an encoder, that of tables may be trained; `n_rows` takes a subset."""
    from attnknn.fitting.encoders import FittedEncoder, train_encoder

    data = subsample(data, n_rows)
    chosen = encoder_of(data, encoder)
    corrupted = corruption.apply(data.y_train, len(data.classes), seed)
    rows = corrupted.take(data.X_train)
    if chosen.is_trained:
        fitted = train_encoder(
            chosen,
            rows,
            corrupted.codes,
            n_classes=len(data.classes),
            groups=np.full(len(corrupted.codes), NO_GROUP),
            random_state=seed,
        )
    else:
        chosen.fit(rows, corrupted.codes)
        fitted = FittedEncoder(chosen, chosen.transform(rows))
    entries = np.asarray(fitted.embeddings, dtype=np.float32)
    queries = np.asarray(chosen.transform(data.X_test), dtype=np.float32)[None]
    held_out = np.zeros(len(entries), dtype=bool) if fitted.held_out is None else fitted.held_out
    return EmbeddedDataset(
        data=data,
        seed=seed,
        corruption=describe_corruption(data, corruption),
        encoder=rows_encoder_description(data, encoder, n_rows),
        entries=entries,
        codes=corrupted.codes,
        held_out=fitted.held_out,
        queries=queries,
        held_out_views=entries[held_out][None],
        training=fitted.training,
        fitted_encoder=chosen,
    )


def encoder_of(data: Dataset, encoder: Any) -> Any:
    """The unfitted encoder of rows; that of tables may be trained for the vote."""
    if isinstance(encoder, str) and encoder in trained_encoders():
        return make_encoder(encoder)
    return encoder_for(data, encoder)


def trained_encoders() -> list[str]:
    """Names of the encoders of tables that are trained for the vote."""
    return [
        name
        for name, cls in registered("encoder").items()
        if getattr(cls, "is_trained", False) and "table" in getattr(cls, "accepts", ())
    ]


def embed_images(
    data: Dataset,
    corruption: Corruption,
    seed: int,
    network: Network,
    folder: Path,
    *,
    n_rows: int | None = None,
    shift: Shift = NO_SHIFT,
    joint: LearnedAttention | None = None,
    verbose: int = 0,
) -> EmbeddedDataset:
    """Embed images by an encoder that is trained for them, or resumed from its checkpoint."""
    from attnknn.research.experiments.methods import predict_by_head
    from attnknn.research.experiments.networks import as_images, trained_encoder

    data = subsample(data, n_rows)
    corrupted = corruption.apply(data.y_train, len(data.classes), seed)
    trained = trained_encoder(
        network,
        corrupted.take(as_images(data, data.X_train)),
        corrupted.codes,
        len(data.classes),
        seed=seed,
        checkpoint=folder / "checkpoint",
        joint=joint,
        verbose=verbose,
    )
    encoder, views = trained.encoder, network.views
    queries = encoder.features(shift.apply(as_images(data, data.X_test), seed), views)
    held_out = encoder.features(trained.images[trained.held_out], views)
    has_noise = corruption.is_label_noise or has_noisy_labels(data)
    by_head: tuple[Predictions, ...] = ()
    if trained.training.baseline is not None:
        by_head = tuple(predict_by_head(trained, queries, held_out, has_noise=has_noise))
    return EmbeddedDataset(
        data=data,
        seed=seed,
        corruption=describe_corruption(data, corruption, shift),
        encoder=network_description(network, n_rows),
        entries=encoder.transform(trained.images),
        codes=corrupted.codes,
        held_out=trained.held_out,
        queries=encoder.embed(queries),
        held_out_views=encoder.embed(held_out),
        head_predictions=by_head,
        training=trained.training.result,
        scores=trained.scores,
        fitted_encoder=encoder,
    )


def has_noisy_labels(data: Dataset) -> bool:
    """Whether some training labels are known to be wrong, as those of CIFAR-10N are."""
    return "y_true" in data.extras


def describe_corruption(data: Dataset, corruption: Corruption, shift: Shift = NO_SHIFT) -> str:
    """Description of wrong labels, corruption and shift; '' for none of these."""
    real = ""
    if has_noisy_labels(data):
        wrong = (data.y_train != data.extras["y_true"]).mean()
        real = f"{100 * wrong:.1f} % wrong labels in the data"
    return "; ".join(filter(None, [real, corruption.description, shift.description]))


def network_description(network: Network, n_rows: int | None) -> str:
    """Description of a trained encoder for reports."""
    return _with_rows(network.description, n_rows)


def encoder_settings(data: Dataset, encoder: Any) -> dict[str, Any]:
    """Name and plain settings of an encoder of rows."""
    chosen = encoder_of(data, encoder)
    inner = getattr(chosen, "inner", chosen)
    settings = inner.get_params(deep=False) if hasattr(inner, "get_params") else {}
    plain = {
        name: value
        for name, value in settings.items()
        if isinstance(value, bool | int | float | str | None)
    }
    return {"name": rows_encoder_description(data, encoder, None), **plain}


def rows_encoder_description(data: Dataset, encoder: Any, n_rows: int | None) -> str:
    """Description of an encoder of rows for reports."""
    chosen = encoder_of(data, encoder)
    return _with_rows(getattr(chosen, "name", type(chosen).__name__), n_rows)


def _with_rows(words: str, n_rows: int | None) -> str:
    return words if n_rows is None else f"{words}, {n_rows:,} rows only"


@dataclass(frozen=True)
class Setup:
    """A data set, the encoder of its rows, and the folder of reports."""

    data: Dataset
    # of all claims; trained encoders are in its subfolder `trainings`, which claims share
    folder: Path
    # the image encoder that is trained; None embeds rows without training
    network: Network | None = None
    n_rows: int | None = None  # size of a stratified subset of the training rows
    encoder: str = "auto"  # of tables and vectors
    preset: str | None = None  # name of the preset that this setup comes from
    progress: Progress = field(default=lambda _: None)
    joint: LearnedAttention | None = None  # attention that is trained with the encoder
    # what differs from the document of a preset: setting, value there, value here
    differs: Sequence[tuple[str, str, str]] = ()
    verbose: int = 0  # 1 prints the losses of every epoch

    @cached_property
    def rows(self) -> Dataset:
        """The data set with the chosen training rows."""
        return subsample(self.data, self.n_rows)

    @property
    def trained(self) -> Network | None:
        """The network, where the data set has images to train it on."""
        return self.network if has_images(self.data) else None

    @property
    def encoder_description(self) -> str:
        """Description of the encoder for reports."""
        if self.trained is None:
            return rows_encoder_description(self.data, self.encoder, self.n_rows)
        return network_description(self.trained, self.n_rows)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that embeddings depend on, for reports."""
        network = self.trained
        return {
            "preset": self.preset,
            "rows": self.n_rows,
            "encoder": None if network else encoder_settings(self.data, self.encoder),
            "network": network.settings if network else None,
            **({"differs": [list(row) for row in self.differs]} if self.differs else {}),
        }

    def describe(self, corruption: Corruption, shift: Shift = NO_SHIFT) -> str:
        """Description of corruption and shift for reports."""
        return describe_corruption(self.rows, corruption, shift)

    def n_entries(self, corruption: Corruption) -> int:
        """Number of training rows after corruption, the same for every seed."""
        return len(corruption.apply(self.rows.y_train, len(self.rows.classes), seed=0).rows)

    def embed(self, corruption: Corruption, seed: int, shift: Shift = NO_SHIFT) -> EmbeddedDataset:
        """Corrupt and embed the data set; an image encoder is trained first."""
        if self.trained is None:
            return embed_rows(self.data, corruption, seed, encoder=self.encoder, n_rows=self.n_rows)
        words = f", {corruption.description}" if corruption.description else ""

        def train(again: Retraining | None = None) -> EmbeddedDataset:
            assert self.trained is not None
            again = again or Retraining("", joint=self.joint)
            which = f"{again.name} encoder".strip()
            self.progress(f"{self.data.name}{words}: {which}, seed {seed}")
            return embed_images(
                self.data,
                corruption,
                seed,
                self.trained.changed(again.changes),
                self.training_folder(corruption, seed, again.name),
                n_rows=self.n_rows,
                shift=shift,
                joint=again.joint,
                verbose=self.verbose,
            )

        return replace(train(), retrain=train)

    def training_folder(self, corruption: Corruption, seed: int, name: str = "") -> Path:
        """Folder of the checkpoint of a training; those of a study's own have a name."""
        assert self.network is not None
        rows = [f"{self.n_rows}-rows"] if self.n_rows else []
        damage = [] if self._leaves_all(corruption) else [corruption.name]
        own = ["-".join(re.findall(r"[\w.]+", name))] if name else []
        parts = [self.data.name, self.network.name, *rows, *damage, *own]
        return self.folder / "trainings" / "-".join(parts) / str(seed)

    def _leaves_all(self, corruption: Corruption) -> bool:
        """Whether every row keeps its label, as with an imbalance of 1."""
        return corruption.does_nothing or (
            not corruption.is_label_noise and self.n_entries(corruption) == len(self.rows.y_train)
        )
