"""How an image encoder is trained: every setting of it, as a person may write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, Self

from attnknn._validation import Limits, check_choice, check_limits

if TYPE_CHECKING:
    from attnknn.training.augmentation import Augmentation, Mixing
    from attnknn.training.devices import Precision

Average = Literal["none", "lookahead", "moving"]
AVERAGES = ("none", "lookahead", "moving")
WHOLE, SHARE, POSITIVE = Limits(least=1, is_whole=True), Limits(least=0, below=1), Limits(above=0)
NOT_NEGATIVE, COUNT = Limits(least=0), Limits(least=0, is_whole=True)
EPOCHS, MOST_EPOCHS, BATCH, LEAST_BATCH = 10, 40, 256, 16
N_STEPS = 200  # that even few images should get
LIMITS = {
    **dict.fromkeys(("epochs", "batch_size"), Limits(least=1, is_whole=True, may_be_none=True)),
    **dict.fromkeys(("patience", "n_negatives", "refresh_every"), WHOLE),
    **dict.fromkeys(("queue_size", "whitening_epochs", "window_epochs"), COUNT),
    **dict.fromkeys(("average_every", "judge_entries"), WHOLE),
    **dict.fromkeys(("warmup", "label_smoothing", "boundary_share", "average_decay"), SHARE),
    **dict.fromkeys(("learning_rate", "bias_lr_scale", "temperature", "head_scale"), POSITIVE),
    **dict.fromkeys(("contrastive_temperature",), POSITIVE),
    **dict.fromkeys(
        ("weight_decay", "backbone_lr_scale", "vote_weight", "head_weight"), NOT_NEGATIVE
    ),
    **dict.fromkeys(("contrastive_weight", "contrastive_margin", "entropy_weight"), NOT_NEGATIVE),
    **dict.fromkeys(("calibration_weight", "negatives_weight"), NOT_NEGATIVE),
    "prior_score": Limits(),
    "window": Limits(least=1, is_whole=True, may_be_none=True),
    "clip": Limits(above=0, may_be_none=True),
}


def _augmentation() -> Augmentation:
    from attnknn.training.augmentation import Augmentation

    return Augmentation(crop=2)  # a flip may change what an image means: digits, letters


def _mixing() -> Mixing:
    from attnknn.training.augmentation import Mixing

    return Mixing()


def _precision() -> Precision:
    from attnknn.training.devices import Precision

    return Precision(is_channels_last=True)


@dataclass(frozen=True)
class ImageTraining:
    """How an image encoder learns from labels.

    Each image of a batch is judged by the others and by a queue of recent ones, never by itself,
    by another view of itself or by its group: the loss is −log of the share that its label gets.
    Further terms are added by their weights; a weight of 0 leaves a term out.

    Parameters
    ----------
    epochs, batch_size : None fits them to the number of images: 10 and 256, more epochs for
        fewer than about 4,900, up to 40, and smaller batches for fewer than 2,048
    learning_rate, weight_decay, optimizer, schedule, warmup, clip : as in
        `attnknn.training.course.Course`; `clip` is the largest norm of a gradient
    patience : epochs without a better judgment after which training stops
    bias_lr_scale : factor of the learning rate for the biases of 'resnet9', which start at zero and
        have far to go
    backbone_lr_scale : factor of the learning rate for a pretrained network
    whitening_epochs : epochs in which the bias of the whitening layer is learned
    vote_weight : of the vote itself
    temperature, prior_score : where the learned temperature and the prior's score start
    queue_size : embeddings of the last batches that vote beside the batch
    head_weight : of the cross-entropy of a linear head on the features
    label_smoothing : the share of each label that this cross-entropy spreads over all classes
    head_scale : factor of the head's outputs; small ones start unsure and learn evenly
    contrastive_weight : of the supervised contrastive loss, for which images are seen twice
    contrastive_temperature, contrastive_margin : as in `learning.contrastive.contrastive_loss`
    entropy_weight : of the entropy of the votes' weights, which is made large
    calibration_weight : of the calibration error of the votes, by soft bins
    negatives_weight : the say of a hard negative: a row of another class among the nearest that a
        search of the memory finds; it votes beside the batch, and 2 counts as two rows
    n_negatives : hard negatives per row, at most
    boundary_share : share of the rows of an epoch that is drawn from those whose neighbors
        disagree, instead of one after the other
    refresh_every : epochs after which hard negatives and boundary rows are looked for again
    judge_entries : rows that vote when rows not trained on are judged after each epoch
    average : 'lookahead' or 'moving' averages weights over the steps
    average_every : steps between two looks of 'lookahead'
    average_decay : of the 'moving' average
    augmentation, mixing, precision : see `attnknn.training`
    window, window_epochs : in the first epochs each batch shows only a window of so many pixels a
        side, anywhere in the images: fewer pixels are faster, and the start needs no detail
    checkpoint : file from which an interrupted training goes on
    device : 'auto', 'cpu', 'cuda' or 'mps'

    >>> ImageTraining(epochs=0)
    Traceback (most recent call last):
    attnknn.errors.InvalidSettingError: `epochs` must be an integer of at least 1 or None, got 0.
    """

    epochs: int | None = None
    batch_size: int | None = None
    learning_rate: float = 0.25
    weight_decay: float = 0.001
    optimizer: str = "sgd"
    schedule: str = "linear"
    warmup: float = 0.25
    clip: float | None = None
    patience: int = 5
    bias_lr_scale: float = 8.0
    backbone_lr_scale: float = 0.1
    whitening_epochs: int = 3
    vote_weight: float = 1.0
    temperature: float = 0.1
    prior_score: float = -4.0
    queue_size: int = 2048
    head_weight: float = 1.0
    label_smoothing: float = 0.2
    head_scale: float = 1 / 9
    contrastive_weight: float = 0.0
    contrastive_temperature: float = 0.1
    contrastive_margin: float = 0.0
    entropy_weight: float = 0.0
    calibration_weight: float = 0.0
    negatives_weight: float = 0.0
    n_negatives: int = 8
    boundary_share: float = 0.0
    refresh_every: int = 1
    judge_entries: int = 4096
    average: Average = "lookahead"
    average_every: int = 5
    average_decay: float = 0.99
    augmentation: Augmentation = field(default_factory=_augmentation)
    mixing: Mixing = field(default_factory=_mixing)
    precision: Precision = field(default_factory=_precision)
    window: int | None = None
    window_epochs: int = 0
    checkpoint: str | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        from attnknn.training.config import OPTIMIZERS, SCHEDULES
        from attnknn.training.devices import DEVICES

        check_limits(self, LIMITS)
        check_choice("average", self.average, AVERAGES)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)
        check_choice("device", self.device, DEVICES)

    def sized(self, n_rows: int) -> Self:
        """The same with numbers of epochs and of rows in a batch, for `n_rows` to train on.

        >>> small = ImageTraining().sized(200)
        >>> small.batch_size, small.epochs
        (25, 25)
        """
        batch_size = self.batch_size or min(BATCH, max(LEAST_BATCH, n_rows // 8))
        fewest = -(-N_STEPS // -(-n_rows // batch_size))
        epochs = self.epochs or max(EPOCHS, min(fewest, MOST_EPOCHS))
        return replace(self, batch_size=batch_size, epochs=epochs)

    def to_dict(self) -> dict[str, Any]:
        """Every setting as JSON can hold it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """The settings that `to_dict` gave; unknown names and wrong values are errors."""
        from attnknn.training.augmentation import Augmentation, Mixing
        from attnknn.training.devices import Precision

        if set(stored) != {setting.name for setting in fields(cls)}:
            raise ValueError("the settings of the training must be those of this version")
        parts = {"augmentation": Augmentation, "mixing": Mixing, "precision": Precision}
        made = {name: parts[name](**stored[name]) for name in parts}
        return cls(**{**stored, **made})
