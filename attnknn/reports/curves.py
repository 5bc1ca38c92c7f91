"""The losses of trainings, epoch by epoch, as a section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attnknn.reports import figures
from attnknn.reports.page import Drawing, Section


def curve_section(
    losses: Mapping[str, Mapping[str, Sequence[float]]], title: str, name: str
) -> Section:
    """A figure of all trainings, by their names, and a sentence for each."""
    figure = figures.new_figure(6.4, 4.0)
    panel = figure.subplots()
    for place, (run, found) in enumerate(losses.items()):
        color = figures.COLORS[place % len(figures.COLORS)]
        for style, (rows, values) in zip(("-", ":"), found.items(), strict=False):
            epochs = range(1, len(values) + 1)
            panel.plot(epochs, values, style, color=color, label=f"{run}, {rows}")
    panel.set(xlabel="epoch", ylabel="loss", title=title)
    panel.set_ylim(bottom=0)
    if len(losses) <= 3:
        panel.legend(frameon=False, fontsize=8)
    words = [
        f"{run}: {', '.join(f'{rows} {values[-1]:.4f}' for rows, values in found.items())} after "
        f"{max(len(values) for values in found.values())} epochs."
        for run, found in losses.items()
    ]
    caption = "Losses by epoch; dotted lines are those of fresh rows."
    return Section(title, words, [], [Drawing(name, figures.plain(figure), caption)])
