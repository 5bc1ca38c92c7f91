"""Settings of the training of a Vision Transformer."""

from __future__ import annotations

from dataclasses import dataclass

from attnknn._validation import Limits, check_choice, check_flag, check_limits
from attnknn.errors import InvalidSettingError
from attnknn.training.devices import COMPILE_MODES, DEVICES, Precision
from attnknn.training.schedules import Plateau, Schedule, Stairs

CRITERIA, OPTIMIZERS = ("CrossEntropy", "MSE"), ("adam", "sgd", "adamw")
SCHEDULERS, WITH_WARMUP = ("step", "cosine", "plateau", "none"), ("cosine", "none")
WHOLE, POSITIVE, NOT_NEGATIVE = Limits(least=1, is_whole=True), Limits(above=0), Limits(least=0)
LIMITS = {
    **dict.fromkeys(("epochs", "batch_size", "lr_step"), WHOLE),
    **dict.fromkeys(("lr", "lr_gamma"), POSITIVE),
    **dict.fromkeys(("weight_decay", "noise"), NOT_NEGATIVE),
    **dict.fromkeys(("momentum", "warmup", "label_smoothing"), Limits(least=0, below=1)),
    "validation": Limits(above=0, below=1),
    "clip_grad_norm": Limits(above=0, may_be_none=True),
    "workers": Limits(least=0, is_whole=True),
}


@dataclass(frozen=True)
class VitTrainConfig:
    """Training settings, with the names of the options of `attnknn vit train`.

    Parameters
    ----------
    epochs : int, default=150
        Number of epochs.
    batch_size : int, default=256
        Images per step.
    optimizer : {'adam', 'sgd', 'adamw'}, default='adamw'
        Optimizer.
    lr : float, default=1e-3
        Peak learning rate.
    weight_decay : float, default=1e-6
        Weight decay; biases, norms, positions, the class token and kernels over ranks have none.
    momentum : float, default=0.9
        Momentum of 'sgd'.
    scheduler : {'step', 'cosine', 'plateau', 'none'}, default='none'
        Learning rate schedule: multiply by `lr_gamma` every `lr_step` epochs; decay to zero; or
        multiply by `lr_gamma` when the validation loss has not improved for `lr_step` epochs.
    lr_step : int, default=20
        Epochs between steps, or patience of 'plateau'.
    lr_gamma : float, default=0.1
        Factor of the learning rate.
    warmup : float, default=0.0
        Fraction of steps in which the learning rate rises; for 'cosine' and 'none'.
    criterion : {'CrossEntropy', 'MSE'}, default='CrossEntropy'
        Loss; 'MSE' compares scores with one-hot targets.
    label_smoothing : float, default=0.0
        Fraction of each label that is spread over all classes.
    clip_grad_norm : float, default=1.0
        Maximum norm of the gradient of a step; None does not clip.
    augment : bool, default=False
        Crop images at random out of a frame that is an eighth wider, and mirror half of them.
    mirror : bool, default=True
        Whether `augment` mirrors; use False for images such as digits.
    noise : float, default=0.0
        Standard deviation of noise on pixels between 0 and 1, in training and evaluation.
    validation : float, default=0.1
        Fraction of the training images that are held out to select the best epoch.
    use_amp : bool, default=False
        Mixed precision: bfloat16, or float16 on CUDA.
    use_compiled : bool, default=False
        Whether to use `torch.compile`.
    compile_mode : str, default='default'
        Mode of `torch.compile`.
    device : {'auto', 'cpu', 'cuda', 'mps'}, default='auto'
        Device of the training.
    seed : int, default=0
        Seed of all randomness, initial weights included.
    workers : int, default=0
        Threads that read images ahead.

    Examples
    --------
    >>> VitTrainConfig(epochs=10, scheduler="cosine", warmup=0.1).lr
    0.001
    """

    epochs: int = 150
    batch_size: int = 256
    optimizer: str = "adamw"
    lr: float = 1e-3
    weight_decay: float = 1e-6
    momentum: float = 0.9
    scheduler: str = "none"
    lr_step: int = 20
    lr_gamma: float = 0.1
    warmup: float = 0.0
    criterion: str = "CrossEntropy"
    label_smoothing: float = 0.0
    clip_grad_norm: float | None = 1.0
    augment: bool = False
    mirror: bool = True
    noise: float = 0.0
    validation: float = 0.1
    use_amp: bool = False
    use_compiled: bool = False
    compile_mode: str = "default"
    device: str = "auto"
    seed: int = 0
    workers: int = 0

    def __post_init__(self) -> None:
        check_limits(self, LIMITS)
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("scheduler", self.scheduler, SCHEDULERS)
        check_choice("criterion", self.criterion, CRITERIA)
        check_choice("device", self.device, DEVICES)
        check_choice("compile_mode", self.compile_mode, COMPILE_MODES)
        for name in ("augment", "mirror", "use_amp", "use_compiled"):
            check_flag(name, getattr(self, name))
        if self.warmup and self.scheduler not in WITH_WARMUP:
            raise InvalidSettingError(
                f"`warmup` needs the scheduler {' or '.join(map(repr, WITH_WARMUP))}, got "
                f"{self.scheduler!r}."
            )


def precision_of(config: VitTrainConfig, device_type: str) -> Precision:
    """The number format of training steps on a device."""
    half = "float16" if device_type == "cuda" else "bfloat16"
    return Precision(
        dtype=half if config.use_amp else "float32",  # type: ignore[arg-type]
        is_compiled=config.use_compiled,
        compile_mode=config.compile_mode,
    )


def make_schedule(config: VitTrainConfig, steps_per_epoch: int) -> str | Schedule:
    """The schedule of the learning rate, by name or as a factor for each step."""
    if config.scheduler == "step":
        return Stairs(config.lr_step * steps_per_epoch, config.lr_gamma)
    if config.scheduler == "plateau":
        return Plateau(config.lr_gamma, config.lr_step)
    return "cosine" if config.scheduler == "cosine" else "constant"
