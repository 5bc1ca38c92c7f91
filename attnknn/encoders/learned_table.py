"""A table encoder whose embedding is learned: rows that belong together come to lie together."""

from __future__ import annotations

import pkgutil
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from attnknn._validation import Limits, check_choice, check_limits
from attnknn.encoders.base import (
    BATCH_SIZE,
    EMBED_DIM,
    EPOCHS,
    Arrays,
    BaseEncoder,
    Settings,
    damaged,
)
from attnknn.encoders.tabular import NumericColumn, TableEncoder
from attnknn.errors import NotFittedYetError
from attnknn.records import Integers
from attnknn.registry import Option, register

if TYPE_CHECKING:
    from attnknn.encoders.table_net import TableNet

ROWS_AT_ONCE = 4096
NetworkName = Literal["waves", "deep", "sparing"]
NETWORKS: dict[NetworkName, dict[str, float]] = {
    "waves": {
        "n_blocks": 0,
        "frequency_scale": 1.0,
        "learning_rate": 8e-3,
        "column_dropout": 0.2,
    },
    "deep": {
        "n_blocks": 1,
        "frequency_scale": 0.2,
        "learning_rate": 4e-3,
        "column_dropout": 0.0,
    },
    "sparing": {
        "n_blocks": 1,
        "frequency_scale": 0.2,
        "learning_rate": 4e-3,
        "column_dropout": 0.2,
    },
}
LIMITS = {
    **dict.fromkeys(
        ("embed_dim", "width", "number_dim", "max_categories", "refresh"),
        Limits(least=1, is_whole=True),
    ),
    **dict.fromkeys(("epochs", "patience"), Limits(least=1, is_whole=True, may_be_none=True)),
    **dict.fromkeys(("n_frequencies", "n_candidates"), Limits(least=0, is_whole=True)),
    "n_blocks": Limits(least=0, is_whole=True, may_be_none=True),
    "batch_size": Limits(least=2, is_whole=True),
    "dropout": Limits(least=0, below=1),
    "column_dropout": Limits(least=0, below=1, may_be_none=True),
    "label_smoothing": Limits(least=0, below=1),
    "average": Limits(least=0, below=1),
    "frequency_scale": Limits(least=0, may_be_none=True),
    "learning_rate": Limits(above=0, may_be_none=True),
    "weight_decay": Limits(least=0),
    "holdout": Limits(above=0, below=1),
}


@register("encoder", "learned-tabular")
class LearnedTableEncoder(BaseEncoder):
    """Rows of a table through a network that is trained for the vote.

    The columns are read as `TableEncoder` reads them (numbers by rank on a bell curve). A network
    of waves and residual blocks turns them into embeddings. `AttnKNNClassifier.fit` trains it
    leave-one-out: each row asks sampled other rows for its own label, and gradients flow through
    both sides. Rows held out of training judge when to stop, and join the memory afterward.
    `fit` of the encoder alone reads the columns and leaves the network as it starts.

    Parameters
    ----------
    embed_dim : numbers in an embedding
    network : "waves" has fast waves and one hidden layer; "deep" slow waves and a residual block;
        "sparing" is "deep" that learns to do without some columns. "auto" tries all on up to
        20,000 rows and trains the one that held-out rows like best, else "waves"
    width : of the network; wider fits more and takes longer
    n_blocks, frequency_scale, learning_rate : residual blocks, the frequency of the fastest wave
        at the start, and the rate of the training; None is the network's own
    dropout : share of the numbers inside a block left out in each step of training
    column_dropout : share of its columns that each row loses in each step of training; None is the
        network's own
    n_frequencies, number_dim : waves per numeric column, and the numbers they become
    max_categories : as in `TableEncoder`
    candidates : "sampled" asks `n_candidates` random rows and the batch itself; "nearest" asks the
        `n_candidates` nearest rows of each, found again every `refresh` epochs
    n_candidates : 0 asks the batch alone
    epochs : None is as many as make 1,200 steps, but 12 to 60
    patience : epochs without a better judgment that end the training; None is a fifth of `epochs`
    batch_size, weight_decay : of the training
    label_smoothing : share of each label that is spread over all classes in the loss
    average : decay of the moving average of the weights that is kept; 0 keeps the last weights
    holdout : share of the rows that are not trained on

    Attributes
    ----------
    table_ : the fitted `TableEncoder` in front
    module_ : the network
    network_ : which of the networks it is

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from attnknn import AttnKNNClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> encoder = LearnedTableEncoder(embed_dim=8, width=16, epochs=2)
    >>> AttnKNNClassifier(encoder=encoder, random_state=0).fit(X, y).embed(X).shape
    (150, 8)
    """

    allows_missing: ClassVar[bool] = True
    is_trained: ClassVar[bool] = True
    options: ClassVar[tuple[Option, ...]] = (EMBED_DIM, EPOCHS, BATCH_SIZE)

    def __init__(
        self,
        embed_dim: int = 128,
        *,
        network: NetworkName | Literal["auto"] = "auto",
        width: int = 256,
        n_blocks: int | None = None,
        dropout: float = 0.2,
        column_dropout: float | None = None,
        n_frequencies: int = 24,
        frequency_scale: float | None = None,
        number_dim: int = 12,
        max_categories: int = 64,
        candidates: Literal["sampled", "nearest"] = "sampled",
        n_candidates: int = 2048,
        refresh: int = 1,
        epochs: int | None = None,
        batch_size: int = 256,
        learning_rate: float | None = None,
        weight_decay: float = 1e-4,
        label_smoothing: float = 0.0,
        average: float = 0.99,
        patience: int | None = None,
        holdout: float = 0.15,
    ) -> None:
        self.embed_dim = embed_dim
        self.network = network
        self.width = width
        self.n_blocks = n_blocks
        self.dropout = dropout
        self.column_dropout = column_dropout
        self.n_frequencies = n_frequencies
        self.frequency_scale = frequency_scale
        self.number_dim = number_dim
        self.max_categories = max_categories
        self.candidates = candidates
        self.n_candidates = n_candidates
        self.refresh = refresh
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.label_smoothing = label_smoothing
        self.average = average
        self.patience = patience
        self.holdout = holdout

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002  (scikit-learn's signature)
        """Read the columns of `X`; the network stays at its start until it is taught."""
        self.check_settings()
        self.table_ = TableEncoder("normal", self.max_categories).fit(X)
        self._adopt_names()
        self._order = _numbers_first(self.table_)
        self.build(0)
        return self

    def train(self, X: Any, labels: Integers, **context: Any) -> Any:
        """Train the network for the vote; see `TrainableEncoder`."""
        # By name, since the trainers are in a room above the encoders.
        teach = pkgutil.resolve_name("attnknn.fitting.tables:teach_table")
        return teach(self, self.inputs(X), labels, **context)

    def build(self, random_state: int, network: NetworkName | None = None) -> None:
        """Put a new network in place, at the start that `random_state` names."""
        import torch

        from attnknn.encoders.table_net import NetShape, TableNet

        self.network_: NetworkName = network or self.networks()[0]
        n_numbers, places = _layout(self.table_)
        shape = NetShape(
            n_numbers=n_numbers,
            places=places,
            n_frequencies=self.n_frequencies,
            number_dim=self.number_dim,
            width=self.width,
            n_blocks=int(self.of_network("n_blocks")),
            embed_dim=self.embed_dim,
            dropout=self.dropout,
            column_dropout=self.of_network("column_dropout"),
        )
        chance = torch.Generator().manual_seed(random_state)
        net = TableNet(shape, chance, frequency_scale=self.of_network("frequency_scale"))
        self.module_: TableNet = net.eval()

    def networks(self) -> tuple[NetworkName, ...]:
        """The networks that may be tried."""
        return tuple(NETWORKS) if self.network == "auto" else (self.network,)

    def of_network(self, name: str) -> float:
        """A setting as the user chose it, or as the network in place has it."""
        chosen = getattr(self, name)
        return NETWORKS[self.network_][name] if chosen is None else float(chosen)

    def inputs(self, X: Any) -> NDArray[np.float32]:
        """Rows as the network takes them, numbers first."""
        self._check_fitted()
        return self.table_.transform(X)[:, self._order].astype(np.float32)

    def transform(self, X: Any) -> NDArray[np.float32]:
        """The embeddings (n, embed_dim) of the rows of `X`."""
        return self.embed(self.inputs(X))

    def embed(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The embeddings of rows that `inputs` gave."""
        import torch

        self.module_.eval()
        parts = range(0, len(inputs), ROWS_AT_ONCE)
        with torch.no_grad():
            rows = [torch.from_numpy(inputs[at : at + ROWS_AT_ONCE]) for at in parts]
            embedded = [self.module_(part).numpy() for part in rows]
        return np.concatenate(embedded) if embedded else np.zeros((0, self.embed_dim), np.float32)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:  # noqa: ARG002
        """A name for each number of an embedding."""
        self._check_fitted()
        return np.array([f"learned {place}" for place in range(self.embed_dim)], dtype=object)

    def to_settings(self) -> tuple[Settings, Arrays]:
        """What `from_settings` needs: settings, the columns, and the weights as flat arrays."""
        self._check_fitted()
        columns, arrays = self.table_.to_settings()
        state = self.module_.state_dict()
        weights = {_file_name(name): value.numpy().ravel() for name, value in state.items()}
        return {
            "encoder": self.name,
            "settings": self.get_params(deep=False),
            "network": self.network_,
            "columns": columns,
        }, {**arrays, **{name: array.astype(np.float64) for name, array in weights.items()}}

    @classmethod
    def from_settings(cls, settings: Settings, arrays: Arrays) -> Self:
        """The fitted encoder that `to_settings` described."""
        try:
            encoder = cls(**settings["settings"])
            encoder.check_settings()
            encoder.table_ = TableEncoder.from_settings(settings["columns"], arrays)
            encoder._adopt_names()
            encoder._order = _numbers_first(encoder.table_)
            encoder.network_ = settings["network"]
            _refuse_unbacked(encoder, arrays)
            encoder.build(0, encoder.network_)
            encoder._load(arrays)
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise damaged(cls.registered_name, error) from error
        return encoder

    def check_settings(self) -> None:
        """An error for a setting that cannot be."""
        check_limits(self, LIMITS)
        check_choice("candidates", self.candidates, ["sampled", "nearest"])
        check_choice("network", self.network, ["auto", *NETWORKS])

    def _adopt_names(self) -> None:
        self.n_features_in_ = self.table_.n_features_in_
        if hasattr(self.table_, "feature_names_in_"):
            self.feature_names_in_ = self.table_.feature_names_in_
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_

    def _load(self, arrays: Arrays) -> None:
        import torch

        state = self.module_.state_dict()
        for name, value in state.items():
            stored = arrays[_file_name(name)]
            if not np.isfinite(stored).all():
                raise ValueError(f"the weights {name!r} must be finite")
            value.copy_(torch.from_numpy(stored).to(value.dtype).reshape(value.shape))

    def _check_fitted(self) -> None:
        if not hasattr(self, "table_"):
            raise NotFittedYetError("Call `fit` before `transform`: no columns are known yet.")


def _layout(table: TableEncoder) -> tuple[int, tuple[int, ...]]:
    """How many numbers a table encoder gives, and how many places each of its other columns."""
    n_numbers, places = 0, []
    for column in table.columns_:
        is_number = isinstance(column, NumericColumn) and not column.is_constant
        n_numbers += is_number
        n_others = len(column.output_names()) - is_number
        places += [n_others] if n_others else []
    return n_numbers, tuple(places)


def _numbers_first(table: TableEncoder) -> Integers:
    """Where the outputs of a table encoder go, so that scaled numbers come first."""
    is_number = [
        place == 0 and isinstance(column, NumericColumn) and not column.is_constant
        for column in table.columns_
        for place in range(len(column.output_names()))
    ]
    return np.argsort(~np.array(is_number), kind="stable")


def _file_name(parameter: str) -> str:
    """The name of a parameter in a model folder, where names have no dots."""
    return "net_" + parameter.replace(".", "__")


def _refuse_unbacked(encoder: LearnedTableEncoder, arrays: Arrays) -> None:
    """Sizes alone must not reserve memory: what is large must be in the arrays already."""
    n_numbers, places = _layout(encoder.table_)
    n_inputs = sum(places) + n_numbers * encoder.number_dim
    n_blocks = int(encoder.of_network("n_blocks"))
    wanted = {
        "entrance.weight": n_inputs * encoder.width,
        "exit.weight": encoder.width * encoder.embed_dim,
        **{f"blocks.{i}.up.weight": 2 * encoder.width**2 for i in range(n_blocks)},
    }
    if n_numbers:
        wanted["waves.frequencies"] = n_numbers * encoder.n_frequencies
    for name, size in wanted.items():
        if arrays[_file_name(name)].size != size:
            raise ValueError(f"the weights {name!r} do not have the size that the settings name")
