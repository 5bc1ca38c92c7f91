"""`attnknn report`: what experiments left becomes a page, figures and tables."""

from __future__ import annotations

from pathlib import Path

import click

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

    out = out or Path(f"{folder.resolve().name}-report")
    with patience("Drawing"):
        page = write_page(folder, out, ours, title or folder.resolve().name)
    click.echo(str(page))


def write_page(folder: Path, out: Path, ours: str | None, title: str) -> Path:
    """The page of all reports below `folder`; gives its path."""
    from attnknn.reports.collecting import collected
    from attnknn.reports.curves import curve_section
    from attnknn.reports.model import close_up_sections
    from attnknn.reports.sheets import sheet_section
    from attnknn.reports.sweeps import sweep_section
    from attnknn.reports.tables import section_of
    from attnknn.reports.writing import write_report

    found = collected(folder)
    sections = []
    for name, table in found.tables.items():
        sections.append(section_of(table, name, _ours(table.methods, ours), _file_name(name)))
        if name in found.close_ups:
            sections += close_up_sections(found.close_ups[name], name, _file_name(name))
    for name, tables in found.sweeps.items():
        across, is_log = AXES.get(name.rpartition("/")[2], (name, False))
        sections.append(sweep_section(tables, name, _file_name(name), across=across, is_log=is_log))
    sections += [sheet_section(sheets, _file_name(name)) for name, sheets in found.sheets.items()]
    if found.trainings:
        sections.append(curve_section(found.trainings, "Trainings", "trainings"))
    about = [f"Made by `attnknn report` from {found.n_runs} runs below {folder}."]
    return write_report(out, title, sections, about)


def _file_name(name: str) -> str:
    return name.replace("/", "-")


def _ours(methods: list[str], asked: str | None) -> str:
    """The method that was named; else the first of our own, else the first."""
    if asked is not None:
        if asked not in methods:
            raise click.UsageError(f"--ours must be one of {', '.join(methods)}; got {asked!r}.")
        return asked
    return next((method for method in methods if method.startswith("attnknn")), methods[0])
