"""`attnknn vit test`: the scores of a trained model on test images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from attnknn.cli.vit.options import COUNT, DATASETS, NOT_NEGATIVE, PATH, WHOLE, option


@click.command()
@click.argument("folder", type=PATH)
@option(
    "dataset", None, "Images to test on. [default: as in training]", type=click.Choice(DATASETS)
)
@option("data_path", None, "Folder of the images. [default: as in training]", type=PATH)
@option("noise", None, "Noise on pixels. [default: as in training]", type=NOT_NEGATIVE)
@option("test_rows", None, "Only so many images. [default: all]", type=WHOLE)
@option("batch_size", 256, "Images at once.", type=WHOLE)
@option("device", "auto", "Where.", type=click.Choice(("auto", "cpu", "cuda", "mps")))
@option("workers", 0, "Threads that read files ahead.", type=COUNT)
@option("format", "text", "How to print.", type=click.Choice(("text", "json")))
def test(folder: Path, **options: Any) -> None:
    """Test the model that `attnknn vit train` left in FOLDER."""
    test_folder(folder, options)


def test_folder(folder: Path, options: dict[str, Any]) -> None:
    """Test a model and print its scores; what no option says is as it was in training."""
    from dataclasses import replace

    from attnknn.cli.vit import folder as files
    from attnknn.training.devices import device_of
    from attnknn.vit.training import evaluate

    device = device_of(options["device"])
    args = files.read_args(folder) if (folder / files.REPORT).exists() else {}
    stored = open_model(folder, device)
    wanted = {
        name: args.get(name) if options[name] is None else options[name]
        for name in ("dataset", "data_path", "noise")
    }
    is_named = options["data_path"] is not None
    data = _data(wanted, stored, options["test_rows"], is_named)
    if str(wanted["data_path"]) != data.source:
        click.echo(f"images: from {data.source}", err=True)
    pixels = replace(stored.preprocessor, noise=wanted["noise"] or 0.0)
    scores = evaluate(
        stored.model,
        data.test.images,
        data.test.classes,
        pixels,
        criterion=args.get("criterion", "CrossEntropy"),
        batch_size=options["batch_size"],
        seed=args.get("seed", 0),
        workers=options["workers"],
    )
    is_json = options.get("format") == "json"
    click.echo(json.dumps(files.scores_of(scores)) if is_json else files.test_line(scores))


def open_model(folder: Path, device: Any) -> Any:
    """The model of a folder, or an error that says how to get one."""
    from attnknn.cli.vit import folder as files
    from attnknn.vit.training import load_vit

    path = folder / files.MODEL
    if not path.is_file():
        raise click.ClickException(
            f"{folder} holds no trained model. `attnknn vit train --output_dir {folder}` makes one."
        )
    return load_vit(path, device)


def _data(wanted: dict[str, Any], stored: Any, test_rows: int | None, is_named: bool) -> Any:
    from attnknn.cli.vit.data import read_data

    if wanted["dataset"] is None:
        raise click.UsageError("Say with --dataset on what to test: the folder has no report.")
    side = stored.preprocessor.size[0]
    path = Path(wanted["data_path"] or "./Data")
    data = read_data(wanted["dataset"], path, side, is_named=is_named, test_rows=test_rows)
    if data.classes != stored.classes or data.in_chans != len(stored.preprocessor.mean):
        raise click.ClickException(
            f"The model knows {len(stored.classes)} classes of images with "
            f"{len(stored.preprocessor.mean)} channels; {wanted['dataset']} has others."
        )
    return data
