"""Settings of an image encoder: how it computes embeddings, and how it is trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self

from attnknn._validation import Limits, check_choice, check_flag, check_limits
from attnknn.errors import InvalidSettingError, unknown_name
from attnknn.training.config import TERM_LIMITS, LossTerms, TrainConfig, epochs_for

if TYPE_CHECKING:
    from attnknn.training.augmentation import Augmentation, Mixing
    from attnknn.training.devices import Precision

POSITIVE, NOT_NEGATIVE = Limits(above=0), Limits(least=0)
WHOLE, COUNT = Limits(least=1, is_whole=True), Limits(least=0, is_whole=True)
OPTIONAL = Limits(least=1, is_whole=True, may_be_none=True)
MAX_BATCH, MIN_BATCH = 256, 16
N_STEPS, EPOCHS = 200, (10, 40)  # as many epochs as make so many steps, within bounds
DEFAULTS = TrainConfig(
    learning_rate=0.25,
    weight_decay=0.001,
    optimizer="sgd",
    schedule="linear",
    warmup=0.25,
    patience=5,
    label_smoothing=0.2,
    average=0.0,
    lookahead=5,
)


@dataclass(frozen=True)
class ImageInference:
    """How images are read and embedded; the embeddings do not depend on it.

    Parameters
    ----------
    batch_size : int, default=256
        Images per step.
    workers : int, default=0
        Threads that read image files ahead, also in training; 0 reads them when they are needed.
    device : {'auto', 'cpu', 'cuda', 'mps'}, default='auto'
        Device on which embeddings are computed.
    cache : bool, default=False
        Whether to store features of a frozen network in the user's cache folder, by content hash of
        the images and of the network; `clear_image_cache` erases them.

    Examples
    --------
    >>> ImageInference(workers=2).batch_size
    256
    """

    batch_size: int = 256
    workers: int = 0
    device: str = "auto"
    cache: bool = False

    def __post_init__(self) -> None:
        from attnknn.training.devices import DEVICES

        check_limits(self, {"batch_size": WHOLE, "workers": COUNT})
        check_flag("cache", self.cache)
        check_choice("device", self.device, DEVICES)


@dataclass(frozen=True)
class ImageLoss(LossTerms):
    """Terms of the loss of an image encoder and their weights; a weight of 0 leaves a term out.

    Parameters
    ----------
    entropy_weight : float, default=0.0
        Weight of the entropy of the vote's weights, which is maximized.
    calibration_weight : float, default=0.0
        Weight of the calibration error of the vote, by soft bins.
    selective_weight, selective_coverage : float, default=0.0 and 0.8
        Weight of the log-loss of this share of the rows, those with the most confident votes.
    vote_weight : float, default=1.0
        Weight of the log-loss of the vote.
    vote_label_smoothing : float, default=0.0
        Share of each label that the log-loss of the vote spreads over all classes, from 0 to below
        1. The label smoothing of the head is `TrainConfig.label_smoothing`.
    temperature, prior_score : float, default=0.1 and -4.0
        Initial values of the learned temperature and prior score.
    head_weight : float, default=1.0
        Weight of the cross-entropy of a linear head on the features.
    head_scale : float, default=1/9
        Factor of the head's logits; small ones start with even probabilities.
    contrastive_weight : float, default=0.0
        Weight of the supervised contrastive loss, which needs two views of each image.
    contrastive_temperature, contrastive_margin : float, default=0.1 and 0.0
        As in `attnknn.training.losses.contrastive_loss`.

    Examples
    --------
    >>> ImageLoss(contrastive_weight=0.5).contrastive_weight
    0.5
    """

    vote_weight: float = 1.0
    vote_label_smoothing: float = 0.0
    temperature: float = 0.1
    prior_score: float = -4.0
    head_weight: float = 1.0
    head_scale: float = 1 / 9
    contrastive_weight: float = 0.0
    contrastive_temperature: float = 0.1
    contrastive_margin: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        positive = ("temperature", "head_scale", "contrastive_temperature")
        own = [f.name for f in fields(self) if f.name not in TERM_LIMITS]
        limits = {name: POSITIVE if name in positive else NOT_NEGATIVE for name in own}
        limits |= {"prior_score": Limits(), "vote_label_smoothing": Limits(least=0, below=1)}
        check_limits(self, limits)


@dataclass(frozen=True)
class ImageVoters:
    """Which images vote on the images of a batch, beside the batch itself.

    Parameters
    ----------
    queue_size : int, default=2048
        Embeddings of the last batches that vote.
    bank : bool, default=False
        Whether all training rows vote, by a memory bank of their embeddings, instead of the batch
        and the queue. A step replaces those of its batch.
    k_train : int, default=None
        Number of nearest voters that vote on an image. None takes all; for the bank and for an
        attention that is trained with the encoder 64.
    refresh_steps : int, default=None
        Steps after which all rows of the bank are encoded again; None does so once per epoch.
    momentum : float, default=0.0
        Above 0, queue and bank hold embeddings by a second encoder, whose weights are a moving
        average of the trained ones with this decay per step (a momentum encoder).
    negatives_weight : float, default=0.0
        Weight of a hard negative in the vote, a near row of another class found by a search of all
        training rows; 2 counts as two rows, 0 switches the search off.
    n_negatives : int, default=8
        Maximum number of hard negatives per row.
    boundary_share : float, default=0.0
        Share of the rows of an epoch that is drawn from those whose neighbors have other labels.
    refresh_every : int, default=1
        Epochs between two searches for hard negatives and boundary rows.
    validation_entries : int, default=4096
        Training rows that vote on the validation rows after each epoch.

    Examples
    --------
    >>> ImageVoters(queue_size=512).queue_size
    512
    """

    queue_size: int = 2048
    bank: bool = False
    k_train: int | None = None
    refresh_steps: int | None = None
    momentum: float = 0.0
    negatives_weight: float = 0.0
    n_negatives: int = 8
    boundary_share: float = 0.0
    refresh_every: int = 1
    validation_entries: int = 4096

    def __post_init__(self) -> None:
        limits = dict.fromkeys(("n_negatives", "refresh_every", "validation_entries"), WHOLE)
        limits |= {"queue_size": COUNT, "negatives_weight": NOT_NEGATIVE}
        limits |= dict.fromkeys(("k_train", "refresh_steps"), OPTIONAL)
        limits["momentum"] = Limits(least=0, below=1)
        if self.refresh_steps is not None and not self.bank:
            raise InvalidSettingError("`refresh_steps` needs `bank=True`: only a bank is encoded.")
        check_flag("bank", self.bank)
        check_limits(self, {**limits, "boundary_share": Limits(least=0, below=1)})


@dataclass(frozen=True)
class ImageTraining:
    """How an image encoder learns from labels.

    The other images of a batch and a queue of recent ones, or the nearest of all images, vote on
    the label of each image; the image itself, its other view and its group are left out. The loss
    is the log-loss of the vote plus further terms.

    Parameters
    ----------
    config : TrainConfig, optional
        Defaults: SGD with a learning rate of 0.25 and a weight decay of 0.001, a linear schedule
        with a warmup of 0.25, a patience of 5, label smoothing of 0.2 (in the head's
        cross-entropy), lookahead every 5 steps, batches of 256 (fewer below 2,048 images) and 10
        epochs (up to 40 below about 4,900 images).
    loss : ImageLoss, optional
        Terms of the loss.
    voters : ImageVoters, optional
        Which images vote.
    augmentation : Augmentation, default=Augmentation(crop=2)
        Random changes of the images.
    mixing : Mixing, optional
        MixUp and CutMix; none by default.
    precision : Precision, default=Precision(is_channels_last=True)
        Numeric precision and compilation.
    bias_lr_scale : float, default=8.0
        Factor of the learning rate for the biases of 'resnet9', which start at zero.
    backbone_lr_scale : float, default=0.1
        Factor of the learning rate for pretrained layers.
    layer_decay : float, default=1.0
        Factor of the learning rate of each stage of a pretrained network relative to the next one:
        0.7 lets the first stages, whose features are the most general, change the least.
    whitening_epochs : int, default=3
        Epochs in which the bias of the whitening layer is trained.
    window : tuple of int, optional
        `(pixels, epochs)`: in the first epochs each batch shows a random window of so many pixels a
        side, which is faster.
    checkpoint : str, optional
        File from which an interrupted training resumes.
    device : {"auto", "cpu", "cuda", "mps"}, default="auto"
        Where to train.

    Examples
    --------
    >>> from attnknn.training import TrainConfig
    >>> training = ImageTraining(TrainConfig(epochs=3), ImageLoss(contrastive_weight=0.5))
    >>> training.config_for(n_rows=200).batch_size
    25
    """

    config: TrainConfig = field(default_factory=TrainConfig)
    loss: ImageLoss = field(default_factory=ImageLoss)
    voters: ImageVoters = field(default_factory=ImageVoters)
    # No flip: it may change what an image means, as of digits and letters.
    augmentation: Augmentation = field(default_factory=lambda: _records()["augmentation"](crop=2))
    mixing: Mixing = field(default_factory=lambda: _records()["mixing"]())
    precision: Precision = field(
        default_factory=lambda: _records()["precision"](is_channels_last=True)
    )
    bias_lr_scale: float = 8.0
    backbone_lr_scale: float = 0.1
    layer_decay: float = 1.0
    whitening_epochs: int = 3
    window: tuple[int, int] | None = None
    checkpoint: str | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        from attnknn.training.devices import DEVICES

        for name, record in _records().items():
            if not isinstance(getattr(self, name), record):
                raise InvalidSettingError(
                    f"`{name}` must be a `{record.__name__}`, got {getattr(self, name)!r}."
                )
        limits = {"bias_lr_scale": POSITIVE, "backbone_lr_scale": NOT_NEGATIVE}
        limits["layer_decay"] = Limits(above=0, most=1)
        check_limits(self, {**limits, "whitening_epochs": COUNT})
        check_choice("device", self.device, DEVICES)
        if self.window is not None and not (
            len(self.window) == 2 and all(WHOLE.allow(size) for size in self.window)
        ):
            raise InvalidSettingError(
                f"`window` must be (pixels, epochs), both at least 1, got {self.window!r}."
            )

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """Build from settings by name, whichever of `config`, `loss` and `voters` they belong to.

        Parameters
        ----------
        **settings : Any
            Settings of this class, of `TrainConfig`, `ImageLoss` or `ImageVoters`.

        Returns
        -------
        ImageTraining
            The settings.

        Examples
        --------
        >>> ImageTraining.of(epochs=3, queue_size=512, device="cpu").voters.queue_size
        512
        """
        groups: dict[str, type[Any]] = {
            "config": TrainConfig,
            "loss": ImageLoss,
            "voters": ImageVoters,
        }
        own = {setting.name for setting in fields(cls)}
        names = {part: {f.name for f in fields(record)} for part, record in groups.items()}
        for name in settings:
            if name not in own.union(*names.values()):
                raise unknown_name("setting", name, sorted(own.union(*names.values())))
        made = {
            part: record(**{name: settings[name] for name in names[part] & set(settings)})
            for part, record in groups.items()
        }
        given = {name: settings[name] for name in own & set(settings)}
        if given.get("window") is not None:
            given["window"] = tuple(given["window"])
        return cls(**{**made, **given})

    def config_for(self, n_rows: int) -> TrainConfig:
        """Return all settings of the loop, those left open fitted to the number of images.

        Parameters
        ----------
        n_rows : int
            Number of training images.

        Returns
        -------
        TrainConfig
            Complete settings.
        """
        size = self.config.batch_size or min(MAX_BATCH, max(MIN_BATCH, n_rows // 8))
        epochs = epochs_for(n_rows, size, N_STEPS, EPOCHS)
        return self.config.filled(TrainConfig(epochs=epochs, batch_size=size)).filled(DEFAULTS)

    def to_dict(self) -> dict[str, Any]:
        """Return every setting by name, as JSON can hold it.

        Returns
        -------
        dict
            Settings by name; records are dicts.
        """
        return {**asdict(self), "config": self.config.to_dict()}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Restore settings from what `to_dict` returned.

        Parameters
        ----------
        stored : mapping
            All settings by name.

        Returns
        -------
        ImageTraining
            The settings.

        Raises
        ------
        ValueError
            If a name is missing or unknown, or a value is out of range.
        """
        if set(stored) != {setting.name for setting in fields(cls)}:
            raise ValueError("the settings of the training must be those of this version")
        others = {name: record for name, record in _records().items() if name != "config"}
        made = {name: record(**stored[name]) for name, record in others.items()}
        made["config"] = TrainConfig.from_dict(stored["config"])
        window = None if stored["window"] is None else tuple(stored["window"])
        return cls(**{**stored, **made, "window": window})


def _records() -> dict[str, type[Any]]:
    from attnknn.training.augmentation import Augmentation, Mixing
    from attnknn.training.devices import Precision

    return {
        "config": TrainConfig,
        "loss": ImageLoss,
        "voters": ImageVoters,
        "augmentation": Augmentation,
        "mixing": Mixing,
        "precision": Precision,
    }
