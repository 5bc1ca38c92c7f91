"""`attnknn vit train`: train a Vision Transformer, keep its best epoch, test it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from attnknn.cli.vit.folder import MODEL
from attnknn.cli.vit.options import (
    data_options,
    layer_options,
    model_options,
    names_in,
    training_options,
)

if TYPE_CHECKING:
    from torch import nn

    from attnknn.cli.vit.data import Data
    from attnknn.vit.model import OperationCount
    from attnknn.vit.training import EpochMetrics, StoredVit, VitTrainConfig

INTERRUPTED = 130  # the exit code that shells have for it
MODEL_OPTIONS = names_in(model_options, layer_options) | {"resize"}


@click.command()
@model_options
@layer_options
@data_options
@training_options
@click.pass_context
def train(ctx: click.Context, /, **options: Any) -> None:
    """Train a Vision Transformer on images and test it.

    Options may be written with dashes or underscores. --output_dir gets args.txt, model.txt,
    train_eval_results.txt, report.json, curves.png and the model of the epoch that was most often
    right on validation rows; the test images choose nothing.
    """
    from attnknn.cli.vit.test import test_folder
    from attnknn.training.devices import device_of

    device_of(options["device"])
    folder: Path = options["output_dir"]
    asked = {name for name in options if _is_given(ctx, name)}
    if options["test_only"]:
        as_trained = {
            n: options[n] if n in asked else None for n in ("dataset", "data_path", "noise")
        }
        rest = {name: options[name] for name in ("test_rows", "batch_size", "device", "workers")}
        _check_as_trained(folder, {name: _plain(options[name]) for name in asked & MODEL_OPTIONS})
        test_folder(folder, {**as_trained, **rest})
        return
    if not _train(folder, options, asked):
        ctx.exit(INTERRUPTED)


def _check_as_trained(folder: Path, asked: dict[str, Any]) -> None:
    """A model cannot be tested as another one."""
    from attnknn.cli.vit import folder as files

    if not (folder / files.REPORT).exists():
        return
    trained = files.read_args(folder)
    for name, value in asked.items():
        if trained.get(name, value) != value:
            raise click.UsageError(
                f"--test_only tests the model of {folder}, which was trained with --{name} "
                f"{trained[name]}, not {value}."
            )


def _is_given(ctx: click.Context, name: str) -> bool:
    return ctx.get_parameter_source(name) is not ParameterSource.DEFAULT


def _train(folder: Path, options: dict[str, Any], asked: set[str]) -> bool:
    """Whether the training came to its end."""
    import torch

    from attnknn.cli.vit import folder as files
    from attnknn.cli.vit.data import read_data
    from attnknn.cli.vit.mapping import (
        as_meant,
        errors_in_flags,
        model_settings,
        training_settings,
    )
    from attnknn.vit.training import ImagePreprocessor, train_vit
    from attnknn.vit.training.storage import build_vit
    from attnknn.vit.training.trainer import split_validation

    options = as_meant(options, asked)
    training = training_settings(options)
    files.check_free(folder, resume=options["resume"], force=options["force"])
    data = read_data(
        options["dataset"],
        options["data_path"],
        options["resize"],
        is_named="data_path" in asked,
        train_rows=options["train_rows"],
        test_rows=options["test_rows"],
    )
    settings = model_settings(options, in_chans=data.in_chans, num_classes=len(data.classes))
    _tell_of_idle_options(options, asked)
    split_validation(
        torch.as_tensor(data.train.classes), training.validation, training.seed
    )  # or an error
    teller = _Teller(folder, options, training.epochs)
    if teller.is_first:
        with errors_in_flags(options["layer"]):
            teller.begin(settings, data)
    side = options["resize"]
    pixels = ImagePreprocessor.from_images(data.train.images, (side, side), training.noise)
    model, result = train_vit(
        lambda: build_vit(settings),
        data.train.images,
        data.train.classes,
        pixels,
        training,
        checkpoint=folder / files.CHECKPOINT,
        fingerprint={f"model {name}": value for name, value in settings.items()},
        on_epoch=teller.tell,
        verbose=int(teller.is_first and os.isatty(2)),
    )
    if not teller.is_first:
        return not result.was_interrupted
    if not result.best_epoch:
        click.echo("Interrupted before the first epoch was over: nothing is kept.", err=True)
        return False
    from attnknn.vit.training import StoredVit

    stored = StoredVit(model, settings, pixels, data.classes)  # type: ignore[arg-type]
    _finish(teller, stored, result, data, training)
    if result.was_interrupted:
        has_checkpoint = (folder / files.CHECKPOINT).exists()
        _tell_of_interruption(len(result.epochs), training.epochs, has_checkpoint)
    return not result.was_interrupted


def _tell_of_idle_options(options: dict[str, Any], asked: set[str]) -> None:
    """Options that were given and that nothing reads."""
    from attnknn.cli.vit.mapping import not_read, without_effect

    for name in not_read(options["layer"], asked):
        click.echo(f"--{name} is not read by {', '.join(options['layer'])}.", err=True)
    for line in without_effect(options):
        click.echo(line, err=True)


def _tell_of_interruption(n_done: int, n_asked: int, has_checkpoint: bool) -> None:
    goes_on = "the same command with --resume goes on"
    way_on = goes_on if has_checkpoint else "there is no checkpoint to go on from"
    click.echo(f"Interrupted after epoch {n_done} of {n_asked}; {way_on}.", err=True)


def _finish(
    teller: _Teller, stored: StoredVit, result: Any, data: Data, training: VitTrainConfig
) -> None:
    """Keep the model, test it, and write everything down."""
    from attnknn.cli.vit import folder as files
    from attnknn.vit.plots import plot_training
    from attnknn.vit.training import evaluate, save_vit

    folder = teller.folder
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
    kept = f"kept: epoch {result.best_epoch} of {len(result.epochs)}, after {result.seconds:.0f} s"
    last = [kept, files.test_line(scores)]
    files.clear(folder, but=files.CHECKPOINT)
    save_vit(folder / files.MODEL, stored)
    teller.write_papers(stored.model)
    files.write_results(folder, result.epochs, training.epochs, last)
    files.write_report(folder, result, scores, {**teller.about, "model": stored.settings})
    plot_training(result.epochs, result.best_epoch, folder / files.CURVES)
    if not result.was_interrupted:
        (folder / files.CHECKPOINT).unlink(missing_ok=True)
    for line in last:
        click.echo(line)
    click.echo(f"written: {folder}")


class _Teller:
    """Writes and prints; of several processes only the first does."""

    def __init__(self, folder: Path, options: dict[str, Any], n_epochs: int) -> None:
        self.folder, self.options, self.n_epochs = folder, options, n_epochs
        self.is_first = os.environ.get("RANK", "0") == "0"
        self.about: dict[str, Any] = {}
        self.args: dict[str, Any] = {}
        self.operations: OperationCount
        # With all that is written of it, until another is there.
        self.keeps_model = (folder / MODEL).exists()

    def begin(self, settings: dict[str, Any], data: Data) -> None:
        """What is about to be trained."""
        from dataclasses import asdict

        import torch

        from attnknn import __version__
        from attnknn.cli.vit import folder as files
        from attnknn.vit.model import count_operations
        from attnknn.vit.training.storage import build_vit

        with torch.random.fork_rng(devices=[]):
            model = build_vit(settings)
            side = settings["image_size"]
            operations = count_operations(model, torch.zeros(1, settings["in_chans"], side, side))
        args = {name: _plain(value) for name, value in self.options.items()}
        self.args, self.operations = args, operations
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.options["resume"]:  # else they are there, and the checkpoint must agree
            (self.folder / files.CHECKPOINT).unlink(missing_ok=True)
            if not self.keeps_model:
                files.clear(self.folder)
                self.write_papers(model)
        self.about = {
            "args": args,
            "source": data.source,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "operations": {"total": operations.total, **asdict(operations)},
            "versions": {"attnknn": __version__, "torch": torch.__version__},
        }
        n_train, n_test = len(data.train.images), len(data.test.images)
        click.echo(
            f"images: {n_train:,} to train on, {n_test:,} to test; {len(data.classes)} classes; "
            f"from {data.source}"
        )
        click.echo(files.size_lines(model, operations))

    def write_papers(self, model: nn.Module) -> None:
        """Every option, and what the model is like."""
        from attnknn.cli.vit import folder as files

        files.write_args(self.folder, self.args)
        files.write_summary(self.folder, model, self.operations)

    def tell(self, epoch: EpochMetrics) -> None:
        """A line for an epoch, printed and kept."""
        from attnknn.cli.vit import folder as files

        line = files.epoch_line(epoch, self.n_epochs)
        click.echo(line)
        if self.keeps_model:
            return
        with (self.folder / files.RESULTS).open("a") as file:
            file.write(f"{line}\n")


def _plain(value: Any) -> Any:
    """As JSON."""
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value) if isinstance(value, Path) else value
