"""`attnknn refit`: fit a stored model again on what it remembers now."""

from __future__ import annotations

from pathlib import Path

import click

from attnknn.cli.by import by_option

FILE = click.Path(path_type=Path)


@click.command()
@click.argument("model", type=FILE)
@by_option
def refit(model: Path, by: str | None) -> None:
    """Fit attention and calibration of MODEL again on what it remembers now.

    It pays after many edits: votes follow them at once, what was fitted does not. The encoder stays
    as it is, since the rows it was fitted on are not kept. `attnknn undo` takes it back.
    """
    from attnknn.cli.editing import edit, open_model
    from attnknn.cli.waiting import patience

    with open_model(model, by) as opened:
        n_entries = len(opened.classifier.memory_)
        with patience(f"Fitting {n_entries:,} entries"), edit(opened, "Refitted") as classifier:
            classifier.refit()
        click.echo(str(opened.classifier.fit_report_))
