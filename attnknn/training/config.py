"""Settings of a training, and its result: losses per epoch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from attnknn import _display
from attnknn._output_files import replace_file
from attnknn._validation import Limits, check_choice, check_limits
from attnknn.errors import InvalidSettingError

OPTIMIZERS = ("adam", "adamw", "sgd")
SCHEDULES = ("cosine", "linear", "constant", "restarts", "one_cycle")
COUNT, SHARE = Limits(least=1, is_whole=True, may_be_none=True), Limits(0, None, 1, False, True)
LIMITS = {
    **dict.fromkeys(("epochs", "batch_size", "patience"), COUNT),
    **dict.fromkeys(("warmup", "label_smoothing", "average"), SHARE),
    **dict.fromkeys(("learning_rate", "clip"), Limits(above=0, may_be_none=True)),
    "weight_decay": Limits(least=0, may_be_none=True),
    "lookahead": Limits(least=0, is_whole=True, may_be_none=True),
}
TERM_LIMITS = {
    "entropy_weight": Limits(),
    **dict.fromkeys(("calibration_weight", "selective_weight"), Limits(least=0)),
    "selective_coverage": Limits(above=0, below=1),
}
UNSET: Any = None
BLUE, GRAY = "#1f5fbf", "#8a8a8a"


@dataclass(frozen=True)
class LossTerms:
    """Terms that are added to the log-loss of a vote, and their weights; 0 leaves a term out.

    Parameters
    ----------
    entropy_weight : float, default=0.0
        Weight of the entropy of the voters' weights, which is subtracted: positive values reward
        equal weights, negative values concentrated ones.
    calibration_weight : float, default=0.0
        Weight of the calibration error of the vote, by soft bins
        (`attnknn.training.losses.soft_calibration_error`).
    selective_weight : float, default=0.0
        Weight of the log-loss of the rows with the most confident votes
        (`attnknn.training.losses.selective_risk`). It trains for predictions that may abstain.
    selective_coverage : float, default=0.8
        Share of the rows that are selected, above 0 and below 1. It has no effect unless
        `selective_weight` is above 0.

    Examples
    --------
    >>> from attnknn import LearnedAttention
    >>> LearnedAttention(loss=LossTerms(calibration_weight=0.1)).loss.calibration_weight
    0.1
    """

    entropy_weight: float = 0.0
    calibration_weight: float = 0.0
    selective_weight: float = 0.0
    selective_coverage: float = 0.8

    def __post_init__(self) -> None:
        check_limits(self, TERM_LIMITS)

    def to_dict(self) -> dict[str, Any]:
        """Return every setting by name, as JSON can hold it.

        Returns
        -------
        dict
            Settings by name.
        """
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore settings from what `to_dict` returned.

        Parameters
        ----------
        stored : mapping
            Settings by name.

        Returns
        -------
        LossTerms
            The settings.
        """
        return cls(**stored)


@dataclass(frozen=True)
class WarmRestarts:
    """Schedule of the learning rate: cosines one after the other, each longer than the last.

    Parameters
    ----------
    first_cycle : int
        Epochs of the first cycle.
    cycle_factor : float, default=2.0
        How many times as long each cycle is as the one before, at least 1. The last cycle is
        shortened to end with the training.

    Examples
    --------
    >>> TrainConfig(epochs=35, schedule=WarmRestarts(5)).schedule  # restarts after 5 and 15 epochs
    WarmRestarts(first_cycle=5, cycle_factor=2.0)
    """

    first_cycle: int
    cycle_factor: float = 2.0

    def __post_init__(self) -> None:
        limits = {"first_cycle": Limits(least=1, is_whole=True), "cycle_factor": Limits(least=1)}
        check_limits(self, limits)


@dataclass(frozen=True)
class TrainConfig:
    """How long and how fast to train.

    A setting that is left out takes the default of whatever is trained: learned attention, a
    table encoder or an image encoder.

    Parameters
    ----------
    epochs : int, optional
        Maximum number of passes over the training rows.
    batch_size : int, optional
        Rows per step, summed over all processes.
    learning_rate : float, optional
        Highest learning rate; the schedule multiplies it by a factor between 0 and 1.
    weight_decay : float, optional
        Decoupled weight decay of matrices; biases and gains of norms are not decayed.
    optimizer : {"adam", "adamw", "sgd"}, optional
        `sgd` has Nesterov momentum of 0.9.
    schedule : str, WarmRestarts or callable, optional
        Shape of the learning rate over the steps: "cosine", "linear", "constant", "restarts" (three
        cosines of the same length), "one_cycle", `WarmRestarts`, or a function from step to factor.
    warmup : float, optional
        Share of the steps in which the learning rate rises, from 0 to below 1.
    patience : int, optional
        Epochs without a lower validation loss after which training stops.
    clip : float, optional
        Largest norm of the gradient of a step; left out, gradients are not clipped.
    label_smoothing : float, optional
        Share of each label that the loss spreads over all classes, from 0 to below 1.
    average : float, optional
        Decay of an exponential moving average of the weights, which is validated and kept instead
        of the last weights. 0.99 averages about 100 steps; 0 switches it off.
    lookahead : int, optional
        Steps between two updates of lookahead's slow weights; 0 switches it off. `average` takes
        precedence.

    Examples
    --------
    >>> TrainConfig(epochs=5).filled(TrainConfig(epochs=16, batch_size=512)).batch_size
    512
    >>> TrainConfig(epochs=0)
    Traceback (most recent call last):
    attnknn.errors.InvalidSettingError: `epochs` must be an integer of at least 1 or None, got 0.
    """

    epochs: int = UNSET
    batch_size: int = UNSET
    learning_rate: float = UNSET
    weight_decay: float = UNSET
    optimizer: str = UNSET
    schedule: str | WarmRestarts | Callable[[int], float] = UNSET
    warmup: float = UNSET
    patience: int = UNSET
    clip: float | None = None
    label_smoothing: float = UNSET
    average: float = UNSET
    lookahead: int = UNSET

    def __post_init__(self) -> None:
        check_limits(self, LIMITS)
        check_choice("optimizer", self.optimizer, (None, *OPTIMIZERS))
        if not callable(self.schedule) and not isinstance(self.schedule, WarmRestarts):
            check_choice("schedule", self.schedule, (None, *SCHEDULES))

    def filled(self, defaults: TrainConfig) -> TrainConfig:
        """Return these settings with those left out taken from `defaults`.

        Parameters
        ----------
        defaults : TrainConfig
            Settings of whatever is trained.

        Returns
        -------
        TrainConfig
            The settings to train with.
        """
        own = {name: value for name, value in vars(self).items() if value is not None}
        return TrainConfig(**{**vars(defaults), **own})

    def to_dict(self) -> dict[str, Any]:
        """Return every setting by name, as JSON can hold it.

        Returns
        -------
        dict
            Settings by name; None for those left out.

        Raises
        ------
        InvalidSettingError
            If `schedule` is a function, which cannot be stored.
        """
        if callable(self.schedule):
            raise InvalidSettingError(
                f"`schedule` must be a name to be stored ({', '.join(SCHEDULES)}), got a function."
            )
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore settings from what `to_dict` returned.

        Parameters
        ----------
        stored : mapping
            All settings by name.

        Returns
        -------
        TrainConfig
            The settings.

        Raises
        ------
        ValueError
            If a name is missing or unknown, or a value is out of range.
        """
        if set(stored) != {setting.name for setting in fields(cls)}:
            raise ValueError("the settings of the training must be those of this version")
        schedule = stored["schedule"]
        if isinstance(schedule, Mapping):
            schedule = WarmRestarts(**schedule)
        return cls(**{**stored, "schedule": schedule})


DEFAULTS = TrainConfig(
    weight_decay=0.0,
    optimizer="adamw",
    schedule="cosine",
    warmup=0.2,
    patience=3,
    label_smoothing=0.0,
    average=0.0,
    lookahead=0,
)


def epochs_for(n_rows: int, batch_size: int, n_steps: int, bounds: tuple[int, int]) -> int:
    """Epochs that make about `n_steps` steps, within `bounds`.

    >>> epochs_for(1000, 100, n_steps=200, bounds=(12, 60))
    20
    """
    low, high = bounds
    return min(max(math.ceil(n_steps / math.ceil(n_rows / batch_size)), low), high)


ATTENTION_ENTROPY = "attention entropy"  # among the components of a training, not in the loss


@dataclass
class TrainResult:
    """Losses per epoch, and whether training was interrupted.

    Parameters
    ----------
    train_losses : list of float
        Mean training loss of each epoch, augmentation and regularization included.
    validation_losses : list of float
        Loss on held-out rows before the first and after every epoch.
    was_interrupted : bool, default=False
        Whether Ctrl-C stopped the training.
    seconds : float, default=0.0
        Duration.
    tolerance : float, default=0.0
        Share by which the validation loss of a later epoch may exceed the lowest and still be kept.
    components : dict of str to list of float, default={}
        Means of each epoch by name: the terms of the training loss, by their weights, whose sum is
        the loss, and "attention entropy". Empty where the loss has one term.

    Examples
    --------
    >>> TrainResult([0.5, 0.25], [0.9, 0.5, 0.6]).best_epoch
    1
    """

    train_losses: list[float] = field(default_factory=list)
    validation_losses: list[float] = field(default_factory=list)
    was_interrupted: bool = False
    seconds: float = 0.0
    tolerance: float = 0.0
    components: dict[str, list[float]] = field(default_factory=dict)

    def last_epoch(self, n_epochs: int) -> str:
        """Describe the last epoch in one line.

        Parameters
        ----------
        n_epochs : int
            Maximum number of epochs.

        Returns
        -------
        str
            Number of the epoch, both losses and the time so far.

        Examples
        --------
        >>> TrainResult([0.5, 0.25], [0.9, 0.5, 0.3], seconds=4.2).last_epoch(10)
        'epoch 2 of 10, loss 0.2500, on held-out rows 0.3000, after 4 s'
        """
        return (
            f"epoch {len(self.train_losses)} of {n_epochs}, loss {self.train_losses[-1]:.4f}, "
            f"on held-out rows {self.validation_losses[-1]:.4f}, after {self.seconds:.0f} s"
        )

    @property
    def best_epoch(self) -> int:
        """The epoch, counted from 1, whose state was kept; 0 is the untrained state.

        >>> TrainResult(validation_losses=[0.9, 0.500, 0.501]).best_epoch
        1
        >>> TrainResult(validation_losses=[0.9, 0.500, 0.501], tolerance=0.02).best_epoch
        2
        """
        kept, lowest = 0, math.inf
        for epoch, loss in enumerate(self.validation_losses):
            if loss < lowest * (1 + self.tolerance):
                kept = epoch
            lowest = min(lowest, loss)
        return kept


def draw_curves(result: TrainResult, path: str | Path, title: str = "Training") -> None:
    """Write the training and validation loss of each epoch to a PNG, PDF or SVG file.

    The two are not comparable in size: the training loss includes dropout, mixing and augmentation,
    the validation loss does not and may well be lower.
    """
    figure = _display.figure(6, 3.6, "Drawing the curves of a training")
    panel = figure.subplots()
    epochs = range(1, len(result.train_losses) + 1)
    panel.plot(epochs, result.train_losses, color=GRAY, marker=".", label="training rows")
    validated = range(len(result.validation_losses))
    panel.plot(validated, result.validation_losses, color=BLUE, marker=".", label="held-out rows")
    best = result.best_epoch
    panel.axvline(best, color=BLUE, linewidth=0.8, linestyle=":", label=f"kept: epoch {best}")
    panel.set(xlabel="epoch", ylabel="loss", title=title)
    panel.set_ylim(bottom=min(0.0, *result.train_losses, *result.validation_losses))
    panel.xaxis.get_major_locator().set_params(integer=True)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(frameon=False)
    with replace_file(path, force=True) as temporary:
        figure.savefig(temporary, dpi=150)
