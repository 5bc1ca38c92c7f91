"""`attnknn report`: what experiments left becomes a page, figures and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from attnknn.research.reports.collecting import Collected
    from attnknn.research.reports.page import Section

FILE = click.Path(path_type=Path)
AXES = {  # the word in folders: what it counts, and whether it is drawn by doublings
    "K": ("number of neighbors", True),
    "rate": ("share of wrong training labels", False),
    "ratio": ("how much rarer the last class is than the first", True),
    "severity": ("severity of the damage to test images", False),
    "shots": ("training rows of each class", True),
}


@click.command()
@click.argument("folder", type=FILE)
@click.option("-o", "--out", type=FILE, help="Folder of the page. [default: FOLDER-report]")
@click.option("--ours", help="The method that others are compared with. [default: attnknn]")
@click.option("--title", help="Of the page. [default: the name of FOLDER]")
def report(folder: Path, out: Path | None, ours: str | None, title: str | None) -> None:
    """Make a page of the reports below FOLDER.

    Reports of several seeds (…/0/report.json, …/1/report.json) are one table. The page holds
    everything it shows; figures are also PNG and PDF files, tables Markdown and LaTeX, and the
    whole is a PDF too.
    """
    from attnknn.cli.waiting import patience
    from attnknn.research.evaluation.report import check_folder

    out = out or Path(f"{folder.resolve().name}-report")
    check_folder(out)
    with patience("Drawing"):
        made = make_page(folder, out, ours, title or folder.resolve().name, "attnknn report")
    click.echo(str(made.page))
    if made.left_out:
        raise click.ClickException(
            f"{made.page} is written without what its last section names: "
            + " ".join(made.left_out)
        )


@dataclass(frozen=True)
class Made:
    """A page, and what could not be read or drawn, with the reasons."""

    page: Path
    left_out: Sequence[str]


def write_page(folder: Path, out: Path, ours: str | None, title: str) -> Path:
    """The page of what an experiment left; whatever cannot be read or drawn is named on it."""
    return make_page(folder, out, ours, title, "attnknn experiment").page


def make_page(folder: Path, out: Path, ours: str | None, title: str, command: str) -> Made:
    """The page of all reports below `folder`."""
    from attnknn.research.reports.collecting import collected
    from attnknn.research.reports.page import Section
    from attnknn.research.reports.writing import write_report

    found = collected(folder)
    _check_ours(found, ours)
    draft = _Draft(list(found.unread))
    draft.draw(found, ours)
    if draft.left_out:
        draft.sections.append(Section("What could not be read or drawn", draft.left_out))
    about = [f"Made by `{command}` from {found.n_runs} runs below {folder}."]
    return Made(write_report(out, title, draft.sections, about), draft.left_out)


@dataclass
class _Draft:
    """A page while it is made."""

    left_out: list[str]
    sections: list[Section] = field(default_factory=list)

    def draw(self, found: Collected, ours: str | None) -> None:
        from attnknn.research.reports.curves import curve_section
        from attnknn.research.reports.model import error_sections
        from attnknn.research.reports.sheets import measurement_section
        from attnknn.research.reports.sweeps import sweep_section
        from attnknn.research.reports.tables import section_of

        for name, table in found.tables.items():
            with self._noting(name):
                own = _ours(table.methods, ours)
                self.sections.append(section_of(table, name, own, _file_name(name)))
            with self._noting(f"{name}, close-up"):
                if name in found.error_analyses:
                    self.sections += error_sections(
                        found.error_analyses[name], name, _file_name(name)
                    )
        for name, tables in found.sweeps.items():
            across, is_log = AXES.get(name.rpartition("/")[2], (name, False))
            with self._noting(name):
                self.sections.append(
                    sweep_section(tables, name, _file_name(name), across=across, is_log=is_log)
                )
        for name, measurements in found.measurements.items():
            with self._noting(name):
                self.sections.append(measurement_section(measurements, _file_name(name)))
        if found.trainings:
            with self._noting("Trainings"):
                self.sections.append(curve_section(found.trainings, "Trainings", "trainings"))

    @contextmanager
    def _noting(self, name: str) -> Iterator[None]:
        """What cannot be drawn is noted, and the rest goes on."""
        from attnknn.errors import AttnKNNError

        try:
            yield
        except (ValueError, KeyError, IndexError, TypeError) as error:
            is_said = isinstance(error, AttnKNNError)
            reason = str(error) if is_said else f"{type(error).__name__}: {error}."
            self.left_out.append(f"{name}: {reason}")


def _file_name(name: str) -> str:
    return name.replace("/", "-")


def _check_ours(found: Collected, asked: str | None) -> None:
    methods = list(dict.fromkeys(m for table in found.tables.values() for m in table.methods))
    if asked is not None and found.tables and asked not in methods:
        known = ", ".join(map(repr, methods))
        raise click.UsageError(f"--ours must be one of {known}; got {asked!r}.")


def _ours(methods: list[str], asked: str | None) -> str:
    """The method that was named, where it ran; else the first of our own, else the first."""
    if asked in methods:
        return str(asked)
    return next((method for method in methods if method.startswith("attnknn")), methods[0])
