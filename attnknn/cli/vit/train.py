"""`attnknn vit train`: train a Vision Transformer, keep its best epoch, test it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from attnknn.cli.commands import command
from attnknn.cli.interrupts import end_training_first
from attnknn.cli.output import echo, echo_block
from attnknn.cli.vit import options as vit_options

if TYPE_CHECKING:
    from torch import nn

    from attnknn.cli.vit.data import Data
    from attnknn.vit.model import OperationCount
    from attnknn.vit.training import EpochMetrics, Evaluation, StoredVit, VitTrainConfig

MODEL, CHECKPOINT, REPORT = "model.safetensors", "checkpoint.safetensors", "report.json"
ARGS, SUMMARY, RESULTS, CURVES = "args.txt", "model.txt", "train_eval_results.txt", "curves.png"
FILES = (MODEL, CHECKPOINT, REPORT, ARGS, SUMMARY, RESULTS, CURVES)
MODEL_OPTIONS = vit_options.names_in(vit_options.model_options, vit_options.layer_options)
MODEL_OPTIONS |= {"resize"}


@command()
@vit_options.model_options
@vit_options.layer_options
@vit_options.data_options
@vit_options.training_options
@vit_options.output_options
@click.pass_context
def train(ctx: click.Context, /, **options: Any) -> None:
    """Train a Vision Transformer and test it.

    --output-dir receives the model of the epoch with the highest validation accuracy, args.txt,
    model.txt, train_eval_results.txt, report.json and curves.png. Test images are used for the
    final test only.
    """
    from attnknn.cli.vit.inspect import test_folder
    from attnknn.training.devices import device_of

    device_of(options["device"])
    folder: Path = options["output_dir"]
    sources = {name: ctx.get_parameter_source(name) for name in options}
    given = {name for name in options if sources[name] is not ParameterSource.DEFAULT}
    if options["test_only"]:
        as_trained = {
            n: options[n] if n in given else None for n in ("dataset", "data_path", "noise")
        }
        rest = {name: options[name] for name in ("test_rows", "batch_size", "device", "workers")}
        _check_as_trained(
            folder, {name: _json_value(options[name]) for name in given & MODEL_OPTIONS}
        )
        test_folder(folder, {**as_trained, **rest})
        return
    signals = end_training_first()
    if not _train(folder, options, given):
        ctx.exit(signals.exit_code)


def _check_as_trained(folder: Path, given: dict[str, Any]) -> None:
    """--test-only accepts model options only with the values of the training."""
    if not (folder / REPORT).exists():
        return
    trained = read_args(folder)
    for name, value in given.items():
        if trained.get(name, value) != value:
            raise click.UsageError(
                f"--test-only tests the model of {folder}, which was trained with "
                f"{vit_options.flag_of(name)} {trained[name]}, not {value}."
            )


def _train(folder: Path, options: dict[str, Any], given: set[str]) -> bool:
    """Train and test; returns whether the training was completed."""
    import torch

    from attnknn.cli.vit.data import read_data
    from attnknn.vit.training import ImagePreprocessor, StoredVit, train_vit
    from attnknn.vit.training.storage import build_vit
    from attnknn.vit.training.trainer import split_validation

    options = vit_options.with_dependent_defaults(options, given)
    training = vit_options.training_settings(options)
    if _is_first_process():  # the others may start when it has written its files already
        check_free(folder, resume=options["resume"], force=options["force"])
    data = read_data(
        options["dataset"],
        options["data_path"],
        options["resize"],
        is_explicit="data_path" in given,
        train_rows=options["train_rows"],
        test_rows=options["test_rows"],
    )
    settings = vit_options.model_settings(
        options, in_chans=data.in_chans, num_classes=len(data.classes)
    )
    _report_options(options, given)
    known = torch.as_tensor(data.train.classes)
    split_validation(known, training.validation, training.seed)  # or an error
    reporter = _Reporter(folder, options, training.epochs)
    if reporter.is_first:
        with _layer_errors(options["layer"]):
            reporter.begin(settings, data)
    side = options["resize"]
    pixels = ImagePreprocessor.from_images(data.train.images, (side, side), training.noise)
    model, result = train_vit(
        lambda: build_vit(settings),
        data.train.images,
        data.train.classes,
        pixels,
        training,
        checkpoint=folder / CHECKPOINT,
        fingerprint={f"model {name}": value for name, value in settings.items()},
        on_epoch=reporter.report_epoch,
        verbose=int(reporter.is_first and os.isatty(2)),
    )
    if not reporter.is_first:
        return not result.was_interrupted
    if not result.best_epoch:
        if not reporter.has_model:
            clear(folder, but=CHECKPOINT)
        echo("Interrupted before the end of the first epoch: no model was saved.", err=True)
        return False
    stored = StoredVit(model, settings, pixels, data.classes)  # type: ignore[arg-type]
    _finish(reporter, stored, result, data, training)
    if result.was_interrupted:
        resume = "continue with the same command and --resume"
        way_on = resume if (folder / CHECKPOINT).exists() else "there is no checkpoint to resume"
        n_done = len(result.epochs)
        echo(f"Interrupted after epoch {n_done} of {training.epochs}; {way_on}.", err=True)
    return not result.was_interrupted


@contextmanager
def _layer_errors(layers: Sequence[str]) -> Iterator[None]:
    """Errors about the size of a neighborhood or window are about `n_neighbors`, that is --K."""
    from attnknn.errors import InvalidSettingError

    try:
        yield
    except InvalidSettingError as error:
        message = str(error).replace("`window_size`", "`n_neighbors`")
        if all(name.startswith("Neighborhood") for name in layers):
            message = message.replace("`kernel_size`", "`n_neighbors`")
        raise InvalidSettingError(message, parameter=error.parameter) from error


def _report_options(options: dict[str, Any], given: set[str]) -> None:
    """Print which options are not used, or not as they were given."""
    for name in vit_options.unread_options(options["layer"], given):
        echo(f"{vit_options.flag_of(name)} is not used by {', '.join(options['layer'])}.", err=True)
    for line in vit_options.options_without_effect(options):
        echo(line, err=True)
    if vit_options.is_conv2d_alone(options) and "pool" not in given:
        echo("--pool is mean: a class token would not see the patches in Conv2d alone.", err=True)
    for line in vit_options.reduced_neighbors(options):
        echo(line, err=True)


def _finish(
    reporter: _Reporter, stored: StoredVit, result: Any, data: Data, training: VitTrainConfig
) -> None:
    """Save the model, test it, and write all reports."""
    from attnknn._output_files import write_file
    from attnknn.vit.plots import plot_training
    from attnknn.vit.training import evaluate, save_vit

    folder = reporter.folder
    scores = evaluate(
        stored.model,
        data.test.images,
        data.test.classes,
        stored.preprocessor,
        criterion=training.criterion,
        batch_size=training.batch_size,
        seed=training.seed,
        workers=training.workers,
    )
    best = f"best: epoch {result.best_epoch} of {len(result.epochs)}, after {result.seconds:.0f} s"
    last = [best, test_line(scores)]
    clear(folder, but=CHECKPOINT)
    save_vit(folder / MODEL, stored)
    reporter.write_description(stored.model)
    lines = [*(epoch_line(epoch, training.epochs) for epoch in result.epochs), *last]
    write_file(folder / RESULTS, "".join(f"{line}\n" for line in lines), force=True)
    report = {
        **reporter.about,
        "model": stored.settings,
        "epochs": [asdict(epoch) for epoch in result.epochs],
        "best_epoch": result.best_epoch,
        "was_interrupted": result.was_interrupted,
        "seconds": result.seconds,
        "test": scores_record(scores),
    }
    write_file(folder / REPORT, json.dumps(report, indent=1) + "\n", force=True)
    plot_training(result.epochs, result.best_epoch, folder / CURVES)
    if not result.was_interrupted:
        (folder / CHECKPOINT).unlink(missing_ok=True)
    for line in last:
        echo(line)
    echo(f"written: {folder}")


class _Reporter:
    """Prints progress and writes reports; of several processes, only the first one does."""

    def __init__(self, folder: Path, options: dict[str, Any], n_epochs: int) -> None:
        self.folder, self.options, self.n_epochs = folder, options, n_epochs
        self.is_first = _is_first_process()
        self.about: dict[str, Any] = {}
        self.args: dict[str, Any] = {}
        self.operations: OperationCount
        # An existing model and its reports stay until the new model is complete.
        self.has_model = (folder / MODEL).exists()

    def begin(self, settings: dict[str, Any], data: Data) -> None:
        """Describe the training that begins."""
        import torch

        from attnknn import __version__
        from attnknn.vit.model import count_operations
        from attnknn.vit.training.storage import build_vit

        with torch.random.fork_rng(devices=[]):
            model = build_vit(settings)
            side = settings["image_size"]
            operations = count_operations(model, torch.zeros(1, settings["in_chans"], side, side))
        self.args = {name: _json_value(value) for name, value in self.options.items()}
        self.operations = operations
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.options["resume"]:  # otherwise the files exist, and the checkpoint must agree
            (self.folder / CHECKPOINT).unlink(missing_ok=True)
            if not self.has_model:
                clear(self.folder)
                self.write_description(model)
        self.about = {
            "args": self.args,
            "source": data.source,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "operations": {"total": operations.total, **asdict(operations)},
            "versions": {"attnknn": __version__, "torch": torch.__version__},
        }
        n_train, n_test = len(data.train.images), len(data.test.images)
        echo(
            f"images: {n_train:,} for training, {n_test:,} for testing; {len(data.classes)} "
            f"classes; from {data.source}"
        )
        echo_block(_size_lines(model, operations))

    def write_description(self, model: nn.Module) -> None:
        """Write every option, and the modules and size of the model."""
        from attnknn._output_files import write_file

        args = "".join(f"{name}: {value}\n" for name, value in self.args.items())
        summary = f"{model}\n\n{_size_lines(model, self.operations)}\n"
        write_file(self.folder / ARGS, args, force=True)
        write_file(self.folder / SUMMARY, summary, force=True)

    def report_epoch(self, epoch: EpochMetrics) -> None:
        """Print a line for an epoch, and append it to the results."""
        line = epoch_line(epoch, self.n_epochs)
        echo(line)
        if not self.has_model:
            with (self.folder / RESULTS).open("a") as file:
                file.write(f"{line}\n")


def _is_first_process() -> bool:
    """Whether this process is the only one, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def check_free(folder: Path, *, resume: bool, force: bool) -> None:
    """Before any work: the folder is free, or may be used."""
    from attnknn._output_files import refuse_model_folder

    refuse_model_folder(folder)
    has_model, has_checkpoint = (folder / MODEL).exists(), (folder / CHECKPOINT).exists()
    if resume and force:
        raise click.UsageError("Give either --resume, to continue, or --force, to start again.")
    if resume and not has_checkpoint:
        raise click.UsageError(f"{folder} has no interrupted training to resume.")
    if force or resume:
        return
    if has_checkpoint:
        raise click.UsageError(
            f"{folder} has an interrupted training. Continue with --resume, or start again with "
            "--force."
        )
    if has_model:
        raise click.UsageError(
            f"{folder} has a trained model. Test it with --test-only, replace it with --force, or "
            "choose another --output-dir."
        )
    for name in FILES:
        if (folder / name).exists():
            raise click.UsageError(
                f"{folder} has a file {name}, which a training would replace. Give --force to "
                "replace it, or another --output-dir."
            )


def clear(folder: Path, but: str | None = None) -> None:
    """Delete the files of an earlier training, except `but`."""
    for name in FILES:
        if name != but:
            (folder / name).unlink(missing_ok=True)


def _size_lines(model: nn.Module, operations: OperationCount) -> str:
    n_parameters = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"parameters: {n_parameters:,}\n"
        f"operations per image: {operations.total / 1e6:,.2f} M (products "
        f"{operations.products / 1e6:,.2f}, selection {operations.selection / 1e6:,.2f}, "
        f"aggregation {operations.aggregation / 1e6:,.2f})"
    )


def epoch_line(epoch: EpochMetrics, n_epochs: int) -> str:
    """Losses and accuracies of an epoch."""
    return (
        f"epoch {epoch.number} of {n_epochs}: train loss {epoch.train_loss:.4f}, "
        f"top-1 {epoch.train_top1:.2%}, top-5 {epoch.train_top5:.2%}; "
        f"validation loss {epoch.validation_loss:.4f}, top-1 {epoch.validation_top1:.2%}, "
        f"top-5 {epoch.validation_top5:.2%}; {epoch.seconds:.1f} s"
    )


def test_line(scores: Evaluation) -> str:
    """Loss and accuracies on test images."""
    return (
        f"test: loss {scores.loss:.4f}, top-1 {scores.top1:.2%}, top-5 {scores.top5:.2%} of "
        f"{scores.n_rows:,} images"
    )


def scores_record(scores: Evaluation) -> dict[str, float]:
    """The same as JSON values."""
    names = ("loss", "top1", "top5", "n_rows")
    return {name: getattr(scores, name) for name in names}


def read_args(folder: Path) -> dict[str, Any]:
    """The options of a completed training."""
    from attnknn.errors import InvalidInputError

    path = folder / REPORT
    try:
        args: dict[str, Any] = json.loads(path.read_text())["args"]
        if not isinstance(args, dict):
            raise TypeError(args)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidInputError(f"{path} is not a report of `attnknn vit train`.") from error
    return args


def _json_value(value: Any) -> Any:
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value) if isinstance(value, Path) else value
