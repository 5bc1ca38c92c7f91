"""`attnknn fit`: fit a classifier on the rows of a file and save it."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.commands import Command, command, option, section
from attnknn.cli.interrupts import Interrupted, end_training_first
from attnknn.cli.options import (
    COUNT,
    FILE,
    WHOLE,
    header_option,
    max_memory_option,
    separator_option,
)
from attnknn.cli.output import echo, echo_block

if TYPE_CHECKING:
    from attnknn.cli.model_parts import EncoderChoice
    from attnknn.cli.rows import Source
    from attnknn.cli.rows.training import Roles, TrainingRows
    from attnknn.registry import Kind

NONE = "none"
N_LISTED = 20  # columns named in a message
METRICS = ("euclidean", "cosine", "inner_product")
SECTIONS = (
    *("Columns", "Encoder", "Texts", "Images", "Attention and calibration", "Memory"),
    *("Settings", "Output", "Options"),
)


def _listed(context: click.Context, _: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """`--set list` prints the names of all settings."""
    if "list" not in texts:
        return texts
    from attnknn.cli.settings import listed

    formatter = context.make_formatter()
    formatter.write_dl(listed())
    echo_block(formatter.getvalue().rstrip())
    context.exit()


class FitCommand(Command):
    """A command with further options for encoders, attentions and memories of the registry.

    The registry is read when the parameters are needed, not when the module is imported.
    """

    @property
    def params(self) -> list[click.Parameter]:
        return self._all_params

    @params.setter
    def params(self, params: list[click.Parameter]) -> None:
        self._own_params = params

    @cached_property
    def _all_params(self) -> list[click.Parameter]:
        from attnknn.cli.model_parts import part_options

        def place(parameter: click.Parameter) -> tuple[int, bool]:
            title = getattr(parameter, "section", "Options")
            return SECTIONS.index(title), parameter.name != "attention"

        return sorted([*self._own_params, *part_options()], key=place)


@command(cls=FitCommand)
@click.argument("train", type=FILE)
@section(
    "Columns",
    option("-t", "--target", help="Column of the labels (NPZ: array, default y)."),
    option("--id-column", help="Column with a unique id of each row."),
    option(
        "--group-column", help="Column of groups; rows of a group are never neighbors in training."
    ),
    option(
        "--subject-column",
        help="Column that names the person each row is about (for `forget --subject`).",
    ),
    option("--sample-weight-column", help="Column with the sample weight of each row."),
    option("--categorical", multiple=True, help="Columns to read as categories, as a,b,c."),
    option("--drop-columns", multiple=True, help="Columns to ignore, as a,b,c."),
    option(
        "--payload-columns",
        help="Columns stored with each entry and shown by `explain`, as a,b,c.  [default: first 6]",
    ),
    option("--no-payload", is_flag=True, help="Store no columns for `explain`."),
    option("--many-classes", is_flag=True, help="Accept a target with very many distinct values."),
    separator_option,
    header_option,
    max_memory_option,
)
@section(
    "Texts",
    option(
        "--text",
        help="Column of texts to learn from; other columns are only shown by `explain`.",
    ),
)
@section(
    "Attention and calibration",
    option(
        "-k",
        "--neighbors",
        "n_neighbors",
        type=WHOLE,
        help="Maximum number of neighbors.  [default: auto]",
    ),
    option(
        "--metric", type=click.Choice(METRICS), default="euclidean", help="Distance of embeddings."
    ),
    option(
        "--label-noise",
        type=click.Choice(["auto", "symmetric", "by_class", NONE]),
        default="auto",
        help="Model of wrong training labels: symmetric (all classes alike) or by_class; auto "
        "models noise if the data show it.",
    ),
    option(
        "--calibration",
        type=click.Choice(["auto", "scores", NONE]),
        default="auto",
        help="How probabilities are calibrated: auto fits temperature, prior score and "
        "probability map; scores fits temperature and prior score only; none fits nothing.",
    ),
    option(
        "--value-head",
        is_flag=True,
        help="Combine the neighbors by a small trained network instead of a weighted vote.",
    ),
    option(
        "--budget",
        type=click.FloatRange(0, min_open=True),
        help="Seconds that the choice of an attention may take, about.",
    ),
    option("--seed", type=COUNT, default=0, parameter="random_state", help="Random seed."),
)
@section(
    "Settings",
    option(
        "--set",
        "changes",
        multiple=True,
        metavar="KIND.NAME=VALUE",
        help="A setting of the encoder, attention or memory that has no option, by its name in "
        "Python: attention.n_heads=4, attention.training.epochs=5, memory.index=hnsw, "
        "encoder.training.mixing.mixup=0.2. Give it again for further ones; `--set list` lists "
        "all names.",
        callback=_listed,
        is_eager=True,
    ),
)
@section(
    "Output",
    option("-o", "--out", type=FILE, help="Folder for the model.  [default: TRAIN-model]"),
    option("--force", is_flag=True, help="Replace an existing model or --curves file."),
    option(
        "--keep-partial",
        is_flag=True,
        help="After Ctrl-C during training, save the model with the best epoch so far.",
    ),
    option("--curves", type=FILE, help="Plot the encoder's training losses to this file (.png)."),
    option("-v", "--verbose", is_flag=True, help="Print every training epoch."),
)
def fit(
    train: Path,
    out: Path | None,
    force: bool,
    separator: str | None,
    many_classes: bool,
    **options: Any,
) -> None:
    """Fit a model on labeled rows and save it.

    TRAIN is a table (CSV, JSON Lines, Parquet), an NPZ file with vectors or images (X, y), or a
    folder of images with a subfolder for each class. The encoder is chosen by the type of file:
    images get an embedding trained on the labels; categories of tables are one-hot encoded, and
    numbers are scaled if that is better; free text (--text, or the only column) is compared by
    its words and parts of words, or by a --text-model. Encoder, attention, number of neighbors
    and calibration are chosen by leave-one-out predictions and reported.
    """
    from attnknn.cli.model_parts import EncoderRequest, given_options
    from attnknn.cli.output import check_out, progress
    from attnknn.cli.rows import open_rows
    from attnknn.cli.rows.columns import refuse_regression_target
    from attnknn.cli.rows.training import read_training_rows
    from attnknn.cli.settings import Setting

    options["changes"] = [Setting.parse(text) for text in options["changes"]]
    model = out or _default_folder(train)
    _check_free(model, force)
    check_out(options["curves"], train, flag="--curves", force=force)
    source = open_rows(train, part="train", separator=separator)
    roles = _with_only_text(source, _roles(source, options), options["encoder"])
    given = given_options("encoder", options)
    request = EncoderRequest(source, options["encoder"], roles.text or None, given)
    request.check()
    parts = _parts(options)
    choice = _with_changes(request.choose(), options)
    with progress(f"Reading {train.name}"):
        rows = read_training_rows(source, roles, allow_missing=request.allows_missing)
    if not many_classes:
        refuse_regression_target(rows.y, roles.target)
    _check_curves(options["curves"], choice)
    echo(f"{'rows':<17} {len(rows.y):,} from {source.path}, target {roles.target!r}")
    if choice.cls is not None:
        echo(f"{'encoder':<17} {choice.name}: {choice.reason}")
    if request.kind == "table" and getattr(choice.cls, "allows_missing", True):
        rows = _checked_columns(source, rows)
    with progress(f"Fitting {len(rows.y):,} rows"):
        exit_code = _fit_and_save(rows, roles, {"encoder": choice.encoder, **parts}, model, options)
    echo(f"{'model':<17} {model}")
    if exit_code:
        echo(
            "Interrupted: the model was saved with the best epoch of the training so far.", err=True
        )
        click.get_current_context().exit(exit_code)


def _default_folder(train: Path) -> Path:
    """The folder for a model without --out: train.csv.gz gives train-model here."""
    name = train.resolve().name
    if not train.is_dir():
        name = Path(name.removesuffix(".gz")).stem
    return Path(f"{name}-model")


def _with_only_text(source: Source, roles: Roles, encoder: str) -> Roles:
    """Learn from texts, and say so, if there is nothing else to learn from."""
    from attnknn.cli.model_parts import accepts
    from attnknn.cli.rows.training import only_text
    from attnknn.registry import registered

    if encoder != "auto" and "texts" not in accepts(registered("encoder")[encoder]):
        return roles
    text = only_text(source, roles)
    if not text:
        return roles
    echo(f"{'text':<17} column {text!r}, which holds free text (as with --text {quote(text)})")
    return replace(roles, text=text)


def _checked_columns(source: Source, rows: TrainingRows) -> TrainingRows:
    """Rows without columns that a table encoder cannot read, which are reported.

    On the error stream, so that it does not mix with the fit report.
    """
    from attnknn.cli.rows.column_types import describe_columns, refuse_constant, without_texts
    from attnknn.encoders.string_kinds import string_kind

    refuse_constant(rows.X, source)
    table, warned = without_texts(rows.X, source)
    for line in [*describe_columns(table), *warned]:
        echo(line, err=True)
    named = [name for name in table.columns if string_kind(table[name]) == "id"]
    # Otherwise the encoder would warn of them once more.
    return replace(rows, X=table.astype(dict.fromkeys(named, "category")))


def _parts(options: dict[str, Any]) -> dict[str, Any]:
    """Attention and memory, by name or with their settings."""
    from attnknn.cli.model_parts import given_options, make_part
    from attnknn.cli.settings import with_settings

    kinds: tuple[Kind, ...] = ("attention", "memory")
    found = {kind: make_part(kind, options[kind], given_options(kind, options)) for kind in kinds}
    return {
        kind: with_settings(kind, part, options[kind], options["changes"])
        for kind, part in found.items()
    }


def _with_changes(choice: EncoderChoice, options: dict[str, Any]) -> EncoderChoice:
    """The encoder with the settings and the device that were given."""
    from attnknn.cli.settings import on_device, with_settings

    encoder = with_settings("encoder", choice.encoder, choice.name, options["changes"])
    return replace(choice, encoder=on_device(encoder, options["device"]))


def _fit_and_save(
    rows: TrainingRows, roles: Roles, parts: dict[str, Any], model: Path, options: dict[str, Any]
) -> int:
    """Returns the exit code, which is not 0 if a signal ended a training."""
    from attnknn.classifier import AttnKNNClassifier
    from attnknn.storage import save_classifier

    none_or = {name: None if options[name] == NONE else options[name] for name in options}
    classifier = AttnKNNClassifier(
        n_neighbors=options["n_neighbors"] or "auto",
        **parts,
        metric=options["metric"],
        calibration=none_or["calibration"],
        label_noise=none_or["label_noise"],
        budget=options["budget"],
        value_head=options["value_head"],
        random_state=options["seed"],
        verbose=int(options["verbose"] or sys.stderr.isatty()),
    )
    signals = end_training_first() if options["keep_partial"] else None
    try:
        classifier.fit(rows.X, rows.y, **rows.metadata)
    except (Interrupted, KeyboardInterrupt):
        echo("No model was saved, and an existing one was not changed.", err=True)
        raise
    save_classifier(classifier, model, notes=roles.notes())
    if options["curves"] is not None:
        from attnknn.training.config import draw_curves

        title = f"{classifier.encoder_.name}, {len(rows.y):,} rows"
        draw_curves(classifier.encoder_training_, options["curves"], title)
    names = ", ".join(map(str, classifier.classes_[:8]))
    more = f", … ({len(classifier.classes_)} in all)" if len(classifier.classes_) > 8 else ""
    echo(f"{'classes':<17} {names}{more}")
    report = classifier.fit_report_
    if classifier.encoder != "auto":  # printed before the fit
        report = replace(report, encoder="")
    echo_block(str(report))
    return 0 if signals is None or not signals.received else signals.exit_code


def _check_curves(path: Path | None, choice: EncoderChoice) -> None:
    """Before any work: the encoder is trained, and its losses can be plotted."""
    from attnknn._optional import require

    if path is None:
        return
    if not getattr(choice.cls, "is_trained", False):
        raise click.UsageError(f"--curves needs an encoder that is trained, not {choice.name!r}.")
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise click.UsageError(f"--curves must end in .png, .pdf or .svg, got {path.name!r}.")
    require("matplotlib", extra="plots", needed_by="Plotting training losses")


def _check_free(model: Path, force: bool) -> None:
    """Before any work: the folder is free, or holds a model that may be replaced."""
    from attnknn._output_files import refuse_model_folder
    from attnknn.errors import ModelFolderError
    from attnknn.storage.folder import as_address, check_replaceable, has_store, is_model

    address = as_address(model)
    if address is not None:
        from attnknn.storage.database import refuse_existing

        if not force:
            refuse_existing(address, "Give --force to replace it.")
        return
    refuse_model_folder(model.parent)
    check_replaceable(model)
    if is_model(model) and not force:
        raise ModelFolderError(f"{model} holds a model already. Give --force to replace it.")
    if has_store(model):
        echo(f"This fit deletes the log and the snapshots of {model}.", err=True)


def _roles(source: Source, options: dict[str, Any]) -> Roles:
    from attnknn.cli.rows.sources import column_name
    from attnknn.cli.rows.training import Roles

    target = options["target"] or source.default_target
    if target is None:
        known = ", ".join(source.columns[:N_LISTED]) + ", …" * (len(source.columns) > N_LISTED)
        raise click.UsageError(
            f"Name the column of the labels in {source.path} with --target; it has: {known}."
        )
    payload = options["payload_columns"]
    shown = None if payload is None else _names([payload], source)
    single = ("id_column", "group_column", "subject_column", "sample_weight_column", "text")
    named = {name: column_name(source, options[name] or "") for name in single}
    return Roles(
        target=column_name(source, target),
        id=named["id_column"],
        group=named["group_column"],
        subject=named["subject_column"],
        sample_weight=named["sample_weight_column"],
        payload=() if options["no_payload"] else shown,
        dropped=_names(options["drop_columns"], source),
        categorical=_names(options["categorical"], source),
        text=named["text"],
    )


def _names(texts: Iterable[str], source: Source) -> tuple[str, ...]:
    """Names given as a,b,c; the name of a column may itself contain a comma."""
    from attnknn.cli.rows.sources import column_name

    columns = [*source.columns, *source.unusable]
    several = ([text] if text in columns else text.split(",") for text in texts)
    stripped = ([n if n in columns else n.strip() for n in names] for names in several)
    return tuple(column_name(source, name) for names in stripped for name in names if name)
