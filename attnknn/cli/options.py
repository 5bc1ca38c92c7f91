"""Options and argument types that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from attnknn.cli.commands import option

FILE = click.Path(path_type=Path)
WHOLE, COUNT = click.IntRange(1), click.IntRange(0)
PROPORTION = click.FloatRange(0, 1, min_open=True, max_open=True)
POSITIVE, NOT_NEGATIVE = click.FloatRange(0, min_open=True), click.FloatRange(0)
FORMATS = ("csv", "tsv", "parquet", "json")
SEPARATORS = {"\\t": "\t", "tab": "\t"}

Callback = Callable[[click.Context, click.Parameter, Any], Any]


def _separator(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    if value is None:
        return None
    separator = SEPARATORS.get(value, value)
    if len(separator) != 1 or separator in '"\r\n':
        raise click.BadParameter(f"must be one character, such as ';' or '\\t', got {value!r}.")
    return separator


def _max_memory(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    """Keep the size for `memory_bound`."""
    if value is None:
        return
    from attnknn.cli.rows.memory_bound import MAX_MEMORY, parse_size

    size = parse_size(value)
    if not size:
        raise click.BadParameter(f"must be a size such as 500MB or 2GB, got {value!r}.")
    ctx.meta[MAX_MEMORY] = size


def _has_header(ctx: click.Context, _: click.Parameter, value: bool | None) -> None:
    """Keep the choice for `header_choice`."""
    if value is None:
        return
    from attnknn.cli.rows.headers import HAS_HEADER

    ctx.meta[HAS_HEADER] = value


model_argument = click.argument("model", type=FILE)
rows_argument = click.argument("rows", type=FILE)

separator_option = option(
    "--sep",
    "separator",
    callback=_separator,
    help="Separator of a text file, such as ';' or '\\t'.  [default: from the file name]",
)
header_option = option(
    "--header/--no-header",
    default=None,
    callback=_has_header,
    expose_value=False,
    help="Whether the first line of a text file names the columns. Without a header they are named "
    "column_1, column_2, …; options take these names or the numbers.  [default: --header, unless "
    "the line looks like data]",
)
max_memory_option = option(
    "--max-memory",
    metavar="SIZE",
    callback=_max_memory,
    expose_value=False,
    help="Maximum memory for the rows of a file, such as 2GB.  [default: what is available]",
)
target_option = option("-t", "--target", help="Column of the labels.  [default: as in fit]")
out_option = option("-o", "--out", type=FILE, help="File to write.  [default: standard output]")
force_option = option("--force", is_flag=True, help="Replace an existing output file.")
format_option = option(
    "--format",
    "style",
    type=click.Choice(FORMATS),
    help="Format of the output.  [default: from the name of --out, else csv]",
)


def review_format_option(*more: str) -> Callable[..., Any]:
    """The option --format of a command that also writes files for tools of reviewers."""
    return option(
        "--format",
        "style",
        type=click.Choice([*FORMATS, *more]),
        help="Format of the output.  [default: from the name of --out, else csv]",
    )


labeling_config_option = option(
    "--labeling-config",
    type=FILE,
    help="With --format label-studio: also write the labeling interface of the project (XML).",
)
image_prefix_option = option(
    "--image-prefix",
    default="",
    show_default=False,
    help="With --format label-studio: text before file names of images, such as "
    "/data/local-files/?d=photos/.  [default: none]",
)
print_format_option = option(
    "--format",
    "style",
    type=click.Choice(["table", "json"]),
    default="table",
    help="Format of the output.",
)
by_option = option("--by", help="Who makes the edit, for the log.  [default: the user name]")
new_classes_option = option(
    "--new-classes", is_flag=True, help="Allow labels that the model does not know yet."
)
