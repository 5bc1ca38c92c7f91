"""`attnknn vit test` and `attnknn vit show`: scores and attention maps of a trained model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from attnknn.cli.commands import command
from attnknn.cli.commands import option as plain_option
from attnknn.cli.options import COUNT, FILE, NOT_NEGATIVE, WHOLE, force_option
from attnknn.cli.output import check_out, echo, to_json
from attnknn.cli.vit.options import DATASETS, DEVICES, choice, option
from attnknn.cli.vit.train import MODEL, REPORT, read_args, scores_record, test_line


@command()
@click.argument("folder", type=FILE)
@option("dataset", None, "Test data set.  [default: as in training]", type=click.Choice(DATASETS))
@option("data_path", None, "Folder of the data set.  [default: as in training]", type=FILE)
@option("noise", None, "Pixel noise.  [default: as in training]", type=NOT_NEGATIVE)
@option("test_rows", None, "Number of test images.  [default: all]", type=WHOLE)
@option("batch_size", 256, "Images per batch.", type=WHOLE)
@choice("device", DEVICES, "auto", "Device.")
@option("workers", 0, "Threads that read files ahead.", type=COUNT)
@choice("format", ("text", "json"), "text", "Format of the output.")
def test(folder: Path, **options: Any) -> None:
    """Test the model that `attnknn vit train` saved in FOLDER."""
    test_folder(folder, options)


def test_folder(folder: Path, options: dict[str, Any]) -> None:
    """Test a model and print its scores; options that are None are as in training."""
    from dataclasses import replace

    from attnknn.training.devices import device_of
    from attnknn.vit.training import evaluate

    device = device_of(options["device"])
    args = read_args(folder) if (folder / REPORT).exists() else {}
    stored = open_model(folder, device)
    wanted = {
        name: args.get(name) if options[name] is None else options[name]
        for name in ("dataset", "data_path", "noise")
    }
    data = _read_data(wanted, stored, options["test_rows"], options["data_path"] is not None)
    if str(wanted["data_path"]) != data.source:
        echo(f"images: from {data.source}", err=True)
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
    echo(to_json(scores_record(scores)) if is_json else test_line(scores))


def open_model(folder: Path, device: Any) -> Any:
    """The model of a folder."""
    from attnknn.vit.training import load_vit

    path = folder / MODEL
    if not path.is_file():
        raise click.ClickException(
            f"{folder} has no trained model. Train one with `attnknn vit train --output-dir "
            f"{folder}`."
        )
    return load_vit(path, device)


def _read_data(
    wanted: dict[str, Any], stored: Any, test_rows: int | None, is_explicit: bool
) -> Any:
    from attnknn.cli.vit.data import read_data

    if wanted["dataset"] is None:
        raise click.UsageError("Give the test data set with --dataset: the folder has no report.")
    side = stored.preprocessor.size[0]
    path = Path(wanted["data_path"] or "./Data")
    data = read_data(wanted["dataset"], path, side, is_explicit=is_explicit, test_rows=test_rows)
    if data.classes != stored.classes or data.in_chans != len(stored.preprocessor.mean):
        raise click.ClickException(
            f"The model has {len(stored.classes)} classes and images with "
            f"{len(stored.preprocessor.mean)} channels; {wanted['dataset']} differs."
        )
    return data


@command()
@click.argument("folder", type=FILE)
@click.argument("image", type=FILE)
@plain_option(
    "-o", "--out", type=FILE, help="PNG, PDF, SVG or JSON file.  [default: IMAGE-attention.png]"
)
@force_option
@plain_option(
    "--token", "tokens", multiple=True, help="Query token: 'class', or row,column of a patch."
)
@option("blocks", None, "Blocks to show, as 1,6,12.  [default: all]")
@option("head", None, "Attention head, from 0.  [default: mean of all]", type=COUNT)
@option("most", 9, "For layers that attend to all tokens, show only this many.", type=WHOLE)
def show(
    folder: Path,
    image: Path,
    out: Path | None,
    force: bool,
    tokens: tuple[str, ...],
    blocks: str | None,
    head: int | None,
    most: int,
) -> None:
    """Draw the attention maps of a model for an image.

    Each row is a block: the patches that the class token and some patches attend to (a red frame
    marks the query patch; brighter patches have more weight), and last the mean over all tokens. A
    .json file receives the weights of all tokens in all blocks.
    """
    import torch

    from attnknn._output_files import write_file
    from attnknn.encoders.image.rows import read_picture, resize
    from attnknn.vit.attention_maps import extract_attention_maps

    out = out or Path(f"{image.stem}-attention.png")
    out = out if out.suffix else out.with_name(f"{out.name}.png")
    check_out(out, image, force=force)
    stored = open_model(folder, "cpu")
    grid = stored.model.grid
    picture = _match_channels(read_picture(image, str(image)), len(stored.preprocessor.mean))
    pixels = resize(picture[None], stored.preprocessor.size)
    seen = stored.preprocessor.transform(torch.from_numpy(pixels), torch.Generator())
    found = _select_blocks(extract_attention_maps(stored.model, seen, most), blocks)
    if not found:
        raise click.ClickException("The model has no attention layer to show.")
    n_heads = min(looks.tokens.shape[1] for looks in found)
    if head is not None and head >= n_heads:
        raise click.UsageError(f"--head must be from 0 to {n_heads - 1}, got {head}.")
    with torch.no_grad():
        label = stored.classes[int(stored.model(seen).argmax())]
    if out.suffix.lower() == ".json":
        write_file(out, json.dumps(_record(found, grid, label)) + "\n", force=force)
    else:
        from attnknn.vit.plots import plot_attention_maps

        queries = _query_tokens(tokens, grid)
        title = f"{image.name}, predicted {label!r}: attention"
        plot_attention_maps(pixels[0], found, grid, queries, out, head=head, title=title)
    echo(f"{out}: {len(found)} blocks, predicted {label!r}")


def _match_channels(picture: Any, n_channels: int) -> Any:
    """Gray as three equal channels, or color as gray, as the model needs."""
    import numpy as np

    if len(picture) == n_channels:
        return picture
    if n_channels == 3:
        return np.repeat(picture, 3, axis=0)
    return picture.mean(0, keepdims=True).round().astype(np.uint8)


def _select_blocks(found: list[Any], blocks: str | None) -> list[Any]:
    from attnknn.vit.plots import block_number

    if blocks is None:
        return found
    known = {
        block_number(looks.layer) or place: looks for place, looks in enumerate(found, start=1)
    }
    try:
        wanted = [int(block) for block in blocks.split(",")]
    except ValueError:
        raise click.UsageError(f"--blocks must be numbers, as 1,6,12, got {blocks!r}.") from None
    for block in wanted:
        if block not in known:
            names = ", ".join(map(str, known))
            raise click.UsageError(
                f"--blocks must be blocks with attention ({names}), got {block}."
            )
    return [known[block] for block in wanted]


def _query_tokens(tokens: tuple[str, ...], grid: Any) -> list[int]:
    """The given tokens; by default the class token and four patches around the center."""
    if tokens:
        return [_token(token, grid) for token in tokens]
    prefix = [0] if grid.n_prefix else []
    rows, columns = ([side // 4, side - 1 - side // 4] for side in (grid.height, grid.width))
    places = dict.fromkeys(row * grid.width + column for row in rows for column in columns)
    return prefix + [grid.n_prefix + place for place in places]


def _token(token: str, grid: Any) -> int:
    if token == "class" and grid.n_prefix:
        return 0
    parts = token.split(",")
    if len(parts) != 2 or not all(part.strip().isdecimal() for part in parts):
        raise click.UsageError(f"--token must be class, or row,column as 3,4; got {token!r}.")
    row, column = map(int, parts)
    if row >= grid.height or column >= grid.width:
        raise click.UsageError(
            f"--token {token} is outside the grid of {grid.height} rows and {grid.width} columns, "
            "counted from 0."
        )
    return int(grid.n_prefix + row * grid.width + column)


def _record(found: list[Any], grid: Any, label: str) -> dict[str, Any]:
    return {
        "label": label,
        "grid": {"height": grid.height, "width": grid.width, "n_prefix": grid.n_prefix},
        "layers": [
            {
                "layer": looks.layer,
                "tokens": looks.tokens[0].tolist(),
                "weights": looks.weights[0].tolist(),
            }
            for looks in found
        ],
    }
