"""What experiments of one file share: reports as JSON, left once; a run that fails in one line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from attnknn.research.evaluation.report import write_json
from experiments.pages import replace_between

Report = dict[str, Any]
REPORT = "reports.json"


def run_command(
    options: argparse.Namespace,
    run: Callable[[argparse.Namespace], None],
    place: tuple[Path, str],
    table: Callable[[list[Report]], str],
    bars: Callable[[list[Report]], Iterable[object]] | None = None,
) -> int:
    """Measure what is missing and tell what was found, or only tell, or write the page.

    Parameters
    ----------
    options : `command` ('run', 'bars' or 'page') and `folder`, beside those that `run` reads
    place : the page, and the name of the comments between which the table stands
    bars : what is told; by default the table
    """
    if options.command == "run" and not run_or_report_error(lambda: run(options)):
        return 1
    reports = read_reports(options.folder)
    if options.command == "page":
        replace_between(*place, table(reports))
        return 0
    for found in [table(reports)] if bars is None else bars(reports):
        print(found)
    return 0


def read_reports(folder: Path) -> list[Report]:
    """The reports that runs left in the file of a folder, by name."""
    path = folder / REPORT
    found = json.loads(path.read_text()) if path.exists() else {}
    return [found[name] for name in sorted(found)]


def add_report(folder: Path, name: str, make: Callable[[], Report]) -> None:
    """Make a report and add it to the file of `folder`, unless it is there already."""
    path = folder / REPORT
    found = json.loads(path.read_text()) if path.exists() else {}
    if name in found:
        return
    print(name, file=sys.stderr, flush=True)
    write_json(path, {**found, name: make()})


def run_or_report_error(run: Callable[[], None]) -> bool:
    """Whether a run ended well; what went wrong is told in one line."""
    from attnknn.errors import AttnKNNError

    try:
        run()
    except AttnKNNError as error:
        print(error, file=sys.stderr)
        return False
    return True


def markdown(head: list[str], lines: list[list[str]]) -> str:
    """A table; all columns but the first are numbers."""
    ruled = [head, ["---", *["--:"] * (len(head) - 1)], *lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in ruled)
