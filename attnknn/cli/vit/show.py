"""`attnknn vit show`: which tokens each token looks at, layer by layer, as a picture or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from attnknn.cli.vit.options import COUNT, PATH, WHOLE, option


@click.command()
@click.argument("folder", type=PATH)
@click.argument("image", type=PATH)
@click.option("-o", "--out", type=PATH, help="PNG, PDF, SVG or JSON. [default: IMAGE-looks.png]")
@click.option("--token", "tokens", multiple=True, help="Whose: 'class', or row,column of a patch.")
@option("blocks", None, "Which blocks, as 1,6,12. [default: all]")
@option("head", None, "Which head, from 0. [default: the mean of all]", type=COUNT)
@option("most", 9, "How many tokens, the heaviest, of a layer that does not choose.", type=WHOLE)
def show(
    folder: Path,
    image: Path,
    out: Path | None,
    tokens: tuple[str, ...],
    blocks: str | None,
    head: int | None,
    most: int,
) -> None:
    """Draw what the tokens of IMAGE look at in the model of FOLDER.

    Each row is a block: what the class token and some patches look at (the patch that asks has a
    red frame; the more weight, the clearer a patch), and last whom all tokens look at. A file
    that ends in .json gets all tokens of all blocks as numbers.
    """
    import torch

    from attnknn.cli.vit.test import open_model
    from attnknn.encoders.image.rows import read_picture, resize
    from attnknn.vit.attention_maps import extract_attention_maps

    stored = open_model(folder, "cpu")
    grid = stored.model.grid
    pixels = resize(
        _channels(read_picture(image, str(image)), stored)[None], stored.preprocessor.size
    )
    seen = stored.preprocessor.transform(torch.from_numpy(pixels), torch.Generator())
    found = _chosen(extract_attention_maps(stored.model, seen, most), blocks)
    if not found:
        raise click.ClickException("The model has no layer that attends: there is nothing to show.")
    _check_head(found, head)
    out = out or Path(f"{image.stem}-looks.png")
    out = out if out.suffix else out.with_name(f"{out.name}.png")
    with torch.no_grad():
        answer = stored.classes[int(stored.model(seen).argmax())]
    if out.suffix.lower() == ".json":
        out.write_text(json.dumps(_numbers(found, grid, answer)) + "\n")
    else:
        from attnknn.vit.plots import plot_attention_maps

        asking = _asking(tokens, grid)
        title = f"{image.name}, taken for {answer!r}: what tokens look at"
        plot_attention_maps(pixels[0], found, grid, asking, out, head=head, title=title)
    click.echo(f"{out}: {len(found)} blocks, taken for {answer!r}")


def _channels(picture: Any, stored: Any) -> Any:
    """As many as the model knows: gray becomes three equal ones, color becomes gray."""
    import numpy as np

    wanted = len(stored.preprocessor.mean)
    if len(picture) == wanted:
        return picture
    if wanted == 3:
        return np.repeat(picture, 3, axis=0)
    return picture.mean(0, keepdims=True).round().astype(np.uint8)


def _chosen(found: list[Any], blocks: str | None) -> list[Any]:
    from attnknn.vit.plots import block_number

    if blocks is None:
        return found
    known = {
        block_number(looks.layer) or place: looks for place, looks in enumerate(found, start=1)
    }
    try:
        asked = [int(block) for block in blocks.split(",")]
    except ValueError:
        raise click.UsageError(f"--blocks must be numbers, as 1,6,12, got {blocks!r}.") from None
    for block in asked:
        if block not in known:
            attend = ", ".join(map(str, known))
            raise click.UsageError(
                f"--blocks must be of those that attend ({attend}), got {block}."
            )
    return [known[block] for block in asked]


def _check_head(found: list[Any], head: int | None) -> None:
    n_heads = min(looks.tokens.shape[1] for looks in found)
    if head is not None and head >= n_heads:
        raise click.UsageError(f"--head must be from 0 to {n_heads - 1}, got {head}.")


def _asking(tokens: tuple[str, ...], grid: Any) -> list[int]:
    """The tokens asked for; else the class token and four patches around the middle."""
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
            f"--token {token}: there are {grid.height} rows and {grid.width} columns, from 0."
        )
    return int(grid.n_prefix + row * grid.width + column)


def _numbers(found: list[Any], grid: Any, answer: str) -> dict[str, Any]:
    return {
        "answer": answer,
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
