"""What experiments of one file share: reports as JSON, left once; a run that fails in one line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from experiments.pages import replace_between

Report = dict[str, Any]


def carry_out(
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
    if options.command == "run" and not succeeded(lambda: run(options)):
        return 1
    reports = known_reports(options.folder)
    if options.command == "page":
        replace_between(*place, table(reports))
        return 0
    for found in [table(reports)] if bars is None else bars(reports):
        print(found)
    return 0


def known_reports(folder: Path) -> list[Report]:
    """The reports that runs left in a folder."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def leave_report(path: Path, make: Callable[[], Report]) -> None:
    """Make a report and write it to `path`, unless there is one already."""
    if path.exists():
        return
    print(path.stem, file=sys.stderr, flush=True)
    report = make()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1) + "\n")


def succeeded(run: Callable[[], None]) -> bool:
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
