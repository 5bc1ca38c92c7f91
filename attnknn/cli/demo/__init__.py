"""`attnknn demo`: the whole library on data of scikit-learn, in under a minute."""

from __future__ import annotations

import time
from pathlib import Path

import click

from attnknn.cli.commands import command, option
from attnknn.cli.options import FILE
from attnknn.cli.output import echo, echo_block, progress


@command()
@option("-o", "--out", type=FILE, default=Path("attnknn-demo"), help="Folder for the report.")
@option("--force", is_flag=True, help="Replace the report of an earlier demo.")
@option("--serve", is_flag=True, help="At the end, show the model in the browser.")
@option("--port", type=click.IntRange(0, 65535), default=0, help="Port of --serve; 0 takes any.")
def demo(out: Path, force: bool, serve: bool, port: int) -> None:
    """Run a one-minute tour on built-in data.

    Compares classifiers, explains a prediction, finds and corrects a wrong label, forgets a row,
    saves and loads the model. Writes a report with figures; needs no data.
    """
    from attnknn.cli.demo.report import HEADING, check_free, write_report
    from attnknn.cli.demo.story import compare, lines_of, tell
    from attnknn.cli.serve import check_installed, run

    if serve:
        check_installed("--serve")
    check_free(out, force=force)
    started = time.perf_counter()
    echo_block(HEADING, bold=True)
    with progress("Comparing on breast-cancer and digits"):
        tables = compare()
    for table in tables:
        echo_block("\n".join(["", *lines_of(table)]))
    with progress("Fitting digits with one wrong label"):
        story = tell(out)
    for chapter in story.chapters:
        echo_block(f"\n{chapter.title}", bold=True)
        echo_block(chapter.text)
    seconds = time.perf_counter() - started
    note = write_report(out, tables, story, seconds)
    echo_block(f"\nDone in {seconds:.0f} seconds. The report is {out / 'report.html'}", bold=True)
    if note:
        echo(note)
    if serve:
        run(out / "model", port=port, opens=True)
    else:
        echo(f"To ask and edit its model in the browser: attnknn serve {out / 'model'}")
