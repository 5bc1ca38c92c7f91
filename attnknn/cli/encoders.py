"""Which encoder a file gets, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from attnknn.cli.files import Source
    from attnknn.cli.training_rows import TrainingRows

ENCODERS = {"table": ("tabular", "learned-tabular", "identity")}
ENCODERS["vectors"] = ENCODERS["table"]
TABLES = ("tabular", "learned-tabular")  # they read columns of any kind, and allow gaps
TRAINED = ("learned-tabular",)


@dataclass(frozen=True)
class EncoderOptions:
    """What was asked for on the command line; None is not asked for."""

    encoder: str = "auto"
    embed_dim: int | None = None
    epochs: int | None = None


@dataclass(frozen=True)
class Choice:
    """The encoder as the classifier takes it, its name, and why it was chosen."""

    encoder: Any
    name: str
    why: str


def check_options(source: Source, options: EncoderOptions) -> None:
    """Before any work: the encoder that was asked for is one for this kind of file."""
    kind = kind_of(source)
    if options.encoder not in ("auto", *ENCODERS[kind]):
        raise click.UsageError(
            f"--encoder {options.encoder} is not for {source.path}, which holds {kind}: "
            f"choose from {', '.join(ENCODERS[kind])}."
        )


def kind_of(source: Source) -> str:
    """What the rows are: 'table' or 'vectors'."""
    return "vectors" if source.has_vectors else "table"


def allows_gaps(source: Source, options: EncoderOptions) -> bool:
    """Whether values may be missing in what is learned from."""
    is_chosen = options.encoder == "auto" and not source.has_vectors
    return is_chosen or options.encoder in TABLES


def choose_encoder(source: Source, rows: TrainingRows, options: EncoderOptions) -> Choice:
    """The encoder asked for, or the one that suits the rows."""
    name, why = options.encoder, "asked for"
    if name == "auto":
        name, why = _suited(source, rows)
    asked = {"embed_dim": options.embed_dim, "epochs": options.epochs}
    settings = {key: value for key, value in asked.items() if value is not None}
    if settings and name not in TRAINED:
        flag = next(iter(settings)).replace("_", "-")
        raise click.UsageError(f"--{flag} is for an encoder that is trained, not for {name!r}.")
    return Choice(_made(name, settings), name, why)


def _suited(source: Source, rows: TrainingRows) -> tuple[str, str]:
    from attnknn.training.fitting import FEWEST_ROWS_TO_LEARN

    if source.has_vectors:
        return "identity", "vectors are taken as they are"
    if len(rows.y) < FEWEST_ROWS_TO_LEARN:
        return "tabular", (
            "a table: numbers and dates are scaled, texts are categories; "
            f"below {FEWEST_ROWS_TO_LEARN} rows nothing is trained"
        )
    return "learned-tabular", (
        f"a table of {FEWEST_ROWS_TO_LEARN} rows or more: its embedding is trained for the vote"
    )


def _made(name: str, settings: dict[str, Any]) -> Any:
    """A name where nothing else was asked for, as people write it in Python."""
    if not settings:
        return name
    from attnknn.encoders import LearnedTableEncoder

    return LearnedTableEncoder(**settings)
