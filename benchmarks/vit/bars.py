"""What is asked of nearest-neighbor attention, beside what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results" / "vit.json"


def say(
    report: dict[str, Any], what: str, value: float, bound: float, *, most: bool = False
) -> None:
    """Print a bar and keep it."""
    is_met = value <= bound if most else value >= bound
    sign = "≤" if most else "≥"
    print(f"  {'met    ' if is_met else 'NOT MET'}  {what}: {value:.2f} ({sign} {bound:g})")
    report["bars"].append(
        {"what": what, "measured": round(value, 3), "bound": bound, "is_met": is_met}
    )
