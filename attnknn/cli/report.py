"""`attnknn report`: what experiments left becomes a page, figures and tables."""

from __future__ import annotations

from pathlib import Path

import click

FILE = click.Path(path_type=Path)


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
    from attnknn.reports.collecting import tables_below
    from attnknn.reports.tables import section_of
    from attnknn.reports.writing import write_report

    tables = tables_below(folder)
    with patience("Drawing"):
        sections = [
            section_of(table, name, _ours(table.methods, ours), name.replace("/", "-"))
            for name, table in tables.items()
        ]
        n_runs = sum(len(table.runs) for table in tables.values())
        about = [f"Made by `attnknn report` from {n_runs} runs below {folder}."]
        out = out or Path(f"{folder.resolve().name}-report")
        page = write_report(out, title or folder.resolve().name, sections, about)
    click.echo(f"{page}: {len(tables)} tables")


def _ours(methods: list[str], asked: str | None) -> str:
    """The method that was named; else the first of our own, else the first."""
    if asked is not None:
        if asked not in methods:
            raise click.UsageError(f"--ours must be one of {', '.join(methods)}; got {asked!r}.")
        return asked
    return next((method for method in methods if method.startswith("attnknn")), methods[0])
