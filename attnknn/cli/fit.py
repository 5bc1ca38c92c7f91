"""`attnknn fit`: learn from a file, save a model."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.separator import separator_option

if TYPE_CHECKING:
    from attnknn.cli.encoders import EncoderOptions
    from attnknn.cli.files import Source
    from attnknn.cli.training_rows import Roles, TrainingRows

FILE = click.Path(path_type=Path)
NONE = "none"
ENCODERS = ("identity", "tabular", "learned-tabular", "tfidf", "text", "image")
ATTENTIONS = ("auto", "uniform", "distance", "power", "learned", "k-ensemble", "adaptive")


def _choice(*names: str) -> click.Choice[str]:
    return click.Choice(names)


def _size(_: click.Context, __: click.Parameter, value: str | None) -> tuple[int, int] | None:
    sides = [] if value is None else value.lower().split("x")
    if value is None:
        return None
    if len(sides) > 2 or not all(side.isdecimal() and int(side) for side in sides):
        raise click.BadParameter(f"must be a side, as 32, or 32x48, got {value!r}.")
    return int(sides[0]), int(sides[-1])


@click.command()
@click.argument("train", type=FILE)
@click.option(
    "-o", "--out", "model", type=FILE, help="Folder for the model. [default: TRAIN-model]"
)
@click.option("-t", "--target", help="Column of the labels (NPZ: array, default y).")
@click.option("--id-column", help="Column that names the rows.")
@click.option("--group-column", help="Rows of one group never judge each other.")
@click.option("--subject-column", help="Whose a row is, for `attnknn forget --subject`.")
@click.option("--sample-weight-column", help="A row of sample weight 2 has the say of two.")
@click.option(
    "--payload-columns", help="Columns that `explain` shows, as a,b,c. [default: first 6]"
)
@click.option("--no-payload", is_flag=True, help="Store nothing for `explain` to show but ids.")
@click.option("--drop-columns", multiple=True, help="Columns not to learn from, as a,b,c.")
@click.option(
    "--categorical",
    multiple=True,
    help="Columns of categories, as a,b,c, even where they look like numbers or dates.",
)
@click.option("--text", help="Column of texts to learn from; others are only shown.")
@click.option("--text-model", help="Model that embeds the texts: a folder, or a name on the hub.")
@click.option("--many-classes", is_flag=True, help="Allow a target that looks like no class.")
@click.option("--encoder", type=_choice("auto", *ENCODERS), default="auto")
@click.option("--network", help="Of images: resnet9, resnet18, resnet50 or timm:NAME.")
@click.option("--image-size", callback=_size, help="Resize images to 32, or to 32x48 (high, wide).")
@click.option("--weights", help="Of a timm network: a file to read, not the hub.")
@click.option("--backbone", type=_choice("tuned", "frozen"), help="Train a timm network, or not.")
@click.option(
    "--views",
    callback=lambda _, __, text: None if text is None else tuple(text.split(",")),
    help="Ask about several views of an image, as original,flip,shift,crop, and average.",
)
@click.option("--n-views", type=click.IntRange(1), help="Only so many of these views.")
@click.option("--workers", type=click.IntRange(0), help="Threads that read image files ahead.")
@click.option("--embed-dim", type=click.IntRange(1), help="Numbers per embedding, if trained.")
@click.option("--epochs", type=click.IntRange(1), help="Of an encoder that is trained, at most.")
@click.option("--batch-size", type=click.IntRange(2), help="Rows per step of that training.")
@click.option("--metric", type=_choice("euclidean", "cosine", "inner_product"), default="euclidean")
@click.option("--attention", type=_choice(*ATTENTIONS), default="auto")
@click.option("-k", "--neighbors", "n_neighbors", type=click.IntRange(1))
@click.option("--label-noise", type=_choice("auto", "symmetric", "by_class", NONE), default="auto")
@click.option("--calibration", type=_choice("auto", "scores", NONE), default="auto")
@click.option("--value-head", is_flag=True, help="Answer by a network over the neighbors.")
@click.option("--memory", type=_choice("auto", "torch", "numpy", "faiss"), default="auto")
@click.option("--seed", type=click.IntRange(0), default=0, help="Same seed, same model.")
@click.option("--curves", type=FILE, help="Draw the losses of the encoder's training: x.png.")
@click.option("-v", "--verbose", is_flag=True, help="Tell of each epoch, in a log too.")
@click.option("--force", is_flag=True, help="Replace an existing model.")
@separator_option
def fit(
    train: Path,
    model: Path | None,
    force: bool,
    separator: str | None,
    many_classes: bool,
    **options: Any,
) -> None:
    """Learn from the rows of TRAIN and save a model.

    The embedding of a table of 300 rows or more is trained; of a smaller one numbers and dates are
    scaled and texts become categories. Of a column of texts (--text) words and
    parts of words are compared, with --text-model meanings. Vectors in an NPZ file (X, y) are taken
    as they are. Images come as a folder with a subfolder for each class, or as uint8 arrays in an
    NPZ file; their embedding is trained. Everything else is chosen and reported.
    """
    from attnknn.cli.encoders import TABLES, allows_gaps, check_options, choose_encoder
    from attnknn.cli.files import open_rows
    from attnknn.cli.target import refuse_no_classes, refuse_one_class
    from attnknn.cli.training_rows import read_training_rows
    from attnknn.cli.waiting import patience

    model = model or _beside(train)
    _check_free(model, force)
    source = open_rows(train, part="train", separator=separator)
    roles = _roles(source, options)
    asked = _encoder_options(options)
    check_options(source, asked)
    with patience(f"Reading {train.name}"):
        rows = read_training_rows(source, roles, allows_gaps=allows_gaps(source, asked))
    refuse_one_class(rows.y, source, roles.target)
    if not many_classes:
        refuse_no_classes(rows.y, roles.target)
    choice = choose_encoder(source, rows, asked)
    _check_curves(options["curves"], choice.name)
    click.echo(f"{'rows':<17} {len(rows.y):,} from {source.path}, target {roles.target!r}")
    click.echo(f"{'encoder':<17} {choice.name}: {choice.why}")
    if choice.name in TABLES and source.kind == "table":
        _tell_columns(source, rows, roles)
    with patience(f"Fitting {len(rows.y):,} rows"):
        _fit_and_save(rows, roles, choice.encoder, model, options)
    click.echo(f"{'model':<17} {model}")


def _beside(train: Path) -> Path:
    """The folder for a model that nobody named: train.csv.gz gives train-model, here."""
    name = train.resolve().name
    if not train.is_dir():
        name = Path(name.removesuffix(".gz")).stem
    return Path(f"{name}-model")


def _tell_columns(source: Source, rows: TrainingRows, roles: Roles) -> None:
    """On the error stream, so that a reader of the report need not skip it."""
    from attnknn.cli.readout import column_lines, refuse_constant

    refuse_constant(rows.X, source)
    for line in column_lines(rows.X, sure=roles.categorical):
        click.echo(line, err=True)


def _fit_and_save(
    rows: TrainingRows, roles: Roles, encoder: Any, model: Path, options: dict[str, Any]
) -> None:
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.storage import save_classifier

    none_or = {name: None if options[name] == NONE else options[name] for name in options}
    classifier = AttnKNNClassifier(
        n_neighbors=options["n_neighbors"] or "auto",
        encoder=encoder,
        memory=options["memory"],
        metric=options["metric"],
        attention=options["attention"],
        calibration=none_or["calibration"],
        label_noise=none_or["label_noise"],
        value_head=options["value_head"],
        random_state=options["seed"],
        verbose=int(options["verbose"] or sys.stderr.isatty()),
    )
    classifier.fit(
        rows.X,
        rows.y,
        ids=rows.ids,
        groups=rows.groups,
        sample_weight=rows.sample_weight,
        payloads=rows.payloads,
        subjects=rows.subjects,
    )
    save_classifier(classifier, model, notes=roles.notes())
    if options["curves"] is not None:
        from attnknn.training.config import draw_curves

        title = f"{classifier.encoder_.name}, {len(rows.y):,} rows"
        draw_curves(classifier.encoder_training_, options["curves"], title)
    names = ", ".join(map(str, classifier.classes_[:8]))
    more = f", … ({len(classifier.classes_)} in all)" if len(classifier.classes_) > 8 else ""
    click.echo(f"{'classes':<17} {names}{more}")
    click.echo(str(classifier.fit_report_))


def _check_curves(path: Path | None, encoder: str) -> None:
    """Before any work: there will be a training to draw, and something to draw it with."""
    from attnknn._optional import require
    from attnknn.cli.encoders import TRAINED

    if path is None:
        return
    if encoder not in TRAINED:
        raise click.UsageError(f"--curves is for an encoder that is trained, not for {encoder!r}.")
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise click.UsageError(f"--curves must end in .png, .pdf or .svg, got {path.name!r}.")
    require("matplotlib", extra="plots", needed_by="Drawing the curves of a training")


def _check_free(model: Path, force: bool) -> None:
    """Before any work: the folder must be free, or a model that may be replaced."""
    from attnknn.errors import ModelFolderError
    from attnknn.storage.folder import check_replaceable, has_store, is_model

    check_replaceable(model)
    if is_model(model) and not force:
        raise ModelFolderError(f"There is a model at {model} already. Give --force to replace it.")
    if has_store(model):
        click.echo(f"The log and the snapshots of {model} end with this fit.", err=True)


def _roles(source: Source, options: dict[str, Any]) -> Roles:
    from attnknn.cli.training_rows import Roles

    target = options["target"] or source.default_target
    if target is None:
        raise click.UsageError(f"Name the column of the labels in {source.path} with --target.")
    payload = options["payload_columns"]
    shown = None if payload is None else _listed([payload], source.columns)
    return Roles(
        target=target,
        id=options["id_column"] or "",
        group=options["group_column"] or "",
        subject=options["subject_column"] or "",
        sample_weight=options["sample_weight_column"] or "",
        payload=() if options["no_payload"] else shown,
        dropped=_listed(options["drop_columns"], source.columns),
        categorical=_listed(options["categorical"], source.columns),
        text=options["text"] or "",
    )


def _listed(texts: Iterable[str], columns: list[str]) -> tuple[str, ...]:
    """Names that were given as a,b,c; the name of a column may itself have a comma."""
    several = ([text] if text in columns else text.split(",") for text in texts)
    stripped = ([n if n in columns else n.strip() for n in names] for names in several)
    return tuple(name for names in stripped for name in names if name)


def _encoder_options(options: dict[str, Any]) -> EncoderOptions:
    from dataclasses import fields

    from attnknn.cli.encoders import EncoderOptions

    return EncoderOptions(**{field.name: options[field.name] for field in fields(EncoderOptions)})
