"""The folder that a training writes, and what is in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from torch import nn

    from attnknn.vit.model import OperationCount
    from attnknn.vit.training import EpochMetrics, Evaluation, VitTrainResult

MODEL, CHECKPOINT, REPORT = "model.safetensors", "checkpoint.safetensors", "report.json"
ARGS, SUMMARY, RESULTS, CURVES = "args.txt", "model.txt", "train_eval_results.txt", "curves.png"


def check_free(folder: Path, *, resume: bool, force: bool) -> None:
    """Before any work: the folder is free, or may be used."""
    has_model, has_run = (folder / MODEL).exists(), (folder / CHECKPOINT).exists()
    if resume and force:
        raise click.UsageError("--resume goes on, --force begins again: give one of the two.")
    if resume and not has_run:
        raise click.UsageError(f"{folder} holds no interrupted training to resume.")
    if force:
        return
    if has_run and not resume:
        raise click.UsageError(
            f"{folder} holds an interrupted training. Go on with --resume, or begin again with "
            "--force."
        )
    elif has_model and not resume:
        raise click.UsageError(
            f"{folder} holds a trained model. Test it with --test_only, replace it with --force, "
            "or name another --output_dir."
        )


def clear(folder: Path, but: str | None = None) -> None:
    """Make room for what a new training leaves."""
    for name in (MODEL, CHECKPOINT, REPORT, ARGS, SUMMARY, RESULTS, CURVES):
        if name != but:
            (folder / name).unlink(missing_ok=True)


def write_args(folder: Path, args: Mapping[str, Any]) -> None:
    """One setting a line."""
    (folder / ARGS).write_text("".join(f"{name}: {value}\n" for name, value in args.items()))


def write_summary(folder: Path, model: nn.Module, operations: OperationCount) -> None:
    """The parts of a model, its parameters and operations."""
    (folder / SUMMARY).write_text(f"{model}\n\n{size_lines(model, operations)}\n")


def size_lines(model: nn.Module, operations: OperationCount) -> str:
    """Parameters and operations in words."""
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"parameters: {n_parameters:,}\n"
        f"operations for an image: {operations.total / 1e6:,.2f} M (products "
        f"{operations.products / 1e6:,.2f}, selection {operations.selection / 1e6:,.2f}, "
        f"aggregation {operations.aggregation / 1e6:,.2f})"
    )


def epoch_line(epoch: EpochMetrics, n_epochs: int) -> str:
    """An epoch in words."""
    return (
        f"epoch {epoch.number} of {n_epochs}: train loss {epoch.train_loss:.4f}, "
        f"top-1 {epoch.train_top1:.2%}, top-5 {epoch.train_top5:.2%}; "
        f"validation loss {epoch.validation_loss:.4f}, top-1 {epoch.validation_top1:.2%}, "
        f"top-5 {epoch.validation_top5:.2%}; {epoch.seconds:.1f} s"
    )


def test_line(scores: Evaluation) -> str:
    """A test in words."""
    return (
        f"test: loss {scores.loss:.4f}, top-1 {scores.top1:.2%}, top-5 {scores.top5:.2%} of "
        f"{scores.n_rows:,} images"
    )


def write_results(
    folder: Path, epochs: Sequence[EpochMetrics], n_epochs: int, last: Iterable[str]
) -> None:
    """A line for each epoch, and the last words."""
    lines = [*(epoch_line(epoch, n_epochs) for epoch in epochs), *last]
    (folder / RESULTS).write_text("".join(f"{line}\n" for line in lines))


def write_report(
    folder: Path, result: VitTrainResult, scores: Evaluation, about: Mapping[str, Any]
) -> None:
    """Everything again, for programs."""
    report = {
        **about,
        "epochs": [asdict(epoch) for epoch in result.epochs],
        "best_epoch": result.best_epoch,
        "was_interrupted": result.was_interrupted,
        "seconds": result.seconds,
        "test": scores_of(scores),
    }
    (folder / REPORT).write_text(json.dumps(report, indent=1) + "\n")


def scores_of(scores: Evaluation) -> dict[str, float]:
    """As JSON."""
    return {
        "loss": scores.loss,
        "top1": scores.top1,
        "top5": scores.top5,
        "n_rows": scores.n_rows,
    }


def read_args(folder: Path) -> dict[str, Any]:
    """The settings of a training that is over."""
    from attnknn.errors import InvalidInputError

    path = folder / REPORT
    try:
        args: dict[str, Any] = json.loads(path.read_text())["args"]
        if not isinstance(args, dict):
            raise TypeError(args)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path} is no report of `attnknn vit train`.") from error
    return args
