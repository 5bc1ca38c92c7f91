"""HTML for notebooks and axes for plots, shared by the records that show themselves.

Colors are inherited or semi-transparent, so that tables are readable on light and dark pages. All
text is escaped, and nothing is loaded or executed.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnknn._optional import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

THUMBNAIL_SIZE = 48  # pixels
MAX_TEXT, MAX_LINE = 200, 160  # characters of a payload: in HTML, in a line of text
IMAGE_SUFFIXES = {".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff"}
STYLE = """<style>
.attnknn {color: inherit; background: transparent; font-size: 0.9em; margin: 0.5em 0}
.attnknn table {border-collapse: collapse; color: inherit; background: transparent; margin: 0.4em 0}
.attnknn th, .attnknn td {border: 0; border-bottom: 1px solid rgba(128, 128, 128, 0.3);
  padding: 0.2em 0.7em; text-align: left; vertical-align: middle; color: inherit}
.attnknn td.number {text-align: right; font-variant-numeric: tabular-nums}
.attnknn .scale {display: inline-block; width: 8em; height: 0.7em; margin-right: 0.6em;
  background: rgba(128, 128, 128, 0.15)}
.attnknn .bar {display: block; height: 100%; background: rgba(47, 129, 247, 0.65)}
.attnknn .other {background: rgba(128, 128, 128, 0.55)}
.attnknn .note {opacity: 0.75}
.attnknn img {max-height: 48px; min-height: 32px; image-rendering: pixelated;
  vertical-align: middle; border: 1px solid rgba(128, 128, 128, 0.3)}
</style>"""


class Html(str):
    """Markup that is inserted as it is; all other text is escaped."""

    __slots__ = ()


def page(title: str, *parts: Html | str) -> str:
    """A block with a title and its parts one below the other, for `_repr_html_`.

    >>> page("a < b", "x").endswith("<strong>a &lt; b</strong><div>x</div></div>")
    True
    """
    body = "".join(f"<div>{_markup(part)}</div>" for part in parts if part)
    return f'<div class="attnknn">{STYLE}<strong>{escape(title)}</strong>{body}</div>'


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Html:
    """A table; floats are shown with three decimals. An empty header is left out."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    head = f"<thead><tr>{head}</tr></thead>" if header else ""
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return Html(f"<table>{head}<tbody>{body}</tbody></table>")


def bar(share: float, *, is_other: bool = False) -> Html:
    """A bar of this share of its width, from 0 to 1, with the number beside it.

    >>> "width: 25.0%" in bar(0.25)
    True
    """
    kind = "bar other" if is_other else "bar"
    width = 100 * min(max(float(share), 0.0), 1.0)
    filled = f'<span class="{kind}" style="width: {width:.1f}%"></span>'
    return Html(f'<span class="scale">{filled}</span>{share:.3f}')


def note(text: str) -> Html:
    """A remark in a fainter color."""
    return Html(f'<span class="note">{escape(text)}</span>')


def payload_html(payload: Any) -> Html:
    """A thumbnail where the payload is an image or the path of one, else its text."""
    try:
        image = _open_image(payload)
    except (ImportError, OSError, ValueError):  # Pillow is missing, or the file is no image
        image = None
    shown = escape(payload_text(payload, MAX_TEXT))
    if image is None:
        return Html(shown)
    image.thumbnail((THUMBNAIL_SIZE, THUMBNAIL_SIZE))
    stream = io.BytesIO()
    image.convert("RGB").save(stream, format="PNG")
    data = base64.b64encode(stream.getvalue()).decode()
    return Html(f'<img src="data:image/png;base64,{data}" alt="{shown}" title="{shown}">')


def payload_text(payload: Any, max_length: int = MAX_LINE) -> str:
    """A payload as a short text; arrays are named by their shape.

    >>> payload_text({"age": 39, "job": "cook"}), payload_text("abcdef", max_length=4)
    ('age=39, job=cook', 'abc…')
    """
    if isinstance(payload, np.ndarray):
        text = f"array of shape {payload.shape}"
    elif isinstance(payload, dict):
        text = ", ".join(f"{name}={value}" for name, value in payload.items())
    else:
        text = str(payload)
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def _open_image(payload: Any) -> Any:
    """A Pillow image of a payload that is one, or None."""
    is_pixels = isinstance(payload, np.ndarray) and payload.dtype == np.uint8 and payload.size > 0
    if is_pixels and (payload.ndim == 2 or (payload.ndim == 3 and payload.shape[2] == 3)):
        from PIL import Image

        return Image.fromarray(payload)
    if not isinstance(payload, str | Path) or Path(payload).suffix.lower() not in IMAGE_SUFFIXES:
        return None
    from PIL import Image

    with Image.open(payload) as image:
        image.load()
        return image.copy()


def _markup(value: Any) -> str:
    return value if isinstance(value, Html) else escape(str(value))


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f'<td class="number">{value:.3f}</td>'
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return f'<td class="number">{value:,}</td>'
    return f"<td>{_markup(value)}</td>"


def figure(width: float, height: float, needed_by: str) -> Any:
    """A figure of matplotlib without a window, in inches."""
    require("matplotlib", extra="plots", needed_by=needed_by)
    made = require("matplotlib.figure", extra="plots", needed_by=needed_by)
    return made.Figure(figsize=(width, height), layout="constrained")


def axes(ax: Axes | None, needed_by: str) -> Axes:
    """The axes to draw on: those given, or new ones of matplotlib."""
    pyplot = require("matplotlib.pyplot", extra="plots", needed_by=needed_by)
    return pyplot.subplots()[1] if ax is None else ax
