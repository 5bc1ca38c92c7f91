"""A training loop in small steps: batches, best state so far, Ctrl-C, checkpoints, progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from attnknn.training.course import Course, Outcome
from attnknn.training.interrupts import held_back
from attnknn.training.processes import Processes
from attnknn.training.progress import progress_bar, tell
from attnknn.training.resuming import resume_run, save_run
from attnknn.training.run import Keeps, Run
from attnknn.training.weight_average import AveragedWeights

__all__ = ["Course", "Outcome", "train"]


def train(
    module: nn.Module,
    loss_of: Callable[[Tensor], Tensor],
    judge: Callable[[], float],
    n_rows: int,
    course: Course,
    generator: torch.Generator,
    *,
    title: str = "Training",
    verbose: int = 0,
    average: AveragedWeights | None = None,
    checkpoint: str | Path | None = None,
    keeps: Mapping[str, Keeps] | None = None,
    marks: Mapping[str, Any] | None = None,
    before_epoch: Callable[[int], None] | None = None,
    coming: Callable[[Sequence[Tensor]], None] | None = None,
    on_epoch: Callable[[Outcome], None] | None = None,
    processes: Processes | None = None,
) -> Outcome:
    """Train `module` and leave it in the state that `judge` liked best.

    Parameters
    ----------
    loss_of : mean loss of a batch of row numbers, with a gradient
    judge : loss on rows that are not trained on, asked before the first and after every epoch
    average : weights averaged over the steps; then these are judged and kept
    checkpoint : file that is written after every epoch. If it is there at the start, the training
        goes on from it, and ends as if it had never stopped: bit for bit on a CPU, if whatever
        chance `loss_of` uses comes from `generator` or torch's own, and whatever it remembers from
        step to step is in `module` or in `keeps`
    keeps : what else a checkpoint holds, by name
    marks : what else a checkpoint must agree in to be taken, by name: a seed, a checksum of the
        rows. A training has no way to see those by itself
    before_epoch : told the number of each epoch, from 0, before it begins
    coming : told all batches of each epoch that `loss_of` will get, so that they can be read ahead
    on_epoch : told the outcome so far after each epoch, once it is in the checkpoint
    processes : among whom batches are shared: `loss_of` gets the rows of this process. `judge` is
        asked in each, and the first one's word counts for all
    """
    started = time.perf_counter()
    run = Run(
        module,
        n_rows,
        course,
        generator,
        average,
        keeps or {},
        processes or Processes(),
        marks or {},
    )
    path = Path(checkpoint) if checkpoint is not None else None
    if path is not None and path.exists():
        resume_run(run, path)
    else:
        with ExitStack() as whole:
            _judge(run, judge, whole)
    started -= run.outcome.seconds
    was_over = run.is_over  # then a checkpoint is read, and no time is added to its training
    verbose = verbose if run.processes.is_first else 0
    try:
        with progress_bar(title, run.n_steps - run.step, verbose) as advance:
            while not run.is_over:
                if before_epoch is not None:
                    before_epoch(run.epoch)
                run.outcome.train_losses.append(_epoch(run, loss_of, coming, advance))
                with ExitStack() as whole:  # an epoch is kept and in the checkpoint, or neither
                    _judge(run, judge, whole)
                    run.outcome.seconds = time.perf_counter() - started
                    if path is not None:
                        save_run(run, path)
                tell(f"{title}: {run.outcome.last_epoch(course.epochs)}", verbose)
                if on_epoch is not None:
                    on_epoch(run.outcome)
    except KeyboardInterrupt:
        run.outcome.was_interrupted = True
    run.best.restore(module)
    if not was_over and (path is None or not run.is_over):  # else as its checkpoint says
        run.outcome.seconds = time.perf_counter() - started
    return run.outcome


def _epoch(
    run: Run,
    loss_of: Callable[[Tensor], Tensor],
    coming: Callable[[Sequence[Tensor]], None] | None,
    advance: Callable[[str], None],
) -> float:
    """One step for each batch; the mean loss of the rows before their step."""
    total, batches = 0.0, run.batches()
    own = [run.processes.share(rows) for rows in batches]
    if coming is not None:
        coming(own)
    for rows, share in zip(batches, own, strict=True):
        total += _step(run, loss_of, share, len(rows)) * len(rows)
        advance(f"loss {run.best.loss:.4f}")
    if run.processes.are_several:
        summed = run.processes.total(torch.tensor(total, dtype=torch.float64))
        total = summed.item() / run.processes.count
    return total / run.n_rows


def _step(run: Run, loss_of: Callable[[Tensor], Tensor], own: Tensor, n_rows: int) -> float:
    with run.computing():
        loss = loss_of(own)
    if run.processes.are_several:  # so that the mean over processes is the mean over rows
        loss = loss * (len(own) * run.processes.count / n_rows)
    run.descend(loss)
    return loss.item()


def _judge(run: Run, judge: Callable[[], float], whole: ExitStack) -> None:
    """Judge the state that would be kept, and offer it; from then on Ctrl-C waits for `whole`."""
    if run.average is None:
        _offer(run, judge, whole)
    else:
        with run.average.applied(run.module):
            _offer(run, judge, whole)


def _offer(run: Run, judge: Callable[[], float], whole: ExitStack) -> None:
    verdict = torch.tensor(_or_worst(judge()), dtype=torch.float64)
    loss = run.processes.from_first(verdict).item()
    whole.enter_context(held_back())
    run.outcome.validation_losses.append(loss)
    if run.outcome.best_epoch == len(run.outcome.validation_losses) - 1:
        run.best.keep(run.module, loss)


def _or_worst(loss: float) -> float:
    """NaN is neither above nor below anything: without this it could never be beaten."""
    return math.inf if math.isnan(loss) else loss
