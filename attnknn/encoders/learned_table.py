"""The learned table encoder: a network that is trained so that neighbors share labels."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from attnknn._validation import (
    Limits,
    check_at_least,
    check_choice,
    check_limits,
    check_records,
)
from attnknn.encoders.base import (
    BATCH_SIZE,
    EMBED_DIM,
    EPOCHS,
    Arrays,
    Encoder,
    Settings,
)
from attnknn.encoders.tabular import NumericColumn, TableEncoder
from attnknn.records import Integers
from attnknn.registry import Option, register
from attnknn.training.config import LossTerms, TrainConfig

if TYPE_CHECKING:
    from attnknn.encoders.table_net import TableNet

ROWS_AT_ONCE = 4096
NetworkName = Literal["waves", "deep", "sparing"]
TRAINING = TrainConfig(
    batch_size=256, weight_decay=1e-4, warmup=0.05, label_smoothing=0.0, average=0.99
)
UNSET: Any = None
LAYER_LIMITS = {
    "n_blocks": Limits(least=0, is_whole=True, may_be_none=True),
    "column_dropout": Limits(least=0, below=1, may_be_none=True),
    "n_frequencies": Limits(least=0, is_whole=True, may_be_none=True),
    "frequency_scale": Limits(least=0, may_be_none=True),
    "number_dim": Limits(least=1, is_whole=True, may_be_none=True),
}
LIMITS = {
    **dict.fromkeys(
        ("embed_dim", "width", "max_categories", "refresh"), Limits(least=1, is_whole=True)
    ),
    "n_candidates": Limits(least=0, is_whole=True),
    "dropout": Limits(least=0, below=1),
    "holdout": Limits(above=0, below=1),
}


@dataclass(frozen=True)
class TableLayers:
    """Layers of the network of `LearnedTableEncoder`; None takes the value of the chosen network.

    Parameters
    ----------
    n_blocks : int, optional
        Residual blocks.
    column_dropout : float, optional
        Share of the columns that each row loses in each training step.
    n_frequencies : int, default=24
        Sine and cosine features per numeric column.
    frequency_scale : float, optional
        Scale of the frequencies at initialization; larger values fit faster changes.
    number_dim : int, default=12
        Size of the embedding of each numeric column.
    """

    n_blocks: int = UNSET
    column_dropout: float = UNSET
    n_frequencies: int = 24
    frequency_scale: float = UNSET
    number_dim: int = 12

    def __post_init__(self) -> None:
        check_limits(self, LAYER_LIMITS)

    def to_dict(self) -> dict[str, Any]:
        """Return every setting by name."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore settings from `to_dict`."""
        return cls(**stored)


RECORDS: dict[str, Any] = {"training": TrainConfig, "layers": TableLayers, "loss": LossTerms}
NETWORKS: dict[NetworkName, TableLayers] = {
    "waves": TableLayers(n_blocks=0, frequency_scale=1.0, column_dropout=0.2),
    "deep": TableLayers(n_blocks=1, frequency_scale=0.2, column_dropout=0.0),
    "sparing": TableLayers(n_blocks=1, frequency_scale=0.2, column_dropout=0.2),
}
LEARNING_RATES: dict[NetworkName, float] = {"waves": 8e-3, "deep": 4e-3, "sparing": 4e-3}


@register("encoder", "learned-tabular")
class LearnedTableEncoder(Encoder):
    """Embed table rows with a network that is trained for the vote.

    The columns are encoded by `TableEncoder`, with numbers as normal scores (`scaling="normal"`).
    A network of periodic features (sines and cosines of the numbers) and residual blocks maps them
    to embeddings. `AttnKNNClassifier.fit` trains the network leave-one-out: other rows vote on the
    label of each row, and the gradient of the log-loss flows through the embeddings of the row and
    of the voters. Held-out rows determine when training stops, and become entries like the others.
    `fit` of the encoder alone fits the columns and leaves the network untrained.

    Parameters
    ----------
    embed_dim : int, default=128
        Size of an embedding.
    network : {"auto", "waves", "deep", "sparing"}, default="auto"
        "waves" has periodic features of high frequency, which can follow labels that change
        quickly with a number, and one hidden layer. "deep" has low frequencies and a residual
        block, for smoother dependencies. "sparing" is "deep" with column dropout: each row loses
        20 % of its columns in each training step (as in "waves"). With up to 20,000 training rows,
        "auto" trains each network for a fifth of the epochs with at most 256 candidates, trains the
        one with the lowest validation loss again for all epochs, and keeps the better of these two
        trainings. With more rows it chooses "waves".
    width : int, default=256
        Width of the network; larger values fit more and take longer.
    dropout : float, default=0.2
        Share of the activations inside a block that each training step drops.
    layers : TableLayers, optional
        Number of residual blocks and periodic features, and rate of column dropout
        (`attnknn.encoders.learned_table.TableLayers`). None uses the values of `network`.
    max_categories : int, default=64
        As in `TableEncoder`.
    candidates : {"sampled", "nearest"}, default="sampled"
        Which rows vote in training: `n_candidates` random rows and the batch itself, or the
        `n_candidates` nearest rows of each, searched again every `refresh` epochs.
    n_candidates : int, default=2048
        Number of candidates; with 0 only the batch votes.
    refresh : int, default=1
        Epochs between two searches for the nearest candidates.
    training : TrainConfig, optional
        Settings of the training. Defaults: batches of 256 rows, weight decay of 1e-4, a learning
        rate of 8e-3 ("waves") or 4e-3 that rises in the first 5 % of the steps (warmup), a moving
        average of the weights with a decay of 0.99 per step, the number of epochs that gives about
        1,200 steps (at least 12, at most 30), and a patience of a fifth of the epochs (at least 3).
    holdout : float, default=0.15
        Share of the rows that are not trained on.
    loss : LossTerms, optional
        Terms that are added to the log-loss: entropy of the weights, calibration error, risk at a
        coverage. None adds none.

    Attributes
    ----------
    table_ : TableEncoder
        The fitted encoder of the columns.
    module_ : TableNet
        The network, a `torch.nn.Module`.
    network_ : {"waves", "deep", "sparing"}
        Name of the network in use, which "auto" has chosen.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> from attnknn.training import TrainConfig
    >>> X, y = load_iris(return_X_y=True)
    >>> encoder = LearnedTableEncoder(embed_dim=8, width=16, training=TrainConfig(epochs=2))
    >>> AttnKNNClassifier(encoder=encoder, random_state=0).fit(X, y).embed(X).shape
    (150, 8)
    """

    allows_missing: ClassVar[bool] = True
    is_trained: ClassVar[bool] = True
    is_trained_jointly: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (EMBED_DIM, EPOCHS, BATCH_SIZE)

    def __init__(
        self,
        embed_dim: int = 128,
        *,
        network: NetworkName | Literal["auto"] = "auto",
        width: int = 256,
        dropout: float = 0.2,
        layers: TableLayers | None = None,
        max_categories: int = 64,
        candidates: Literal["sampled", "nearest"] = "sampled",
        n_candidates: int = 2048,
        refresh: int = 1,
        training: TrainConfig | None = None,
        holdout: float = 0.15,
        loss: LossTerms | None = None,
    ) -> None:
        self.embed_dim = embed_dim
        self.network = network
        self.width = width
        self.dropout = dropout
        self.layers = layers
        self.max_categories = max_categories
        self.candidates = candidates
        self.n_candidates = n_candidates
        self.refresh = refresh
        self.training = training
        self.holdout = holdout
        self.loss = loss

    @classmethod
    def from_options(cls, **given: Any) -> Self:
        training = {name: given.pop(name) for name in ("epochs", "batch_size") if name in given}
        return cls(**given, training=TrainConfig(**training) if training else None)

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        self.check_settings()
        self._set_table(TableEncoder("normal", self.max_categories).fit(X))
        self.build(0)
        return self

    def train(self, X: Any, labels: Integers, **context: Any) -> Any:
        # By name, since the trainers are in a room above the encoders.
        train = pkgutil.resolve_name("attnknn.fitting.tables:train_table")
        return train(self, self.inputs(X), labels, **context)

    def build(self, random_state: int, network: NetworkName | None = None) -> None:
        """Replace the network by an untrained one.

        Parameters
        ----------
        random_state : int
            Seed of the initial weights.
        network : {"waves", "deep", "sparing"}, default=None
            The network; None takes the first of `networks()`.
        """
        import torch

        from attnknn.encoders.table_net import NetShape, TableNet

        self.network_: NetworkName = network or self.networks()[0]
        n_numbers, places = _layout(self.table_)
        layers = self._network_layers()
        shape = NetShape(
            n_numbers=n_numbers,
            places=places,
            n_frequencies=layers.n_frequencies,
            number_dim=layers.number_dim,
            width=self.width,
            n_blocks=layers.n_blocks,
            embed_dim=self.embed_dim,
            dropout=self.dropout,
            column_dropout=layers.column_dropout,
        )
        generator = torch.Generator().manual_seed(random_state)
        self.width_ = self.embed_dim
        net = TableNet(shape, generator, frequency_scale=layers.frequency_scale)
        self.module_: TableNet = net.eval()

    def networks(self) -> tuple[NetworkName, ...]:
        """List the networks that may be tried.

        Returns
        -------
        tuple of str
            All networks for "auto", else the one chosen.
        """
        return tuple(NETWORKS) if self.network == "auto" else (self.network,)

    def _network_layers(self) -> TableLayers:
        """The layers chosen by the user, completed by those of the current network."""
        own = {n: v for n, v in vars(self.layers or TableLayers()).items() if v is not None}
        return replace(NETWORKS[self.network_], **own)

    def train_config(self) -> TrainConfig:
        """Combine the training settings of the user with the defaults of the current network.

        Returns
        -------
        TrainConfig
            Settings; epochs and patience may be None.
        """
        defaults = replace(TRAINING, learning_rate=LEARNING_RATES[self.network_])
        return (self.training or TrainConfig()).filled(defaults)

    def inputs(self, X: Any) -> NDArray[np.float32]:
        """Convert rows to inputs of the network.

        Parameters
        ----------
        X : array-like or DataFrame
            Rows as in `fit`.

        Returns
        -------
        ndarray of shape (n_rows, n_inputs)
            Outputs of `table_`, numbers first.
        """
        self.check_fitted()
        return self.table_.transform(X)[:, self._order].astype(np.float32)

    def transform(self, X: Any) -> NDArray[np.float32]:
        return self.embed(self.inputs(X))

    def embed(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Apply the network.

        Parameters
        ----------
        inputs : ndarray of shape (n_rows, n_inputs)
            Rows that `inputs` returned.

        Returns
        -------
        ndarray of shape (n_rows, embed_dim)
            Embeddings.
        """
        import torch

        self.module_.eval()
        parts = range(0, len(inputs), ROWS_AT_ONCE)
        with torch.no_grad():
            rows = [torch.from_numpy(inputs[at : at + ROWS_AT_ONCE]) for at in parts]
            embedded = [self.module_(part).numpy() for part in rows]
        return np.concatenate(embedded) if embedded else np.zeros((0, self.embed_dim), np.float32)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        self.check_fitted()
        return np.array([f"learned {place}" for place in range(self.embed_dim)], dtype=object)

    def to_settings(self) -> tuple[Settings, Arrays]:
        self.check_fitted()
        columns, arrays = self.table_.to_settings()
        state = self.module_.state_dict()
        weights = {_file_name(name): value.numpy().ravel() for name, value in state.items()}
        return {
            "encoder": self.name,
            "settings": {
                name: value.to_dict() if hasattr(value, "to_dict") else value
                for name, value in self.get_params(False).items()
            },
            "network": self.network_,
            "columns": columns,
        }, {**arrays, **{name: array.astype(np.float64) for name, array in weights.items()}}

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:
        stored = dict(settings["settings"])
        for name, record in RECORDS.items():
            if stored[name] is not None:
                stored[name] = record.from_dict(stored[name])
        encoder = cls(**stored)
        encoder.check_settings()
        encoder._set_table(TableEncoder.from_settings(settings["columns"], arrays))
        encoder.network_ = settings["network"]
        _check_sizes(encoder, arrays)
        encoder.build(0, encoder.network_)
        encoder._load(arrays)
        return encoder

    def check_settings(self) -> None:
        """Raise an error for the first setting out of range."""
        check_limits(self, LIMITS)
        check_choice("candidates", self.candidates, ["sampled", "nearest"])
        check_choice("network", self.network, ["auto", *NETWORKS])
        check_records(self, RECORDS)
        if self.training is not None and self.training.batch_size is not None:
            check_at_least("batch_size", self.training.batch_size, 2)

    def _set_table(self, table: TableEncoder) -> None:
        self.table_, self._order = table, _numbers_first(table)
        self.n_features_in_ = table.n_features_in_
        self._set_names(getattr(table, "feature_names_in_", None))

    def _load(self, arrays: Arrays) -> None:
        import torch

        state = self.module_.state_dict()
        for name, value in state.items():
            stored = arrays[_file_name(name)]
            if not np.isfinite(stored).all():
                raise ValueError(f"the weights {name!r} must be finite")
            value.copy_(torch.from_numpy(stored).to(value.dtype).reshape(value.shape))


def _layout(table: TableEncoder) -> tuple[int, tuple[int, ...]]:
    """Number of scaled numbers of a table encoder, and the width of each of its other columns."""
    n_numbers, places = 0, []
    for column in table.columns_:
        is_number = isinstance(column, NumericColumn) and not column.is_constant
        n_numbers += is_number
        n_others = len(column.output_names()) - is_number
        places += [n_others] if n_others else []
    return n_numbers, tuple(places)


def _numbers_first(table: TableEncoder) -> Integers:
    """An order of the outputs of a table encoder in which scaled numbers come first."""
    is_number = [
        place == 0 and isinstance(column, NumericColumn) and not column.is_constant
        for column in table.columns_
        for place in range(len(column.output_names()))
    ]
    return np.argsort(~np.array(is_number), kind="stable")


def _file_name(parameter: str) -> str:
    """The name of a parameter in a model folder, where names have no dots."""
    return "net_" + parameter.replace(".", "__")


def _check_sizes(encoder: LearnedTableEncoder, arrays: Arrays) -> None:
    """Check the sizes of stored weights before a network of these sizes is built."""
    n_numbers, places = _layout(encoder.table_)
    layers = encoder._network_layers()
    n_inputs = sum(places) + n_numbers * layers.number_dim
    wanted = {
        "entrance.weight": n_inputs * encoder.width,
        "exit.weight": encoder.width * encoder.embed_dim,
        **{f"blocks.{i}.up.weight": 2 * encoder.width**2 for i in range(layers.n_blocks)},
    }
    if n_numbers:
        wanted["waves.frequencies"] = n_numbers * layers.n_frequencies
    for name, size in wanted.items():
        if arrays[_file_name(name)].size != size:
            raise ValueError(f"the weights {name!r} do not have the size that the settings name")
