"""Which encoder a file gets, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from attnknn.cli.files import Source
    from attnknn.cli.training_rows import TrainingRows

ENCODERS = {
    "table": ("tabular", "learned-tabular", "identity"),
    "vectors": ("identity", "tabular", "learned-tabular"),
    "texts": ("tfidf", "text"),
    "images": ("image",),
}
_WORDS = {"table": "a table", "vectors": "vectors", "texts": "texts", "images": "images"}
TABLES = ("tabular", "learned-tabular")  # they read columns of any kind, and allow gaps
TRAINED = ("learned-tabular", "image")
OF_IMAGES = ("network", "image_size", "weights", "backbone", "views", "n_views", "workers")


@dataclass(frozen=True)
class EncoderOptions:
    """What was asked for on the command line; None is not asked for."""

    encoder: str = "auto"
    text: str | None = None
    text_model: str | None = None
    network: str | None = None
    image_size: tuple[int, int] | None = None
    embed_dim: int | None = None
    epochs: int | None = None
    batch_size: int | None = None
    weights: str | None = None
    backbone: str | None = None
    views: tuple[str, ...] | None = None
    n_views: int | None = None
    workers: int | None = None


@dataclass(frozen=True)
class Choice:
    """The encoder as the classifier takes it, its name, and why it was chosen."""

    encoder: Any
    name: str
    why: str


def check_options(source: Source, options: EncoderOptions) -> None:
    """Before any work: the encoder that was asked for is one for this kind of file."""
    kind = kind_of(source, options)
    if options.text is not None and source.kind != "table":
        raise click.UsageError(f"--text names a column of a table; {source.path} has none.")
    if options.text_model is not None and (kind != "texts" or options.encoder == "tfidf"):
        raise click.UsageError("--text-model is for a column of texts, named with --text.")
    for name in OF_IMAGES:
        if getattr(options, name) is not None and kind != "images":
            flag = "--" + name.replace("_", "-")
            raise click.UsageError(f"{flag} is for images; {source.path} holds {_WORDS[kind]}.")
    if options.n_views is not None and options.views is None:
        raise click.UsageError("--n-views says how many of --views are taken: give both.")
    if options.encoder not in ("auto", *ENCODERS[kind]):
        raise click.UsageError(
            f"--encoder {options.encoder} is not for {source.path}, which holds {_WORDS[kind]}: "
            f"choose from {', '.join(ENCODERS[kind])}."
        )


def kind_of(source: Source, options: EncoderOptions) -> str:
    """What is learned from: 'table', 'texts', 'vectors' or 'images'."""
    return source.kind if options.text is None else "texts"


def allows_gaps(source: Source, options: EncoderOptions) -> bool:
    """Whether values may be missing in what is learned from."""
    if source.kind == "images":
        return True  # an image has no gaps
    is_chosen = options.encoder == "auto" and source.kind == "table"
    return is_chosen or options.encoder in TABLES


def choose_encoder(source: Source, rows: TrainingRows, options: EncoderOptions) -> Choice:
    """The encoder asked for, or the one that suits the rows."""
    name, why = options.encoder, "asked for"
    if name == "auto":
        name, why = _suited(kind_of(source, options), rows, options)
    return Choice(_made(name, options), name, why)


def _suited(kind: str, rows: TrainingRows, options: EncoderOptions) -> tuple[str, str]:
    from attnknn.fitting.fitting import FEWEST_ROWS_TO_LEARN

    if kind == "texts" and options.text_model is not None:
        return "text", f"a column of texts, by the model {options.text_model}"
    if kind == "texts":
        return "tfidf", "a column of texts; one that knows synonyms is named with --text-model"
    if kind == "images":
        network = options.network or "resnet9"
        return "image", f"images; their embedding, by {network}, is trained for the vote"
    if kind == "vectors":
        return "identity", "vectors are taken as they are"
    if len(rows.y) < FEWEST_ROWS_TO_LEARN:
        return "tabular", (
            "a table: numbers and dates are scaled, texts are categories; "
            f"below {FEWEST_ROWS_TO_LEARN} rows nothing is trained"
        )
    return "learned-tabular", (
        f"a table of {FEWEST_ROWS_TO_LEARN} rows or more: its embedding is trained for the vote"
    )


def _made(name: str, options: EncoderOptions) -> Any:
    """A name where nothing else was asked for, as people write it in Python."""
    from attnknn.encoders import LearnedTableEncoder, TextEncoder

    training = _given(
        embed_dim=options.embed_dim, epochs=options.epochs, batch_size=options.batch_size
    )
    if training and name not in TRAINED:
        flag = next(iter(training)).replace("_", "-")
        raise click.UsageError(f"--{flag} is for an encoder that is trained, not for {name!r}.")
    if name == "text" and options.text_model is not None:
        return TextEncoder(options.text_model)
    if name == "image":
        return _image_encoder(options) or name
    return LearnedTableEncoder.from_options(**training) if training else name


def _image_encoder(options: EncoderOptions) -> Any:
    """An encoder with what was asked for; None where nothing was."""
    from attnknn.encoders import ImageEncoder
    from attnknn.encoders.image import ImageTraining

    names = ("network", "embed_dim", "image_size", "weights", "backbone", "workers")
    asked = _given(**{name: getattr(options, name) for name in names})
    training = _given(epochs=options.epochs, batch_size=options.batch_size)
    if training:
        asked["training"] = ImageTraining.of(**training)
    if options.views is not None:
        from attnknn.training.views import Views

        asked["views"] = Views(options.views, options.n_views)  # type: ignore[arg-type]
    return ImageEncoder(**asked) if asked else None


def _given(**settings: Any) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
