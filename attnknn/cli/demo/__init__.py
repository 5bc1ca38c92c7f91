"""`attnknn demo`: the whole library on data that come with scikit-learn, in under a minute."""

from __future__ import annotations

import time
from pathlib import Path

import click

FILE = click.Path(path_type=Path)


@click.command()
@click.option("--out", type=FILE, default=Path("attnknn-demo"), help="Folder for the report.")
def demo(out: Path) -> None:
    """See it work: compare, explain, fix a wrong label, forget a row, save and load.

    Takes under a minute, needs no data, and leaves a report with figures.
    """
    from attnknn.cli.demo.comparison import compare, lines_of
    from attnknn.cli.demo.report import check_free, write_report
    from attnknn.cli.demo.story import tell
    from attnknn.cli.waiting import patience

    check_free(out)
    started = time.perf_counter()
    click.secho("1. Four ways to classify, on the same rows", bold=True)
    with patience("Comparing on breast-cancer and digits"):
        tables = compare()
    for table in tables:
        click.echo("\n".join(["", *lines_of(table)]))
    with patience("Fitting digits with one wrong label"):
        story = tell(out)
    for chapter in story.chapters:
        click.secho(f"\n{chapter.title}", bold=True)
        click.echo(chapter.text)
    seconds = time.perf_counter() - started
    note = write_report(out, tables, story, seconds)
    click.secho(f"\nDone in {seconds:.0f} seconds. The report is {out / 'report.html'}", bold=True)
    if note:
        click.echo(note)
