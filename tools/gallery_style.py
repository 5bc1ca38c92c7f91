"""The look of figures in the gallery; `docs/conf.py` names `set_style`."""

from __future__ import annotations

from typing import Any

import matplotlib as mpl

STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "font.size": 10,
    "axes.titlesize": 10,
    "legend.frameon": False,
    "figure.dpi": 100,
    "lines.linewidth": 1.8,
}


def set_style(gallery_conf: dict[str, Any], fname: str) -> None:  # noqa: ARG001
    """Set matplotlib's settings before an example runs."""
    mpl.rcParams.update(STYLE)
