"""What experiments of one file share: reports as JSON, left once; a run that fails in one line."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Report = dict[str, Any]


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
