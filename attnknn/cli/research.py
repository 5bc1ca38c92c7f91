"""`attnknn experiment`, `attnknn report` and `attnknn datasets`: reproduce the research."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from attnknn.cli.commands import command, option, section
from attnknn.cli.interrupts import Interrupted
from attnknn.cli.options import FILE, print_format_option
from attnknn.cli.output import echo, echo_block, echo_json, progress

if TYPE_CHECKING:
    from attnknn.research.datasets import CatalogRow
    from attnknn.research.experiments.study import Outcome, Study
    from attnknn.research.reports.collecting import Collected
    from attnknn.research.reports.page import Section

CLAIMS = (
    *("main", "k-sweep", "noise", "imbalance", "shots", "shift"),
    *("ablation", "projections", "training", "index", "theory", "overhead"),
)
PRESETS = ("experiments-1-3", "experiment-4", "experiment-5", "experiment-6")
AXES = {  # folder name: label of the axis, and whether it is logarithmic
    "K": ("number of neighbors", True),
    "rate": ("share of wrong training labels", False),
    "ratio": ("imbalance ratio (first to last class)", True),
    "severity": ("severity of the corruption of test images", False),
    "shots": ("training rows per class", True),
}
NAME_WIDTH = 20
DEVICES = ("auto", "cpu", "cuda", "mps")
OWN_IMAGES = (
    "Your own images: `attnknn fit FOLDER`, `attnknn experiment --dataset FOLDER` and "
    "`datasets.load_folder`\nread FOLDER/train/CLASS/file.png and FOLDER/val/CLASS/file.png, like "
    "ImageNet."
)


def _seeds(_context: click.Context, _option: click.Parameter, text: str | None) -> list[int] | None:
    """'5' means five seeds from 0, '3,7' these two, and '7,' this one."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > 1 and not parts[-1]:
        parts.pop()
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"must be a number, or numbers with commas, got {text!r}")
    numbers = [int(part) for part in parts]
    if len(numbers) == 1 and "," not in text:
        numbers = list(range(numbers[0]))
    if not numbers or len(set(numbers)) != len(numbers):
        raise click.BadParameter(
            f"must be the number of seeds, at least 1, or distinct seeds with commas, got {text!r};"
            " give a single seed as '0,'"
        )
    return numbers


def _encoder(_context: click.Context, _option: click.Parameter, name: str) -> str:
    """The name of an encoder of rows: one without training, or a trained one of tables."""
    from attnknn.registry import registered

    usable = [
        name
        for name, cls in registered("encoder").items()
        if not getattr(cls, "is_cross_fitted", False)
        and (
            "table" in getattr(cls, "accepts", ("table",)) or not getattr(cls, "is_trained", False)
        )
        and getattr(cls, "accepts", True)
    ]
    if name not in ("auto", *usable):
        raise click.BadParameter(f"{name!r} is not one of {', '.join(['auto', *usable])}.")
    return name


@command()
@click.argument("claim", type=click.Choice(CLAIMS), metavar="STUDY")
@section(
    "Data and model",
    option(
        "--dataset",
        default="digits",
        help="Name of a data set, see `attnknn datasets`, or a folder of images by class.",
    ),
    option("--seeds", callback=_seeds, help="Number of seeds, or seeds as 0,1,2.  [default: 5]"),
    option(
        "--rows",
        type=click.IntRange(min=10),
        parameter="n_rows",
        help="Number of training rows, a stratified sample.  [default: all]",
    ),
    option(
        "--network",
        help="Image network: narrow, wide, or one of `attnknn fit --network`; 'none' uses vectors "
        "as they are.  [default: narrow]",
    ),
    option("--weights", type=FILE, help="File with pretrained weights of the network."),
    option(
        "--backbone",
        type=click.Choice(["tuned", "frozen"]),
        default="tuned",
        help="Fine-tune a pretrained network or freeze it.",
    ),
    option(
        "--cache-features",
        is_flag=True,
        parameter="cache",
        help="Store features of a frozen network in the user's cache folder.",
    ),
    option(
        "--image-size",
        type=click.IntRange(min=1),
        help="Resolution of the network, and of images of a folder, in pixels.",
    ),
    option(
        "--encoder",
        default="auto",
        callback=_encoder,
        help="Encoder of tables and vectors: auto, identity, tabular, learned-tabular (trained on "
        "each seed's rows), scaled, svd, text or tfidf.",
    ),
    option(
        "--device",
        type=click.Choice(DEVICES),
        default="auto",
        help="Device that trains image networks; auto uses a GPU if there is one.",
    ),
    option(
        "--preset",
        type=click.Choice(PRESETS),
        help="Settings of an experiment of the research documents.",
    ),
    option(
        "--full",
        is_flag=True,
        parameter="is_full",
        help="With --preset, use its full-size network instead of a small one.",
    ),
    option("--settings", type=FILE, help="TOML file with further settings of the study."),
)
@section(
    "Output",
    option(
        "-o", "--out", type=FILE, default=Path("attnknn-experiments"), help="Folder for results."
    ),
    option(
        "--model",
        type=FILE,
        help="Also save the classifier of the row attnknn and the first seed to this folder, for "
        "`attnknn predict`.",
    ),
    option("--page/--no-page", default=True, help="Write an HTML report; needs extra `plots`."),
)
def experiment(
    claim: str,
    dataset: str,
    seeds: list[int] | None,
    out: Path,
    preset: str | None,
    full: bool,
    network: str | None,
    weights: Path | None,
    backbone: str,
    cache_features: bool,
    image_size: int | None,
    rows: int | None,
    encoder: str,
    device: str,
    settings: Path | None,
    model: Path | None,
    page: bool,
) -> None:
    """Run a study of the research on a data set.

    Every method gets the same rows, labels and seeds. Results are added to a report.json seed by
    seed; an interrupted command continues where it stopped.

    \b
    STUDY is one of:
      main         all methods on the same embeddings
      k-sweep      several numbers of neighbors
      noise        wrong training labels
      imbalance    classes that are rare in training
      shots        few training rows per class
      shift        corrupted test images
      ablation     learned attention without single parts of it
      projections  one projection and distances, or two and dot products
      training     encoders trained in other ways, and a CNN of its own
      index        time, recall and size of indexes for neighbor search
      theory       bounds of the theory compared with measured values
      overhead     time per prediction of each kind of attention
    """
    from attnknn.research.experiments.study import Study, measure

    study = Study(
        claim=claim,
        dataset=dataset,
        folder=out,
        seeds=seeds,
        preset=preset,
        is_full=full,
        network=network,
        weights=None if weights is None else str(weights),
        backbone=backbone,
        cache=cache_features,
        image_size=image_size,
        n_rows=rows,
        encoder=encoder,
        device=device,
        changes=_changes(settings),
    )
    _check_options(study)
    if model is not None:
        from attnknn.storage.folder import check_replaceable

        check_replaceable(model)
    try:
        outcome = measure(study, lambda text: echo(text, err=True))
    except (Interrupted, KeyboardInterrupt):
        echo("Run the same command again to continue.", err=True)
        raise
    for line in _lines(outcome):
        echo_block(line)
    if model is not None:
        from attnknn.research.experiments.opening import classifier_of

        classifier_of(study, lambda text: echo(text, err=True)).save(model)
        echo(f"model: {model}", err=True)
    if page:
        title = f"{study.claim}, {study.dataset_name}"
        with progress("Drawing figures"):
            written = write_page(study.place, study.place / "page", None, title)
        echo(f"report: {written}", err=True)


def _check_options(study: Study) -> None:
    """Incompatible options and an unusable output folder are usage errors."""
    from attnknn.cli.commands import in_flags
    from attnknn.errors import InvalidSettingError
    from attnknn.research.evaluation.report import check_folder
    from attnknn.research.experiments.study import check_options

    if study.is_full and study.preset is None:
        raise click.UsageError("--full requires --preset.")
    try:
        check_options(study)
        check_folder(study.place)
    except InvalidSettingError as error:
        raise click.UsageError(in_flags(str(error), experiment)) from error


def _changes(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    from attnknn.cli.rows.memory_bound import refuse_special

    refuse_special(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{path} must be UTF-8: {error.reason}.") from error
    except tomllib.TOMLDecodeError as error:
        raise click.ClickException(f"{path} is not a valid TOML file: {error}.") from error


def _lines(outcome: Outcome) -> list[str]:
    lines = [f"{outcome.title}: {outcome.study.dataset_name}\n"]
    if outcome.measurements is not None:
        return [*lines, outcome.measurements.markdown()]
    for place, table in outcome.tables.items():
        if place is not None:
            lines.append(f"{outcome.study.claim} {place:g}\n")
        lines.append(table.markdown(("accuracy", "macro_f1", "nll", "ece")))
    if outcome.tables:
        from attnknn.research.reports.tables import differences_grid
        from attnknn.research.reports.writing import markdown

        grids = differences_grid(next(iter(outcome.tables.values())), "")
        lines += [markdown(grid) for grid in grids]
    return lines


@command()
@click.argument("folder", type=FILE)
@option("-o", "--out", type=FILE, help="Folder for the page.  [default: FOLDER-report]")
@option(
    "--reference",
    "--ours",
    "ours",
    help="Method that the page is about, compared with the others.  [default: attnknn]",
)
@option("--title", help="Title of the page.  [default: the name of FOLDER]")
@option("--force", is_flag=True, help="Replace an existing page.")
def report(
    folder: Path, out: Path | None, ours: str | None, title: str | None, force: bool
) -> None:
    """Make an HTML page from results of experiments.

    Reads every report.json below FOLDER. The page contains its figures, which are also written as
    PNG and PDF, and its tables as Markdown and LaTeX; the whole page is a PDF too.
    """
    from attnknn.research.reports.writing import check_page

    if not folder.exists():
        raise click.ClickException(f"The folder {folder} does not exist.")
    out = out or Path(f"{folder.resolve().name}-report")
    check_page(out, force=force)
    title = title or folder.resolve().name
    with progress("Drawing figures"):
        made = make_page(folder, out, ours, title, "attnknn report", force=force)
    echo(str(made.page))
    if made.omitted:
        raise click.ClickException(
            f"{made.page} omits what its last section lists: " + " ".join(made.omitted)
        )


@dataclass(frozen=True)
class ReportPage:
    """A page, and what could not be read or drawn, with the reasons."""

    page: Path
    omitted: Sequence[str]


def write_page(folder: Path, out: Path, ours: str | None, title: str) -> Path:
    """The page of an experiment, which replaces that of a shorter run."""
    return make_page(folder, out, ours, title, "attnknn experiment", force=True).page


def make_page(
    folder: Path, out: Path, ours: str | None, title: str, command: str, *, force: bool
) -> ReportPage:
    """The page of all reports below `folder`."""
    from attnknn.research.reports.collecting import collected
    from attnknn.research.reports.page import Section
    from attnknn.research.reports.writing import write_report

    found = collected(folder)
    _check_ours(found, ours)
    draft = _Draft(list(found.unread))
    draft.draw(found, ours)
    if draft.omitted:
        draft.sections.append(Section("What could not be read or drawn", draft.omitted))
    about = [f"Made by `{command}` from {found.n_runs} runs below {folder}."]
    page = write_report(out, title, draft.sections, about, force=force)
    return ReportPage(page, draft.omitted)


@dataclass
class _Draft:
    """A page in the making."""

    omitted: list[str]
    sections: list[Section] = field(default_factory=list)

    def draw(self, found: Collected, ours: str | None) -> None:
        from attnknn.research.reports.curves import curve_section
        from attnknn.research.reports.measurements import measurement_section
        from attnknn.research.reports.model import error_sections, map_section
        from attnknn.research.reports.tables import sweep_section, table_section

        for name, table in found.tables.items():
            file_name = name.replace("/", "-")
            with self._noting(name):
                own = _ours(table.methods, ours)
                self.sections.append(table_section(table, name, own, file_name))
            with self._noting(f"{name}, close-up"):
                analyses = found.error_analyses.get(name, {})
                seed, drawn = found.illustrations.get(name, (0, None))
                images = None if drawn is None else drawn.thumbnails
                if own is not None and own in analyses:
                    self.sections += error_sections(analyses[own], name, file_name, images)
                elif own is not None and analyses:
                    self.omitted.append(
                        f"{name}: the report has no confusions of {own!r}. Remove it and run the "
                        "experiment again."
                    )
            with self._noting(f"{name}, embeddings"):
                if own is not None and drawn is not None:
                    (run,) = table.with_seeds([seed]).of(own)
                    points = drawn.embedding_map
                    wrong = ~run.row_correct[points.rows]
                    title = f"{name}: embeddings, seed {seed}"
                    section = map_section(points, wrong, own, title, f"{file_name}-embeddings")
                    self.sections.append(section)
        for name, tables in found.sweeps.items():
            across, is_log = AXES.get(name.rpartition("/")[2], (name, False))
            file_name = name.replace("/", "-")
            with self._noting(name):
                methods = next(iter(tables.values())).methods
                self.sections.append(
                    sweep_section(
                        tables,
                        name,
                        file_name,
                        across=across,
                        is_log=is_log,
                        ours=_ours(methods, ours),
                    )
                )
        for name, measurements in found.measurements.items():
            with self._noting(name):
                self.sections.append(measurement_section(measurements, name.replace("/", "-")))
        if found.trainings:
            with self._noting("Trainings"):
                self.sections.append(curve_section(found.trainings, "Trainings", "trainings"))

    @contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        """Record what cannot be drawn, and continue."""
        from attnknn.errors import AttnKNNError

        try:
            yield
        except (ValueError, KeyError, IndexError, TypeError) as error:
            is_ours = isinstance(error, AttnKNNError)
            reason = str(error) if is_ours else f"{type(error).__name__}: {error}."
            self.omitted.append(f"{name}: {reason}")


def _check_ours(found: Collected, asked: str | None) -> None:
    swept = [table for sweep in found.sweeps.values() for table in sweep.values()]
    tables = [*found.tables.values(), *swept]
    methods = list(dict.fromkeys(method for table in tables for method in table.methods))
    if asked is not None and tables and asked not in methods:
        known = ", ".join(map(repr, methods))
        raise click.UsageError(f"--reference must be one of {known}; got {asked!r}.")


def _ours(methods: list[str], asked: str | None) -> str | None:
    """The given method, or None if it did not run; by default the first attnknn method, if any."""
    if asked is not None:
        return asked if asked in methods else None
    return next((method for method in methods if method.startswith("attnknn")), methods[0])


@command()
@print_format_option
def datasets(style: str) -> None:
    """List named data sets, and which are on this machine."""
    from dataclasses import asdict

    from attnknn.research.datasets import catalog, data_folders

    rows = list(catalog())
    if style == "json":
        echo_json([asdict(row) for row in rows])
        return
    folders = ", ".join(str(folder) for folder in data_folders())
    for line in (*_listed(rows), *_missing(rows)):
        echo_block(line)
    echo_block(f"\nSearched: {folders} (set ATTNKNN_DATA to add folders).\n{OWN_IMAGES}")


def _listed(rows: list[CatalogRow]) -> Iterator[str]:
    yield f"{'name':<{NAME_WIDTH}} {'kind':<8} {'rows':>7} {'classes':>8}  available  source"
    for row in rows:
        available = "no" if row.missing else "yes"
        size = f"{row.n_rows:>7,} {row.n_classes:>8}"
        yield f"{row.name:<{NAME_WIDTH}} {row.kind:<8} {size}  {available:<9}  {row.source}"


def _missing(rows: list[CatalogRow]) -> Iterator[str]:
    """The files to download, and where to put them."""
    absent = [row for row in rows if row.missing]
    if absent:
        yield f"\nTo use the others, put these files into {absent[0].put_into}:"
    for row in absent:
        files = [
            name if not others else f"{name} (or {', '.join(others)})"
            for name, *others in row.missing
        ]
        yield f"{row.name:<{NAME_WIDTH}} {' and '.join(files)}"
