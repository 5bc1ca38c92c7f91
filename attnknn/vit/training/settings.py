"""How a Vision Transformer is trained."""

from __future__ import annotations

from dataclasses import dataclass

from attnknn._validation import Limits, check_choice, check_flag, check_limits
from attnknn.errors import InvalidSettingError
from attnknn.training.devices import COMPILE_MODES, DEVICES, Precision
from attnknn.training.schedules import Plateau, Schedule, Stairs

CRITERIA, OPTIMIZERS = ("CrossEntropy", "MSE"), ("adam", "sgd", "adamw")
SCHEDULERS, WARMING = ("step", "cosine", "plateau", "none"), ("cosine", "none")
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
class VitTraining:
    """Settings of a training; those of the command line have the same names and meanings.

    Parameters
    ----------
    epochs, batch_size, optimizer, momentum, weight_decay : as everywhere; positions, the class
        token, biases, norms and kernels over ranks are not decayed
    lr : the learning rate at its height
    scheduler : 'step' multiplies the rate by `lr_gamma` every `lr_step` epochs, 'cosine' lets it
        fall to zero, 'plateau' multiplies it by `lr_gamma` when the validation loss has not fallen
        for `lr_step` epochs, 'none' leaves it
    warmup : share of the steps in which the rate rises, under 'cosine' and 'none'
    criterion : 'CrossEntropy', or 'MSE' between scores and ones and zeros
    label_smoothing : share of each label that is spread over all classes
    clip_grad_norm : largest norm of a step's gradient; None leaves gradients as they are
    augment : cut images out of a frame that is an eighth wider, and mirror half of them
    mirror : whether `augment` mirrors; not for images that mean something else then
    noise : standard deviation of what is added to pixels between 0 and 1, in training and testing
    validation : share of the training rows that choose the epoch to keep, and are not trained on
    use_amp : compute products in half precision: bfloat16, or float16 on CUDA
    use_compiled, compile_mode : `torch.compile` and its mode
    seed : of everything random, the first weights included
    workers : threads that read files ahead
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
        if self.warmup and self.scheduler not in WARMING:
            raise InvalidSettingError(
                f"`warmup` goes with the schedulers {' and '.join(map(repr, WARMING))}, got "
                f"{self.scheduler!r}."
            )

    def precision(self, device_type: str) -> Precision:
        """The numbers of its steps on a device."""
        half = "float16" if device_type == "cuda" else "bfloat16"
        return Precision(
            dtype=half if self.use_amp else "float32",  # type: ignore[arg-type]
            is_compiled=self.use_compiled,
            compile_mode=self.compile_mode,
        )

    def schedule(self, steps_per_epoch: int) -> str | Schedule:
        """The factor of the learning rate, as a course takes it."""
        if self.scheduler == "step":
            return Stairs(self.lr_step * steps_per_epoch, self.lr_gamma)
        if self.scheduler == "plateau":
            return Plateau(self.lr_gamma, self.lr_step)
        return "cosine" if self.scheduler == "cosine" else "constant"

    def group(self) -> dict[str, object]:
        """What the optimizer is told for all parameters beside their rate and decay."""
        if self.optimizer == "sgd":
            return {"momentum": self.momentum, "nesterov": False}
        return {"betas": (0.9, 0.999)}
