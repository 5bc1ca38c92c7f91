"""The training loop: batches, best state so far, early stopping, Ctrl-C, checkpoints, progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnknn.errors import InvalidSettingError
from attnknn.training.checkpoints import Stateful, resume_run, save_run
from attnknn.training.config import DEFAULTS, TrainConfig, TrainResult
from attnknn.training.devices import Precision, autocast, loss_scaler
from attnknn.training.optimizers import Group, make_optimizer
from attnknn.training.processes import Processes
from attnknn.training.schedules import schedule_of
from attnknn.training.terminal import delay_interrupts, print_line, progress_bar
from attnknn.training.weight_average import make_average


def train(
    module: nn.Module,
    loss_of: Callable[[Tensor], Tensor],
    validate: Callable[[], float],
    n_rows: int,
    config: TrainConfig,
    groups: list[Group],
    generator: torch.Generator,
    *,
    tolerance: float = 0.0,
    precision: Precision | None = None,
    title: str = "Training",
    verbose: int = 0,
    checkpoint: str | Path | None = None,
    extra_state: Mapping[str, Stateful] | None = None,
    fingerprint: Mapping[str, Any] | None = None,
    before_epoch: Callable[[int], None] | None = None,
    on_batches: Callable[[Sequence[Tensor]], None] | None = None,
    on_epoch: Callable[[TrainResult], None] | None = None,
    components: Callable[[], Mapping[str, float]] | None = None,
    processes: Processes | None = None,
) -> TrainResult:
    """Train `module` and leave it in the state with the lowest validation loss.

    Parameters
    ----------
    module : nn.Module
        Holds all parameters and buffers that training changes.
    loss_of : callable
        Mean loss of a batch of row numbers, with a gradient.
    validate : callable
        Loss on held-out rows; called before the first and after every epoch.
    n_rows : int
        Number of training rows.
    config : TrainConfig
        Needs `epochs` and `batch_size`; learning rates and weight decays are those of `groups`.
    groups : list of dict
        Parameter groups as torch's optimizers take them, each with its own `lr`; see
        `optimizers.parameter_groups`.
    generator : torch.Generator
        Draws the order of the rows.
    tolerance : float, default=0.0
        Keep a later state although its validation loss exceeds the lowest by up to this share,
        which is less than the held-out rows can tell: the last steps of a schedule do good.
    precision : Precision, optional
        Numbers that steps compute with; `devices.prepare` prepares the module itself.
    title : str, default="Training"
        Label of the progress bar.
    verbose : int, default=0
        1 shows progress on stderr.
    checkpoint : path, optional
        File that is written after every epoch. If it exists, training resumes from it and ends as
        if it had never stopped: bit for bit on a CPU, if `loss_of` draws random numbers from
        `generator` or torch's own and keeps its state in `module` or `extra_state`.
    extra_state : mapping of str to Stateful, optional
        Further state for the checkpoint.
    fingerprint : mapping, optional
        What a checkpoint must agree in to be accepted, such as a seed or a checksum of the rows.
    before_epoch, on_batches, on_epoch : callable, optional
        Called with the number of each epoch, from 0, before it begins; with all batches of an
        epoch, so that they can be read ahead; with the result so far after each epoch.
    components : callable, optional
        Called after each epoch, gives its means of the terms of the loss, for the result.
    processes : Processes, optional
        Processes that share the batches: `loss_of` gets the rows of this one. The validation loss
        of the first process counts for all.

    Returns
    -------
    TrainResult
        Losses per epoch.
    """
    started = time.perf_counter()
    run = Run(
        module,
        n_rows,
        config.filled(DEFAULTS),
        groups,
        generator,
        tolerance,
        precision or Precision(),
        extra_state or {},
        processes or Processes(),
        fingerprint or {},
    )
    path = Path(checkpoint) if checkpoint is not None else None
    if path is not None and path.exists():
        resume_run(run, path)
    else:
        with ExitStack() as whole:
            _validate(run, validate, whole)
    started -= run.result.seconds
    was_over = run.is_over  # then the result is read, and no time is added to it
    verbose = verbose if run.processes.is_first else 0
    try:
        with progress_bar(title, run.n_steps - run.step, verbose) as advance:
            while not run.is_over:
                if before_epoch is not None:
                    before_epoch(run.epoch)
                loss = _epoch(run, loss_of, on_batches, advance)
                terms = {} if components is None else components()
                run.result.train_losses.append(loss)
                for name, value in terms.items():
                    run.result.components.setdefault(name, []).append(value)
                with ExitStack() as whole:  # an epoch is kept and in the checkpoint, or neither
                    _validate(run, validate, whole)
                    run.result.seconds = time.perf_counter() - started
                    if path is not None:
                        save_run(run, path)
                print_line(f"{title}: {run.result.last_epoch(run.config.epochs)}", verbose)
                if on_epoch is not None:
                    on_epoch(run.result)
    except KeyboardInterrupt:
        run.result.was_interrupted = True
    run.best.restore(module)
    if not was_over and (path is None or not run.is_over):  # else as in the checkpoint
        run.result.seconds = time.perf_counter() - started
    return run.result


def _epoch(
    run: Run,
    loss_of: Callable[[Tensor], Tensor],
    on_batches: Callable[[Sequence[Tensor]], None] | None,
    advance: Callable[[str], None],
) -> float:
    """Take one step for each batch; the mean loss of the rows before their step."""
    total, batches = 0.0, run.batches()
    own = [run.processes.share(rows) for rows in batches]
    if on_batches is not None:
        on_batches(own)
    for rows, share in zip(batches, own, strict=True):
        total += _step(run, loss_of, share, len(rows)) * len(rows)
        advance(f"loss {run.best.loss:.4f}")
    if run.processes.are_several:
        summed = run.processes.total(torch.tensor(total, dtype=torch.float64))
        total = summed.item() / run.processes.count
    return total / run.n_rows


def _step(run: Run, loss_of: Callable[[Tensor], Tensor], own: Tensor, n_rows: int) -> float:
    with run.autocast():
        loss = loss_of(own)
    if run.processes.are_several:  # so that the mean over processes is the mean over rows
        loss = loss * (len(own) * run.processes.count / n_rows)
    run.descend(loss)
    return loss.item()


def _validate(run: Run, validate: Callable[[], float], whole: ExitStack) -> None:
    """Validate the state that would be kept; from then on Ctrl-C waits for the end of `whole`."""
    with ExitStack() as averaged:
        if run.average is not None:
            averaged.enter_context(run.average.applied(run.module))
        loss = validate()
        loss = math.inf if math.isnan(loss) else loss  # no comparison with NaN is ever true
        loss = run.processes.from_first(torch.tensor(loss, dtype=torch.float64)).item()
        whole.enter_context(delay_interrupts())
        run.result.validation_losses.append(loss)
        if run.result.best_epoch == len(run.result.validation_losses) - 1:
            run.best.keep(run.module, loss)


def n_batches(n_rows: int, batch_size: int) -> int:
    """Batches per epoch; a single remaining row joins the batch before.

    >>> n_batches(6, 3), n_batches(7, 3), n_batches(8, 3), n_batches(1, 3)
    (2, 2, 3, 1)
    """
    n_whole, n_left = divmod(n_rows, batch_size)
    return max(1, n_whole + (n_left > 1))


class BestState:
    """A copy of the module's state with the lowest validation loss so far."""

    def __init__(self) -> None:
        self.loss = math.inf
        self.state: dict[str, Tensor] | None = None

    def keep(self, module: nn.Module, loss: float) -> None:
        """Copy the state of `module`."""
        self.loss = loss
        self.state = {name: value.clone() for name, value in module.state_dict().items()}

    def restore(self, module: nn.Module) -> None:
        """Load the kept state into `module`."""
        if self.state is not None:
            module.load_state_dict(self.state)

    def state_dict(self) -> dict[str, Any]:
        return {"loss": self.loss, "state": self.state}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        self.loss, self.state = saved["loss"], saved["state"]


@dataclass
class Run:
    """State of one training: weights, optimizer, step, generator, best state, result."""

    module: nn.Module
    n_rows: int
    config: TrainConfig
    groups: list[Group]
    generator: torch.Generator
    tolerance: float = 0.0
    precision: Precision = field(default_factory=Precision)
    extra_state: Mapping[str, Stateful] = field(default_factory=dict)
    processes: Processes = field(default_factory=Processes)
    fingerprint: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        config = self.config
        groups = [dict(group) for group in self.groups]  # the optimizer changes its own
        self.optimizer = make_optimizer(config.optimizer, groups)
        self.top_rates = [group["lr"] for group in self.optimizer.param_groups]
        self.parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        self.device = self.parameters[0].device
        self.schedule = schedule_of(config, len(self._starts()))
        self.scaler = loss_scaler(self.precision, self.device)
        self.average = make_average(self.module, config, self.n_steps)
        self.best, self.step = BestState(), 0
        self.result = TrainResult(tolerance=self.tolerance)
        n_last = self.n_rows - self._starts()[-1]
        if n_last < self.processes.count:
            raise InvalidSettingError(
                f"`batch_size={config.batch_size}` leaves a last batch of {n_last} of "
                f"{self.n_rows} rows, too few for {self.processes.count} processes. "
                "Choose another `batch_size`."
            )
        self.processes.same_start(self.module.state_dict())
        if self.average is not None:
            self.processes.same_start(self.average.state)

    @property
    def n_steps(self) -> int:
        return self.config.epochs * n_batches(self.n_rows, self.config.batch_size)

    def _starts(self) -> list[int]:
        """Where the batches of an epoch begin."""
        size = self.config.batch_size
        return [size * batch for batch in range(n_batches(self.n_rows, size))]

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""
        return len(self.result.train_losses)

    @property
    def is_over(self) -> bool:
        if self.epoch >= self.config.epochs:
            return True
        return self.epoch > 0 and self.epoch - self.result.best_epoch >= self.config.patience

    def batches(self) -> tuple[Tensor, ...]:
        """The rows of an epoch in random order; the first process draws it for all."""
        order = torch.randperm(self.n_rows, generator=self.generator, device=self.generator.device)
        return self.processes.from_first(order).tensor_split(self._starts()[1:])

    def autocast(self) -> AbstractContextManager[object]:
        """A context in which losses are computed in the configured precision."""
        return autocast(self.precision, self.device)

    def descend(self, loss: Tensor) -> None:
        """Take one optimizer step along the gradient of `loss`."""
        for group, rate in zip(self.optimizer.param_groups, self.top_rates, strict=True):
            group["lr"] = rate * self.schedule(self.step)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss).backward()
        self.processes.average_gradients(self.parameters)
        if self.config.clip is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.parameters, self.config.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1
        if self.average is not None:
            self.average.update(self.module)
